"""A fleet of simulated devices: every byte against the host's C, and device-steps per second beside it and PyTorch.

    python benchmarks/fleet.py check [--device cuda] [--networks mcunet-5fps …] [--devices 32] [--steps 200]
    python benchmarks/fleet.py speed [--device cuda] [--fleets 1 16 64 256]

`check` runs devices of three schemes, four learning rates and as many seeds, and compares all state after the last
step with one run of the host's C each. `speed` measures fleets of MCUNet's 49kb scheme, then the host's C on one core
and plain PyTorch in fp32, one sample at a time. Images are smooth noise.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import smidgen as sm
from shared import NETWORKS, arguments_of, released, report
from smidgen.ir import Array, Graph
from smidgen.pipeline import Program
from smidgen.simulation import Simulation
from smidgen.training.published import published_for

sys.path.append(str(Path(__file__).parents[1]))
from experiments.baselines import FloatTraining

RATES = (0.1 / 256, 0.4 / 256, 1 / 256, 4 / 256)
CLASSES = 10
WARM_UP = 16
TIMED = 200  # steps


@dataclass(frozen=True)
class Checked:
    """A fleet against the host's C: how many devices and steps, and what differed."""

    network: str
    schemes: tuple[str, ...]
    devices: int
    steps: int
    tensors: int
    differing: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Speed:
    """Steps of one device per second, all devices counted."""

    what: str
    devices: int
    device_steps: float  # per second
    seconds: float  # it took to get ready


def noise(graph: Graph, count: int) -> tuple[Array, Array]:
    """Smooth noise as images, and labels."""
    rng = np.random.default_rng(0)
    shape = graph.image.type.shape[1:]
    coarse = rng.integers(-100, 101, (count, *(-(-n // 8) for n in shape[:2]), 1))
    smooth = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, : shape[0], : shape[1]]
    images = np.clip(smooth + rng.integers(-27, 28, (count, *shape)), -128, 127).astype(np.int8)
    return images, rng.integers(0, CLASSES, count)


def device_program(graph: Graph, schemes: tuple[str, ...], number: int) -> Program:
    """The schemes in turn, then other weights; each device with a seed of its own."""
    options = sm.Options(classes=CLASSES, seed=number, weight_bits=(12, 8, 10)[number // 3 % 3])
    return sm.compile(graph, schemes[number % 3], options=options)


def on_host(program: Program, images: Array, labels: Array, rate: float) -> dict[str, Array]:
    """The state after these steps in C."""
    with program.start() as device:
        for image, label in zip(images, labels, strict=True):
            device.train(image[None], int(label), rate)
        return device.state()


def check(name: str, device: str, devices: int, steps: int) -> Checked:
    graph = released(name)
    names = tuple(published_for(graph))
    schemes = (names[0], names[len(names) // 2], names[-1])
    rates = [RATES[d // 3 % len(RATES)] for d in range(devices)]
    images, labels = noise(graph, steps)
    with ProcessPoolExecutor(min(devices, os.cpu_count() or 1), get_context("spawn")) as pool:
        programs = list(pool.map(device_program, repeat(graph), repeat(schemes), range(devices)))
        runs = [pool.submit(on_host, p, images, labels, r) for p, r in zip(programs, rates, strict=True)]
        began = time.perf_counter()
        fleet = Simulation([p.graph for p in programs], device)
        shared = fleet.front(torch.from_numpy(images))
        table = torch.tensor([rates] * steps, dtype=torch.float32, device=device)
        fleet.train(shared, torch.from_numpy(labels).to(device), table)
        found = [fleet.state(d) for d in range(devices)]
        took = time.perf_counter() - began
        expected = [run.result() for run in runs]
    differing = tuple(
        f"device {d}: %{tensor}"
        for d, (ours, theirs) in enumerate(zip(found, expected, strict=True))
        for tensor in theirs
        if not np.array_equal(ours[tensor].view(np.uint8), theirs[tensor].view(np.uint8))
    )
    return Checked(name, schemes, devices, steps, sum(map(len, expected)), differing, took)


def speed(device: str, fleets: list[int]) -> list[Speed]:
    graph = released("mcunet-5fps")
    images, labels = noise(graph, TIMED)
    programs = [
        sm.compile(graph, "49kb", options=sm.Options(classes=CLASSES, seed=d)) for d in range(min(8, max(fleets)))
    ]
    found = [_fleet_speed(programs, count, device, images, labels) for count in fleets]
    with programs[0].start() as one:
        per_second = _timed(lambda i: one.train(images[i][None], int(labels[i]), RATES[1]))
        found.append(Speed("C on one core of the host", 1, per_second, 0.0))
    training = programs[0].training
    assert training is not None
    torch.set_num_threads(1)
    for where in dict.fromkeys((device, "cpu")):
        plain = FloatTraining(training, device=where)
        per_second = _timed(lambda i, plain=plain: plain.train(images[i][None], int(labels[i]), RATES[1]))
        found.append(Speed(f"PyTorch in fp32, eager, batch 1, {where}", 1, per_second, 0.0))
    return found


def _timed(step) -> float:  # type: ignore[no-untyped-def]
    for i in range(WARM_UP):
        step(i)
    began = time.perf_counter()
    for i in range(TIMED // 2):
        step(i)
    return TIMED / 2 / (time.perf_counter() - began)


def _fleet_speed(programs: list[Program], count: int, device: str, images: Array, labels: Array) -> Speed:
    began = time.perf_counter()
    fleet = Simulation([programs[d % len(programs)].graph for d in range(count)], device)
    shared = fleet.front(torch.from_numpy(images))
    told = torch.from_numpy(labels).to(device)
    rates = torch.full((len(labels), count), RATES[1], device=device)
    fleet.train(shared, told, rates)
    _wait(device)
    ready = time.perf_counter() - began
    began = time.perf_counter()
    fleet.train(shared, told, rates)
    _wait(device)
    took = time.perf_counter() - began
    return Speed(f"fleet on {device}", count, count * len(labels) / took, ready)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def show(result: list[Checked] | list[Speed]) -> None:
    for one in result:
        if isinstance(one, Checked):
            said = "every byte equal" if not one.differing else f"DIFFER: {', '.join(one.differing[:4])} …"
            print(
                f"{one.network:<16} {one.devices} devices ({', '.join(one.schemes)}), {one.steps} steps, "
                f"{one.tensors:,} tensors of state: {said}; {one.seconds:.1f} s"
            )
        else:
            print(
                f"{one.what:<44} {one.devices:>4} {one.device_steps:>12,.0f} device-steps/s  ready {one.seconds:.1f} s"
            )


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("what", choices=("check", "speed"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--devices", type=int, default=32)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fleets", type=int, nargs="+", default=[1, 16, 64, 256])
    given = parser.parse_args()
    if given.what == "speed":
        report(speed(given.device, given.fleets), show, given.json)
        return
    found = [check(name, given.device, given.devices, given.steps) for name in given.networks]
    report(found, show, given.json)
    if any(one.differing for one in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
