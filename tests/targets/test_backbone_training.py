"""A released backbone learns the same bytes in numpy and in C on the host, and goes on exactly where it stopped."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np
import pytest
from PIL import Image

import smidgen as sm
from smidgen.data import PixelEncoding, centre, pixel_encoding
from smidgen.ir import Array, evaluate_step, roles_of
from smidgen.pipeline import Program
from smidgen.targets.device import Device
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.release_files import SHARED

MODEL = SHARED / "models" / "mcunet-5fps.npz"
FLOWERS = SHARED / "data" / "flowers102.zip"
CLASSES, STEPS, RATE = 10, 200, 0.002
COMPARED = 20  # steps between comparisons of the whole state
STOPPED = 100  # the step after which a run is broken off

Sample = tuple[Array, int]


def photographs(taken: PixelEncoding) -> list[Sample]:
    """One for each step, of the first classes, in mixed order."""
    with zipfile.ZipFile(FLOWERS) as archive:
        names = [f"train/{label:03}/" for label in range(CLASSES)]
        found = [
            (name, label) for label, start in enumerate(names) for name in archive.namelist() if name.startswith(start)
        ]
        order = np.random.default_rng(0).permutation(len(found))[:STEPS]
        images = [(Image.open(io.BytesIO(archive.read(found[i][0]))).convert("RGB"), found[i][1]) for i in order]
    return [(centre(np.asarray(image), taken), label) for image, label in images]


@pytest.fixture(scope="module")
def task(host: Host) -> tuple[Program, list[Sample]]:
    """The program that learns and what it learns from."""
    for path in (MODEL, FLOWERS):
        if not path.exists():
            pytest.skip(f"the released networks and photographs are not beside the checkout: no {path.name}")
    graph = sm.import_model(MODEL)
    samples = photographs(pixel_encoding(graph))
    assert len(samples) == STEPS
    options = Options(CLASSES, weight_bits=12)
    images = tuple(image for image, _ in samples[:8])
    return sm.compile(graph, "49kb", host, options=options, images=images), samples


def train(device: Device, samples: list[Sample]) -> None:
    for image, label in samples:
        device.train(image, label, RATE)


def differing(a: Mapping[str, Array], b: Mapping[str, Array]) -> list[str]:
    """The names of what two states do not hold alike, byte for byte."""
    assert a.keys() == b.keys()
    return [name for name in a if a[name].tobytes() != b[name].tobytes()]


@pytest.mark.slow
def test_numpy_and_host_c_learn_the_same_bytes(task: tuple[Program, list[Sample]]) -> None:
    program, samples = task
    graph, state = program.graph, program.graph.state
    losses = []
    with program.start() as device:
        first = device.state()
        for step, (image, label) in enumerate(samples, start=1):
            arrays = (image, np.array([label], np.int32), np.array([RATE], np.float32))
            (loss, logits), state = evaluate_step(graph, state, *arrays)
            assert device.train(image, label, RATE) == loss[0], f"the losses of step {step} differ"
            assert device.outputs()[1].tobytes() == logits.tobytes(), f"the logits of step {step} differ"
            if step % COMPARED == 0:
                expected = {v.name: data for v, data in state.items()}
                assert differing(device.state(), expected) == [], f"after step {step}"
            losses.append(float(loss[0]))
        assert differing(device.state(), first) == list(first)
    assert {roles_of(graph).step_state.name, "head.w", "head.b"} < set(first)
    assert np.mean(losses[-50:]) < 0.9 * np.mean(losses[:50])


@pytest.mark.slow
def test_going_on_after_a_stop_equals_never_having_stopped(task: tuple[Program, list[Sample]]) -> None:
    program, samples = task
    with program.start() as device:
        train(device, samples[:STOPPED])
        stopped = device.state()
        train(device, samples[STOPPED:])
        whole, outputs = device.state(), device.outputs()
    with program.start() as fresh:
        assert differing(fresh.state(), stopped)
        fresh.restore(stopped)
        train(fresh, samples[STOPPED:])
        assert differing(fresh.state(), whole) == []
        assert [a.tobytes() for a in fresh.outputs()] == [a.tobytes() for a in outputs]
