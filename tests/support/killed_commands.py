"""Commands that teach a board and are killed at some instant: what they had reported as saved by then."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from smidgen import cli
from smidgen.link import LinkedDevice

REPORT = struct.Struct("<?I")  # whether it is saved, or about to be; CRC-32 of the state
SECONDS = 60  # before a command that saves nothing is given up


@dataclass(frozen=True)
class Killed:
    """States by their CRC-32: the last that was reported as saved, if any, and those whose save had begun since."""

    saved: int | None
    begun: tuple[int, ...]
    ended: bool  # before it was killed


def kill_device(words: Sequence[str], seconds: float, how: signal.Signals) -> Killed:
    """Run a command in a process of its own, and kill it some time after it began its first save."""
    taken, given = os.pipe()
    process = os.fork()
    if not process:
        _run(words, given)
    os.close(given)
    reports = os.read(taken, REPORT.size)
    assert reports, "the command ended before it saved anything"
    time.sleep(seconds)
    ended = os.waitpid(process, os.WNOHANG)[0] != 0
    if not ended:
        os.kill(process, how)
        os.waitpid(process, 0)
    while more := os.read(taken, 1 << 16):
        reports += more
    os.close(taken)
    saved, begun = None, list[int]()
    for is_saved, state in REPORT.iter_unpack(reports):
        begun.append(state)
        if is_saved:
            saved, begun = state, []
    return Killed(saved, tuple(begun), ended)


def _run(words: Sequence[str], to: int) -> None:
    """Run a command whose device reports to a pipe, silently, and end this process."""
    save = LinkedDevice.save

    def reported(device: LinkedDevice) -> None:
        state = device.statistics().state_sum
        os.write(to, REPORT.pack(False, state))
        save(device)
        os.write(to, REPORT.pack(True, state))

    try:
        signal.alarm(SECONDS)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LinkedDevice, "save", reported)
            cli.app(list(words), standalone_mode=False)
    finally:
        os._exit(0)
