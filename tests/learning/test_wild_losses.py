"""Networks that others made learn something new by losses besides softmax: on the host what the docs say, on a board
the same bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from experiments.losses import TASKS, LossTask, run
from smidgen.data import as_input, pixel_encoding
from smidgen.ir import roles_of
from smidgen.learning.testing import label_of
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from tests.support.loss_tasks import compare
from tests.support.release_files import SHARED

FILES = {
    "anomaly": ("models/wild/mlperf-ad01-int8.tflite",),
    "size": ("models/mlperf-tiny/vww_96_int8.tflite", "data/vww.zip"),
    "discs": ("models/wild/openmv-fomo_face_detection.tflite",),
}
tasks = pytest.mark.parametrize("name", TASKS)


@cache
def task_of(name: str) -> LossTask:
    for file in FILES[name]:
        if not (SHARED / file).exists():
            pytest.skip(f"what others made is not beside the checkout: no {file}")
    return TASKS[name](SHARED / "models", SHARED / "data")


@pytest.mark.slow
@tasks
def test_a_board_takes_the_same_steps_as_the_host(name: str, host: Host, cache: Path) -> None:
    assert run(name, task_of(name), 12, host, BoardTarget(cache=cache)).same


@tasks
def test_the_host_takes_the_same_steps_as_numpy(name: str, host: Host) -> None:
    task = task_of(name)
    program, train = task.compile(host), task.data.train
    roles, encoding = roles_of(program.graph), pixel_encoding(program.graph)
    steps = [(as_input(train.images[i], encoding), label_of(roles, train, i)) for i in range(3)]
    with program.start() as device:
        compare(program, device, steps, task.rate)


def test_an_autoencoder_learns_the_sound_of_a_machine_and_tells_a_worn_one(host: Host) -> None:
    found = run("anomaly", task_of("anomaly"), host=host)
    assert found.before.error is not None
    assert found.after.error is not None
    assert found.after.error < 0.1 * found.before.error
    assert found.stands_out is not None
    assert found.stands_out[1] > max(found.stands_out[0], 0.95)


def test_a_person_detector_learns_a_regression(host: Host) -> None:
    found = run("size", task_of("size"), host=host)
    assert found.after.error is not None
    assert found.after.error < 0.5 * found.guessing  # half of what the mean of all targets would give


def test_a_finder_of_faces_learns_to_find_discs(host: Host) -> None:
    found = run("discs", task_of("discs"), host=host)
    assert found.before.error is not None
    assert found.after.error is not None
    assert found.after.error < 0.2 * found.before.error
    assert found.before.accuracy is not None
    assert found.after.accuracy is not None
    assert 1 - found.after.accuracy < 0.5 * (1 - found.before.accuracy)
