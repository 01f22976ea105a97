"""Learning learns, stops and goes on exactly, keeps its checkpoints, and gives an ordinary model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.numpy import load, save

from smidgen.data import Augment, Data, Samples, centre, examples, pixel_encoding
from smidgen.errors import InputError, SmidgenError
from smidgen.frontends.native import read_smg, write_smg
from smidgen.frontends.tflite import write_tflite
from smidgen.ir import Graph, evaluate
from smidgen.learning import (
    CheckpointError,
    Course,
    Learned,
    LearningError,
    LearningProgress,
    learn,
    learned_graph,
    read_checkpoint,
    top1,
)
from smidgen.learning.checkpoint import HEADER
from smidgen.ops import Dense
from smidgen.ops.rules import Momentum, Sgd
from smidgen.ops.state import Overlay
from smidgen.pipeline import Program, compile
from smidgen.targets.host import Host, HostDevice
from smidgen.training import HeadDtype, Options
from smidgen.training.scheme import Scheme, load_scheme
from tests.support.litert import LiteRT
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

COURSE = Course(2, 0.01)
DATA = draw_shapes(8, 3)


def program(host: Host, scheme: str | Scheme = "last:4", options: Options | None = None, data: Data = DATA) -> Program:
    graph = small_network()
    images = examples(data.train, pixel_encoding(graph))
    return compile(graph, scheme, host, options=options or Options(4), images=images)


def same(a: Learned, b: Learned) -> bool:
    states = a.state.keys() == b.state.keys() and all(np.array_equal(a.state[k], b.state[k]) for k in a.state)
    return states and (a.before, a.record, a.warnings, a.model) == (b.before, b.record, b.warnings, b.model)


def test_shapes_are_learned(host: Host) -> None:
    data = draw_shapes(40, 20)
    learned = learn(program(host, "last:5", data=data), data, Course(8, 0.05, augment=None))
    assert learned.before < 0.5
    assert learned.accuracy > 0.75
    assert learned.record[-1].loss < 0.4 * learned.record[0].loss
    assert learned.warnings == ()
    assert f"{learned.accuracy:.2%} after 8 epochs" in str(learned)


def test_a_run_is_fixed_by_its_seed(host: Host) -> None:
    first, again = (learn(program(host), DATA, COURSE) for _ in range(2))
    assert same(first, again)
    other = learn(program(host), DATA, replace(COURSE, seed=1))
    assert other.record != first.record


@pytest.mark.parametrize(
    "options",
    [Options(4), Options(4, 8, rule=Momentum(0.9)), Options(4, 10, rule=Sgd(accumulate=5), head_dtype="int8")],
    ids=["12", "8", "10"],
)
def test_going_on_from_any_checkpoint_equals_never_having_stopped(host: Host, tmp_path: Path, options: Options) -> None:
    path, built = tmp_path / "run.ckpt", program(host, options=options)
    kept: list[bytes] = []

    def keep(heard: LearningProgress) -> None:
        if path.exists() and path.read_bytes() not in kept:
            kept.append(path.read_bytes())

    whole = learn(built, DATA, COURSE, checkpoint=path, on_progress=keep, save_steps=12)
    kept.append(path.read_bytes())
    assert len(kept) == 6
    for data in kept:
        path.write_bytes(data)
        again = learn(built, DATA, COURSE, checkpoint=path, resume=path, save_steps=12)
        assert same(again, whole)
        assert path.read_bytes() == kept[-1]


def test_a_run_broken_off_goes_on_from_its_last_checkpoint(host: Host, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(heard: LearningProgress) -> None:
        if heard.doing == "learning" and (heard.epoch, heard.done) == (2, 17):
            raise Stopped

    path = tmp_path / "run.ckpt"
    with pytest.raises(Stopped):
        learn(program(host), DATA, COURSE, checkpoint=path, on_progress=stop, save_steps=10)
    assert (read_checkpoint(path).position.epoch, read_checkpoint(path).position.step) == (1, 10)
    assert same(learn(program(host), DATA, COURSE, resume=path), learn(program(host), DATA, COURSE))


def test_progress_counts_every_step_and_test(host: Host) -> None:
    heard: list[LearningProgress] = []
    learned = learn(program(host), DATA, COURSE, on_progress=heard.append)
    steps, tests = len(DATA.train), len(DATA.test)
    assert [p.done for p in heard if p.epoch == 1] == [*range(1, steps + 1), *range(1, tests + 1)]
    assert [p.done for p in heard if p.epoch == 0] == [*range(1, tests + 1)]
    assert {p.last for p in heard} == {None, learned.record[0]}
    assert [p.loss for p in heard if (p.epoch, p.done, p.doing) == (2, steps, "learning")] == [learned.record[1].loss]


def test_tests_are_made_as_often_as_asked_and_always_at_the_end(host: Host) -> None:
    course = Course(5, 0.01, test_every=2)
    learned = learn(program(host), DATA, course)
    assert [epoch.accuracy is None for epoch in learned.record] == [True, False, True, False, False]
    often = learn(program(host), DATA, replace(course, test_every=1))
    assert (often.accuracy, often.record[1]) == (learned.accuracy, learned.record[1])
    assert "epoch 1    loss" in str(learned)


def test_schedules_rise_and_fall() -> None:
    cosine = Course(4, 0.5, warmup=1)
    rates = [cosine.rate(epoch, step, 10) for epoch in range(4) for step in range(10)]
    assert rates[:10] == pytest.approx([0.05 * i for i in range(1, 11)])
    assert max(rates) == rates[9] == rates[10] == 0.5
    assert rates[25] == pytest.approx(0.25)
    assert all(a > b > 0 for a, b in pairwise(rates[10:]))
    constant = Course(4, 0.1 / 256, "constant")
    assert {constant.rate(epoch, step, 10) for epoch in range(4) for step in range(10)} == {0.1 / 256}


def test_every_epoch_shows_all_images_in_an_order_and_with_crops_of_its_own() -> None:
    orders = [COURSE.order(epoch, 50) for epoch in range(2)]
    assert [sorted(order) for order in orders] == [list(range(50))] * 2
    assert orders[0] != orders[1]
    taken = pixel_encoding(small_network())
    crops = {COURSE.image(DATA.train.images[0], taken, epoch, i).tobytes() for epoch in range(2) for i in range(2)}
    assert len(crops) == 4
    plain = replace(COURSE, augment=None)
    assert np.array_equal(plain.image(DATA.train.images[0], taken, 1, 2), centre(DATA.train.images[0], taken))


@pytest.mark.parametrize(
    ("course", "message"),
    [
        (replace(COURSE, epochs=0), "0 epochs"),
        (replace(COURSE, learning_rate=-1.0), "rate of -1.0"),
        (replace(COURSE, learning_rate=math.nan), "rate of nan"),
        (replace(COURSE, learning_rate=math.inf), "rate of inf"),
        (replace(COURSE, learning_rate=1e38), "rate of 1e\\+38 cannot be used; give a number from 0 to 1,073,741,824"),
        (replace(COURSE, schedule="steps"), "no schedule 'steps'; known are cosine, constant"),  # type: ignore[arg-type]
        (replace(COURSE, warmup=3.0), "warm-up of 3.0 epochs does not fit 2"),
        (replace(COURSE, seed=-1), "seed of -1"),
        (replace(COURSE, test_every=0), "a test every 0 epochs"),
        (replace(COURSE, augment=Augment(scale=(0.0, 1.0))), "crop of 0.0"),
    ],
)
def test_courses_that_cannot_be_run_are_refused(host: Host, course: Course, message: str) -> None:
    with pytest.raises(InputError, match=message):
        learn(program(host), DATA, course)


def test_programs_and_labels_that_do_not_fit_are_refused(host: Host) -> None:
    with pytest.raises(InputError, match="compiled without a scheme"):
        learn(compile(small_network(), target=host), DATA, COURSE)
    with pytest.raises(InputError, match=r"label 3 \('square'\), the program learns the 3 classes 0 to 2; compile"):
        learn(program(host, options=Options(3)), DATA, COURSE)


def test_a_learning_rate_at_which_updates_saturate_or_the_loss_grows_is_said(host: Host) -> None:
    saturated, diverged = learn(program(host), DATA, Course(1, 30.0, "constant")).warnings
    assert "are at their limits of ±127" in saturated
    assert "that of guessing among 4 classes 1.386: learning diverges at a rate of 30; lower it" in diverged


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.ckpt"
    learn(program(host), DATA, COURSE, checkpoint=path)
    before = path.read_bytes()
    message = r"at step \d+ of epoch 1: a learning rate of 1000 is too large; lower it; .*run\.ckpt stays as it was"
    monkeypatch.setattr(HostDevice, "train", lambda *_: math.nan)  # as other firmware may answer
    with pytest.raises(LearningError, match=message):
        learn(program(host), DATA, Course(1, 1000.0), checkpoint=path)
    assert path.read_bytes() == before


def damaged_checkpoints(data: bytes) -> list[tuple[bytes, str]]:
    size = int.from_bytes(data[:8], "little")
    text = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][HEADER])
    state = load(data)

    def described(**changed: object) -> bytes:
        return save(state, {HEADER: json.dumps(text | changed)})

    flipped = bytearray(data)
    flipped[-3] ^= 1
    newer = text["run"].replace('"format": 1', '"format": 2')
    return [
        (data[:-1], "cut short or damaged"),
        (data[: len(data) // 2], "cut short or damaged"),
        (b"", "cut short or damaged"),
        (bytes(flipped), "its bytes are not those that were written"),
        (save(state), "not a Smidgen checkpoint"),
        (save(state | {"half": np.zeros(2, np.float16)}, {HEADER: "{}"}), "'half' of a type that state never has"),
        (save(state, {HEADER: "not JSON"}), "damaged: it is not whole JSON"),
        (described(run="{}"), "damaged: it has no 'format'"),
        (described(run=newer), "has format 2, this Smidgen reads 1"),
        (described(run=text["run"].replace('"epoch": 2', '"epoch": 1')), "not those that were written"),
    ]


def test_damaged_checkpoints_are_refused_in_one_sentence(host: Host, tmp_path: Path) -> None:
    path, out = tmp_path / "run.ckpt", tmp_path / "out.ckpt"
    learn(program(host), DATA, COURSE, checkpoint=path)
    for data, message in damaged_checkpoints(path.read_bytes()):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=message) as raised:
            learn(program(host), DATA, COURSE, resume=path, checkpoint=out)
        assert "\n" not in str(raised.value)
        assert not out.exists()
        assert path.read_bytes() == data
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        read_checkpoint(tmp_path / "absent.ckpt")


def test_checkpoints_of_something_else_are_refused(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    learn(program(host), DATA, COURSE, checkpoint=path)
    before = path.read_bytes()
    flipped = Data("shapes", DATA.classes, DATA.train, Samples(DATA.test.images[::-1], DATA.test.labels[::-1]))
    cases: tuple[tuple[Program, Data, Course, str], ...] = (
        (program(host, "last:3"), DATA, COURSE, "another program"),
        (program(host, options=Options(4, seed=1)), DATA, COURSE, "another program"),
        (program(host), flipped, COURSE, "other images"),
        (program(host), DATA, replace(COURSE, epochs=1), "in epoch 2 of its run, which cannot end after 1; ask for 2"),
        (program(host), DATA, replace(COURSE, warmup=1.0), "a run with warmup 0.0, this one has 1.0; give the same"),
        (program(host), DATA, replace(COURSE, augment=None), "a run with augment"),
    )
    for built, data, course, message in cases:
        with pytest.raises(CheckpointError, match=message):
            learn(built, data, course, resume=path, checkpoint=path)
        assert path.read_bytes() == before


def partial(graph: Graph) -> Scheme:
    """The last two layers' weights, of the first half of the input channels."""
    text = json.dumps({"name": "half", "biases": 4, "weights": {"6": "1/2", "7": "1/4"}, "channels": "largest"})
    return Scheme.from_json(text)


