"""What was learned, as a file and in flash: the bytes that a program saves, and those that another begins with."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen.errors import InputError, TargetError
from smidgen.pipeline import Program, compile
from smidgen.targets import find_board
from smidgen.targets.device import Device
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host, HostDevice
from smidgen.targets.saved import read_saved, write_saved
from smidgen.training import Options
from tests.support.networks import inverted_residual
from tests.targets.test_one_pass import images, same

CLASSES = 4


def made(target: Host | BoardTarget, scheme: str = "last:2", one_pass: bool = True) -> Program:
    return compile(inverted_residual(0), scheme, target, options=Options(CLASSES), one_pass=one_pass)


def taught(device: Device, steps: int) -> None:
    """Learn in one pass where the program can, then by steps."""
    if device.graph.one_pass is not None:
        for image, label in images(6):
            device.observe(image, label)
        device.solve()
    for image, label in images(steps, 1):
        device.train(image, label, 0.01)


def saved_by_c(device: Device) -> bytes:
    """The bytes that the program's own function writes."""
    assert isinstance(device, HostDevice)
    parts = list[bytes]()
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)

    def write(_: object, data: int, size: int) -> int:
        parts.append(ctypes.string_at(data, size))
        return 0

    assert device._function("save")(kind(write), None) == 0
    return b"".join(parts)


WAYS = pytest.mark.parametrize(("one_pass", "steps"), [(True, 0), (True, 3), (False, 3)])


@WAYS
def test_a_file_has_the_bytes_that_the_program_saves(host: Host, tmp_path: Path, one_pass: bool, steps: int) -> None:
    program, path = made(host, one_pass=one_pass), tmp_path / "learned.state"
    with program.start() as device:
        taught(device, steps)
        write_saved(program.graph, device.state(), path)
        assert path.read_bytes() == saved_by_c(device)
        assert same(read_saved(program.graph, path), device.state())


@WAYS
def test_a_program_begins_with_what_another_learned_and_goes_on_from_there(
    host: Host, one_pass: bool, steps: int
) -> None:
    program = made(host, one_pass=one_pass)
    with program.start() as first:
        taught(first, steps)
        with program.beginning_with(first.state()).start() as second:
            assert same(second.state(), first.state())
            for image, label in images(3, 2):
                assert second.predict(image) == first.predict(image)
                if one_pass and not steps:
                    first.observe(image, label)
                    second.observe(image, label)
            for image, label in images(2, 2):
                assert second.train(image, label, 0.01) == first.train(image, label, 0.01)
            assert same(second.state(), first.state())


def test_a_program_that_collects_again_has_the_frozen_network_whatever_it_began_with(host: Host) -> None:
    program = made(host)
    with program.start() as fresh, program.start() as first:
        taught(first, 3)
        with program.beginning_with(first.state()).start() as second:
            for device in (fresh, second):
                device._function("collect")()  # type: ignore[attr-defined]
                taught(device, 2)
            assert same(second.state(), fresh.state())


@pytest.mark.parametrize("board", ["cortex-m0plus", "cortex-m7"])
def test_firmware_begins_with_what_was_learned(host: Host, board: str, cache: Path) -> None:
    program = made(replace(find_board(board), cache=cache))
    with made(host).start() as here:
        taught(here, 2)
        with program.beginning_with(here.state()).start() as there:
            assert same(there.state(), here.state())
    many = [
        compile(inverted_residual(0), "last:2", target, options=Options(200), one_pass=True)
        for target in (host, program.target)
    ]
    tiny = replace(many[1], target=find_board(board, flash="4096"))
    assert tiny.sources.constant_bytes < 4096 < tiny.sources.state_bytes
    with many[0].start() as here, pytest.raises(TargetError, match="flash"):
        tiny.beginning_with(here.state())


def here_state(host: Host) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int8]]]:
    with made(host).start() as device:
        return device.state()


def test_a_file_that_is_damaged_or_another_program_s_is_refused(host: Host, tmp_path: Path) -> None:
    program, other, path = made(host), made(host, one_pass=False), tmp_path / "learned.state"
    write_saved(program.graph, here_state(host), path)
    whole = path.read_bytes()
    with pytest.raises(InputError, match="saved by another program"):
        read_saved(other.graph, path)
    for data, said in ((whole[:-1], "cut short"), (whole[:-1] + bytes([whole[-1] ^ 1]), "damaged"), (b"", "0 bytes")):
        path.write_bytes(data)
        with pytest.raises(InputError, match=said):
            read_saved(program.graph, path)
