"""Streaming networks carry variables from run to run alike in numpy, in C, on a board and in LiteRT; heads learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen import ops
from smidgen.errors import ExportError, GraphError, ImportModelError, InputError
from smidgen.frontends.native import read_smg, write_smg
from smidgen.frontends.onnx import write_onnx
from smidgen.frontends.tflite import read_tflite, write_tflite
from smidgen.frontends.tflite.codec import decode, encode
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions
from smidgen.inference import predict
from smidgen.ir import Array, Builder, Graph, QParams, Type, evaluate, evaluate_step, roles_of, verify
from smidgen.learning import Course, learn
from smidgen.learning.testing import measure
from smidgen.ops import Assign
from smidgen.pipeline import compile
from smidgen.results.profile import profile
from smidgen.selection.analysis import analyze
from smidgen.selection.rates import choose_rate
from smidgen.targets.boards import BOARDS
from smidgen.targets.device import restart
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host, HostDevice
from smidgen.training import Options
from tests.support.litert import LiteRT
from tests.support.streams import CLASSES, stream_data, stream_of, streaming_graphs, streaming_network
from tests.support.tiers import examples

RUNS = 6
COURSE = Course(2, 0.02, augment=None)


def in_numpy(graph: Graph, inputs: list[Array]) -> list[tuple[Array, ...]]:
    found, state = [], graph.state
    for x in inputs:
        outputs, state = evaluate_step(graph, state, x)
        found.append(outputs)
    return found


def same(a: list[tuple[Array, ...]], b: list[tuple[Array, ...]]) -> bool:
    return all(
        x.tobytes() == y.tobytes() for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True)
    )


def read_back(model: bytes, folder: Path) -> Graph:
    path = folder / "model.tflite"
    path.write_bytes(model)
    return read_tflite(path)


@pytest.mark.sampled
def test_numpy_c_and_litert_carry_the_same_variables(host: Host, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("streams")

    @given(streaming_graphs(), st.integers(0, 2**32 - 1))
    @settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
    def agree(graph: Graph, seed: int) -> None:
        inputs = stream_of(graph, RUNS, seed)
        expected = in_numpy(graph, inputs)
        exported = write_tflite(graph)
        judge = LiteRT(exported)
        with compile(graph, target=host).start() as device:
            assert same(expected, [device.run(x) for x in inputs])
            assert {v.name for v in graph.variables} <= set(device.state())
        assert same(expected, [judge.run(x) for x in inputs])
        assert same(expected, in_numpy(read_back(exported, folder), inputs))

    agree()


def test_what_a_run_gives_depends_on_the_runs_before() -> None:
    graph = streaming_network()
    first, *_ = inputs = stream_of(graph, RUNS)
    assert len({outputs[0].tobytes() for outputs in in_numpy(graph, [first] * RUNS)}) > 1
    assert in_numpy(graph, inputs)[0][0].tobytes() == evaluate(graph, first)[0].tobytes()


def test_a_board_carries_variables_and_learns_as_numpy_does(cache: Path) -> None:
    board = BoardTarget(BOARDS["cortex-m7"], cache=cache)
    for scheme in (None, "head", "last:2"):
        options = Options(CLASSES) if scheme else None
        assert profile(compile(streaming_network(), scheme, board, options=options), steps=RUNS).exact.equal


def test_files_of_our_own_keep_variables(tmp_path: Path) -> None:
    graph = streaming_network()
    write_smg(graph, tmp_path / "stream.smg")
    assert replace(read_smg(tmp_path / "stream.smg"), name=graph.name) == graph


def test_a_step_advances_variables_as_a_run_does_and_a_prediction_changes_nothing_that_learns(host: Host) -> None:
    program = compile(streaming_network(), "last:2", host, options=Options(CLASSES))
    names = {v.name for v in program.graph.variables}
    inputs = stream_of(program.graph, RUNS)
    with program.start() as stepping, program.start() as running:
        for x in inputs:
            before = running.state()
            stepping.train(x, 1, 0.0)
            running.predict(x)
            changed = {name for name, array in running.state().items() if not np.array_equal(array, before[name])}
            assert changed
            assert changed <= names
            assert all(np.array_equal(stepping.state()[name], running.state()[name]) for name in names)


def test_reset_begins_a_new_stream_and_keeps_what_was_learned(host: Host) -> None:
    program = compile(streaming_network(), "head", host, options=Options(CLASSES))
    first, second, third = stream_of(program.graph, 3)
    with program.start() as device:
        assert isinstance(device, HostDevice)
        first_scores = device.run(first, np.zeros(1, np.int32), np.zeros(1, np.float32))
        for x in (second, third):
            device.train(x, 2, 0.5)
        learned = device.state()
        device._function("reset")()
        kept = {v.name for v in program.graph.state} - {v.name for v in program.graph.variables}
        assert all(np.array_equal(device.state()[name], learned[name]) for name in kept)
        assert all(np.array_equal(device.state()[v.name], program.graph.state[v]) for v in program.graph.variables)
        device._function("init")()
        again = device.run(first, np.zeros(1, np.int32), np.zeros(1, np.float32))
        place = program.graph.outputs.index(roles_of(program.graph).logits)
        assert again[place].tobytes() == first_scores[place].tobytes()


def test_learning_takes_samples_in_order_and_tests_begin_a_stream_of_their_own(host: Host) -> None:
    data = stream_data(24)
    program = compile(streaming_network(), "head", host, options=Options(CLASSES))
    learned = learn(program, data, COURSE)
    with program.start() as device:
        for epoch in range(COURSE.epochs):
            restart(device)
            for step, (x, label) in enumerate(zip(data.train.images, data.train.labels, strict=True)):
                device.train(x[None], label, COURSE.rate(epoch, step, len(data.train)))
        assert measure(device, data.test) == measure(device, data.test) == learned.last
        variables = {v.name for v in program.graph.variables}
        assert all(np.array_equal(array, learned.state[name]) for name, array in device.state().items()
                   if name not in variables)  # fmt: skip


def test_a_run_that_stops_in_the_middle_of_a_stream_goes_on_as_if_it_had_not(host: Host, tmp_path: Path) -> None:
    data, path = stream_data(24), tmp_path / "run.ckpt"
    program = compile(streaming_network(), "head", host, options=Options(CLASSES))
    whole = learn(program, data, COURSE)
    steps = iter(range(1000))
    with pytest.raises(KeyboardInterrupt):
        learn(program, data, COURSE, checkpoint=path, stop=lambda: next(steps) > 19)
    resumed = learn(program, data, COURSE, checkpoint=path, resume=path)
    assert (resumed.record, resumed.model) == (whole.record, whole.model)


def test_a_learned_model_is_a_streaming_network_that_begins_anew(host: Host) -> None:
    data = stream_data(24)
    learned = learn(compile(streaming_network(), "head", host, options=Options(CLASSES)), data, COURSE)
    graph = learned.model
    assert [v.name for v in graph.variables] == [v.name for v in streaming_network().variables]
    inputs = [x[None] for x in data.test.images]
    scores = [outputs[0] for outputs in in_numpy(graph, inputs)]
    right = sum(int(s.argmax()) == label for s, label in zip(scores, data.test.labels, strict=True))
    assert right / len(data.test) == learned.accuracy
    predicted = predict(graph, list(data.test.images), target="reference")
    assert [one.classes[0].index for one in predicted.predictions] == [int(s.argmax()) for s in scores]
    assert predicted.predictions == predict(graph, list(data.test.images), target=host).predictions


def test_what_shows_samples_in_any_order_is_refused(host: Host) -> None:
    graph, data = streaming_network(), stream_data(24)
    program = compile(graph, "head", "host", options=Options(CLASSES))
    with pytest.raises(InputError, match=r"carries 2 variables .*a trial of rates shows samples in any order; give a"):
        choose_rate(program, data, COURSE)
    with pytest.raises(InputError, match="an analysis shows samples in any order"):
        analyze(graph, data)
    with pytest.raises(InputError, match="are no stream; test it on all"):
        sm.test(graph, data, images=5)
    with pytest.raises(ExportError, match=r"2 variables between runs, which ONNX lacks; write \.tflite"):
        write_onnx(graph)


def test_variables_are_replaced_by_predictions_and_nothing_else_is(host: Host) -> None:
    step = compile(streaming_network(), "head", host, options=Options(CLASSES)).graph
    late = [node for node in step.nodes if isinstance(node.op, Assign)]
    moved = replace(step, nodes=(*(node for node in step.nodes if node not in late), *late))
    with pytest.raises(GraphError, match="only after the label is read"):
        verify(moved)


# Declarations of variables in files.


def delayed() -> TfliteModel:
    """y = x + what x was in the run before."""
    g = Builder()
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 4), "int8", q))
    old = g.persistent("old", np.array([[1, 2, 3, 4]], np.int8), q)
    y = g.emit(ops.Add(), x, old, q=QParams.per_tensor(0.2))
    g.update((old,), (g.emit(ops.Assign(), old, x),))
    return decode(write_tflite(g.graph(y)))


def read(model: TfliteModel, tmp_path: Path) -> Graph:
    return read_back(encode(model), tmp_path)


def at(model: TfliteModel, code: str) -> int:
    return [operator.code for operator in model.operators].index(code)


def test_what_is_read_after_it_was_assigned_is_what_was_assigned(tmp_path: Path) -> None:
    """READ, ASSIGN and READ again: the sum is of x with itself, as LiteRT has it, and nothing is carried."""
    model = delayed()
    reading, assigning = model.operators[at(model, "READ_VARIABLE")], model.operators[at(model, "ASSIGN_VARIABLE")]
    others = [o for o in model.operators if o not in (reading, assigning)]
    place = [o.code for o in others].index("ADD")
    changed = replace(model, operators=(*others[:place], assigning, reading, *others[place:]))
    graph, judge = read(changed, tmp_path), LiteRT(encode(changed))
    assert graph.variables == ()
    inputs = stream_of(graph, 3)
    assert same(in_numpy(graph, inputs), [judge.run(x) for x in inputs])


def test_a_line_of_variables_hands_on_from_one_to_the_next(tmp_path: Path) -> None:
    """y = x two runs ago, whichever of the two variables the file assigns first."""
    g = Builder()
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 4), "int8", q))
    one, two = (g.persistent(name, np.full((1, 4), i, np.int8), q) for i, name in enumerate(("one", "two")))
    y = g.emit(ops.Add(), two, two, q=q)
    g.update((two,), (g.emit(ops.Assign(), two, one),))
    g.update((one,), (g.emit(ops.Assign(), one, x),))
    model = decode(write_tflite(g.graph(y)))
    assigns = [o for o in model.operators if o.code == "ASSIGN_VARIABLE"]
    swapped = iter(reversed(assigns))
    turned = replace(model, operators=tuple(next(swapped) if o in assigns else o for o in model.operators))
    for order in (model, turned):
        graph, judge = read(order, tmp_path), LiteRT(encode(order))
        inputs = stream_of(graph, RUNS)
        assert same(in_numpy(graph, inputs), [judge.run(a) for a in inputs])


def swap() -> TfliteModel:
    g = Builder()
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 4), "int8", q))
    one, two = (g.persistent(name, np.full((1, 4), i, np.int8), q) for i, name in enumerate(("one", "two")))
    y = g.emit(ops.Add(), g.emit(ops.Add(), one, two, q=q), x, q=q)
    g.update((one,), (g.emit(ops.Assign(), one, x),))
    g.update((two,), (g.emit(ops.Assign(), two, x),))
    model = decode(write_tflite(g.graph(y)))
    reads = [o.outputs[0] for o in model.operators if o.code == "READ_VARIABLE"]
    others = iter(reversed(reads))
    return replace(
        model,
        operators=tuple(
            replace(o, inputs=(o.inputs[0], next(others))) if o.code == "ASSIGN_VARIABLE" else o
            for o in model.operators
        ),
    )


def without_first_value() -> TfliteModel:
    model = delayed()
    return replace(model, operators=model.operators[1:], others=())


def computed_at_first() -> TfliteModel:
    model = delayed()
    (once,) = model.others
    return replace(model, others=(replace(once, operators=(*once.operators, TfliteOperator("RELU", (1,), (0,)))),))


def of_another_type() -> TfliteModel:
    model = delayed()
    (once,) = model.others
    short = tuple(replace(t, shape=(1, 2), data=bytes(2)) if t.data else t for t in once.tensors)
    return replace(model, others=(replace(once, tensors=short),))


def not_a_variable() -> TfliteModel:
    model = delayed()
    place = at(model, "READ_VARIABLE")
    operators = list(model.operators)
    operators[place] = replace(operators[place], inputs=model.inputs)
    return replace(model, operators=tuple(operators))


def that_gives() -> TfliteModel:
    model = delayed()
    place = at(model, "ASSIGN_VARIABLE")
    operators = list(model.operators)
    operators[place] = replace(operators[place], outputs=model.outputs)
    return replace(model, operators=tuple(operators))


def never_called() -> TfliteModel:
    model = delayed()
    return replace(model, others=(*model.others, *model.others))


def called_in_vain() -> TfliteModel:
    model = delayed()
    called = TfliteOperator("CALL_ONCE", (), (), TfliteOptions(init_subgraph_index=7))
    return replace(model, operators=(called, *model.operators[1:]))


REFUSED = {
    "that take each other's places": (swap, "the variables one, two take each other's places"),
    "without a first value": (without_first_value, "nothing gives the variable 'old' its first value; initialize it"),
    "whose first value is computed": (
        computed_at_first,
        "CALL_ONCE runs RELU; begin variables with constants",
    ),
    "of another type": (of_another_type, r"'old' holds int8\[1, 2\], the file declares int8\[1, 4\]"),
    "that are none": (not_a_variable, "tensor 'x' is not a variable"),
    "whose assignment gives something": (that_gives, r"\(ASSIGN_VARIABLE\) has 1 outputs instead of none"),
    "beside a subgraph of another kind": (never_called, "3 subgraphs, one is supported and those that CALL_ONCE runs"),
    "begun by a subgraph that is not there": (called_in_vain, "2 subgraphs, one is supported"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_are_refused_with_variables(what: str, tmp_path: Path) -> None:
    model, sentence = REFUSED[what]
    with pytest.raises(ImportModelError, match=sentence):
        read(model(), tmp_path)
