"""Worker processes on this machine: one that is killed is replaced, and its work is done again."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import IO, Any, TypeVar

from smidgen.errors import TargetError

Common = TypeVar("Common")
Item = TypeVar("Item")
Result = TypeVar("Result")
TRIES = 3  # at one item, before it is blamed for the deaths of those who work on it
ALIGNED = 64  # bytes: where arrays begin in the file that all processes read
_COUNT = struct.Struct("<Q")
# The path comes along, so that others find the library where this process did; the user's script is not run again.
_CODE = "import sys; sys.path[:] = {path!r}; from smidgen.selection.workers import serve; serve({shared})"


def share_out(
    function: Callable[[Common, Item], Result], common: Common, items: Sequence[Item], workers: int
) -> Generator[tuple[Item, Result]]:
    """Yield function(common, item) of every item, as results come, from `workers` processes; one is this process.

    `common` is written to a file once, whose pages the processes share.
    """
    if workers <= 1 or len(items) <= 1:
        for item in items:
            yield item, function(common, item)
        return
    with tempfile.TemporaryFile() as file, ThreadPoolExecutor(min(workers, len(items))) as pool:
        _write_shared((function, common), file)
        crew = _Crew(file)
        asked = {pool.submit(crew.ask, item): item for item in items}
        try:
            for done in as_completed(asked):
                yield asked[done], done.result()
        finally:
            crew.kill()
            pool.shutdown(cancel_futures=True)
            for process in crew.started:
                process.communicate()


class _Crew:
    """Processes that answer threads, one each; pipes alone, as sockets would look as if a network were needed."""

    def __init__(self, file: IO[bytes]) -> None:
        self.code, self.shared = _CODE.format(path=sys.path, shared=file.fileno()), file.fileno()
        self.free: list[subprocess.Popen[bytes]] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self.ended = False

    def ask(self, item: Any) -> Any:
        """Return a process's answer; one that dies over it is replaced."""
        for _ in range(TRIES):
            process = self.take()
            assert process.stdin
            assert process.stdout
            try:
                pickle.dump(item, process.stdin)
                process.stdin.flush()
                fine, answer = pickle.load(process.stdout)
            except (EOFError, OSError, pickle.UnpicklingError):
                self.started.remove(process)
                process.kill()
                process.communicate()
                code = process.returncode
                continue
            self.free.append(process)
            if not fine:
                raise answer
            return answer
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        raise TargetError(
            f"{TRIES} worker processes ended at the same run, the last {how}; if memory ran out, use fewer workers"
        )

    def take(self) -> subprocess.Popen[bytes]:
        """Return a process that is free, or another."""
        with suppress(IndexError):
            return self.free.pop()
        if self.ended:
            raise CancelledError
        process = subprocess.Popen(
            (sys.executable, "-c", self.code),
            pass_fds=(self.shared,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.started.append(process)
        if self.ended:  # meanwhile
            process.kill()
        return process

    def kill(self) -> None:
        self.ended = True
        for process in list(self.started):
            process.kill()


def serve(shared: int) -> None:
    """Take items and answer, in a worker process, until nobody is left to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted at the keyboard ends its workers itself
    with os.fdopen(0, "rb") as asked, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a run may print is no answer
        function, common = _read_shared(shared)
        with suppress(EOFError, OSError):
            while True:
                item = pickle.load(asked)
                try:
                    answer = True, function(common, item)
                except Exception as error:
                    answer = False, error
                pickle.dump(answer, answers)
                answers.flush()


def _write_shared(thing: object, file: IO[bytes]) -> None:
    """Write a pickle with its arrays after it, each aligned: readers need no copy of them."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    sizes = [buffer.raw().nbytes for buffer in buffers]
    for part in (head, pickle.dumps(sizes)):
        file.write(_COUNT.pack(len(part)))
        file.write(part)
    for buffer in buffers:
        file.write(bytes(-file.tell() % ALIGNED))
        file.write(buffer.raw())
    file.flush()


def _read_shared(descriptor: int) -> Any:
    """Read what was written, with arrays in the file's own pages."""
    view, at = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)), 0
    parts = []
    for _ in range(2):
        (size,) = _COUNT.unpack_from(view, at)
        at += _COUNT.size + size
        parts.append(view[at - size : at])
    buffers = []
    for size in pickle.loads(parts[1]):
        at += -at % ALIGNED
        buffers.append(view[at : at + size])
        at += size
    return pickle.loads(parts[0], buffers=buffers)
