"""Does it hold in a long run, and in a rough one? Tiny programs that learn, and what must never differ.

    python tools/soak.py                                # all of it, with the counts shown by --help
    python tools/soak.py --host 0 --brownouts 50 --json # one part left out, another made short

Prints a table, or JSON lines with --json, and exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from smidgen.compiler import cache_folder
from smidgen.ir import Array
from smidgen.targets.firmware import BoardDevice
from soaking import CLASSES, OPTIONS, SIDE, Fence, Powered, Soaked, State, differing, flip, images, step_request

Step = tuple[Array, int, float]  # image, label, learning rate
RATE = 0.02
EVERY = 1000  # steps after which the states of board and host are compared
STRETCH = 100_000  # steps on the host after which one step is compared with numpy
RATES = tuple(10.0**power for power in range(-8, 4))
HEAD = 16  # bytes of a save before its state
AFTER = 3  # steps that are taken with a flipped bit


@dataclass(frozen=True)
class Result:
    """One part: how often, what differed, and how long it took."""

    part: str
    count: int
    what: str
    seconds: float
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.part:<10}{self.count:>10,}{len(self.differences):>12,}{self.seconds:>9.1f} s  {self.what}"


class Soak:
    """What every part needs."""

    def __init__(self, cache: Path, seed: int) -> None:
        self.seed = seed
        self.learners = {name: Soaked(options, cache) for name, options in OPTIONS.items()}

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def board(soak: Soak, count: int) -> Iterator[str]:
    """steps on board and host: every loss, and all state every 1,000"""
    learner, rng = soak.learners["float32 head"], soak.rng()
    with learner.on_board.start() as chip, learner.on_host.start() as machine:
        for step, image in enumerate(images(rng, count)):
            label = int(rng.integers(CLASSES))
            if chip.train(image, label, RATE) != machine.train(image, label, RATE):
                yield f"loss of step {step}"
            if (step + 1) % EVERY == 0 or step + 1 == count:
                yield from (f"{name} after step {step}" for name in differing(chip.state(), machine.state()))


def host(soak: Soak, count: int) -> Iterator[str]:
    """steps on one sample; now and then one of them against numpy"""
    learner = soak.learners["float32 head"]
    (image,) = images(soak.rng(), 1)
    with learner.on_host.start() as machine:
        for step in range(count):
            compared = step % STRETCH == 0 or step + 1 == count
            before = machine.state() if compared else {}
            loss = machine.train(image, 1, RATE)
            if compared:
                yield from _against_numpy(learner, before, (image, 1, RATE), loss, machine.state(), f"step {step}")


def _against_numpy(learner: Soaked, before: State, step: Step, loss: float, after: State, where: str) -> Iterator[str]:
    expected, state = learner.step_in_numpy(before, *step)
    if not _same(loss, expected):
        yield f"loss of {where}: {loss}, in numpy {expected}"
    yield from (f"{name} after {where}" for name in differing(state, after))


def _same(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def extreme_images() -> dict[str, Array]:
    shape = (1, SIDE, SIDE, 3)
    checks = np.where(np.indices(shape).sum(0) % 2, 127, -128).astype(np.int8)
    full = {f"all {value}": np.full(shape, value, np.int8) for value in (-128, 0, 127)}
    return {**full, "checks": checks}


def extremes(soak: Soak, count: int) -> Iterator[str]:
    """steps on each saturated, zero and chequered image, both heads: numpy, host, board"""
    for name in OPTIONS:
        kinds = extreme_images().items()
        courses = {kind: [(image, s % CLASSES, RATE) for s in range(count)] for kind, image in kinds}
        yield from _in_three(soak.learners[name], courses)


def rates(soak: Soak, count: int) -> Iterator[str]:
    """steps at each learning rate from 1e-8 to 1e3, both heads: numpy, host, board"""
    for name in OPTIONS:
        shown = images(soak.rng(), count)
        courses = {f"rate {rate:g}": [(x, s % CLASSES, rate) for s, x in enumerate(shown)] for rate in RATES}
        yield from _in_three(soak.learners[name], courses)


def _in_three(learner: Soaked, courses: dict[str, list[Step]]) -> Iterator[str]:
    """Each course from the beginning: in numpy, on the host and on the board."""
    with learner.on_board.start() as chip, learner.on_host.start() as machine:
        for where, steps in courses.items():
            state = learner.initial
            chip.restore(state)
            machine.restore(state)
            for number, step in enumerate(steps):
                expected, state = learner.step_in_numpy(state, *step)
                losses = chip.train(*step), machine.train(*step)
                if not all(_same(loss, expected) for loss in losses):
                    yield f"loss of step {number} ({where}): {losses}, in numpy {expected}"
            yield from (f"{name} on the host ({where})" for name in differing(state, machine.state()))
            yield from (f"{name} on the board ({where})" for name in differing(state, chip.state()))


def saves(soak: Soak, count: int) -> Iterator[str]:
    """flipped bits in a board's save: model_load refuses it, and state is model_init's"""
    rng, firmware = soak.rng(), soak.learners["int8 head"].saving
    powered = firmware.switch_on(rng)
    initial = powered.state()
    for image in images(rng, 3):
        powered.ask(step_request(image, 1, RATE))
    saved, learned = powered.save(), powered.state()
    for at in rng.integers(8 * len(saved), size=count):
        damaged = bytearray(saved)
        damaged[at // 8] ^= 1 << at % 8
        if powered.load(bytes(damaged)):
            yield f"bit {at} of the save is not noticed"
        elif powered.state() != initial:
            yield f"bit {at} of the save is noticed, but state is not as after model_init"
        if not powered.load(saved) or powered.state() != learned:
            yield f"the sound save is refused after bit {at}"


def flips(soak: Soak, count: int) -> Iterator[str]:
    """flipped bits in live state: three steps on board and host alike, in their own memory"""
    rng = soak.rng()
    for name in OPTIONS:
        learner = soak.learners[name]
        with learner.on_board.start() as chip, learner.on_host.start() as machine:
            assert isinstance(chip, BoardDevice)
            for image in images(rng, AFTER):
                machine.train(image, 0, RATE)
            fence, state = Fence(chip), machine.state()
            for number in range(count):
                flipped = flip(state, rng)
                chip.restore(flipped)
                machine.restore(flipped)
                for image in images(rng, AFTER):
                    losses = chip.train(image, 1, RATE), machine.train(image, 1, RATE)
                    if not _same(*losses):
                        yield f"{name}, flip {number}: losses {losses}"
                after = machine.state()
                yield from (f"{name}, flip {number}: {what}" for what in differing(chip.state(), after))
                yield from (f"{name}, flip {number}: {what}" for what in _out_of_range(flipped, after))
                if not fence.holds():
                    yield f"{name}, flip {number}: memory of others was written"


def _out_of_range(before: State, after: State) -> Iterator[str]:
    """Weights that a step left at −128, which symmetric int8 does not have, though no flip had put them there."""
    for name, array in after.items():
        if array.dtype == np.int8 and ((array == -128) & (before[name] != -128)).any():
            yield f"a weight of {name} became -128"


def brownouts(soak: Soak, count: int) -> Iterator[str]:
    """power failures within a step, a save or a load: then the last whole save, or model_init"""
    rng, firmware = soak.rng(), soak.learners["int8 head"].saving
    powered = firmware.switch_on(rng)
    initial = powered.state()
    storage, kept = _learn_and_save(powered, rng)
    lengths = {kind: powered.instructions(request) for kind, request in _requests(rng, storage).items()}
    for number in range(count):
        kind = tuple(lengths)[number % len(lengths)]
        now = powered.state()
        length = lengths[kind] * (2 if kind == "save" else 1)  # half of the saves leave the board as a whole
        left = powered.fails(_requests(rng, storage)[kind], int(rng.integers(length)))
        if kind == "save":
            stored = len(storage) if rng.random() < 0.5 else int(rng.integers(len(storage)))
            written = left[:stored]
            storage = written + storage[len(written) :]  # over what was saved before
            kept = now if storage[HEAD:] == now and storage[:HEAD] == left[:HEAD] else kept
        powered = firmware.switch_on(rng)
        loaded, state = powered.load(storage), powered.state()
        if state != (kept if loaded else initial):
            yield f"failure {number}, in a {kind}: state is neither the one saved nor model_init's"
        if not loaded and (kind != "save" or kept == now):
            yield f"failure {number}, in a {kind}: a whole save is refused"
        if not loaded:
            storage, kept = _learn_and_save(powered, rng)
        powered.ask(_requests(rng, storage)["step"])


def _learn_and_save(powered: Powered, rng: np.random.Generator) -> tuple[bytes, bytes]:
    """A save, and the state in it, after a step."""
    powered.ask(_requests(rng, b"")["step"])
    return powered.save(), powered.state()


def _requests(rng: np.random.Generator, storage: bytes) -> dict[str, bytes]:
    (image,) = images(rng, 1)
    return {"step": step_request(image, int(rng.integers(CLASSES)), RATE), "save": b"k", "load": b"b" + storage}


Part = Callable[[Soak, int], Iterator[str]]
PARTS: dict[str, tuple[Part, int]] = {
    "board": (board, 10_000), "host": (host, 1_000_000), "extremes": (extremes, 100), "rates": (rates, 30),
    "saves": (saves, 1000), "flips": (flips, 500), "brownouts": (brownouts, 1000),
}  # fmt: skip


def run(part: str, count: int, soak: Soak) -> Result:
    function, _ = PARTS[part]
    began = time.monotonic()
    found = tuple(function(soak, count))
    return Result(part, count, str(function.__doc__), round(time.monotonic() - began, 1), found)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = partial(parser.add_argument, type=int, metavar="COUNT")
    for part, (function, count) in PARTS.items():
        number(f"--{part}", default=count, help=f"{function.__doc__} (default {count:,}; 0 leaves it out)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=None, help="where built programs are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object per part")
    chosen = parser.parse_args(arguments)
    soak, failed = Soak(chosen.cache or cache_folder(), chosen.seed), False
    if not chosen.json:
        print(f"{'part':<10}{'count':>10}{'differences':>12}{'time':>11}")
    for part in PARTS:
        if count := getattr(chosen, part):
            result = run(part, count, soak)
            failed |= bool(result.differences)
            print(json.dumps(asdict(result)) if chosen.json else result, flush=True)
            for difference in result.differences[:10]:
                print(f"{part}: {difference}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
