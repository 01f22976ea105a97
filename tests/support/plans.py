"""A planner so simple that its plans show what others do: greedy by size."""

from __future__ import annotations

from smidgen.memory import Buffer, Plan, apart


def greedy(buffers: tuple[Buffer, ...]) -> Plan:
    """Place the largest first, each at the lowest offset where it meets no buffer that is alive with it."""
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
