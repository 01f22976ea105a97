"""The page's worker in Node, on its own WebAssembly: the bytes that this machine's C learns, in both builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smidgen.data import as_input, pixel_encoding
from smidgen.frontends.native import read_smg
from smidgen.frontends.tflite import write_tflite
from smidgen.ir import Array, Graph
from smidgen.learning.models import learned_graph
from smidgen.memory import state_bytes
from smidgen.pipeline import compile
from smidgen.targets.device import Device, state_block
from smidgen.zoo import load
from tests.support.node import coded, decoded, needs_node, run_script
from tests.support.play_pages import Page, page_of
from tests.support.shapes import SHAPES, draw_shape
from tests.support.small_network import small_network
from tests.support.tiers import first

pytestmark = needs_node
EXAMPLES = Path(__file__).parents[2] / "examples"
RATE = 0.01
SCRIPT = """
if (!given.vectors) WebAssembly.validate = () => false;
const made = await engine.Engine.start(bytes(given.program), given.facts), desk = new worker.Desk(made);
const state = () => text(desk.state().state), found = { vectors: made.vectors, begun: state() };
const sample = (one) => {
  if (one.data) return { rgb: { ...one, data: bytes(one.data) } };
  if (one.sound) return { sound: new Int16Array(bytes(one.sound).buffer) };
  return { table: new Float32Array(bytes(one.table).buffer) };
};
given.samples.forEach((one, id) => desk.keep({ sample: sample(one), id, label: one.label, held: one.held }));
await desk.solve({}, () => {});
found.solved = state();
found.solvedFile = text(desk.model());
const seen = given.samples.map((one) => desk.see({ sample: sample(one) }));
found.seen = seen.map(({ best, distance, probabilities }) => [best, distance, probabilities]);
desk.drop({ id: 1 });
await desk.solve({}, () => {});
found.dropped = state();
const before = desk.state().state, places = desk.places.slice();
found.order = [1, 2].flatMap((turn) => worker.shuffled(desk.learnt, turn)).map((place) => place.id);
const losses = [];
await desk.steps({ rounds: 2, rate: given.rate }, (done, of, loss) => losses.push(done, of));
found.progress = losses.slice(-2);
found.stepped = state();
found.steppedFile = text(desk.model());
found.moved = desk.state().moved.map(({ tensor, changed }) => [tensor.name, changed]);
found.tested = [await desk.test({ held: true }), await desk.test({ held: false })].map(({ right, of }) => [right, of]);
desk.restore({ state: before, places });
found.undone = state();
await desk.steps({ rounds: 1, rate: given.rate }, () => {});
await desk.solve({}, () => {});
found.again = state();
tell(found);
"""


def pictures() -> list[Array]:
    rng = np.random.default_rng(1)
    return [draw_shape(SHAPES[i % 3], rng) for i in range(11)]


def sounds() -> list[Array]:
    rng = np.random.default_rng(2)
    time = np.arange(16_000) / 16_000
    tones = (
        np.sin(2 * np.pi * 300 * (1 + i // 2 % 3) * time) * 9000 + rng.normal(0, 500, time.size) for i in range(11)
    )
    return [tone.astype(np.int16) for tone in tones]


def tables() -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(0.3 * (i % 3), 0.4, (64, 3)).astype(np.float32) for i in range(11)]


def given(samples: list[Array]) -> list[dict[str, Any]]:
    """Samples as the worker takes them; the last two are held back."""
    found: list[dict[str, Any]] = []
    for i, one in enumerate(samples):
        about: dict[str, Any] = {"label": i % 3, "held": i >= len(samples) - 2}
        if one.dtype == np.uint8:
            about |= {"data": coded(one.tobytes()), "width": one.shape[1], "height": one.shape[0], "channels": 3}
        else:
            about["sound" if one.dtype == np.int16 else "table"] = coded(one.tobytes())
        found.append(about)
    return found


def block(device: Device) -> bytes:
    return state_block(device.graph, device.state())


def same_state(device: Device, found: str) -> bool:
    """Whether both are the same, where one pass and steps share memory but for what neither reads."""
    return block(device) == decoded(found)


def learned_file(page: Page, device: Device) -> bytes:
    """The .tflite file that Python writes of what a device learned."""
    training = compile(page.graph, page.asked.scheme, options=page.asked.options, one_pass=True).training
    assert training is not None
    first = {v.name: array for v, array in device.graph.state.items()}
    return write_tflite(learned_graph(training, {**first, **device.state()}))


def check_learns(page: Page, samples: list[Array], vectors: bool) -> None:
    """Compare what the worker learns, looks at and undoes with what a device of this machine does."""
    asked = {"program": page.program, "facts": page.facts, "samples": given(samples), "rate": RATE, "vectors": vectors}
    found = run_script(SCRIPT, asked, "engine", "worker")
    assert found["vectors"] == vectors
    inputs = [as_input(one, pixel_encoding(page.graph)) for one in samples]
    learned = range(len(samples) - 2)
    with page.device() as device:
        assert len(decoded(found["begun"])) == state_bytes(device.graph)
        assert same_state(device, found["begun"])
        for i in learned:
            device.observe(inputs[i], i % 3)
        device.solve()
        assert same_state(device, found["solved"])
        assert decoded(found["solvedFile"]) == learned_file(page, device)
        for (best, distance, probabilities), one in zip(found["seen"], inputs, strict=True):
            assert device.predict(one) == best == int(np.argmax(probabilities))
            assert device.distance() == np.float32(distance)
            assert abs(sum(probabilities) - 1) < 1e-9
        device.forget(inputs[1], 1)
        device.solve()
        assert same_state(device, found["dropped"])
        before = device.state()
        assert sorted(found["order"]) == sorted(2 * [i for i in learned if i != 1])
        for i in found["order"]:
            device.train(inputs[i], i % 3, RATE)
        assert same_state(device, found["stepped"])
        assert decoded(found["steppedFile"]) == learned_file(page, device)
        assert found["progress"] == [len(found["order"])] * 2
        assert found["tested"][0][0] == sum(
            device.predict(inputs[i]) == i % 3 for i in (len(samples) - 2, len(samples) - 1)
        )
        changed = dict(found["moved"])
        assert set(changed) <= set(device.state())
        assert any(changed.values())
        device.restore(before)
        assert same_state(device, found["undone"])
        assert found["again"] == found["dropped"], "one pass after steps is what it was before them"


@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "portable"])
def test_what_the_page_learns_of_pictures_is_what_c_learns_to_the_byte(vectors: bool) -> None:
    check_learns(page_of(small_network()), pictures(), vectors)


def network(name: str) -> Graph:
    return read_smg(EXAMPLES / name / "model.smg")


@pytest.mark.parametrize(("name", "samples"), [("spoken_words", sounds), ("gesture", tables)])
def test_what_it_learns_of_sound_and_of_motion_is_that_too(name: str, samples: Any) -> None:
    check_learns(page_of(network(name)), samples(), vectors=True)


@pytest.mark.slow
def test_mcunet_learns_the_same_bytes_in_the_page() -> None:
    check_learns(page_of(load("mcunet-5fps"), None, 8), pictures(), vectors=True)


@pytest.mark.parametrize("kind", first("wrong table", "sound for pictures"))
def test_what_is_no_sample_for_the_model_is_refused_in_a_sentence(kind: str) -> None:
    page = page_of(network("gesture")) if kind == "wrong table" else page_of(small_network())
    script = """
    const made = await engine.Engine.start(bytes(given.program), given.facts), desk = new worker.Desk(made);
    try { desk.see({ sample: given.sample }); tell("taken"); } catch (error) { tell(error.message); }
    """
    sample = {"table": [1, 2, 3]} if kind == "wrong table" else {"sound": [1, 2, 3]}
    said = run_script(script, {"program": page.program, "facts": page.facts, "sample": sample}, "engine", "worker")
    assert ("has 3 numbers, the model takes 192" if kind == "wrong table" else "takes pictures") in said