@pytest.mark.parametrize("head", get_args(HeadDtype))
@pytest.mark.parametrize("scheme", ["head", "full", "half"])
def test_the_learned_graph_is_an_ordinary_model_that_predicts_alike(
    host: Host, tmp_path: Path, scheme: str, head: HeadDtype
) -> None:
    graph = small_network()
    chosen = partial(graph) if scheme == "half" else load_scheme(scheme, graph)
    built = program(host, chosen, Options(4, head_dtype=head))
    learned = learn(built, DATA, COURSE)
    model = learned.model
    assert not model.state
    assert not model.updates
    assert not any(isinstance(node.op, Overlay) for node in model.nodes)
    write_smg(model, tmp_path / "m.smg")
    assert read_smg(tmp_path / "m.smg") == model
    oracle = LiteRT(write_tflite(model))
    with built.start() as device, compile(model, target=host).start() as inference:
        device.restore(learned.state)
        assert top1(inference, DATA.test) == top1(device, DATA.test) == learned.accuracy
        for pixels in DATA.test.images:
            image = centre(pixels, pixel_encoding(model))
            device.predict(image)
            (logits,) = evaluate(model, image)
            assert np.array_equal(logits, device.outputs()[1])
            assert np.array_equal(logits, inference.run(image)[0])
            np.testing.assert_allclose(oracle.run(image)[0], logits, rtol=1e-4, atol=1e-4)


