"""ONNX that rounds as we do: runtimes compute the bytes that numpy does."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from smidgen import numerics, ops
from smidgen.errors import ExportError, ImportModelError, InputError
from smidgen.frontends import export_model, import_model
from smidgen.frontends.onnx import write_onnx, write_plain
from smidgen.frontends.onnx.write.exact import ROUNDED, RULES
from smidgen.frontends.onnx.write.functions import (
    DOMAIN,
    LAYERS,
    OPERATORS,
    OPSET,
    VERSION,
    WEIGHTED,
    DoubleRounding,
    functions_needed,
    library,
    rounding,
    rounding_of_sums,
)
from smidgen.frontends.onnx.write.plain import RULES as PLAIN_RULES
from smidgen.ir import Array, Builder, Graph, QParams, Type, evaluate
from smidgen.ops.softmax import OUTPUT, reciprocal
from smidgen.training import Options, build_training
from smidgen.training.scheme import load_scheme
from tests.support.cases import GRAPHS, RUNS, inputs
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import examples

INT32 = np.iinfo(np.int32)
ENDS = np.array([INT32.min, INT32.min + 1, -(2**30), -3, -2, -1, 0, 1, 2, 3, 2**30, INT32.max - 1, INT32.max])
MULTIPLIERS = np.array([0, 1, 2**29, 2**30, 2**30 + 1, 3 * 2**29, 2**31 - 2, 2**31 - 1])
TOO_NARROW = 2**31 - 2, -30  # a multiplier and a shift that double has no bits for
STEPS = 255  # that an int8 number is from a zero point, at most
RECURRENT = (ops.Gru, ops.Lstm)  # whose gates a runtime computes in float32
ROUNDED_ALIKE = {
    name: graph for name, graph in GRAPHS.items() if not any(isinstance(node.op, RECURRENT) for node in graph.nodes)
}
seeds = st.integers(0, 2**32 - 1)


def results(data: bytes, *arrays: Array) -> list[Array]:
    """Return what ONNX Runtime computes by default for a file that ONNX's checker accepts."""
    names = [value.name for value in checked_session(data).get_inputs()]
    return [np.asarray(a) for a in checked_session(data).run(None, dict(zip(names, arrays, strict=True)))]


@lru_cache(maxsize=1)
def checked_session(data: bytes) -> onnxruntime.InferenceSession:
    onnx.checker.check_model(data, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # pytest's workers share the cores
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def called(code: str, x: Array, *constants: Array) -> list[Array]:
    """What ONNX Runtime makes of one function, of constant inputs but for the first."""
    function = library()[code]
    node = helper.make_node(code, list(function.input), list(function.output), domain=DOMAIN)
    held = [numpy_helper.from_array(a, name) for a, name in zip(constants, function.input[1:], strict=True)]
    x_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    outs = [helper.make_empty_tensor_value_info(name) for name in function.output]
    body = helper.make_graph(
        [node], "function", [helper.make_tensor_value_info(function.input[0], x_type, x.shape)], outs, held
    )
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)]
    model = helper.make_model(body, opset_imports=versions, functions=functions_needed({code}), ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, {function.input[0]: x})]


# --- single functions


def sums(rng: np.random.Generator, columns: int) -> Array:
    """int32 numbers of every size, the extremes among them, a row each."""
    drawn = rng.integers(INT32.min, INT32.max + 1, (200, columns)) >> rng.integers(0, 31, (200, columns))
    return np.concatenate([np.repeat(ENDS[:, None], columns, 1), drawn]).astype(np.int32)


def thresholds(multiplier: Array, shift: Array) -> Array:
    """The sums around each of which int8 takes its next step, a column for each multiplier."""
    factor = np.maximum(multiplier, 1) * 2.0 ** (shift - 31)
    steps = np.arange(-STEPS - 1, STEPS + 2)[:, None] - 0.5
    near = np.clip(np.rint(steps / factor)[None] + np.arange(-3, 4)[:, None, None], INT32.min, INT32.max)
    return near.reshape(-1, len(shift)).astype(np.int32)


def any_multipliers(rng: np.random.Generator, count: int) -> Array:
    """Most as scales give them, some at the ends, and some so that sums can lie between two steps."""
    drawn = rng.integers(2**30, 2**31, count) >> np.where(rng.random(count) < 0.2, rng.integers(0, 31, count), 0)
    lowest = np.where(rng.random(count) < 0.3, rng.integers(0, 31, count), 0)
    return np.where(rng.random(count) < 0.3, rng.choice(MULTIPLIERS, count), (drawn >> lowest) << lowest)


