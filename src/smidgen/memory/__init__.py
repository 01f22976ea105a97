"""Where every tensor lies: rows through ring buffers, the order of nodes, lifetimes, a packer, and a check of it all.

graph → `streaming`, `ordering` → `buffers` → `packed` → `check`. Time is the index of a node; all intervals are
half-open.
"""

from smidgen.memory.checking import check, check_apart
from smidgen.memory.layout import ALIGNMENT, Buffer, Plan, most, shared
from smidgen.memory.lives import buffers, loads_of
from smidgen.memory.peak import PeakParts, Sram, peak_parts
from smidgen.memory.planning import apart, greedy, overlapping, packed
from smidgen.memory.state import state_bytes, state_offsets

__all__ = [
    "ALIGNMENT",
    "Buffer",
    "PeakParts",
    "Plan",
    "Sram",
    "apart",
    "buffers",
    "check",
    "check_apart",
    "greedy",
    "loads_of",
    "most",
    "overlapping",
    "packed",
    "peak_parts",
    "shared",
    "state_bytes",
    "state_offsets",
]
