"""LSTM and GRU from PyTorch and ONNX: read as these compute them, quantized, and what stands behind them learns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

import smidgen as sm
from experiments.baselines.simulator import Simulator
from smidgen.errors import GraphError, ImportModelError
from smidgen.frontends import export_model
from smidgen.frontends.onnx import read_onnx, write_onnx
from smidgen.ir import Array, Graph, evaluate, evaluate_all
from smidgen.ops import Conv2D, Gru, GruGrad, Lstm, LstmGrad
from smidgen.quantization import Quantized, quantize
from smidgen.simulation import Simulation
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.training import build_training
from tests.frontends.test_onnx import model as onnx_model
from tests.frontends.test_onnx import quick, read
from tests.simulation.test_fleet import check_lockstep
from tests.support.drawn_heads import drawn_training
from tests.support.float_models import close, run, runtime
from tests.support.loss_tasks import compare
from tests.support.networks import CLASSES
from tests.support.release_files import SHARED
from tests.support.tiers import first

STEPS, INPUTS, CELLS = 12, 6, 10
KINDS = (nn.LSTM, nn.GRU)
torch.set_num_threads(1)


class Listener(nn.Module):
    """A recurrent layer or several, and dense layers behind what is taken of it."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], taken: str = "last", **more: Any) -> None:
        super().__init__()
        self.layer, self.taken = kind(INPUTS, CELLS, **more), taken
        wide = CELLS * (2 if more.get("bidirectional") else 1)
        self.hidden, self.scores = nn.Linear(wide, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y, state = self.layer(x)
        if self.taken == "state":
            h = state[0] if isinstance(state, tuple) else state
            y = torch.cat([h[-2], h[-1]], -1) if self.layer.bidirectional else h[-1]
        elif self.taken == "last":
            y = y[:, -1] if self.layer.batch_first else y[-1]
        found: Tensor = self.scores(torch.relu(self.hidden(y)))
        return found


FORMS: Mapping[str, dict[str, Any]] = {
    "batch-first": {"batch_first": True},
    "steps-first": {},
    "stacked": {"batch_first": True, "num_layers": 2},
    "both-ways": {"batch_first": True, "num_layers": 2, "bidirectional": True},
    "no-bias": {"bias": False},
}


def example(form: str, seed: int = 0) -> Tensor:
    shape = (1, STEPS, INPUTS) if FORMS[form].get("batch_first") else (STEPS, 1, INPUTS)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taken", ["last", "all", "state"])
@pytest.mark.parametrize("form", FORMS)
def test_modules_with_recurrent_layers_are_what_pytorch_computes(
    kind: type[nn.LSTM] | type[nn.GRU], taken: str, form: str
) -> None:
    torch.manual_seed(1)
    module, x = Listener(kind, taken, **FORMS[form]).eval(), example(form)
    graph = sm.from_torch(module, x)
    with torch.no_grad():
        assert close(run(graph, x.numpy())[0], module(x).numpy(), 1e-5)
    layers = [node.op for node in graph.nodes if isinstance(node.op, Lstm | Gru)]
    assert len(layers) == FORMS[form].get("num_layers", 1) * (2 if form == "both-ways" else 1)
    if taken != "all" and form != "both-ways":
        assert not layers[-1].whole, "only the last state is kept"


def test_a_saved_archive_with_an_lstm_is_read(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, x = Listener(nn.LSTM, batch_first=True).eval(), example("batch-first")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch complains of how its own LSTM holds weights
        torch.export.save(torch.export.export(module, (x,)), tmp_path / "listener.pt2")
    with torch.no_grad():
        assert close(run(sm.import_model(tmp_path / "listener.pt2"), x.numpy())[0], module(x).numpy(), 1e-5)


class Odd(nn.Module):
    """An LSTM used in a way that is not supported."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.layer = way, nn.LSTM(INPUTS, CELLS, proj_size=3 if way == "projection" else 0)

    def forward(self, x: Tensor) -> Tensor:
        start = torch.ones(1, 1, CELLS)
        y, (_, c) = self.layer(x, (start, start)) if self.way == "start" else self.layer(x)
        found: Tensor = c if self.way == "cell" else y
        return found


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("projection", "leave out proj_size"),
        ("start", "begins with a state that is computed or not zero"),
        ("cell", "only the first 2 results of it are supported"),
    ],
)
def test_modules_that_ask_more_of_an_lstm_are_refused(way: str, sentence: str) -> None:
    with pytest.raises(ImportModelError, match=sentence):
        sm.from_torch(Odd(way).eval(), example("steps-first"))


# --- ONNX


def node_of(code: str, outs: list[str], rng: np.random.Generator, **attributes: Any) -> tuple[Any, dict[str, Array]]:
    """An LSTM or GRU node and its weights."""
    gates, ways = {"LSTM": 4, "GRU": 3}[code], 2 if attributes.get("direction") == "bidirectional" else 1
    shapes = {"w": (ways, gates * CELLS, INPUTS), "r": (ways, gates * CELLS, CELLS), "b": (ways, 2 * gates * CELLS)}
    held = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    return helper.make_node(code, ["x", *held], outs, hidden_size=CELLS, **attributes), held


@quick
@given(
    st.sampled_from(("LSTM", "GRU")), st.sampled_from(("forward", "reverse", "bidirectional")), st.booleans(),
    st.booleans(), st.integers(1, 5), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_onnx_files_recur_as_onnx_runtime(
    tmp_path: Path, code: str, direction: str, before: bool, last: bool, steps: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    usual = ["Sigmoid", "Tanh", "Tanh"] * (2 if direction == "bidirectional" else 1)
    more: dict[str, Any] = {"activations": usual} if code == "LSTM" else {"linear_before_reset": int(before)}
    node, held = node_of(code, ["", "y"] if last else ["y"], rng, direction=direction, **more)
    data, x = onnx_model([node], (steps, 1, INPUTS), held), rng.normal(0, 1, (steps, 1, INPUTS)).astype(np.float32)
    (ours,), (theirs,) = evaluate(read(data, tmp_path), x), runtime(data, x)
    ours = ours if ours.shape == theirs.shape else np.moveaxis(ours, -1, 1)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_batch_in_front_is_what_onnx_says_it_is(tmp_path: Path) -> None:
    node, held = node_of("GRU", ["y"], np.random.default_rng(0), layout=1)
    data, x = onnx_model([node], (1, STEPS, INPUTS), held), example("batch-first").numpy()
    (ours,), (theirs,) = evaluate(read(data, tmp_path), x), ReferenceEvaluator(data).run(None, {"x": x})
    assert np.abs(ours.ravel() - np.asarray(theirs).ravel()).max() < 1e-5


@pytest.mark.parametrize(
    ("code", "attributes", "outs", "sentence"),
    [
        ("LSTM", {"clip": 3.0}, ["y"], "clip = 3.0 is not supported"),
        ("LSTM", {"input_forget": 1}, ["y"], "input_forget = 1 is not supported"),
        ("GRU", {"activations": ["HardSigmoid", "Tanh"]}, ["y"], "its activations are HardSigmoid, Tanh"),
        ("GRU", {"direction": "sideways"}, ["y"], "are not those of 0 directions"),
        ("LSTM", {"direction": "bidirectional", "layout": 1}, ["y"], r"its input is \[12, 1, 6\]"),
        ("LSTM", {}, ["a", "b", "y"], "'y' is the last cell state of an LSTM"),
    ],
)  # fmt: skip
def test_onnx_files_that_ask_more_are_refused(
    tmp_path: Path, code: str, attributes: dict[str, Any], outs: list[str], sentence: str
) -> None:
    node, held = node_of(code, outs, np.random.default_rng(0), **attributes)
    with pytest.raises(ImportModelError, match=sentence):
        read(onnx_model([node], (STEPS, 1, INPUTS), held), tmp_path)


# --- in int8


def sequences(count: int, seed: int = 0) -> list[Array]:
    """Walks that drift one way or the other."""
    rng = np.random.default_rng(seed)
    return [
        np.clip(rng.normal(0.1 * (i % CLASSES - 1.5), 0.3, (1, STEPS, INPUTS)).cumsum(1), -4, 4).astype(np.float32)
        for i in range(count)
    ]


@cache
def quantized(source: str, folder: Path) -> Quantized:
    """An LSTM from PyTorch, the same from an ONNX file, or a GRU."""
    torch.manual_seed(3)
    module = Listener(nn.GRU if source == "gru" else nn.LSTM, batch_first=True, num_layers=2).eval()
    if source == "onnx":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch prefers its other exporter, which writes much more
            torch.onnx.export(module, (example("batch-first"),), folder / "listener.onnx", dynamo=False)
        graph = read_onnx(folder / "listener.onnx")
    else:
        graph = sm.from_torch(module, example("batch-first"))
    return quantize(graph, sequences(60))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("listeners")


@pytest.mark.parametrize("source", first("torch", "onnx", "gru"))
def test_recurrent_networks_in_int8_stay_near_their_float_selves(source: str, folder: Path) -> None:
    report = quantized(source, folder).report
    assert report.output is not None
    assert report.agreement >= 0.9
    assert report.output > 20


@pytest.mark.parametrize("kind", KINDS)
def test_cells_that_grow_and_biases_that_count_keep_their_room_in_int8(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    torch.manual_seed(4)
    module = Listener(kind, batch_first=True).eval()
    name = "bias_ih_l0" if kind is nn.LSTM else "bias_hh_l0"
    setattr(module.layer, name, nn.Parameter(torch.full_like(getattr(module.layer, name), 2.0)))  # cells add up
    made = quantize(sm.from_torch(module, example("batch-first")), sequences(60))
    (layer,) = (node.op for node in made.graph.nodes if isinstance(node.op, Lstm | Gru))
    assert not isinstance(layer, Lstm) or layer.bits >= 4
    assert made.report.output is not None
    assert made.report.output > 25


@pytest.mark.parametrize("target", first("host", "board"))
@pytest.mark.parametrize("source", first("torch", "onnx", "gru"))
def test_dense_layers_behind_a_recurrent_one_learn_the_same_bytes_as_numpy(
    source: str, target: str, host: Host, cache: Path, folder: Path
) -> None:
    where: Host | BoardTarget = host if target == "host" else BoardTarget(cache=cache)
    model = quantized(source, folder).graph
    program = sm.compile(model, "last:1", where, options=sm.Options(CLASSES))
    assert any(isinstance(node.op, Gru if source == "gru" else Lstm) for node in program.graph.nodes)
    rng = np.random.default_rng(1)
    steps = [(rng.integers(-128, 128, (1, STEPS, INPUTS)).astype(np.int8), int(i % CLASSES)) for i in range(10)]
    with program.start() as device:
        losses = compare(program, device, list(steps), 0.05)
    assert len(set(losses)) > 5


def test_a_fleet_learns_behind_an_lstm_what_numpy_learns(folder: Path) -> None:
    graph = quantized("torch", folder).graph
    schemes = [sm.load_scheme(name, graph) for name in ("last:1", "head")]
    options = sm.Options(CLASSES)
    fleet = check_lockstep(graph, [sm.compile(graph, scheme, options=options).graph for scheme in schemes])
    assert isinstance(fleet, Simulation)


class Early(Listener):
    """A convolution before the recurrent layers."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], **more: Any) -> None:
        super().__init__(kind, batch_first=True, **more)
        self.early = nn.Conv1d(3, INPUTS, 3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.relu(self.early(x)).transpose(1, 2))


@cache
def quantized_early(kind: str, layers: int) -> Graph:
    torch.manual_seed(0)
    graph = sm.from_torch(Early(getattr(nn, kind), num_layers=layers).eval(), torch.randn(1, 3, STEPS))
    rng = np.random.default_rng(0)
    int8 = quantize(graph, [rng.normal(size=graph.inputs[0].type.shape).astype(np.float32) for _ in range(20)]).graph
    assert any(isinstance(node.op, Conv2D) for node in int8.nodes)
    return int8


def early_samples(graph: Graph, count: int) -> list[tuple[Array, int]]:
    rng = np.random.default_rng(1)
    shape = graph.inputs[0].type.shape
    return [(rng.normal(0, 30, shape).clip(-128, 127).astype(np.int8), i % CLASSES) for i in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", first(1, 2))
def test_gradients_through_time_are_pytorch_s_but_for_the_rounding_of_slopes(
    kind: type[nn.LSTM] | type[nn.GRU], layers: int
) -> None:
    graph = quantized_early(kind.__name__, layers)
    options = sm.Options(CLASSES, head="new")  # a kept head lets gradients through where its logits saturate
    reference = drawn_training(build_training(graph, sm.load_scheme("last:2", graph), options)).reference
    simulator = Simulator(reference.loss_graph())
    wanted = tuple(v for v in reference.graph.state if v in reference.gradients)
    for image, label in early_samples(graph, 5):
        arrays = (image, np.array([label], np.int32))
        values = evaluate_all(reference.graph, reference.graph.state, *arrays)
        for value, theirs in zip(wanted, simulator.gradients(wanted, *arrays), strict=True):
            ours, far = values[reference.gradients[value]].ravel(), theirs.ravel()
            assert np.linalg.norm(ours - far) < 0.05 * np.linalg.norm(far), value.name


@pytest.mark.parametrize("target", first("host", "board"))
@pytest.mark.parametrize(("kind", "layers"), first((nn.LSTM, 1), (nn.LSTM, 2), (nn.GRU, 1)))
def test_a_convolution_before_recurrent_layers_learns_through_time_the_same_bytes_as_numpy(
    kind: type[nn.LSTM] | type[nn.GRU], layers: int, target: str, host: Host, cache: Path
) -> None:
    graph = quantized_early(kind.__name__, layers)
    where: Host | BoardTarget = host if target == "host" else BoardTarget(cache=cache)
    program = sm.compile(graph, "last:2", where, options=sm.Options(CLASSES))
    assert sum(isinstance(node.op, LstmGrad | GruGrad) for node in program.graph.nodes) == layers
    early = [v.name for v in program.graph.state if v.name.startswith("convolution")]
    with program.start() as device:
        before = {name: device.state()[name].copy() for name in early}
        compare(program, device, list(early_samples(graph, 10)), 0.05)
        assert any(not np.array_equal(device.state()[name], before[name]) for name in early)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fleet_learns_through_time_what_numpy_learns(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    graph = quantized_early(kind.__name__, 1)
    schemes = [sm.load_scheme(name, graph) for name in ("last:2", "bias:2", "head")]
    check_lockstep(graph, [sm.compile(graph, scheme, options=sm.Options(CLASSES)).graph for scheme in schemes])


def test_layers_before_a_gru_that_resets_first_are_refused_for_training() -> None:
    made = quantized_early("GRU", 1)
    nodes = (replace(n, op=replace(n.op, reset_after=False)) if isinstance(n.op, Gru) else n for n in made.nodes)
    graph = replace(made, nodes=tuple(nodes))
    sm.compile(graph, "last:1", options=sm.Options(CLASSES))
    with pytest.raises(GraphError, match=r"Gru, which gives %.*, resets its state .* train only layers behind it"):
        sm.compile(graph, "last:2", options=sm.Options(CLASSES))


@pytest.mark.parametrize("source", ["torch", "gru"])
def test_exported_to_onnx_recurrent_layers_are_within_a_few_steps(source: str, folder: Path, tmp_path: Path) -> None:
    graph = quantized(source, folder).graph
    export_model(graph, tmp_path / "listener.onnx")
    x = np.random.default_rng(2).integers(-128, 128, (1, STEPS, INPUTS)).astype(np.int8)
    (ours,), (theirs,) = evaluate(graph, x), runtime(write_onnx(graph), x)
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 6


@pytest.mark.parametrize("target", first("host", "board"))
def test_the_head_of_a_wild_lstm_learns_the_same_bytes_as_numpy(target: str, host: Host, cache: Path) -> None:
    path = SHARED / "models" / "wild" / "tflm-mnist-lstm-int8.tflite"
    if not path.exists():
        pytest.skip(f"models from the wild are not beside the checkout: no {path.name}")
    where: Host | BoardTarget = host if target == "host" else BoardTarget(cache=cache)
    program = sm.compile(sm.import_model(path), "head", where, options=sm.Options(10))
    rng = np.random.default_rng(1)
    steps = [(rng.integers(-128, 128, (1, 28, 28)).astype(np.int8), int(i)) for i in range(10)]
    with program.start() as device:
        compare(program, device, list(steps), 0.01)
