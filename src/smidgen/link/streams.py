"""Byte streams to a board: a serial port, a program's own stdin and stdout."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
from typing import Protocol

from smidgen.link.errors import LinkError

CHUNK = 1 << 16
BAUD = 115_200
GRACE = 1.0  # seconds that a program may take to end


class Stream(Protocol):
    """Bytes to a board and back."""

    name: str

    def read(self, seconds: float) -> bytes:
        """What came; nothing where nothing comes in so many seconds."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def close(self) -> None:
        """Let others use it."""


class SerialStream:
    """A serial port: of a UART's adapter, or of USB."""

    def __init__(self, port: str, baud: int = BAUD) -> None:
        """LinkError where there is no such port, or another program has it."""
        try:
            import serial
        except ImportError:
            raise LinkError("a serial port needs pyserial; run: pip install 'smidgen[serial]'") from None
        self.name, self._broken = port, serial.SerialException
        try:
            self._port = serial.Serial(port, baud, timeout=0, write_timeout=5, exclusive=True)
            self._port.reset_input_buffer()
        except (serial.SerialException, OSError, ValueError) as error:
            raise LinkError(f"{port} cannot be opened: {_reason(error)}") from None

    def read(self, seconds: float) -> bytes:
        try:
            self._port.timeout = seconds
            first = self._port.read(1)
            return first + self._port.read(self._port.in_waiting) if first else b""
        except (self._broken, OSError) as error:
            raise LinkError(f"{self.name} was lost: {_reason(error)}; plug the board in again") from None

    def write(self, data: bytes) -> None:
        try:
            self._port.write(data)
            self._port.flush()
        except (self._broken, OSError) as error:
            raise LinkError(f"{self.name} was lost: {_reason(error)}; plug the board in again") from None

    def close(self) -> None:
        self._port.close()


def _reason(error: Exception) -> str:
    """Why a port is not to be had, in words."""
    text = str(error)
    if "exclusively lock" in text or "Device or resource busy" in text:
        return "it is busy, another program has it open; end that one"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return text.splitlines()[0][:200] if text else type(error).__name__


class ProcessStream:
    """A program on this machine that serves on stdin and stdout, as a written project's example does."""

    def __init__(self, command: str) -> None:
        self.name = f"exec:{command}"
        try:
            words = shlex.split(command)
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                start_new_session=True,  # so that Ctrl-C is for the host alone
            )  # fmt: skip
        except (OSError, ValueError, IndexError) as error:
            raise LinkError(f"{self.name} cannot be started: {getattr(error, 'strerror', None) or error}") from None
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def read(self, seconds: float) -> bytes:
        if not select.select([self._from], [], [], seconds)[0]:
            return b""
        came = os.read(self._from.fileno(), CHUNK)
        if not came:
            raise LinkError(f"{self.name} has ended with code {self._process.wait()}")
        return came

    def write(self, data: bytes) -> None:
        try:
            self._to.write(data)
        except OSError:
            raise LinkError(f"{self.name} has ended with code {self._process.wait()}") from None

    def close(self) -> None:
        """End the program: it stops where nothing more can come, or is stopped."""
        for end in (self._to, self._from):
            end.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
