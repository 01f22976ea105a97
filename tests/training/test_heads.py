"""Heads: found where networks end in other ways than a Dense, kept or begun anew; what is before them learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import smidgen as sm
from smidgen.data import as_input, pixel_encoding
from smidgen.errors import TrainingError
from smidgen.ir import Array, Graph, evaluate_all, evaluate_step, roles_of
from smidgen.ir.rewriting import prune
from smidgen.learning import learn, learned_graph
from smidgen.ops import Activate, AvgPool, Conv2D, Dense, MaxPool, Mean, Reshape, Softmax
from smidgen.quantization import quantize
from smidgen.targets.host import Host
from smidgen.training import HeadDtype, HeadStart, Training, build_training
from smidgen.training.head import ending_of, layers
from smidgen.training.scheme import Scheme, SchemeError, load_scheme, resolve
from tests.support.float_graphs import FloatNet
from tests.support.litert import LiteRT
from tests.support.release_files import SHARED


def squeezed(pool: str = "mean") -> Graph:
    """Convolution, ReLU, global mean: SqueezeNet's end."""
    n = FloatNet(3, (1, 8, 8, 3))
    x = n.conv(n.conv(n.x, 6, k=3, pad=1, activation="relu"), 8, activation="relu")
    x = n.g.emit(Activate("relu"), n.conv(x, 5))
    y = n.g.emit(Mean(), x) if pool == "mean" else n.g.emit(AvgPool((8, 8), (8, 8)), x)
    return n.g.graph(n.g.emit(Softmax(), n.g.emit(Reshape((1, 5)), y)))


def pixel() -> Graph:
    """Global mean, then a 1×1 convolution as the classifier."""
    n = FloatNet(4, (1, 8, 8, 3))
    x = n.conv(n.conv(n.x, 6, k=3, pad=1, activation="relu"), 8, activation="relu")
    y = n.conv(n.g.emit(Mean(keep_dims=True), x), 5)
    return n.g.graph(n.g.emit(Reshape((1, 5)), y))


def autoencoder() -> Graph:
    """Dense layers alone; the last gives the input back."""
    n = FloatNet(5, (1, 20))
    x = n.x
    for k, out in ((20, 16), (16, 12), (12, 4), (4, 12), (12, 16), (16, 20)):
        x = n.g.emit(Dense("relu" if out != 20 else "none"), x, n.constant(out, k), n.constant(out))
    return n.g.graph(x)


def int8(graph: Graph) -> Graph:
    rng = np.random.default_rng(0)
    return quantize(graph, [rng.normal(size=graph.inputs[0].type.shape).astype(np.float32) for _ in range(16)]).graph


def cells() -> Graph:
    """A map of scores, three for each cell, as FOMO's."""
    n = FloatNet(6, (1, 8, 8, 3))
    x = n.conv(n.conv(n.x, 6, k=3, pad=1, activation="relu"), 8, activation="relu")
    return n.g.graph(n.g.emit(Softmax(), n.conv(x, 3)))


NETWORKS: tuple[Callable[[], Graph], ...] = (squeezed, lambda: squeezed("pool"), pixel, autoencoder)
NAMES = ["squeezed", "squeezed-pool", "pixel", "autoencoder"]


ENDS = list(zip(NETWORKS, [(1, 8, 8, 8), (1, 8, 8, 8), (1, 1, 1, 8), (1, 16)], [2, 2, 2, 5], strict=True))


@pytest.mark.parametrize(("network", "shape", "count"), ENDS, ids=NAMES)
def test_the_classifier_is_the_last_layer_and_the_others_are_numbered(
    network: Callable[[], Graph], shape: tuple[int, ...], count: int
) -> None:
    graph = int8(network())
    ending = ending_of(graph)
    assert ending.features.type.shape == shape
    assert isinstance(ending.layer.op, Conv2D | Dense)
    assert len(layers(graph)) == count
    assert ending.layer not in layers(graph)


def build(graph: Graph, options: sm.Options) -> Training:
    return build_training(graph, load_scheme("head", graph), options)


