"""The demonstration: a zoo network from file to C, checked byte for byte against the reference."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smidgen.frontends.native import read_smg, write_smg
from smidgen.inspection import describe
from smidgen.ir import Array, Graph, evaluate
from smidgen.loading import load
from smidgen.pipeline import Program, compile

NETWORK = "mcunet-5fps"
IMAGES = 4
REPEATS = 5  # timed runs an image


@dataclass(frozen=True)
class Demonstration:
    """What was done, what it takes, and how the C compares with the reference."""

    network: str
    layers: int
    macs: int
    parameters: int
    same_after_file: bool
    arena_bytes: int
    arena_lower_bound_bytes: int
    constant_bytes: int
    images: int
    equal_images: int
    predictions: tuple[int, ...]
    milliseconds: float  # of one inference of the C on this machine, the median
    reference_milliseconds: float
    model_file: str
    project: str

    def __str__(self) -> str:
        kept = "equal after the file" if self.same_after_file else "CHANGED by the file"
        return (
            f"network     {self.network}: {self.layers} layers, {self.macs:,} MACs, {self.parameters:,} parameters\n"
            f"file        {self.model_file} ({kept})\n"
            f"arena       {self.arena_bytes:,} bytes of SRAM (at least {self.arena_lower_bound_bytes:,}), "
            f"{self.constant_bytes:,} bytes of flash for constants\n"
            f"inference   {self.milliseconds:.2f} ms in C on this machine, "
            f"{self.reference_milliseconds:.0f} ms in the numpy reference\n"
            f"agreement   {self.equal_images} of {self.images} images give the same bytes in C and in the reference\n"
            f"predictions {', '.join(map(str, self.predictions))} (weights are random until trained ones ship)\n"
            f"project     {self.project}: C sources, header, example and how to build it"
        )


def demonstrate(folder: Path, say: Callable[[str], None] = lambda _: None) -> Demonstration:
    """Write a network to a file, read it back, compile it, run it, and compare; `say` hears of each stage."""
    say(f"writing {NETWORK} and reading it back")
    original, file = load(NETWORK), folder / f"{NETWORK}.smg"
    folder.mkdir(parents=True, exist_ok=True)
    again = file.exists()
    write_smg(original, file)
    graph = read_smg(file)
    say("compiling it to C")
    program = compile(graph, target="host")
    project = folder / "project"
    if again:  # an earlier demonstration's
        shutil.rmtree(project, ignore_errors=True)
    program.write(project)
    images = draw_images(IMAGES, graph.inputs[0].type.shape)
    say("running the reference")
    expected, reference_seconds = _reference(graph, images)
    say("building the C and running it")
    outputs, seconds = _host(program, images)
    summary, memory = describe(graph), program.memory
    return Demonstration(
        network=NETWORK,
        layers=len(summary.layers),
        macs=summary.macs,
        parameters=summary.parameters,
        same_after_file=graph == original,
        arena_bytes=memory.peak,
        arena_lower_bound_bytes=memory.lower_bound,
        constant_bytes=memory.constants,
        images=len(images),
        equal_images=sum(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True)),
        predictions=tuple(int(y.argmax()) for y in outputs),
        milliseconds=1e3 * seconds,
        reference_milliseconds=1e3 * reference_seconds,
        model_file=str(file),
        project=str(project),
    )


def draw_images(count: int, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Waves of several directions and colours, as int8 images [1, height, width, colours]: pixel − 128."""
    y, x = np.mgrid[0 : shape[1], 0 : shape[2]] / max(shape[1:3])
    images = []
    for index in range(count):
        angles = 0.7 * index + np.arange(shape[3])
        phase = (6 + 5 * index) * (x[..., None] * np.cos(angles) + y[..., None] * np.sin(angles))
        pixels = np.floor(127.5 + 120 * np.sin(phase + index))
        images.append((pixels - 128).astype(np.int8)[None])
    return tuple(images)


def _reference(graph: Graph, images: tuple[Array, ...]) -> tuple[tuple[Array, ...], float]:
    began = time.perf_counter()
    outputs = tuple(evaluate(graph, image)[0] for image in images)
    return outputs, (time.perf_counter() - began) / len(images)


def _host(program: Program, images: tuple[Array, ...]) -> tuple[tuple[Array, ...], float]:
    outputs, seconds = [], []
    with program.start() as device:
        for image in images:
            for _ in range(REPEATS):
                began = time.perf_counter()
                (output,) = device.run(image)
                seconds.append(time.perf_counter() - began)
            outputs.append(output)
    return tuple(outputs), float(np.median(seconds))
