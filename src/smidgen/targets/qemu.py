"""A board that QEMU emulates: for cores with Helium, which the emulator that pip installs does not have.

The program reads requests from one pipe and writes answers to another. A plugin counts every block that it executes,
with the code that counts for other boards. QEMU's memories are larger than the board's: the linker script keeps a
program within the board's, but an access outside of them may not fault. How deep the stack gets is not watched.
"""

from __future__ import annotations

import os
import select
import shutil
import struct
import subprocess
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

from smidgen.compiler import Cache, find_compiler
from smidgen.errors import TargetError
from smidgen.targets.boards import Board
from smidgen.targets.counter import Counter
from smidgen.targets.image import Image

QEMU, MACHINE = "qemu-system-arm", "mps3-an547"
PLUGIN_VERSIONS = (1, 2, 3, 4)  # of QEMU's plugin interface; what is used of it is the same in all
VECTORS = 64  # bytes of the vector table, which this machine looks for at address 0
HARD_FAULT = 3  # the entry of it that every fault leads to
PATIENCE = 0.2  # seconds after which it is looked whether QEMU still runs
CHUNK = 1 << 16
SIZE = struct.Struct("<i")  # before each part of an answer: its bytes


class QemuBoard:
    """Runs a program from reset, request by request."""

    def __init__(self, board: Board, image: Image, counter: Counter, cache: Path) -> None:
        """TargetError where QEMU is not installed, or takes no plugin of ours."""
        self.board, self.image, self.counter = board, image, counter
        self._qemu = find_qemu(board)
        self._folder = tempfile.TemporaryDirectory(prefix="smidgen-qemu-")
        self._place = Path(self._folder.name)
        self._ended = False
        self._received = b""
        self._files: list[int] = []  # the ends of the pipes: requests, answers
        self._share()
        self._process = self._started(cache)
        self._end = weakref.finalize(self, end_qemu, self._process, self._files, self._folder)

    def _share(self) -> None:
        """Put the program, the counter and two pipes where QEMU finds them."""
        fields = self.counter.fields
        (fault,) = struct.unpack_from("<I", vectors(self.board, self.image), 4 * HARD_FAULT)
        fields.fault, fields.limit = fault & ~1, (1 << 64) - 1
        self.counter.share(self._place / "counter")
        for name in ("requests", "answers"):
            self._files.append(open_pipe(self._place / name, name == "requests"))

    def _started(self, cache: Path) -> subprocess.Popen[bytes]:
        """QEMU, with a plugin of the first version that it takes."""
        loads = ((0, vectors(self.board, self.image)), *self.image.loads)
        command = [self._qemu, *loaded(loads, self._place)]
        folder = Path(__file__).parent
        sources = {name: (folder / name).read_text() for name in ("counter.c", "qemu_counter.c")}
        for version in PLUGIN_VERSIONS:
            flags = ("-shared", "-D_DEFAULT_SOURCE", f"-DPLUGIN_VERSION={version}", "qemu_counter.c")
            plugin = Cache(cache, find_compiler()).build(".so", sources, *flags)
            with (self._place / "log").open("wb") as log:
                process = subprocess.Popen(
                    [*command, "-plugin", str(plugin)],
                    cwd=self._place, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            if self._opens(process):
                return process
        raise TargetError(f"{QEMU} does not run the program: {self._complaint() or 'it gives no reason'}")

    def _complaint(self) -> str:
        """Return the first line that QEMU printed."""
        return next(iter((self._place / "log").read_text(errors="replace").strip().splitlines()), "")

    def _opens(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether the program answers; False where QEMU ends before that."""
        while not select.select([self._files[-1]], [], [], PATIENCE)[0]:
            if process.poll() is not None:
                return False
        return True

    def exchange(self, request: bytes, limit: int) -> bytes:
        """Hand over a request and run until the program waits for the next; what it answered.

        TargetError where the program faults, or is not done after `limit` instructions.
        """
        if self._ended:
            raise TargetError("the program on the board has stopped; start another")
        fields = self.counter.fields
        fields.limit = fields.total + limit
        answers: list[bytes] = []
        while (part := self._part()) != b"":
            if part is None:
                request = self._move(request, limit)
            else:
                answers.append(part)
        return b"".join(answers)

    def _part(self) -> bytes | None:
        """A part of an answer that has arrived, empty at the end of it; None where none has arrived whole."""
        if len(self._received) < SIZE.size:
            return None
        end = SIZE.size + SIZE.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        part, self._received = self._received[SIZE.size : end], self._received[end:]
        return part

    def _move(self, request: bytes, limit: int) -> bytes:
        """Send of a request and read of an answer what can be; what is left to send."""
        requests, answers = self._files
        readable, writable, _ = select.select([answers], [requests] if request else [], [], PATIENCE)
        if writable:
            request = request[os.write(requests, request[:CHUNK]) :]
        if readable:
            received = os.read(answers, CHUNK)
            self._received += received
        if (readable and not received) or (not readable and self._process.poll() is not None):
            self._ended = True
            raise TargetError(self._end_of_it(limit))
        return request

    def _end_of_it(self, limit: int) -> str:
        """Why no answer came."""
        fields, name = self.counter.fields, self.board.name
        place = self.image.place(fields.last)
        if fields.total > fields.limit:
            return (
                f"the program on {name} was stopped in {place} after {limit:,} instructions without an answer; "
                "it hangs, or needs a higher limit"
            )
        if fields.last == fields.fault:
            return f"the program on {name} faulted in {self.image.place(fields.before)}"
        complaint = self._complaint()
        return f"the program on {name} ended in {place}" + (f": {complaint}" if complaint else "")

    def finish(self, limit: int) -> int:
        """Say that no request follows and let the program end; the instructions since reset."""
        self._ended = True
        os.close(self._files.pop(0))
        self._process.wait()
        return int(self.counter.fields.total)

    def peak_stack(self) -> int:
        """Bytes: nothing of it is measured here, and the bound stands for it."""
        return 0

    def close(self) -> None:
        """End QEMU."""
        self._ended = True
        self._end()


def vectors(board: Board, image: Image) -> bytes:
    """A program's vector table, which lies where flash begins."""
    origin = board.flash.origin
    return next(data[origin - at :][:VECTORS] for at, data in image.loads if at <= origin < at + len(data))


def loaded(loads: Iterable[tuple[int, bytes]], folder: Path) -> list[str]:
    """QEMU's arguments for a machine whose memory holds these contents by address, as files of a folder."""
    arguments = ["-M", MACHINE, "-nographic", "-monitor", "none", "-serial", "none", "-semihosting"]
    for address, data in loads:
        (folder / f"{address:08x}").write_bytes(data)
        arguments += ["-device", f"loader,file={address:08x},addr=0x{address:x},force-raw=on"]
    return arguments


def open_pipe(path: Path, both_ends: bool = True) -> int:
    """A new pipe, of which QEMU opens the other end: without both here, to write to it would wait for that."""
    os.mkfifo(path)
    return os.open(path, (os.O_RDWR if both_ends else os.O_RDONLY) | os.O_NONBLOCK)


def find_qemu(board: Board) -> str:
    """Return QEMU's command; TargetError names the package to install where it is missing."""
    found = shutil.which(QEMU)
    if found is None:
        raise TargetError(
            f"{board.name} is emulated by {QEMU}, which was not found; install it, on Debian with: apt install {QEMU}"
        )
    return found


def end_qemu(process: subprocess.Popen[bytes], files: list[int], folder: tempfile.TemporaryDirectory[str]) -> None:
    """End it, and leave nothing behind."""
    process.kill()
    process.wait()
    for file in files:
        os.close(file)
    folder.cleanup()
