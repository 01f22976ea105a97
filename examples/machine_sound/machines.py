"""The sound of machines, made by code: a motor's harmonics, the room they are in, and what wears out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import smidgen as sm
from smidgen.data import Samples

FRONT_END = sm.LogMel(window=1024, hop=1024, size=1024, bands=32, low=50, high=7500, offset=1e-3, coefficients=0)
FRAMES = 8  # half a second
SIZE = FRAMES * FRONT_END.bands
CLASSES = ("normal", "worn")
FAULTS = ("bearing", "belt", "loose")
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine where it stands."""

    turns: float  # per second
    harmonics: Array  # how loud each is
    room: tuple[tuple[float, float, float], ...]  # what resonates: Hz, width in Hz, how much
    hiss: float  # noise of air and of the microphone
    hum: float  # how loud another machine is that runs beside it
    beside: float  # its turns per second


def draw_machine(rng: np.random.Generator) -> Machine:
    """A machine of any kind, in any room."""
    orders = np.arange(1, 33)
    loud = 0.25 * orders ** -rng.uniform(0.5, 1.2) * rng.lognormal(0, 0.7, orders.size)
    room = tuple(
        (rng.uniform(150, 7000), rng.uniform(50, 700), rng.uniform(0.5, 6)) for _ in range(int(rng.integers(3, 8)))
    )
    return Machine(rng.uniform(18, 65), loud, room, rng.uniform(0.005, 0.04), rng.uniform(0, 0.1), rng.uniform(15, 60))


def record(machine: Machine, rng: np.random.Generator, fault: str = "") -> NDArray[np.int16]:
    """Half a second of it, int16 at 16,000 samples per second; with a fault, if one is named."""
    count = FRONT_END.samples((1, SIZE))
    t = np.arange(count) / FRONT_END.rate
    load = 1 + 0.15 * np.sin(2 * np.pi * (rng.uniform(0.3, 2) * t + rng.uniform()))
    turns = machine.turns * rng.uniform(0.97, 1.03)
    sound = rng.normal(0, machine.hiss, count)
    for order, loud in enumerate(machine.harmonics, start=1):
        sound += load * loud * rng.lognormal(0, 0.1) * np.sin(2 * np.pi * (order * turns * t + rng.uniform()))
    for order in (1, 2, 4):
        sound += machine.hum / order * np.sin(2 * np.pi * (order * machine.beside * t + rng.uniform()))
    if fault:
        sound += _fault(fault, turns, t, rng)
    heard = _in_room(sound, machine) * rng.uniform(0.8, 1.2) * 2500
    return np.clip(np.rint(heard), -32768, 32767).astype(np.int16)


def _fault(fault: str, turns: float, t: Array, rng: np.random.Generator) -> Array:
    """What is to be heard of it, softer than the machine."""
    loud = rng.uniform(0.6, 1.3)
    if fault == "bearing":  # a click, each time a ball passes the pit, that rings
        since = np.mod(t * turns * 3.6 + rng.uniform(), 1) / (turns * 3.6)
        return 0.25 * loud * np.exp(-since * 700) * np.sin(2 * np.pi * rng.uniform(2500, 4500) * since)
    if fault == "belt":  # a squeal that wavers
        waver = 40 * np.sin(2 * np.pi * rng.uniform(2, 6) * t)
        return 0.025 * loud * np.sin(2 * np.pi * (rng.uniform(1800, 3500) * t + np.cumsum(waver) / FRONT_END.rate))
    rattles = np.sin(2 * np.pi * (turns / 4 * t + rng.uniform())) > 0.5
    return 0.06 * loud * rng.normal(size=t.size) * rattles


def _in_room(sound: Array, machine: Machine) -> Array:
    spectrum, at = np.fft.rfft(sound), np.fft.rfftfreq(sound.size, 1 / FRONT_END.rate)
    gain = 1 + sum(much * np.exp(-0.5 * ((at - middle) / width) ** 2) for middle, width, much in machine.room)
    heard: Array = np.fft.irfft(spectrum * gain, sound.size)
    return heard


def place(learn: int, test: int, seed: int) -> sm.Data:
    """A machine at its place: so much of it to learn from, all normal, and to test with, every second one worn."""
    rng = np.random.default_rng(seed)
    machine = draw_machine(rng)
    normal = tuple(record(machine, rng) for _ in range(learn))
    faults = [FAULTS[i // 2 % len(FAULTS)] if i % 2 else "" for i in range(test)]
    heard = tuple(record(machine, rng, fault) for fault in faults)
    tested = Samples(heard, tuple(int(bool(fault)) for fault in faults))
    return sm.Data("a machine at its place", CLASSES, Samples(normal, (0,) * learn), tested)
