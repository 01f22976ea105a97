"""The exact form of ONNX: ONNX Runtime computes the bytes that numpy does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from cases import GRAPHS, RUNS, inputs
from graphs import int8_graphs, random_inputs
from networks import CLASSES, inverted_residual
from smidgen import numerics, ops
from smidgen.errors import ExportError, ImportModelError, InputError
from smidgen.frontends import export_model, import_model
from smidgen.frontends.onnx import write_exact, write_onnx
from smidgen.frontends.onnx.arithmetic import Steps
from smidgen.frontends.onnx.exact import EXACT
from smidgen.frontends.onnx.writer import RULES, Writer
from smidgen.ir import Array, Builder, Graph, QParams, Type, evaluate
from smidgen.ops.softmax import reciprocal
from smidgen.scheme import load_scheme
from smidgen.training import Options, build_training

INT32 = np.iinfo(np.int32)
ENDS = np.array([INT32.min, INT32.min + 1, -(2**30), -3, -2, -1, 0, 1, 2, 3, 2**30, INT32.max - 1, INT32.max])
MULTIPLIERS = np.array([0, 1, 2**29, 2**30, 2**30 + 1, 3 * 2**29, 2**31 - 2, 2**31 - 1])
seeds = st.integers(0, 2**32 - 1)


def results(data: bytes, *arrays: Array) -> list[Array]:
    """What ONNX Runtime computes as it comes, of a file that ONNX's checker finds sound."""
    onnx.checker.check_model(data, full_check=True)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return [np.asarray(a) for a in session.run(None, dict(zip(names, arrays, strict=True)))]


def computed(steps: Callable[[Steps, str], str], x: Array) -> Array:
    """What ONNX Runtime computes by single steps, as int64."""
    g = Builder("steps")
    writer = Writer(g.graph(g.input("x", Type(x.shape, "int32"))))
    writer.emit("Cast", "y", steps(Steps(writer, "step"), "x"), to=TensorProto.INT64)
    x_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    body = helper.make_graph(
        writer.nodes, "steps", [helper.make_tensor_value_info("x", x_type, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, x.shape)], writer.constants,
    )  # fmt: skip
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return results(model.SerializeToString(), x)[0]


def sums(rng: np.random.Generator, columns: int) -> Array:
    """int32 numbers of every size, the extremes among them, a row each."""
    drawn = rng.integers(INT32.min, INT32.max + 1, (200, columns)) >> rng.integers(0, 31, (200, columns))
    return np.concatenate([np.repeat(ENDS[:, None], columns, 1), drawn]).astype(np.int32)