def learns_as_the_reference(graph: Graph, options: sm.Options, host: Host) -> None:
    """Ten steps in C and in numpy, which leave the same bytes."""
    program = sm.compile(graph, f"last:{min(6, len(layers(graph)))}", host, options=options)
    state, rng = program.graph.state, np.random.default_rng(1)
    moved = {v.name: data.copy() for v, data in state.items()}
    with program.start() as device:
        for step in range(10):
            image = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
            loss = device.train(image, step % 3, 0.05)
            arrays: tuple[Array, ...] = (image, np.array([step % 3], np.int32), np.array([0.05], np.float32))
            (expected, _), state = evaluate_step(program.graph, state, *arrays)
            assert loss == expected[0]
        after = device.state()
    assert all(np.array_equal(after[v.name], data) for v, data in state.items())
    learned = {name for name, data in moved.items() if not np.array_equal(after[name], data)}
    assert {"head.w", "head.b"} <= learned
    assert learned - {"head.w", "head.b", roles_of(program.graph).step_state.name}


@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
def test_the_host_learns_what_the_reference_learns(network: Callable[[], Graph], host: Host) -> None:
    learns_as_the_reference(int8(network()), sm.Options(classes=3), host)


def test_a_map_that_is_not_averaged_is_no_classifier() -> None:
    n = FloatNet(3)
    graph = int8(n.g.graph(n.g.emit(MaxPool((6, 6), (6, 6)), n.conv(n.x, 6))))
    with pytest.raises(TrainingError, match="nor in a convolution, with or without"):
        ending_of(graph)
    assert len(layers(graph)) == 1


def test_a_dense_layer_learns_whole_or_not_at_all() -> None:
    graph = int8(autoencoder())
    with pytest.raises(SchemeError, match="layer 4, which is dense and learns only as a whole; give 1"):
        resolve(Scheme("s", 5, ((4, Fraction(1, 2)),)), graph)


def scores(graph: Graph) -> Graph:
    """The same without its softmax."""
    node = next(node for node in reversed(graph.nodes) if node.out == graph.scores)
    return prune(replace(graph, outputs=node.ins[:1])) if isinstance(node.op, Softmax) else graph


def inputs(graph: Graph, count: int) -> list[Array]:
    rng = np.random.default_rng(2)
    return [rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8) for _ in range(count)]


@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_kept_head_begins_with_the_scores_of_the_model(network: Callable[[], Graph], dtype: HeadDtype) -> None:
    graph = int8(network())
    if dtype == "float32" and not ending_of(graph).plain:
        with pytest.raises(sm.InputError, match="can go on in int8 alone, not in float32"):
            build(graph, sm.Options(head="keep", head_dtype=dtype))
        return
    training = build(graph, sm.Options(head="keep", head_dtype=dtype))
    assert training.head.start == "keep"
    type, most = scores(graph).scores.type, {"float32": 0.51, "int8": 1e-4}[dtype]
    for image in inputs(graph, 20):
        (integers,) = sm.evaluate(scores(graph), image)
        (found,) = sm.evaluate(training.forward, image)
        off = np.abs(found.ravel() / type.scale + type.zero - integers.ravel())
        assert off[(integers.ravel() > -128) & (integers.ravel() < 127)].max() <= most


@pytest.mark.parametrize("dtype", [None, "int8", "float32"])
@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
def test_the_host_goes_on_from_a_kept_head_as_the_reference_does(
    network: Callable[[], Graph], dtype: HeadDtype | None, host: Host
) -> None:
    graph = int8(network())
    if dtype == "float32" and not ending_of(graph).plain:
        return
    learns_as_the_reference(graph, sm.Options(head="keep", head_dtype=dtype), host)


CHOICES: tuple[tuple[Callable[[], Graph], int | None, HeadStart, HeadDtype], ...] = (
    (pixel, None, "keep", "int8"),
    (pixel, 5, "keep", "int8"),
    (pixel, 4, "new", "float32"),
    (squeezed, 5, "keep", "int8"),
    (squeezed, 6, "new", "float32"),
    (autoencoder, None, "keep", "int8"),
    (cells, 3, "new", "float32"),  # classes of the whole image, not of its cells
)


