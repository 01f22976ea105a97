"""Recurrent layers: fixed point near the functions it stands for, TFLite's LSTM by LiteRT's bytes, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smidgen.errors import ExportError, GraphError, ImportModelError
from smidgen.frontends import exchange_suffix, export_model, import_model
from smidgen.frontends.tflite import write_tflite
from smidgen.frontends.tflite.codec import decode, encode
from smidgen.frontends.tflite.flatbuffer import TANH, TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Builder, QParams, Type, evaluate
from smidgen.numerics import int16
from smidgen.ops import Crop, Gru, Lstm
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from tests.frontends.test_moving import integers, read_file
from tests.frontends.test_onnx import quick
from tests.support.cases import GRAPHS
from tests.support.litert import LiteRT

EVERY = np.arange(int16.INT16_MIN, int16.INT16_MAX + 1)
STEPS, INPUTS, CELLS = 6, 5, 4
X = TfliteTensor("x", (1, STEPS, INPUTS), "int8", (0.04,), (7,))
HIDDEN = ((1 / 120,), (-3,))


# --- fixed point


def test_the_sigmoid_of_every_int16_number_is_near_the_real_one() -> None:
    real = 1 / (1 + np.exp(-EVERY / 2.0**12))
    assert np.abs(int16.sigmoid(EVERY) - 2.0**15 * real).max() < 7  # steps: gemmlowp's own error


@pytest.mark.parametrize("whole", range(7))
def test_the_tanh_of_every_int16_number_is_near_the_real_one_and_odd(whole: int) -> None:
    found = int16.tanh(EVERY, whole)
    assert np.abs(found - 2.0**15 * np.tanh(EVERY / 2.0 ** (15 - whole))).max() < 13
    assert np.array_equal(found[1:], -found[1:][::-1])


# --- TFLite's files, made here


def constant(name: str, data: np.ndarray, scale: float | None = None) -> TfliteTensor:
    scales, zeros = ((scale,), (0,)) if scale is not None else ((), ())
    return TfliteTensor(name, data.shape, data.dtype.name, scales, zeros, data=data.tobytes())


def lstm_file(time_major: bool = False, clip: float = 10.0, cell: float = 2.0**-12) -> TfliteModel:
    """Keras' LSTM as TensorFlow's converter quantizes it: weights and biases by gate, two variables, intermediates."""
    rng = np.random.default_rng(4)
    x = replace(X, shape=(STEPS, 1, INPUTS)) if time_major else X
    y = TfliteTensor("y", (*x.shape[:2], CELLS), "int8", *HIDDEN)
    weights = [
        constant(f"{name}{gate}", rng.integers(-127, 128, (CELLS, columns)).astype(np.int8), float(scale))
        for name, columns in (("w", INPUTS), ("u", CELLS))
        for gate, scale in enumerate(rng.uniform(0.005, 0.03, 4))
    ]
    biases = [constant(f"b{gate}", rng.integers(-900, 900, CELLS).astype(np.int32), 1e-4) for gate in range(4)]
    states = [
        TfliteTensor("hidden", (1, CELLS), "int8", *HIDDEN, variable=True),
        TfliteTensor("cell", (1, CELLS), "int16", (cell,), (0,), variable=True),
    ]
    between = [TfliteTensor(f"between{i}", (0,), "float32") for i in range(4)]
    tensors = (x, *weights, *biases, *states, *between, TfliteTensor("rounded", (0,), "int8", *HIDDEN), y)
    ins = (0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1)
    options = TfliteOptions(fused_activation_function=TANH, cell_clip=clip, time_major=time_major)
    operator = TfliteOperator("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, (20,), options, 1, tuple(range(15, 20)))
    return TfliteModel(tensors, (operator,), (0,), (20,))


def last_step(model: TfliteModel) -> TfliteModel:
    """The same file whose output is the last hidden state alone, as Keras cuts it out."""
    count = len(model.tensors)
    more = (integers("begin", 0, -1, 0), integers("end", 0, 0, 0), integers("strides", 1, 1, 1))
    y = TfliteTensor("last", (1, CELLS), "int8", *HIDDEN)
    options = TfliteOptions(begin_mask=5, end_mask=7, shrink_axis_mask=2)
    cut = TfliteOperator("STRIDED_SLICE", (20, count, count + 1, count + 2), (count + 3,), options, 2)
    return replace(
        model, tensors=(*model.tensors, *more, y), operators=(*model.operators, cut), outputs=(count + 3,)
    )  # fmt: skip


@quick
@given(st.booleans(), st.booleans(), st.sampled_from((0.0, 0.2, 10.0)), st.integers(-15, -9), st.integers(0, 2**32 - 1))
def test_files_of_an_lstm_give_litert_s_bytes(
    tmp_path: Path, time_major: bool, last: bool, clip: float, exponent: int, seed: int
) -> None:
    model = lstm_file(time_major, clip, 2.0**exponent)
    model = last_step(model) if last and not time_major else model
    graph, judge, rng = read_file(model, tmp_path), LiteRT(encode(model)), np.random.default_rng(seed)
    for _ in range(3):
        x = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
        (ours,), (theirs,) = evaluate(graph, x), judge.run(x)
        assert (ours.shape, ours.tobytes()) == (theirs.shape, theirs.tobytes())


def test_a_file_whose_last_state_alone_is_read_keeps_no_others_in_memory(tmp_path: Path, host: Host) -> None:
    graph = read_file(last_step(lstm_file()), tmp_path)
    (layer,) = (node for node in graph.nodes if isinstance(node.op, Lstm))
    assert not any(isinstance(node.op, Crop) for node in graph.nodes)
    assert layer.out.type.shape == (1, CELLS)
    with compile(graph, target=host).start() as device:
        x = np.random.default_rng(0).integers(-128, 128, X.shape).astype(np.int8)
        assert device.run(x)[0].tobytes() == evaluate(graph, x)[0].tobytes()


def test_every_run_begins_with_a_state_of_zero_and_a_note_says_so(tmp_path: Path, host: Host) -> None:
    model = lstm_file()
    graph, judge = read_file(model, tmp_path), LiteRT(encode(model))
    assert "begins at zero in every run" in graph.notes[0]
    x = np.random.default_rng(1).integers(-128, 128, X.shape).astype(np.int8)
    (first,) = judge.run(x)
    judge.interpreter.invoke()  # without a reset: it goes on from where it was
    assert not np.array_equal(judge.interpreter.get_tensor(judge.outputs[0]), first)
    with compile(graph, target=host).start() as device:
        assert [device.run(x)[0].tobytes() for _ in range(2)] == [first.tobytes()] * 2


@pytest.mark.parametrize("stored", ["float32", "int8"])
def test_an_lstm_in_float32_is_read_however_its_weights_are_stored(tmp_path: Path, stored: str) -> None:
    model = lstm_file()
    tensors = list(model.tensors)
    for index, tensor in enumerate(tensors):
        real = tensor.array() * tensor.scales[0] if tensor.data is not None else None
        if index not in range(1, 9) or stored == "float32":
            data = None if real is None else real.astype("<f4").tobytes()
            tensors[index] = replace(tensor, dtype="float32", scales=(), zeros=(), data=data)
    model = without_intermediates(replace(model, tensors=tuple(tensors)))
    x = np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    graph = read_file(model, tmp_path)
    (ours,), (theirs,) = evaluate(graph, x), LiteRT(encode(model)).run(x)
    assert np.abs(ours - theirs).max() < (1e-5 if stored == "float32" else 0.05)  # LiteRT rounds activations there
    assert any("int8 and were read as float32" in note for note in graph.notes) == (stored == "int8")


Change = Callable[[TfliteModel], TfliteModel]


def with_input(place: int, index: int) -> Change:
    def change(model: TfliteModel) -> TfliteModel:
        (operator,) = model.operators
        inputs = (*operator.inputs[:place], index, *operator.inputs[place + 1 :])
        return replace(model, operators=(replace(operator, inputs=inputs),))

    return change


def with_options(**options: int | bool) -> Change:
    def change(model: TfliteModel) -> TfliteModel:
        (operator,) = model.operators
        return replace(model, operators=(replace(operator, options=operator.options.but(**options)),))

    return change


def with_tensor(index: int, **fields: object) -> Change:
    def change(model: TfliteModel) -> TfliteModel:
        tensors = list(model.tensors)
        tensors[index] = replace(tensors[index], **fields)  # type: ignore[arg-type]
        return replace(model, tensors=tuple(tensors))

    return change


def without_intermediates(model: TfliteModel) -> TfliteModel:
    return replace(model, operators=(replace(model.operators[0], intermediates=()),))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_input(9, 9), "it has peephole weights; convert a plain LSTM"),
        (with_input(16, 1), "it has a projection; convert a plain LSTM"),
        (with_input(21, 9), "it has layer normalization; convert a plain LSTM"),
        (with_input(1, -1), "it lacks a gate or a bias"),
        (with_options(fused_activation_function=1), "its activation is not tanh"),
        (with_options(diagonal_recurrent_tensors=True), "its weights are diagonals"),
        (with_options(time_major=True), r"its input is \[1, 6, 5\]; one sequence"),
        (with_tensor(0, shape=(2, STEPS, INPUTS)), r"its input is \[2, 6, 5\]; one sequence"),
        (with_tensor(1, shape=(CELLS, INPUTS - 1), data=bytes(16)), "not alike"),
        (with_tensor(1, zeros=(3,)), "one scale per gate, from zero"),
        (with_tensor(14, scales=(0.0003,)), r"in steps of 0.0003; int16 in steps of 2\^-15 … 2\^-9"),
        (with_tensor(14, scales=(2.0**-8,)), r"in steps of 0.00391; int16"),
        (with_tensor(19, scales=(0.5,)), "its hidden state and its output have different scales"),
        (without_intermediates, "does not say how its hidden state is rounded"),
        (with_tensor(20, shape=(1, STEPS, CELLS + 1)), r"Reshape .*\[1, 6, 4\].*\[1, 6, 5\]"),
    ],
)  # fmt: skip
def test_lstms_of_other_kinds_are_refused_in_a_sentence(tmp_path: Path, change: Change, said: str) -> None:
    with pytest.raises(ImportModelError, match=said):
        read_file(change(lstm_file()), tmp_path)


def test_a_recurrence_spelled_as_a_loop_is_refused_with_the_way_out(tmp_path: Path) -> None:
    model = TfliteModel((X, replace(X, name="y")), (TfliteOperator("WHILE", (0,), (1,)),), (0,), (1,))
    with pytest.raises(ImportModelError, match=r"has a loop \(WHILE\), .* give the layer unroll=True$"):
        read_file(model, tmp_path)


# --- the op, and files of our own


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    g = Builder("model")
    x = g.input("x", Type((1, 3, 2), "float32"))
    w, u, b = (g.constant(n, np.zeros(s, np.float32)) for n, s in (("w", (4, 5, 2)), ("u", (4, 5, 5)), ("b", (4, 5))))
    with pytest.raises(
        GraphError, match=r"Lstm takes \[1, steps, 2\] .* not \[1, 3, 2\] with \[4, 5, 2\], \[4, 5, 2\]"
    ):
        g.emit(Lstm(), x, w, w, b)
    with pytest.raises(GraphError, match=r"Gru takes .* \[3, 5, 2\]"):
        g.emit(Gru(), x, w, u, b)
    with pytest.raises(GraphError, match="with 7 bits before the point"):
        g.emit(Lstm(bits=7), x, w, u, b)
    q = QParams.per_tensor(0.1)
    x = g.input("q", Type((1, 3, 2), "int8", q))
    held = [g.constant(n, np.zeros(s, np.int8)) for n, s in (("v", (4, 5, 2)), ("t", (4, 5, 5)))]
    with pytest.raises(GraphError, match="one scale per gate"):
        g.emit(Lstm(), x, *held, g.constant("c", np.zeros((4, 5), np.int32)), q=q)


def test_a_network_with_a_gru_goes_elsewhere_as_onnx_and_one_with_an_lstm_as_tflite(tmp_path: Path) -> None:
    lstm, gru = GRAPHS["lstm-5-7-10"], GRAPHS["gru-5-7-10"]
    assert (exchange_suffix(lstm), exchange_suffix(gru)) == (".tflite", ".onnx")
    with pytest.raises(ExportError, match=r"Gru of %v0: TFLite has no such operator, only .* others go to .onnx"):
        write_tflite(gru)
    with pytest.raises(ExportError, match=r"limits its cells to 0.5, which ONNX's does not; export it to .tflite"):
        export_model(GRAPHS["lstm-limited"], tmp_path / "model.onnx")
    for graph in (lstm, gru):
        export_model(graph, tmp_path / "model.smg")
        assert import_model(tmp_path / "model.smg").nodes == graph.nodes


def test_variables_and_intermediates_are_written_as_they_were_read() -> None:
    (operator,) = decode(write_tflite(GRAPHS["lstm-5-7-10"])).operators
    assert len(operator.intermediates) == 5
    assert operator.options.fused_activation_function == TANH
