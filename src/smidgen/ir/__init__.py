"""The graph: types, values, ops, nodes in order; building, verifying and evaluating them.

Node order is the schedule. There is no second representation: passes filter or permute `nodes`,
planning reads them, code generation prints one call for each.
"""

from smidgen.ir.building import Builder
from smidgen.ir.evaluating import check_inputs, evaluate, evaluate_all, evaluate_step
from smidgen.ir.graph import (
    ATTRIBUTES,
    OPS,
    Graph,
    LabelKind,
    Node,
    Op,
    Roles,
    RowWindow,
    Value,
    attribute,
    infer,
    memory_read,
    op,
    refuse_variables,
    roles_of,
    virtual_sources,
)
from smidgen.ir.types import DTYPES, MAX_BYTES, MAX_RANK, NAME, Array, Params, QParams, Type
from smidgen.ir.verifying import verify

__all__ = [
    "ATTRIBUTES", "DTYPES", "MAX_BYTES", "MAX_RANK", "NAME", "OPS", "Array", "Builder", "Graph", "LabelKind", "Node",
    "Op", "Params", "QParams", "Roles", "RowWindow", "Type", "Value", "attribute", "check_inputs", "evaluate",
    "evaluate_all", "evaluate_step", "infer", "memory_read", "op", "refuse_variables", "roles_of", "verify",
    "virtual_sources",
]  # fmt: skip
