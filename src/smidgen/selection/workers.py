"""Worker processes on this machine: one that is killed is replaced, and its work is done again."""

from __future__ import annotations

import mmap
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any, Generic, TypeVar

from smidgen.errors import TargetError

Common = TypeVar("Common")
Item = TypeVar("Item")
Result = TypeVar("Result")
TRIES = 3  # at one item, before it is blamed for the deaths of those who work on it
ALIGNED = 64  # bytes: where arrays begin in the file that all processes read
_COUNT = struct.Struct("<Q")
# The path comes along, so that others find the library where this process did; the user's script is not run again.
_CODE = "import sys; sys.path[:] = {path!r}; from smidgen.selection.workers import serve; serve{descriptors}"


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
    with tempfile.TemporaryFile() as file:
        _write_shared((function, common), file)
        crew = _Crew(file, items)
        try:
            for _ in range(min(workers, len(items))):
                crew.start()
            while crew.busy:
                yield from crew.answers()
        finally:
            crew.end()


class _Worker:
    """A process, a pipe to it and one back: no sockets, which would look as if a network were needed."""

    def __init__(self, file: IO[bytes]) -> None:
        items, self.items = Pipe(duplex=False)
        self.answers, answers = Pipe(duplex=False)
        with items, answers:
            theirs = items.fileno(), answers.fileno(), file.fileno()
            self.process = subprocess.Popen(
                (sys.executable, "-c", _CODE.format(path=sys.path, descriptors=theirs)),
                pass_fds=theirs,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def end(self) -> int:
        """End the process; return its exit code."""
        self.items.close()
        self.answers.close()
        self.process.kill()
        return self.process.wait()


class _Crew(Generic[Item]):
    """Processes at work, and the items left to do."""

    def __init__(self, file: IO[bytes], items: Sequence[Item]) -> None:
        self.file, self.left = file, deque((item, 1) for item in items)  # with how often it is then tried
        self.busy: dict[Connection[Any, Any], tuple[_Worker, Item, int]] = {}

    def start(self) -> None:
        self.give(_Worker(self.file))

    def give(self, worker: _Worker) -> None:
        """Give the next item to a worker, or end it where none is left."""
        if not self.left:
            worker.end()
            return
        item, tried = self.left.popleft()
        self.busy[worker.answers] = worker, item, tried
        with suppress(OSError):  # where it has died in between, which `answers` sees
            worker.items.send(item)

    def answers(self) -> Iterator[tuple[Item, Any]]:
        """Yield answers, after waiting for at least one."""
        ready = wait(list(self.busy))
        for pipe in [pipe for pipe in self.busy if pipe in ready]:
            worker, item, tried = self.busy.pop(pipe)
            try:
                fine, answer = worker.answers.recv()
            except (EOFError, OSError):
                self.replace(worker, item, tried)
                continue
            if not fine:
                worker.end()
                raise answer
            self.give(worker)
            yield item, answer

    def replace(self, worker: _Worker, item: Item, tried: int) -> None:
        """Start another worker in place of one that died; its item comes first."""
        code = worker.end()
        if tried == TRIES:
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            raise TargetError(
                f"{TRIES} worker processes ended at the same run, the last {how}; if memory ran out, use fewer workers"
            )
        self.left.appendleft((item, tried + 1))
        self.start()

    def end(self) -> None:
        for worker, _, _ in self.busy.values():
            worker.end()


def serve(items: int, answers: int, shared: int) -> None:
    """Take items and answer, in a worker process, until nobody is left to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted at the keyboard ends its workers itself
    asking: Connection[Any, Any] = Connection(items, writable=False)
    answering: Connection[Any, Any] = Connection(answers, readable=False)
    function, common = _read_shared(shared)
    with suppress(EOFError, OSError):
        while True:
            item = asking.recv()
            try:
                answer = True, function(common, item)
            except Exception as error:
                answer = False, error
            answering.send(answer)


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