@settings(max_examples=100, deadline=None)
@given(seeds, st.sampled_from(((-31, 0), (-31, 31), (0, 31), (0, 0))))
def test_the_integer_nodes_multiply_as_numerics_does(seed: int, range_: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    shift = np.arange(range_[0], range_[1] + 1)
    drawn = rng.integers(2**30, 2**31, shift.size)
    multiplier = np.where(rng.random(shift.size) < 0.3, rng.choice(MULTIPLIERS, shift.size), drawn)
    x = sums(rng, shift.size)
    # Multiplied by 2^30 / 2^31 even numbers need no first rounding, so that these are halves to the second one.
    multiplier = np.where(rng.random(shift.size) < 0.3, 2**30, multiplier)
    x[-100:] = ((2 * rng.integers(-50, 51, (100, 1)) + 1) << np.maximum(-shift, 1)).astype(np.int32)
    got = computed(lambda steps, name: steps.multiply(name, multiplier, shift), x)
    np.testing.assert_array_equal(got, numerics.multiply(x, multiplier, shift))


@settings(max_examples=50, deadline=None)
@given(seeds)
def test_the_integer_nodes_scale_in_double_as_numerics_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = sums(rng, 40)
    factor = 2.0 ** rng.uniform(-40, 5, 40)
    factor[:8] = 0.5, 0.25, 1.5, 2.0**-31, 0.0, 1.0, np.nextafter(0.5, 0), np.nextafter(0.5, 1)
    got = computed(lambda steps, name: steps.scale_double(name, factor), x)
    np.testing.assert_array_equal(got, numerics.scale_double(x, factor))


def test_the_integer_nodes_invert_a_sum_of_exponentials_as_softmax_does() -> None:
    rng = np.random.default_rng(0)
    ends = np.array([p + d for p in 2 ** np.arange(19, 31) for d in (0, 1, 2**18 - 1)] + [4095 << 19])
    total = np.concatenate([ends, rng.integers(2**19, 4095 << 19, 5000)])[:, None]
    scale, over = reciprocal(total)
    np.testing.assert_array_equal(computed(lambda steps, x: steps.reciprocal(x)[0], total), scale)
    np.testing.assert_array_equal(computed(lambda steps, x: steps.reciprocal(x)[1], total), over)


def test_every_case_of_every_op_computes_the_same_bytes_in_onnx_runtime() -> None:
    seen = set()
    for name, graph in GRAPHS.items():
        seen |= {type(node.op) for node in graph.nodes}
        data = write_exact(graph)
        for run in range(RUNS):
            arrays = inputs(graph, run)
            for want, got in zip(evaluate(graph, *arrays), results(data, *arrays), strict=True):
                assert want.dtype == got.dtype, name
                np.testing.assert_array_equal(want, got, name)
    assert seen == set(RULES) - {ops.BatchNorm}, "an op without an int8 case"
    assert set(EXACT) <= seen


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(int8_graphs(), seeds)
def test_random_graphs_compute_the_same_bytes_in_onnx_runtime(tmp_path: Path, graph: Graph, seed: int) -> None:
    arrays = random_inputs(graph, np.random.default_rng(seed))
    export_model(graph, tmp_path / "graph.onnx", exact=True)
    data = (tmp_path / "graph.onnx").read_bytes()
    for want, got in zip(evaluate(graph, *arrays), results(data, *arrays), strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(want, got)
    with pytest.raises(ImportModelError):  # integer nodes say what is computed, not what the numbers mean
        import_model(tmp_path / "graph.onnx")


@pytest.mark.parametrize("write", [write_onnx, write_exact])
def test_an_input_that_is_an_output_too_leaves_as_it_came(write: Callable[[Graph], bytes]) -> None:
    g = Builder("model")
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 4), "int8", q))
    graph = g.graph(g.emit(ops.Activate(), x, q=q), x)
    array = np.array([[-128, -1, 0, 127]], np.int8)
    for want, got in zip(evaluate(graph, array), results(write(graph), array), strict=True):
        np.testing.assert_array_equal(want, got)


def test_what_has_no_exact_form_is_refused_in_a_sentence(tmp_path: Path) -> None:
    graph = inverted_residual(0)
    for name in ("model.tflite", "model.smg"):
        with pytest.raises(InputError, match="is exact; leave exact out"):
            export_model(graph, tmp_path / name, exact=True)
    training = build_training(graph, load_scheme("last:1", graph), Options(CLASSES))
    with pytest.raises(ExportError, match="ONNX only infers"):
        write_exact(training.step)
    g = Builder("model")
    x = g.input("x", Type((1, 4), "float32"))
    with pytest.raises(ExportError, match="model computes in float32 alone"):
        write_exact(g.graph(g.emit(ops.Activate(), x)))
    g = Builder("model")
    q = QParams.per_tensor(0.1)
    a, b = (g.input(name, Type((1, 4), "int8", q)) for name in "ab")
    bias = g.constant("bias", np.zeros(1, np.int32))
    with pytest.raises(ExportError, match="%b are computed; ONNX export wants constants"):
        write_exact(g.graph(g.emit(ops.Dense(), a, b, bias, q=q)))
    assert not list(tmp_path.iterdir())
