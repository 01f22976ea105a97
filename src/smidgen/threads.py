"""Work shared out among the cores of this machine by threads: results come in order, as a single thread gives them.

C and numpy let other threads go on while they compute.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from smidgen.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
AHEAD = 3  # items in hand for each thread, so that none waits for the one that takes results


def cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_for(items: int, fewest: int, most: int | None = None) -> int:
    """Return the number of threads for so many items, each with at least `fewest`; at most one per core, or `most`."""
    if most is not None and most < 1:
        raise InputError(f"{most} threads cannot do anything; give 1 or more")
    return max(1, min(cores() if most is None else most, items // fewest))


def in_order(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Generator[Result]:
    """function(item) of every item in turn, computed by so many threads; by this one where it is one.

    Items are taken as threads come to them. The first item that fails ends it, with its error; once it is closed, no
    thread is at work any more.
    """
    if threads <= 1:
        yield from map(function, items)
        return
    pool, pending = ThreadPoolExecutor(threads), deque[Future[Result]]()
    try:
        for item in items:
            pending.append(pool.submit(copy_context().run, function, item))
            if len(pending) >= AHEAD * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
