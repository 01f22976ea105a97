"""Memory plans: rows through ring buffers, the order of nodes, lifetimes, a packer, and a check of it all.

graph → `streaming`, `ordering` → `buffers` → `packed` → `check`. Time is the index of a node; all intervals are
half-open.
"""

from smidgen.memory.checking import check, check_apart
from smidgen.memory.layout import ALIGNMENT, Buffer, Plan, most, shared, state_bytes, state_offsets
from smidgen.memory.peak import Memory, PeakParts, Sram, peak_parts, planned_memory
from smidgen.memory.planner import apart, buffers, loads_of, overlapping, packed

__all__ = [
    "ALIGNMENT", "Buffer", "Memory", "PeakParts", "Plan", "Sram", "apart", "buffers", "check", "check_apart",
    "loads_of", "most", "overlapping", "packed", "peak_parts", "planned_memory", "shared", "state_bytes",
    "state_offsets",
]  # fmt: skip
