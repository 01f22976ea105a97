"""Every architecture, trained on the images that come along, decides in int8 as it does in float.

1,000 images teach the deeper ones two classes, animals and vehicles, where others learn all ten; 500 more are decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from experiments.agreement import Course, measure
from experiments.tasks import NETWORKS, task_of
from smidgen.data import Data
from smidgen.data.layouts.cifar import read_sample

AGREEMENT = 95  # percent
TESTED = 500  # images
LOSS = 3  # percent of the images at most that int8 gets wrong and float does not, less those the other way around
COPIED = 0.6  # of the pictures' variance is the most an autoencoder may miss; 1 is a picture of their mean


@dataclass(frozen=True)
class Lesson:
    """So many epochs at a width, on two classes or ten, and how many percent are right at least once it is learned."""

    epochs: int
    width: float
    coarse: bool = True

    @property
    def least(self) -> int:
        return 70 if self.coarse else 25  # the most frequent class is 60 or 10


LESSONS = {
    "mobilenet-v1": Lesson(9, 0.25),
    "mobilenet-v2": Lesson(10, 0.35),
    "mobilenet-v3-small": Lesson(5, 0.5),
    "efficientnet-lite0": Lesson(5, 0.25),
    "mcunet": Lesson(3, 0.5),
    "proxylessnas": Lesson(3, 0.1),
    "resnet8": Lesson(10, 0.5, coarse=False),
    "resnet18": Lesson(6, 0.125),
    "ds-cnn": Lesson(8, 0.5),
    "autoencoder": Lesson(40, 1.0, coarse=False),  # which finds 80 percent odd, or 20 where it learned nothing
    "signal-net": Lesson(30, 1.0, coarse=False),
    "squeezenet": Lesson(8, 0.25),
}


@pytest.fixture(scope="module")
def data() -> Data:
    return read_sample()


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """The same sums in the same order, whatever the machine's cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_trained_network_decides_as_in_float_on_19_of_20_images(name: str, data: Data) -> None:
    lesson = LESSONS[name]
    outcome = measure(name, data, Course(lesson.epochs), task_of(name, lesson.coarse), TESTED, lesson.width)
    assert outcome.float_right > lesson.least
    assert outcome.agreement >= AGREEMENT
    assert abs(outcome.int8_right - outcome.float_right) < LOSS
    if outcome.float_error is not None:
        assert outcome.int8_error is not None
        assert outcome.int8_error / outcome.float_error == pytest.approx(1, abs=0.02)
        assert outcome.float_error < COPIED
