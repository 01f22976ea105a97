"""Samples shared out among several devices in the same state, each with a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TypeVar

from smidgen.targets.device import Device
from smidgen.threads import in_order

Item = TypeVar("Item")
Result = TypeVar("Result")
FEWEST = 32  # samples for each device: to start another takes as long as some of them


def share_out(
    device: Device, function: Callable[[Device, Item], Result], items: Iterable[Item], threads: int
) -> Generator[Result]:
    """function(device, item) of every item in turn, by the device and by others like it.

    The device does it alone where it is the only one there can be, or carries variables from sample to sample. Who
    stops early closes this before the device.
    """
    free: SimpleQueue[Device] = SimpleQueue()
    free.put(device)

    def run(item: Item) -> Result:
        one = free.get()
        try:
            return function(one, item)
        finally:
            free.put(one)

    with ExitStack() as opened:
        for _ in range(1, 1 if device.graph.variables else threads):
            twin = device.twin()
            if twin is None:
                break
            free.put(opened.enter_context(twin))
        yield from in_order(run, items, free.qsize())
