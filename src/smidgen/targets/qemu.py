"""A board that QEMU emulates: for cores with Helium, which the emulator that pip installs does not have.

The program reads requests from one pipe and writes answers to another. A plugin counts every block that it executes,
with the code that counts for other boards. QEMU's memories are larger than the board's: the linker script keeps a
program within the board's, but an access outside of them may not fault. How deep the stack gets is not watched.
"""

import os
import select
import shutil
import struct
import subprocess
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
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


class QemuMachine:
    """QEMU, its memory loaded with a program, and pipes to it, in a folder that goes with it."""

    def __init__(
        self, board: Board, image: Image, pipes: Mapping[str, bool], more: Iterable[tuple[int, bytes]] = ()
    ) -> None:
        """`pipes`: names, and whether both ends are opened here; `more`: memory by address, beside the program.

        TargetError where QEMU is not installed.
        """
        self.board, self.image = board, image
        self._command = [find_qemu(board), "-M", MACHINE, "-nographic", "-monitor", "none", "-serial", "none"]
        self._command += ["-semihosting"]
        folder, self._started = tempfile.TemporaryDirectory(prefix="smidgen-qemu-"), list[subprocess.Popen[bytes]]()
        self._place, self._files = Path(folder.name), list[int]()
        self._end = weakref.finalize(self, end_qemu, self._started, self._files, folder)
        for address, data in ((0, vectors(board, image)), *image.loads, *more):
            (self._place / f"{address:08x}").write_bytes(data)
            self._command += ["-device", f"loader,file={address:08x},addr=0x{address:x},force-raw=on"]
        for name, both_ends in pipes.items():  # QEMU opens the other end: without both here, a write would wait for it
            os.mkfifo(self._place / name)
            self._files.append(os.open(self._place / name, (os.O_RDWR if both_ends else os.O_RDONLY) | os.O_NONBLOCK))

    def _start(self, *arguments: str) -> None:
        with (self._place / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments], cwd=self._place, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,  # so that Ctrl-C is for the host alone
            )  # fmt: skip
        self._started.append(self._process)

    def _complaint(self) -> str:
        """Return the first line that QEMU printed."""
        return next(iter((self._place / "log").read_text("utf-8", errors="replace").strip().splitlines()), "")

    def close(self) -> None:
        """End QEMU."""
        self._end()


class QemuBoard(QemuMachine):
    """Runs a program from reset, request by request."""

    def __init__(self, board: Board, image: Image, counter: Counter, cache: Path) -> None:
        """TargetError where QEMU is not installed, or takes no plugin of ours."""
        super().__init__(board, image, {"requests": True, "answers": False})
        self.counter, self._ended, self._received = counter, False, b""
        (fault,) = struct.unpack_from("<I", vectors(board, image), 4 * HARD_FAULT)
        counter.fields.fault, counter.fields.limit = fault & ~1, (1 << 64) - 1
        counter.share(self._place / "counter")
        folder = Path(__file__).parent
        sources = {name: (folder / name).read_text("utf-8") for name in ("counter.c", "qemu_counter.c")}
        for version in PLUGIN_VERSIONS:  # the first that it takes
            flags = ("-shared", "-D_DEFAULT_SOURCE", f"-DPLUGIN_VERSION={version}", "qemu_counter.c")
            self._start("-plugin", str(Cache(cache, find_compiler()).build(".so", sources, *flags)))
            if self._opens():
                return
        raise TargetError(f"{QEMU} does not run the program: {self._complaint() or 'it gives no reason'}")

    def _opens(self) -> bool:
        """Return whether the program answers; False where QEMU ends before that."""
        while not select.select([self._files[-1]], [], [], PATIENCE)[0]:
            if self._process.poll() is not None:
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
        """Return a part of an answer, empty at its end; None where none has arrived whole."""
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
        """Return why no answer came."""
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
        self._ended = True
        super().close()


def vectors(board: Board, image: Image) -> bytes:
    """Return a program's vector table, which lies where flash begins."""
    origin = board.flash.origin
    return next(data[origin - at :][:VECTORS] for at, data in image.loads if at <= origin < at + len(data))


def find_qemu(board: Board) -> str:
    """Return QEMU's command; TargetError names the package to install where it is missing."""
    found = shutil.which(QEMU)
    if found is None:
        raise TargetError(
            f"{board.name} is emulated by {QEMU}, which was not found; install it, on Debian with: apt install {QEMU}"
        )
    return found


def end_qemu(
    started: Sequence[subprocess.Popen[bytes]], files: list[int], folder: tempfile.TemporaryDirectory[str]
) -> None:
    """End it, and leave nothing behind."""
    for process in started:
        process.kill()
        process.wait()
    for file in files:
        os.close(file)
    folder.cleanup()
