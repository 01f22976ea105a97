"""The page of supported operators says what the front ends read, the writers write and the kernels run."""

from __future__ import annotations

from smidgen.frontends.onnx.write.functions import OPERATORS as WRITTEN
from smidgen.ir import OPS, Op
from smidgen.ops.functions import FUNCTIONS
from smidgen.ops.loss import LossOp
from tests.support import ops_table


def test_the_table_names_every_operator_the_front_ends_read_and_no_other() -> None:
    for which, known in enumerate(ops_table.tables()):
        assert ops_table.names(which) == known


def test_every_op_a_forward_pass_can_hold_is_in_the_table() -> None:
    losses = {name for name, op in OPS.items() if issubclass(op, LossOp)}
    inner = {"Overlay", "Project", *losses}  # of programs that learn, which no file of others holds
    without = {"Assign", "BatchNorm", "LogSoftmax", "Quantize", "Softmax"}
    forward = {name for name, op in OPS.items() if op.grad is not Op.grad} | without
    assert forward - inner == {op.__name__ for op in ops_table.NAMES}


def test_every_function_is_written_to_onnx() -> None:
    assert set(WRITTEN) == set(FUNCTIONS)


def test_the_page_is_the_table() -> None:
    assert ops_table.PAGE.read_text() == ops_table.page(), "run python -m tests.support.ops_table"