@settings(max_examples=examples(100))
@given(seeds)
def test_one_rounding_in_double_is_both_of_numerics_wherever_int8_takes_a_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shift = np.arange(-31, 1)
    multiplier = any_multipliers(rng, shift.size)
    multiplier[shift == TOO_NARROW[1]] -= multiplier[shift == TOO_NARROW[1]] == TOO_NARROW[0]
    how = rounding_of_sums(multiplier, shift, "layer")
    x = np.concatenate([sums(rng, shift.size), thresholds(multiplier, shift)])
    want = np.clip(numerics.multiply(x, multiplier, shift), -STEPS, STEPS)
    np.testing.assert_array_equal(np.clip(how.of(x), -STEPS, STEPS), want)
    got = called("Scaled", x, *scaling(how), np.array(1, np.float32))[0]
    np.testing.assert_array_equal(np.clip(got, -STEPS, STEPS), want)


def scaling(how: DoubleRounding) -> tuple[Array, Array, Array]:
    return how.factor, how.half, how.tie


def test_sums_shifted_left_are_scaled_as_numerics_does_while_they_do_not_wrap() -> None:
    rng = np.random.default_rng(0)
    for shift in range(1, 31):
        multiplier = any_multipliers(rng, 1)
        x = rng.integers(-(2**31 >> shift), 2**31 >> shift, 1000)
        want = np.clip(numerics.multiply(x, multiplier, shift), -STEPS, STEPS)
        how = rounding_of_sums(multiplier, np.array([shift]), "layer")
        np.testing.assert_array_equal(np.clip(how.of(x), -STEPS, STEPS), want)


@settings(max_examples=examples(100))
@given(seeds, st.integers(-31, 0))
def test_each_side_of_a_sum_is_raised_and_scaled_as_numerics_does(seed: int, shift: int) -> None:
    x = np.arange(-STEPS, STEPS + 1)
    for multiplier in any_multipliers(np.random.default_rng(seed), 20):
        want = numerics.multiply(x << 20, multiplier, shift)
        np.testing.assert_array_equal(rounding(multiplier, shift, 20).of(x), want)


@settings(max_examples=examples(50))
@given(seeds)
def test_halves_go_away_from_zero_in_double_as_in_numerics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = sums(rng, 40)
    factor = 2.0 ** rng.uniform(-40, 5, 40)
    factor[:8] = 0.5, 0.25, 1.5, 2.0**-31, 0.0, 1.0, np.nextafter(0.5, 0), np.nextafter(0.5, 1)
    got = called("HalvesAway", x, factor, np.array(1, np.float32))[0]
    want = numerics.scale_double(x, factor)
    np.testing.assert_array_equal(np.clip(got, -STEPS, STEPS), np.clip(want, -STEPS, STEPS))


def test_a_sum_of_exponentials_is_inverted_as_softmax_does() -> None:
    rng = np.random.default_rng(0)
    ends = np.array([p + d for p in 2 ** np.arange(19, 31) for d in (0, 1, 2**18 - 1)] + [4095 << 19])
    total = np.concatenate([ends, rng.integers(2**19, 4095 << 19, 5000)])[:, None]
    for want, got in zip(reciprocal(total), called("Reciprocal", total), strict=True):
        np.testing.assert_array_equal(got, want)


# --- layers and graphs


def test_every_case_of_every_op_computes_the_same_bytes_in_onnx_runtime() -> None:
    seen: set[type] = set()
    used: set[str] = set()
    for name, graph in ROUNDED_ALIKE.items():
        seen |= {type(node.op) for node in graph.nodes}
        data = write_onnx(graph)
        used |= {node.op_type for node in onnx.load_from_string(data).graph.node if node.domain == DOMAIN}
        for run in range(RUNS):
            arrays = inputs(graph, run)
            for want, got in zip(evaluate(graph, *arrays), results(data, *arrays), strict=True):
                assert want.dtype == got.dtype, name
                np.testing.assert_array_equal(want, got, name)
    written = {*PLAIN_RULES, ops.Project}  # which is written as a dense layer
    assert seen == written - {ops.BatchNorm, *RECURRENT}, "an op without an int8 case"
    assert {*RULES, *ROUNDED} <= seen
    assert used == {*LAYERS, *WEIGHTED, "Table"}, "a function without a case"


def test_every_case_of_every_op_computes_the_same_bytes_in_onnx_s_reference() -> None:
    for name, graph in ROUNDED_ALIKE.items():
        model, arrays = ReferenceEvaluator(write_onnx(graph)), inputs(graph, 0)
        got = model.run(None, dict(zip(model.input_names, arrays, strict=True)))
        for want, array in zip(evaluate(graph, *arrays), got, strict=True):
            assert want.dtype == np.asarray(array).dtype, name
            np.testing.assert_array_equal(want, array, name)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(int8_graphs(recurrent=False, beyond=True), seeds)
