"""A place in the arena for every buffer: the best the packer finds, or the largest first."""

from __future__ import annotations

from dataclasses import replace

from smidgen.memory.layout import Buffer, Plan, most
from smidgen.memory.overlap import Overlap
from smidgen.memory.packing import DECISIONS, Item, pack, pack_overlapping


def packed(buffers: tuple[Buffer, ...], decisions: int = DECISIONS) -> Plan:
    """The best plan found within a number of decisions; at once where it meets the lower bound.

    Buffers that are meant to overlap do so where that lowers the peak, and lie apart where it does not.
    """
    needed = _needed(buffers)
    if all(b.overlap is None for b in needed):
        return Plan(needed, pack(_items(needed), decisions).offsets)
    plan = overlapping(needed, decisions)
    if plan.peak <= most(apart(buffers)):
        return plan
    return min(plan, packed(apart(buffers), decisions), key=lambda plan: plan.peak)


def _needed(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The same buffers, overlapping only where fewer bytes are alive at the peak for it: what is free packs better."""
    for index, buffer in enumerate(buffers):
        if buffer.overlap is not None:
            without = (*buffers[:index], replace(buffer, overlap=None), *buffers[index + 1 :])
            buffers = without if most(without) == most(buffers) else buffers
    return buffers


def overlapping(buffers: tuple[Buffer, ...], decisions: int = DECISIONS) -> Plan:
    """The best plan found in which every buffer that is meant to lie over another does."""
    begun = {b.values[0]: index for index, b in enumerate(buffers) if b.values}
    overlaps = tuple(
        Overlap(i, begun[b.overlap.made], b.overlap.distance) for i, b in enumerate(buffers) if b.overlap is not None
    )
    return Plan(buffers, pack_overlapping(_items(buffers), overlaps, decisions).offsets)


def _items(buffers: tuple[Buffer, ...]) -> tuple[Item, ...]:
    return tuple(Item(b.start, b.end, b.padded) for b in buffers)


def apart(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The same buffers, none of them over another."""
    return tuple(replace(b, overlap=None) for b in buffers)


def greedy(buffers: tuple[Buffer, ...]) -> Plan:
    """The largest first, each at the lowest offset where it meets no buffer that is alive with it."""
    buffers = apart(buffers)
    offsets: dict[int, int] = {}
    for index in sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].start)):
        buffer = buffers[index]
        taken = sorted(
            (offset, offset + buffers[other].padded)
            for other, offset in offsets.items()
            if buffers[other].start < buffer.end and buffer.start < buffers[other].end
        )
        offset = 0
        for low, high in taken:
            if offset + buffer.padded <= low:
                break
            offset = max(offset, high)
        offsets[index] = offset
    return Plan(buffers, tuple(offsets[index] for index in range(len(buffers))))
