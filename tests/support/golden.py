"""Figures of five programs as they were last accepted: `python -m tests.support.golden` measures and writes them again.

A change that moves one of them comes with another `golden.json`, in which a reviewer reads by how much.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

import smidgen as sm
from smidgen.results.comparison import LEARNING_RATE, random_inputs
from smidgen.targets.firmware import BoardDevice
from tests.support.networks import CLASSES, branches

FILE = Path(__file__).parent / "golden.json"
STEPS = 2
COMPILER = f"ziglang {version('ziglang')}"  # another one makes other code, of the same bytes


@dataclass(frozen=True)
class Figures:
    """The figures of a program on its emulated board, and a digest of its state after two steps on noise."""

    forward_instructions: int
    step_instructions: int
    sram_bytes: int
    flash_bytes: int
    learned_sha256: str  # of every tensor of its state, by name


def zoo(name: str, scheme: str, board: str, options: sm.Options) -> sm.Program:
    return sm.compile(sm.load(name), scheme, board, options=options, streamed_input=True)


def small(board: str) -> sm.Program:
    """A network of every kind of layer, all of which learns."""
    return sm.compile(branches(3), "full", board, options=sm.Options(CLASSES, rule=sm.Momentum(0.9)))


BYTES = sm.Options(classes=10, weight_bits=8)
PROGRAMS: dict[str, Callable[[], sm.Program]] = {
    "mcunet-5fps 49kb, cortex-m7": lambda: zoo("mcunet-5fps", "49kb", "cortex-m7", BYTES),
    "mbv2-w0.35 99kb, 12 bits, nrf52840": lambda: zoo("mbv2-w0.35", "99kb", "nrf52840", sm.Options(classes=10)),
    "proxyless-w0.3 head, stm32u575": lambda: zoo("proxyless-w0.3", "head", "stm32u575", BYTES),
    "mcunet-5fps 49kb, esp32-c3": lambda: zoo("mcunet-5fps", "49kb", "esp32-c3", BYTES),
    "branches full with momentum, cortex-m0plus": lambda: small("cortex-m0plus"),
}


def measure(program: sm.Program) -> Figures:
    """A prediction and steps on noise, on the emulated board."""
    rng = np.random.default_rng(0)
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        device.predict(*random_inputs(program.graph.prediction_inputs, rng))
        forward = device.counts().total
        for step in range(STEPS):
            (image,) = random_inputs(program.graph.prediction_inputs, rng)
            device.train(image, step, LEARNING_RATE)
        learned = hashlib.sha256()
        for name, array in sorted(device.state().items()):
            learned.update(name.encode() + array.tobytes())
        sram, flash = device.memory().bytes, device.image.flash_bytes
        return Figures(forward, device.counts().total, sram, flash, learned.hexdigest())


def read() -> dict[str, Figures]:
    """Return the figures that were last accepted."""
    return {name: Figures(**figures) for name, figures in json.loads(FILE.read_text())["programs"].items()}


def compiler() -> str:
    """By which the accepted figures were made."""
    return str(json.loads(FILE.read_text())["compiler"])


if __name__ == "__main__":
    programs = {name: asdict(measure(program())) for name, program in PROGRAMS.items()}
    FILE.write_text(json.dumps({"compiler": COMPILER, "programs": programs}, indent=2) + "\n")