@pytest.mark.parametrize(("network", "classes", "start", "dtype"), CHOICES)
def test_a_head_is_kept_where_the_classes_are_as_many(
    network: Callable[[], Graph], classes: int | None, start: HeadStart, dtype: HeadDtype
) -> None:
    head = sm.Options(classes).head_of(int8(network()))
    assert (head.start, head.dtype) == (start, dtype)


def test_a_map_of_scores_is_kept_where_cells_are_learned() -> None:
    graph = int8(cells())
    assert ending_of(graph).per_cell
    head = sm.Options(loss="cells").head_of(graph)
    assert (head.outputs, head.start, head.dtype) == (3, "keep", "int8")
    assert sm.Options(4, loss="cells").head_of(graph).start == "new"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (sm.Options(4, head="keep"), "has 5 outputs, 4 classes are to be learned: its head cannot be kept"),
        (sm.Options(1), "1 classes cannot be learned"),
    ],
)
def test_a_head_that_cannot_be_is_refused(options: sm.Options, said: str) -> None:
    with pytest.raises(sm.InputError, match=said):
        build(int8(pixel()), options)


def test_a_learned_model_goes_on_where_it_stopped(host: Host) -> None:
    graph = int8(pixel())
    program = sm.compile(graph, "last:2", host, options=sm.Options(4))
    with program.start() as device:
        for place, image in enumerate(inputs(graph, 12)):
            device.train(image, place % 4, 0.05)
        assert program.training
        learned = learned_graph(program.training, device.state())
    again = build(learned, sm.Options(4))
    assert (again.head.start, again.head.dtype) == ("keep", "float32")
    for image in inputs(graph, 20):
        assert np.array_equal(sm.evaluate(learned, image)[0], sm.evaluate(again.forward, image)[0])
    with pytest.raises(sm.InputError, match="can go on in float32 alone, not in int8"):
        build(learned, sm.Options(4, head_dtype="int8"))


DETECTOR, PEOPLE = SHARED / "models" / "mlperf-tiny" / "vww_96_int8.tflite", SHARED / "data" / "vww.zip"


@pytest.mark.skipif(not (DETECTOR.exists() and PEOPLE.exists()), reason="needs the files of ../shared")
def test_the_person_detector_starts_with_litert_s_accuracy_and_learns_on(host: Host) -> None:
    graph, whole = sm.load(DETECTOR), sm.load_data(PEOPLE)
    data = replace(whole, train=whole.train.spread(300), test=whole.test.spread(200))
    program = sm.compile(graph, "head", host, options=sm.Options(len(data.classes)))
    learned = learn(program, data, sm.Course(1, 2 / 256))
    oracle, encoding = LiteRT(DETECTOR.read_bytes()), pixel_encoding(graph)
    found = [int(oracle.run(as_input(image, encoding))[0].argmax()) for image in data.test.images]
    assert learned.before == np.mean(np.array(found) == data.test.labels)
    assert learned.before > 0.75
    assert learned.record[0].loss < 0.65  # of guessing: 0.69


def test_gradients_pass_where_a_kept_heads_scores_are_clamped() -> None:
    graph = int8(pixel())
    training = build(graph, sm.Options(head="keep", head_dtype="int8"))
    reference, loud = training.reference, 0
    bias = next(v for v in reference.gradients if v.name == "head.b")
    x, w = (v.type for v in ending_of(graph).layer.ins[:2])
    assert w.q is not None
    for image in inputs(graph, 40):
        (integers,) = sm.evaluate(scores(graph), image)
        values = evaluate_all(reference.graph, reference.graph.state, image, np.array([2], np.int32))
        wanted = values[reference.gradients[reference.logits]].ravel()
        found = values[reference.gradients[bias]].ravel()
        assert found == pytest.approx(wanted * x.scale * np.array(w.q.scale), rel=1e-4, abs=1e-9)
        loud += int((np.abs(integers.astype(int)) >= 127).any())
    assert loud > 3
