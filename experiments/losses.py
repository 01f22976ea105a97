"""Networks that others made, each with something new to learn by a loss besides softmax, on the host and on a board.

- `anomaly`: MLPerf Tiny's autoencoder learns to reconstruct the sound of a machine it never heard; the same machine,
  worn, is what should stand out. The sounds are made here: harmonics, noise, and for wear a rattle.
- `size`: MLPerf Tiny's person detector learns a regression: how much of a photograph an orange disc covers.
- `discs`: OpenMV's FOMO, which finds faces cell by cell, learns to find orange discs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import smidgen as sm
from smidgen.data import Data, Samples, as_input, examples, pixel_encoding
from smidgen.ir import Array, Graph, roles_of
from smidgen.learning import Tested, measure
from smidgen.learning.testing import guess, label_of
from smidgen.pipeline import Program
from smidgen.targets.device import Device, Target

RATE_HZ, WINDOW, HOP, BANDS, FRAMES = 16_000, 1024, 512, 128, 5
ORANGE = (235, 120, 20)
SIDE, CELLS = 96, 12  # of a picture, and of FOMO's map


@dataclass(frozen=True, eq=False)
class LossTask:
    """A network, how it learns, and from what."""

    model: Graph
    options: sm.Options
    scheme: str
    rate: float
    steps: int
    data: Data
    odd: Samples | None = None  # what should stand out

    def compile(self, target: str | Target) -> Program:
        images = examples(self.data.train, pixel_encoding(self.model))
        return sm.compile(self.model, self.scheme, target, options=self.options, images=images)


def anomaly(models: Path, _: Path) -> LossTask:
    model = sm.load(str(models / "wild" / "mlperf-ad01-int8.tflite"))
    rng = np.random.default_rng(0)
    usual = [_sound(rng, worn=False) for _ in range(12)]
    worn = [_sound(rng, worn=True) for _ in range(4)]
    train, test, odd = (_samples(_windows(waves)) for waves in (usual[:8], usual[8:], worn))
    options = sm.Options(loss="reconstruction", head_dtype="int8")
    return LossTask(model, options, "last:3", 0.05, 64, Data("a machine", (), train, test), odd)


def size(models: Path, data: Path) -> LossTask:
    model = sm.load(str(models / "mlperf-tiny" / "vww_96_int8.tflite"))
    photographs = sm.load_data(str(data / "vww.zip"))
    rng = np.random.default_rng(2)
    train, test = (_covered(part.spread(192), rng) for part in (photographs.train, photographs.test))
    return LossTask(
        model, sm.Options(1, loss="mse"), "bias:27", 0.15, 192, Data("discs on photographs", (), train, test)
    )


def discs(models: Path, _: Path) -> LossTask:
    model = sm.load(str(models / "wild" / "openmv-fomo_face_detection.tflite"))
    rng = np.random.default_rng(1)
    drawn = [_with_discs(rng) for _ in range(96)]
    every = Samples(tuple(picture for picture, _ in drawn), (0,) * 96, tuple(cells for _, cells in drawn))
    data = Data("orange discs", (), every.at(range(64)), every.at(range(64, 96)))
    return LossTask(model, sm.Options(loss="cells"), "last:3", 0.1, 64, data)


TASKS: Mapping[str, Callable[[Path, Path], LossTask]] = {"anomaly": anomaly, "size": size, "discs": discs}


@dataclass(frozen=True)
class LossOutcome:
    """Tests before and after some steps, what should stand out, and whether host and board hold the same bytes."""

    task: str
    loss: str
    steps: int
    sram: int  # bytes of arena and state
    guessing: float  # the loss of guessing, or of giving the mean of all targets
    before: Tested
    after: Tested
    stands_out: tuple[float, float] | None  # the chance that what is odd has the higher error, before and after
    same: bool | None  # None where no board was asked


def run(
    name: str, task: LossTask, steps: int | None = None, host: str | Target = "host", board: str | Target | None = None
) -> LossOutcome:
    """Learn on the host, and the same on a board where one is given; by default as many steps as the task takes."""
    steps, program = steps or task.steps, task.compile(host)
    with program.start() as device:
        before, odd_before = measure(device, task.data.test), _stands_out(task, device)
        losses = take_steps(task, device, steps)
        after, odd_after = measure(device, task.data.test), _stands_out(task, device)
        state = device.state()
        odd = None if odd_before is None or odd_after is None else (odd_before, odd_after)
    same, sram = None, program.memory.peak + program.memory.state
    if board is not None:
        there = task.compile(board)
        sram = there.memory.peak + there.memory.state
        with there.start() as device:
            same = take_steps(task, device, steps) == losses
            found = device.state()
        same = same and all(array.tobytes() == found[key].tobytes() for key, array in state.items())
    guessing = guess(program.graph, task.data.train).loss
    return LossOutcome(name, task.options.loss, steps, sram, guessing, before, after, odd, same)


def take_steps(task: LossTask, device: Device, steps: int) -> list[float]:
    """Losses of so many steps through the training samples."""
    roles, encoding, train = roles_of(device.graph), pixel_encoding(device.graph), task.data.train
    order = [step % len(train) for step in range(steps)]
    shown = ((as_input(train.images[i], encoding), label_of(roles, train, i)) for i in order)
    return [device.train(image, label, task.rate) for image, label in shown]


def _stands_out(task: LossTask, device: Device) -> float | None:
    """The area under the ROC curve: how often a sample that is odd has a higher error than a usual one."""
    if task.odd is None:
        return None
    usual, odd = (
        np.array([measure(device, samples.at([i])).error for i in range(len(samples))], np.float64)
        for samples in (task.data.test, task.odd)
    )
    return float((odd[:, None] > usual).mean())


def _samples(tensors: list[Array]) -> Samples:
    return Samples(tuple(tensors), (0,) * len(tensors))


def _sound(rng: np.random.Generator, worn: bool) -> Array:
    """A second and a half of a machine that turns 47 times a second, or of one that also rattles."""
    t = np.arange(24_000) / RATE_HZ
    wave = rng.normal(0, 0.02, t.size)
    for k in range(1, 24):
        wave += 0.3 / k**0.7 * np.sin(2 * np.pi * 47 * k * (t + rng.uniform(0, 1)) + rng.normal(0, 0.3))
    if worn:
        wave += rng.normal(0, 0.04, t.size) * (np.sin(2 * np.pi * 8.5 * t) > 0.6)
    sound: Array = wave * rng.uniform(0.7, 1.3)
    return sound


def _windows(waves: list[Array]) -> list[Array]:
    """Five frames of 128 mel bands each, in decibels, as the autoencoder was trained to read."""
    bands, taken = _mel(), list[Array]()
    for wave in waves:
        frames = np.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP] * np.hanning(WINDOW)
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2 @ bands.T
        decibels = (10 * np.log10(power + 1e-10)).astype(np.float32)
        taken += [decibels[i : i + FRAMES].reshape(-1) for i in range(0, len(decibels) - FRAMES + 1, FRAMES)]
    return taken


def _mel() -> Array:
    """Triangles over the frequencies of a window, evenly spaced on the mel scale, [bands, frequencies]."""
    top = 2595 * np.log10(1 + RATE_HZ / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, BANDS + 2) / 2595) - 1)
    at = np.fft.rfftfreq(WINDOW, 1 / RATE_HZ)
    rise = (at - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - at) / np.diff(edges)[1:, None]
    weights: Array = np.maximum(np.minimum(rise, fall), 0) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return weights


def _covered(samples: Samples, rng: np.random.Generator) -> Samples:
    """Photographs with an orange disc laid over each, and how much of it that covers, of 0 to 1."""
    pictures, targets = [], []
    for image in samples.images:
        y, x = (np.arange(length) / length for length in image.shape[:2])
        row, column = rng.uniform(0.3, 0.7, 2)
        inside = (y[:, None] - row) ** 2 + (x - column) ** 2 < rng.uniform(0.05, 0.5) ** 2
        pictures.append(np.where(inside[..., None], np.array(ORANGE, np.uint8), image))
        targets.append(np.array([inside.mean()], np.float32))
    return Samples(tuple(pictures), (0,) * len(samples), tuple(targets))


def _with_discs(rng: np.random.Generator) -> tuple[Array, Array]:
    """Up to three orange discs on a ground of other colours, and the cells their centres lie in."""
    y, x = np.mgrid[:SIDE, :SIDE]
    ground = rng.uniform(20, 200, 3) + (
        rng.uniform(-0.6, 0.6, 3) * x[..., None] + rng.uniform(-0.6, 0.6, 3) * y[..., None]
    )
    picture, cells = ground + rng.normal(0, 12, (SIDE, SIDE, 3)), np.zeros((CELLS, CELLS), np.uint8)
    for _ in range(int(rng.integers(1, 4))):
        row, column = rng.uniform(6, SIDE - 6, 2)
        inside = (y - row) ** 2 + (x - column) ** 2 < rng.uniform(4, 7) ** 2
        picture[inside] = np.array(ORANGE) + rng.normal(0, 8, 3)
        cells[int(row * CELLS / SIDE), int(column * CELLS / SIDE)] = 1
    return np.clip(picture, 0, 255).astype(np.uint8), cells