def test_random_graphs_compute_the_same_bytes_in_onnx_runtime(graph: Graph, seed: int) -> None:
    arrays = random_inputs(graph, np.random.default_rng(seed))
    for want, got in zip(evaluate(graph, *arrays), results(write_onnx(graph), *arrays), strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(want, got)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(int8_graphs(recurrent=False), seeds)
def test_random_graphs_are_read_from_both_forms_alike(tmp_path: Path, graph: Graph, seed: int) -> None:
    # The plain form has no word for TFLite's own roundings.
    assume(not any(isinstance(node.op, ops.Lookup) and node.op.tflite for node in graph.nodes))
    read = []
    for plain in (False, True):
        export_model(graph, tmp_path / "graph.onnx", plain)
        read.append(import_model(tmp_path / "graph.onnx"))
    arrays = random_inputs(read[0], np.random.default_rng(seed))
    for ours, plain in zip(*(evaluate(each, *arrays) for each in read), strict=True):
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("write", [write_onnx, write_plain])
def test_an_input_that_is_an_output_too_leaves_as_it_came(write: Callable[[Graph], bytes]) -> None:
    g = Builder("model")
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 4), "int8", q))
    graph = g.graph(g.emit(ops.Activate(), x, q=q), x)
    array = np.array([[-128, -1, 0, 127]], np.int8)
    for want, got in zip(evaluate(graph, array), results(write(graph), array), strict=True):
        np.testing.assert_array_equal(want, got)


def test_an_input_that_is_quantized_first_keeps_its_order(tmp_path: Path) -> None:
    g = Builder("model")
    q = QParams.per_tensor(0.1)
    x = g.emit(ops.Quantize(), g.input("x", Type((1, 1, 1, 2), "float32")), q=q)
    export_model(g.graph(g.emit(ops.Mean(), x, q=q)), tmp_path / "graph.onnx")
    assert import_model(tmp_path / "graph.onnx").inputs[0].type.shape == (1, 1, 1, 2)


def test_every_function_of_an_element_comes_back_as_what_it_was(tmp_path: Path) -> None:
    lookups = (ops.Lookup(name, 0.5, 1.5 if name in ("clip", "hard_sigmoid", "selu") else 0.0) for name in OPERATORS)
    for op in (*lookups, ops.Softmax(), ops.Softmax(0.7)):
        g = Builder("model")
        q = OUTPUT if isinstance(op, ops.Softmax) else QParams.per_tensor(0.03, 5)
        graph = g.graph(g.emit(op, g.input("x", Type((1, 4), "int8", QParams.per_tensor(0.05, -3))), q=q))
        export_model(graph, tmp_path / "graph.onnx")
        back = import_model(tmp_path / "graph.onnx")
        assert len(back.nodes) == 1, op
        x = np.arange(-128, 128, dtype=np.int8).reshape(-1, 1, 4)
        for row in x:
            np.testing.assert_array_equal(evaluate(back, row)[0], evaluate(graph, row)[0], str(op))


def test_a_model_in_float32_needs_no_functions() -> None:
    g = Builder("model")
    x = g.input("x", Type((1, 4), "float32"))
    graph = g.graph(g.emit(ops.Activate("relu"), x))
    assert write_onnx(graph) == write_plain(graph)
    assert not onnx.load_from_string(write_plain(inverted_residual(0))).functions


# --- what is refused


def test_what_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    graph = inverted_residual(0)
    for name in ("model.tflite", "model.smg"):
        with pytest.raises(InputError, match="has just one form; leave plain out"):
            export_model(graph, tmp_path / name, plain=True)
    training = build_training(graph, load_scheme("last:1", graph), Options(CLASSES))
    with pytest.raises(ExportError, match="ONNX only infers"):
        write_onnx(training.step)
    g = Builder("model")
    q = QParams.per_tensor(0.1)
    a, b = (g.input(name, Type((1, 4), "int8", q)) for name in "ab")
    bias = g.constant("bias", np.zeros(1, np.int32))
    with pytest.raises(ExportError, match="%b are computed; ONNX needs constants"):
        write_onnx(g.graph(g.emit(ops.Dense(), a, b, bias, q=q)))
    g = Builder("model")
    a, b = (g.input(name, Type((1, 4), "int8", q)) for name in "ab")
    with pytest.raises(ExportError, match="Mul of %v0: its sums can wrap beyond 32 bits"):
        write_onnx(g.graph(g.emit(ops.Mul(), a, b, q=QParams.per_tensor(1e-8))))
    with pytest.raises(ExportError, match="layer: double cannot reproduce its rounding"):
        rounding_of_sums(*TOO_NARROW, "layer")
    assert not list(tmp_path.iterdir())


def test_a_table_that_no_operator_gives_is_written_and_not_read(tmp_path: Path) -> None:
    g = Builder("model")
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 4), "int8", q))
    export_model(g.graph(g.emit(ops.Lookup("tanh", slope=True), x, q=q)), tmp_path / "slope.onnx")
    with pytest.raises(ImportModelError, match=r"slope\.onnx: node '\d+' \(Table\) is a table that no operator"):
        import_model(tmp_path / "slope.onnx")


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_a_layer_short_of_inputs_is_refused(kept: int, tmp_path: Path) -> None:
    model = onnx.load_from_string(write_onnx(inverted_residual(0)))
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    del node.input[kept:]
    onnx.save(model, tmp_path / "short.onnx")
    with pytest.raises(ImportModelError, match=r"short\.onnx: "):
        import_model(tmp_path / "short.onnx")
