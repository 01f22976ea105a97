"""What a graph computes is what LiteRT's reference kernels compute for its `.tflite` file, every byte of it."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import OpResolverType
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.frontends.tflite import read_tflite, write_tflite
from smidgen.frontends.tflite.write.operators import LOWERINGS
from smidgen.ir import Array, Builder, Graph, Op, QParams, Type, Value, evaluate
from smidgen.ir.text import print_graph
from tests.support.graphs import OWN_FUNCTIONS
from tests.support.litert import LiteRT, run_litert
from tests.support.tflite_cases import CASES, arrays, graphs
from tests.support.tiers import examples

SHARED = Path(__file__).parents[3] / "shared"
IMAGES = 50
SEEDS = st.integers(0, 2**32 - 1)
SCALES = st.floats(-6, 0).map(lambda octaves: 2.0**octaves)
ZEROS = st.integers(-128, 127)
QUANTIZATIONS = st.builds(QParams.per_tensor, SCALES, ZEROS)
EVERY_INT8 = np.arange(-128, 128).astype(np.int8)
SWEEP = 4096  # accumulators of a rounding sweep


def read_back(model: bytes) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(model)
        return read_tflite(path)


def assert_alike(graph: Graph, *ins: Array, model: bytes | None = None) -> None:
    """evaluate and LiteRT give the same bytes."""
    ours = evaluate(graph, *ins)
    theirs = run_litert(write_tflite(graph) if model is None else model, *ins)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        differs = mine != other
        assert not differs.any(), (
            f"{differs.sum()} of {mine.size} differ: {mine[differs][:8]} here, {other[differs][:8]} by LiteRT\n"
            f"{print_graph(graph)}"
        )


def test_every_op_that_is_exported_has_a_case() -> None:
    assert set(CASES) == {op.__name__ for op in LOWERINGS}


@pytest.mark.sampled
@pytest.mark.parametrize("op", CASES)
def test_litert_computes_the_same_bytes(op: str) -> None:
    @settings(max_examples=examples(25))
    @given(graph=graphs(op), seed=SEEDS)
    def check(graph: Graph, seed: int) -> None:
        assert_alike(graph, *arrays(graph, seed))

    check()


@pytest.mark.sampled
@pytest.mark.parametrize("op", CASES)
def test_a_graph_written_and_read_computes_the_same_bytes(op: str) -> None:
    @settings(max_examples=examples(10))
    @given(graph=graphs(op), seed=SEEDS)
    def check(graph: Graph, seed: int) -> None:
        ins = arrays(graph, seed)
        again = read_back(write_tflite(graph))
        assert [value.type for value in again.inputs] == [value.type for value in graph.inputs]
        assert [value.type for value in again.outputs] == [value.type for value in graph.outputs]
        for before, after in zip(evaluate(graph, *ins), evaluate(again, *ins), strict=True):
            assert before.tobytes() == after.tobytes()

    check()


@pytest.mark.sampled
@pytest.mark.parametrize("op", sorted(set(CASES) - {"Quantize", "Requantize", "Dequantize"}))
def test_float_graphs_agree_with_litert_and_survive_a_round_trip(op: str) -> None:
    @settings(max_examples=examples(8))
    @given(graph=graphs(op, "float32"), seed=SEEDS)
    def check(graph: Graph, seed: int) -> None:
        ins = arrays(graph, seed)
        model = write_tflite(graph)
        (ours,), (theirs,) = evaluate(graph, *ins), run_litert(model, *ins)
        (again,) = evaluate(read_back(model), *ins)
        there = ~np.isnan(theirs)  # roots and logarithms of what has none are numbers here
        np.testing.assert_allclose(ours[there], theirs[there], rtol=1e-5, atol=1e-5)
        assert np.isfinite(ours[~there]).all()
        assert again.tobytes() == ours.tobytes()

    check()


@pytest.mark.sampled
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("kind", ["Conv2D", "Depthwise", "Dense"])
def test_every_accumulator_is_rounded_as_litert_rounds_it(kind: str, per_channel: bool) -> None:
    """With weights of zero the biases are the accumulators, so a whole range of them is seen at once."""

    @settings(max_examples=examples(12))
    @given(x_scale=SCALES, y=QUANTIZATIONS, seed=SEEDS, step=st.sampled_from((1, 7, 1000)))
    def check(x_scale: float, y: QParams, seed: int, step: int) -> None:
        scales = 2.0 ** np.random.default_rng(seed).uniform(-9, -5, SWEEP)
        axis, shape, op = {
            "Conv2D": (0, (SWEEP, 1, 1, 1), ops.Conv2D()),
            "Depthwise": (3, (1, 1, 1, SWEEP), ops.Depthwise()),
            "Dense": (0, (SWEEP, 1), ops.Dense()),
        }[kind]
        q = QParams.per_channel(scales, axis) if per_channel else QParams.per_tensor(scales[0])
        g = Builder()
        x = g.input("x", Type((1, 1) if kind == "Dense" else (1, 1, 1, 1), "int8", QParams.per_tensor(x_scale)))
        w = g.constant("w", np.zeros(shape, np.int8), q)
        b = g.constant("b", ((np.arange(SWEEP) - SWEEP // 2) * step).astype(np.int32))
        assert_alike(g.graph(g.emit(op, x, w, b, q=y)), np.zeros(x.type.shape, np.int8))

    check()


@pytest.mark.sampled
@pytest.mark.parametrize("op", [ops.Add(), ops.Mul(), ops.Add("relu6"), ops.Mul("relu_n1_to_1")], ids=str)
def test_every_pair_of_int8_adds_and_multiplies_as_in_litert(op: Op) -> None:
    a_data, b_data = (np.ascontiguousarray(side) for side in np.meshgrid(EVERY_INT8, EVERY_INT8))

    @settings(max_examples=examples(12))
    @given(a=QUANTIZATIONS, b=QUANTIZATIONS, y=QUANTIZATIONS)
    def check(a: QParams, b: QParams, y: QParams) -> None:
        g = Builder()
        left, right = g.input("a", Type((256, 256), "int8", a)), g.input("b", Type((256, 256), "int8", b))
        assert_alike(g.graph(g.emit(op, left, right, q=y)), a_data, b_data)

    check()


@pytest.mark.sampled
@pytest.mark.parametrize("op", [ops.Requantize(), ops.Activate("relu"), ops.Activate("relu6")], ids=str)
def test_every_int8_is_rescaled_as_in_litert(op: Op) -> None:
    @settings(max_examples=examples(40))
    @given(x=QUANTIZATIONS, y=QUANTIZATIONS)
    def check(x: QParams, y: QParams) -> None:
        g = Builder()
        assert_alike(g.graph(g.emit(op, g.input("x", Type((256,), "int8", x)), q=y)), EVERY_INT8)

    check()


@pytest.mark.sampled
@pytest.mark.parametrize("function", OWN_FUNCTIONS)
def test_every_int8_has_litert_s_own_result_of_a_function(function: str) -> None:
    @settings(max_examples=examples(40))
    @given(x=QUANTIZATIONS, y=QUANTIZATIONS, alpha=st.sampled_from((0.01, 0.2, 1.3, -0.4)))
    def check(x: QParams, y: QParams, alpha: float) -> None:
        y = {"sigmoid": QParams.per_tensor(1 / 256, -128), "tanh": QParams.per_tensor(1 / 128)}.get(function, y)
        g = Builder()
        op = ops.Lookup(function, alpha if function == "leaky_relu" else 0.0, tflite=True)
        assert_alike(g.graph(g.emit(op, g.input("x", Type((256,), "int8", x)), q=y)), EVERY_INT8)

    check()


@pytest.mark.parametrize("exponent", [0.5, -0.5])
@settings(max_examples=examples(40))
@given(x=QUANTIZATIONS, y=QUANTIZATIONS)
def test_every_int8_from_zero_on_has_litert_s_own_root(exponent: float, x: QParams, y: QParams) -> None:
    g = Builder()
    graph = g.graph(g.emit(ops.Lookup("power", exponent, tflite=True), g.input("x", Type((256,), "int8", x)), q=y))
    assert_alike(graph, np.maximum(EVERY_INT8, x.zero).astype(np.int8))


def test_elu_has_the_table_of_litert_s_kernel() -> None:
    """It is not among the reference kernels: the usual ones, which read a table too, are the judge."""
    g = Builder()
    x = g.input("x", Type((256,), "int8", QParams.per_tensor(0.03, 20)))
    graph = g.graph(g.emit(ops.Lookup("elu", 1.0, tflite=True), x, q=QParams.per_tensor(0.02, -70)))
    (theirs,) = run_litert(write_tflite(graph), EVERY_INT8, kernels=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    np.testing.assert_array_equal(evaluate(graph, EVERY_INT8)[0], theirs)


@settings(max_examples=examples(40))
@given(q=QUANTIZATIONS, nudge=st.sampled_from((-1, 0, 1)))
def test_floats_at_and_beside_every_half_step_are_quantized_as_in_litert(q: QParams, nudge: int) -> None:
    halves = (np.arange(-600, 600) * np.float32(0.5) * np.float32(q.one)).astype(np.float32)
    g = Builder()
    graph = g.graph(g.emit(ops.Quantize(), g.input("x", Type(halves.shape, "float32")), q=q))
    assert_alike(graph, np.nextafter(halves, halves + nudge).astype(np.float32))


def _network(g: Builder, x: Value) -> tuple[Value, Value]:
    """Two convolutions that share weights and bias, a residual, and a head between floats."""
    rng = np.random.default_rng(7)
    h = g.emit(ops.Quantize(), x, q=QParams.per_tensor(0.03, -5))
    w = g.constant("w", rng.integers(-127, 128, (3, 3, 3, 3), np.int8), QParams.per_channel((0.01, 0.02, 0.005), 0))
    b = g.constant("b", rng.integers(-500, 500, 3, np.int32))
    once = g.emit(ops.Conv2D(pad=(1, 1, 1, 1), activation="relu6"), h, w, b, q=QParams.per_tensor(0.02, -128))
    twice = g.emit(ops.Conv2D(pad=(2, 0, 1, 1)), once, w, b, q=QParams.per_tensor(0.025, 3))
    total = g.emit(ops.Add(), once, twice, q=QParams.per_tensor(0.04, 9))
    pooled = g.emit(ops.MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), total)
    return g.emit(ops.Dequantize(), g.emit(ops.Mean(), pooled, q=QParams.per_tensor(0.03, 0))), total


def _shared_weights() -> Graph:
    g = Builder("shared")
    return g.graph(*_network(g, g.input("x", Type((1, 8, 8, 3), "float32"))))


def test_a_network_with_several_outputs_agrees_in_their_order() -> None:
    graph = _shared_weights()
    for seed in range(5):
        ins = arrays(graph, seed)
        assert_alike(graph, *ins)
        assert_alike(read_back(write_tflite(graph)), *ins, model=write_tflite(graph))


def test_constants_read_twice_are_written_once() -> None:
    graph = _shared_weights()
    model = write_tflite(graph)
    for data in graph.constants.values():
        assert model.count(data.tobytes()) == 1


def test_a_function_of_float32_is_refused() -> None:
    g = Builder()
    x = g.input("x", Type((1, 4), "float32"))
    with pytest.raises(ExportError, match="Lookup of %v0: mish is exported as a table of int8 results; quantize"):
        write_tflite(g.graph(g.emit(ops.Lookup("mish"), x)))


def test_an_average_with_padding_tflite_lacks_is_refused() -> None:
    g = Builder()
    x = g.input("x", Type((1, 8, 8, 1), "int8", QParams.per_tensor(0.1)))
    graph = g.graph(g.emit(ops.AvgPool((3, 3), (2, 2), (1, 1, 1, 1)), x, name="pooled"))
    with pytest.raises(ExportError, match=r"AvgPool of %pooled: .* not with \(1, 1, 1, 1\); use one of these"):
        write_tflite(graph)


@pytest.mark.parametrize("op", [ops.Add(), ops.Mul(), ops.Activate("relu6"), ops.Dense()], ids=str)
def test_scales_beyond_the_arithmetic_are_refused(op: Op) -> None:
    g = Builder()
    x = g.input("x", Type((1, 4), "int8", QParams.per_tensor(1e9)))
    w = g.constant("w", np.ones((1, 4), np.int8), QParams.per_tensor(1.0))
    b = g.constant("b", np.zeros(1, np.int32))
    ins = {ops.Activate: (x,), ops.Dense: (x, w, b)}.get(type(op), (x, x))
    graph = g.graph(g.emit(op, *ins, q=QParams.per_tensor(1e-9)))
    with pytest.raises(ExportError, match="calibrate"):
        write_tflite(graph)


def _model(name: str) -> Path:
    path = SHARED / "models" / "mlperf-tiny" / name
    if not path.exists():
        pytest.skip(f"{name} is not in the folder 'shared' beside the checkout")
    return path


def _agrees(path: Path, inputs: list[Array]) -> None:
    graph = read_tflite(path)
    original, exported = LiteRT(path.read_bytes()), LiteRT(write_tflite(graph))
    for x in inputs:
        (ours,) = evaluate(graph, x)
        assert ours.tobytes() == original.run(x)[0].tobytes() == exported.run(x)[0].tobytes()


def _noise(shape: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, shape, np.int8) for _ in range(IMAGES)]


def test_person_detection_agrees_on_noise_and_on_photographs() -> None:
    path, photographs = _model("vww_96_int8.tflite"), SHARED / "data" / "vww.zip"
    if not photographs.exists():
        pytest.skip("vww.zip is not in the folder 'shared' beside the checkout")
    images: list[Array] = []
    with zipfile.ZipFile(photographs) as archive:
        names = [name for name in archive.namelist() if name.startswith("test/") and name.endswith(".jpg")]
        for name in names[:: len(names) // IMAGES][:IMAGES]:
            image = Image.open(io.BytesIO(archive.read(name))).convert("RGB").resize((96, 96))
            images.append((np.asarray(image, np.int16) - 128).astype(np.int8)[None])
    _agrees(path, _noise((1, 96, 96, 3)) + images)


def test_keyword_spotting_agrees_on_noise_and_on_maps_like_speech() -> None:
    """There is no audio here: smooth maps with most energy in the first coefficients stand in for speech."""
    rng, frames, bins = np.random.default_rng(1), np.arange(49)[:, None], np.arange(10)[None]
    maps: list[Array] = []
    for _ in range(IMAGES):
        waves = sum(
            rng.normal()
            * np.cos(np.pi * (i * frames / 49 + rng.random()))
            * np.cos(np.pi * j * bins / 10)
            / (1 + i + j)
            for i in range(6)
            for j in range(4)
        )
        real = 30 * waves / (1 + bins) - 60 / (1 + 3 * bins)
        maps.append(np.clip(np.round(real / 0.5847) + 83, -128, 127).astype(np.int8).reshape(1, 49, 10, 1))
    _agrees(_model("kws_ref_model.tflite"), _noise((1, 49, 10, 1)) + maps)
