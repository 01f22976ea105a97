"""Working memory: what a node's kernel needs, as the folder it comes from says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from smidgen.ir import Node
from smidgen.runtime.cortex_m.working import NEEDS as CORTEX_M
from smidgen.runtime.helium.working import NEEDS as HELIUM
from smidgen.runtime.kernels.working import NEEDS as KERNELS
from smidgen.runtime.scalar.working import NEEDS as SCALAR

Need = Callable[[Node, bool], int]
_FOLDERS: Mapping[str, Mapping[str, Need]] = {
    "kernels": KERNELS,
    "scalar": SCALAR,
    "cortex_m": CORTEX_M,
    "helium": HELIUM,
}


def working_memory(node: Node, by_row: bool, folders: tuple[str, ...]) -> int:
    """Bytes a node's kernel needs for a whole call, or where it computes one output row per call.

    A later folder's kernel takes the place of an earlier one's, and so does what it needs.
    """
    symbol = node.op.symbol(node)
    need = next((_FOLDERS[folder][symbol] for folder in reversed(folders) if symbol in _FOLDERS[folder]), None)
    return need(node, by_row) if need else 0
