"""ONNX's own tests of its operators: each of a claimed operator passes, or is refused in a sentence that is on record.

`python tests/frontends/test_onnx_nodes.py` writes the record again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from smidgen.errors import SmidgenError
from smidgen.frontends.onnx import read_onnx
from smidgen.frontends.onnx.read.decode import OLDEST
from smidgen.frontends.onnx.read.operators import OPERATOR_RULES
from smidgen.ir import Array
from tests.support.float_models import channels_last, run

RECORD = Path(__file__).parents[1] / "support" / "onnx_refused.txt"
SEVERAL = "LayerNormalization"  # whose tests also ask for the mean and the deviation


def load() -> dict[str, Any]:
    """The tests of claimed operators on float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        every = load_model_tests(kind="node")
    return {case.name: case for case in every if claimed(case)}


def claimed(case: Any) -> bool:
    model = case.model
    known = all(node.op_type in OPERATOR_RULES and not node.domain for node in model.graph.node)
    recent = max((entry.version for entry in model.opset_import if not entry.domain), default=0) >= OLDEST
    tensors = model.graph.input
    return known and recent and bool(tensors) and tensors[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    return load()


def attempts(case: Any) -> Iterator[tuple[bytes, list[Array]]]:
    """Yield the model unchanged, then with every input but the first a constant: weights are inputs in these tests.

    Last, with its first output alone: the others, a mean or a past, are for training and for decoders.
    """
    inputs = list(case.data_sets[0][0])
    yield case.model.SerializeToString(), inputs
    bound = onnx.ModelProto()
    bound.CopyFrom(case.model)
    if len(inputs) == len(bound.graph.input) > 1 and not any(isinstance(a, onnx.TensorProto) for a in inputs):
        for value, data in zip(bound.graph.input[1:], inputs[1:], strict=True):
            bound.graph.initializer.append(numpy_helper.from_array(np.asarray(data), value.name))
        del bound.graph.input[1:]
        yield bound.SerializeToString(), inputs[:1]
    if len(bound.graph.output) > 1 and len(bound.graph.node) == 1 and bound.graph.node[0].op_type == SEVERAL:
        del bound.graph.output[1:]
        del bound.graph.node[0].output[1:]
        yield bound.SerializeToString(), inputs[: len(bound.graph.input)]


def outcome(case: Any, path: Path) -> str:
    """Nothing where the graph gives the test's outputs, else why it was refused."""
    reason = ""
    for model, inputs in attempts(case):
        path.write_bytes(model)
        try:
            graph = read_onnx(path)
        except SmidgenError as error:
            reason = str(error)
            continue
        wanted = case.data_sets[0][1]
        assert len(graph.outputs) == len(wanted) or case.model.graph.node[0].op_type == SEVERAL
        for ours, theirs in zip(run(graph, *inputs), wanted, strict=False):
            if case.model.graph.node[0].op_type == "ArgMax":  # ours are the scores
                ours, theirs = ours.argmax(axis=-1).ravel(), theirs.ravel()
            if theirs.dtype == np.uint8:
                theirs = theirs.astype(np.int16) - 128  # ours are int8
            expected = theirs if ours.shape == theirs.shape else channels_last(theirs, ours.shape)
            np.testing.assert_allclose(ours, expected, rtol=case.rtol, atol=1e-6, err_msg=case.name)
        return ""
    return reason


def recorded() -> tuple[str, dict[str, str]]:
    version, *lines = RECORD.read_text().splitlines()
    return version, dict(line.split(": ", 1) for line in lines)


def test_every_test_of_a_claimed_operator_passes_or_is_refused_as_recorded(
    cases: dict[str, Any], tmp_path: Path
) -> None:
    version, refused = recorded()
    reasons = {name: outcome(case, tmp_path / "node.onnx") for name, case in cases.items()}
    if version == f"onnx {onnx.__version__}":
        assert {name: reason for name, reason in reasons.items() if reason} == refused
    assert all(not reason or reason.count("\n") == 0 for reason in reasons.values())


def test_claimed_operators_pass_a_test_of_onnx_unless_listed_here(cases: dict[str, Any]) -> None:
    _, refused = recorded()
    passed = {node.op_type for name, case in cases.items() if name not in refused for node in case.model.graph.node}
    # Their tests come with a batch, in other types, with nothing computed, or want a cell state; other tests have them.
    others = {"Gemm", "GroupNormalization", "LSTM", "DequantizeLinear", "Min"}
    assert set(OPERATOR_RULES) - passed == others


def write(folder: Path) -> None:
    reasons = {name: outcome(case, folder / "node.onnx") for name, case in sorted(load().items())}
    lines = [f"onnx {onnx.__version__}", *(f"{name}: {reason}" for name, reason in reasons.items() if reason)]
    RECORD.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        write(Path(temporary))
