"""What a program saves is loaded back by that program alone, and only whole: `model_save` and `model_load` in C."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import smidgen as sm
from smidgen.ir import Graph
from smidgen.targets.host import Host, HostDevice
from smidgen.training import Options
from tests.support.networks import CLASSES, inverted_residual, samples

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
SCHEME = "bias:1"  # little state, so that every byte of it can be damaged


def started(host: Host, graph: Graph | None = None, **options: object) -> HostDevice:
    chosen = replace(Options(CLASSES, weight_bits=8, head_dtype="int8"), **options)  # type: ignore[arg-type]
    device = sm.compile(inverted_residual(0) if graph is None else graph, SCHEME, host, options=chosen).start()
    assert isinstance(device, HostDevice)
    return device


@pytest.fixture
def device(host: Host) -> Iterator[HostDevice]:
    with started(host) as device:
        learn(device)
        yield device


def learn(device: HostDevice, count: int = 3) -> None:
    for image, label in samples(inverted_residual(0), count):
        device.train(image, label, 0.05)


def save(device: HostDevice, room: int = 1 << 20) -> tuple[int, bytes]:
    """What the program returns, and what it wrote: no more than there is room for."""
    written = bytearray()

    def write(_: object, data: int, size: int) -> int:
        if len(written) + size > room:
            return 28
        written.extend(ctypes.string_at(data, size))
        return 0

    return int(device._function("save")(CALLBACK(write), None)), bytes(written)


def load(device: HostDevice, saved: bytes) -> int:
    """What the program returns; reading fails where the bytes end."""
    at = 0

    def read(_: object, data: int, size: int) -> int:
        nonlocal at
        if at + size > len(saved):
            return 5
        ctypes.memmove(data, saved[at : at + size], size)
        at += size
        return 0

    return int(device._function("load")(CALLBACK(read), None))


def same_state(device: HostDevice, state: dict[str, object]) -> bool:
    now = device.state()
    return all(np.array_equal(np.asarray(state[name]), data) for name, data in now.items())


def test_what_was_saved_comes_back_whole(device: HostDevice) -> None:
    failed, saved = save(device)
    kept: dict[str, object] = dict(device.state())
    assert failed == 0
    learn(device)
    assert not same_state(device, kept)
    assert load(device, saved) == 0
    assert same_state(device, kept)


def test_a_checkpoint_with_any_byte_changed_is_refused(device: HostDevice) -> None:
    _, saved = save(device)
    damaged_state = 0
    for at in range(len(saved)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(saved)
            damaged[at] ^= flip
            assert load(device, bytes(damaged)) != 0, f"byte {at} of {len(saved)} was changed by {flip:#x}"
            damaged_state += 1
    assert load(device, saved) == 0
    assert damaged_state == 3 * len(saved) > 300


def test_a_checkpoint_with_two_bytes_exchanged_is_refused(device: HostDevice) -> None:
    _, saved = save(device)
    for at in range(len(saved) - 1):
        if saved[at] != saved[at + 1]:
            damaged = bytearray(saved)
            damaged[at], damaged[at + 1] = saved[at + 1], saved[at]
            assert load(device, bytes(damaged)) != 0, f"bytes {at} and {at + 1} were exchanged"


def test_a_checkpoint_that_is_cut_short_is_refused(device: HostDevice) -> None:
    _, saved = save(device)
    for length in range(len(saved)):
        assert load(device, saved[:length]) != 0


def test_a_refused_checkpoint_leaves_no_damage_behind(device: HostDevice) -> None:
    _, saved = save(device)
    damaged = bytearray(saved)
    damaged[-1] ^= 0x40
    initial: dict[str, object] = {v.name: data for v, data in device.graph.state.items()}
    assert load(device, bytes(damaged)) == -1
    assert same_state(device, initial), "as after model_init: the header says so"


def test_after_a_load_that_failed_a_program_learns_as_from_its_beginning(device: HostDevice) -> None:
    _, learned = save(device)
    assert load(device, learned[:-1]) == 5, "what the function that reads gave"
    learn(device)
    assert save(device) == (0, learned)


def test_a_save_that_fails_says_so(device: HostDevice) -> None:
    _, saved = save(device)
    for room in (0, len(saved) - 1):
        assert save(device, room)[0] == 28


OTHERS = {
    "another network": {"graph": 1},
    "more classes": {"classes": CLASSES + 1},
    "finer weights": {"weight_bits": 12},
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_programs_checkpoint_is_refused_both_ways(device: HostDevice, other: str, host: Host) -> None:
    changed = dict(OTHERS[other])
    graph = inverted_residual(changed.pop("graph")) if "graph" in changed else None
    with started(host, graph, **changed) as another:
        mine, theirs = save(device)[1], save(another)[1]
        if other == "another network":
            assert len(mine) == len(theirs), "so that their sizes do not tell them apart"
        assert load(device, theirs) != 0
        assert load(another, mine) != 0
        assert load(device, mine) == 0
        assert load(another, theirs) == 0