def test_what_the_learned_head_reads_is_exact_in_litert(host: Host) -> None:
    model = learn(program(host), DATA, COURSE).model
    (dense,) = [node for node in model.nodes if isinstance(node.op, Dense)]
    features = replace(model, outputs=(dense.ins[0],), nodes=model.nodes[:-1], constants=dict(model.constants))
    oracle = LiteRT(write_tflite(features))
    for pixels in DATA.test.images:
        image = centre(pixels, pixel_encoding(model))
        assert np.array_equal(oracle.run(image)[0], evaluate(features, image)[0])


@pytest.mark.parametrize(("first", "second"), [("float32", "int8"), ("int8", "float32"), ("float32", "float32")])
def test_a_learned_model_can_learn_again(host: Host, first: HeadDtype, second: HeadDtype) -> None:
    model = learn(program(host, options=Options(4, head_dtype=first)), DATA, COURSE).model
    again = compile(model, "last:2", host, options=Options(5, head_dtype=second))
    assert learn(again, DATA, COURSE).model.outputs[0].type.shape == (1, 5)


def test_a_state_of_another_program_makes_no_graph(host: Host) -> None:
    built = program(host)
    assert built.training is not None
    state = {v.name: data for v, data in built.graph.state.items()}
    with pytest.raises(SmidgenError, match="another program"):
        learned_graph(built.training, {**state, "head.w": np.zeros((3, 24), np.float32)})
    del state["head.b"]
    with pytest.raises(SmidgenError, match="holds nothing"):
        learned_graph(built.training, state)
