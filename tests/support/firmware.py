"""Digests of the files of one compiled project: `python -m tests.support.firmware NAME`, in a separate process."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable

import numpy as np

import smidgen as sm
from smidgen.memory.packing import pack
from smidgen.targets.host import Host
from tests.memory.test_packing import full
from tests.support.networks import CLASSES, branches, inverted_residual

BUDGET = 40_000  # decisions


def small(scheme: str) -> dict[str, str]:
    """A small network that learns, its exponents set by images."""
    graph = inverted_residual(3) if scheme == "last:2" else branches(3)
    images = tuple(np.random.default_rng(0).integers(-100, 100, (2, *graph.inputs[0].type.shape), np.int8))
    return sm.compile(graph, scheme, Host(frugal=True), options=sm.Options(CLASSES), images=images).files()


def real() -> dict[str, str]:
    """A network of the zoo that learns on a board, its image handed over by rows."""
    options = sm.Options(classes=10, weight_bits=8)
    return sm.compile(sm.load("mcunet-5fps"), "49kb", "cortex-m7", options=options, streamed_input=True).files()


def searched() -> dict[str, str]:
    """Offsets of a packing whose search runs to its budget."""
    packing = pack(full(2, 400), BUDGET)
    assert packing.decisions == BUDGET
    return {"offsets": str(packing.offsets)}


PROJECTS: dict[str, Callable[[], dict[str, str]]] = {
    "small": lambda: small("last:2"),
    "branches": lambda: small("full"),
    "real": real,
    "searched": searched,
}

if __name__ == "__main__":
    for name, text in PROJECTS[sys.argv[1]]().items():
        print(name, hashlib.sha256(text.encode()).hexdigest())
