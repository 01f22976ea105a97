"""Steps that are skipped because their loss is small: they change nothing, in numpy, on the host and on the board."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import smidgen as sm
from loss_tasks import TASKS, Task, Told, compare
from shapes import draw_shapes
from smidgen.errors import GraphError, InputError
from smidgen.ir import Array, evaluate_step, roles_of, verify
from smidgen.ir.fingerprint import fingerprint
from smidgen.ir.text import parse_graph, print_graph
from smidgen.ops.rules import SGD, Momentum, Sgd, UpdateRule
from smidgen.simulation.fleet import Simulation
from smidgen.targets.cortex_m import BoardDevice
from smidgen.targets.host import Host
from smidgen.training import Options
from streams import CLASSES, stream_of, streaming_network
from toys import small_network

RULES = (SGD, Momentum(0.9), Sgd(accumulate=3), Momentum(0.5, accumulate=2))
STEPS = 24


def classes(rule: UpdateRule = SGD, skip_below: float = 0.0) -> Task:
    """Crosses, discs and the like, of which some are soon well known."""
    options = Options(4, rule=rule, skip_below=skip_below)
    return Task(small_network(), options, draw_shapes(24, 8), 0.02, "last:4")


def skipping(task: Task, below: float) -> Task:
    return replace(task, options=replace(task.options, skip_below=below))


def steps_of(task: Task, count: int = STEPS) -> list[tuple[Array, Told]]:
    return [task.told(i % len(task.data.train)) for i in range(count)]


def usual_loss(task: Task, host: Host) -> float:
    """A loss that a third of the first steps are below."""
    with task.compile(host).start() as device:
        return float(np.quantile([device.train(*step, task.rate) for step in steps_of(task)], 1 / 3))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_is_learned_is_what_the_other_steps_teach_a_program_that_skips_none(host: Host, rule: UpdateRule) -> None:
    task = classes(rule)
    below = np.float32(usual_loss(task, host))
    with skipping(task, float(below)).compile(host).start() as skips, task.compile(host).start() as learns:
        taught = 0
        for image, label in steps_of(task):
            before = skips.state()
            loss = skips.train(image, label, task.rate)
            if loss >= below:
                assert learns.train(image, label, task.rate) == loss
                taught += 1
            else:
                assert all(before[name].tobytes() == array.tobytes() for name, array in skips.state().items())
        assert 0 < taught < STEPS
        for name, array in learns.state().items():
            assert skips.state()[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("task", [classes, *TASKS], ids=lambda task: task.__name__)
def test_the_host_skips_the_steps_that_numpy_skips_by_every_loss(host: Host, task: object) -> None:
    assert callable(task)
    made: Task = task()
    below = usual_loss(made, host)
    program = skipping(made, below).compile(host)
    with program.start() as device:
        losses = compare(program, device, steps_of(made), made.rate)
    assert 0 < sum(loss < np.float32(below) for loss in losses) < STEPS


def test_the_board_skips_them_too_and_runs_little_more_than_a_prediction(host: Host) -> None:
    task = classes(Momentum(0.9))
    below = usual_loss(task, host)
    program = skipping(task, below).compile("cortex-m7")
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        losses = compare(program, device, steps_of(task, 12), task.rate)
        assert 0 < sum(loss < np.float32(below) for loss in losses) < len(losses)
        device.predict(task.told(0)[0])
        prediction, learned, skipped = device.counts().total, list[int](), list[int]()
        for place in range(12):
            loss = device.train(*task.told(place), task.rate)
            (skipped if loss < np.float32(below) else learned).append(device.counts().total)
    assert max(skipped) < prediction + 3000, "the loss of four classes, and no more"
    assert min(learned) > 2 * max(skipped)


def test_a_loss_at_the_threshold_is_learned_from(host: Host) -> None:
    task = classes()
    with task.compile(host).start() as device:
        loss = device.train(*task.told(0), task.rate)
    for below, learns in ((loss, True), (float(np.nextafter(np.float32(loss), np.float32(9))), False)):
        program = skipping(task, below).compile(host)
        with program.start() as device:
            before = device.state()
            compare(program, device, steps_of(task, 1), task.rate)
            changed = any(before[name].tobytes() != array.tobytes() for name, array in device.state().items())
        assert changed == learns


def test_a_skipped_step_carries_variables_on_as_a_prediction_does(host: Host) -> None:
    model = streaming_network()
    program = sm.compile(model, "last:2", host, options=Options(CLASSES, skip_below=100.0))
    variables = {v.name for v in program.graph.variables}
    state = program.graph.state
    with program.start() as skips, program.start() as predicts:
        for x in stream_of(model, 4):
            arrays = x, np.array([1], np.int32), np.array([0.5], np.float32)
            _, state = evaluate_step(program.graph, state, *arrays)
            predicts.predict(x)
            skips.train(x, 1, 0.5)
            for value, array in state.items():
                assert skips.state()[value.name].tobytes() == array.tobytes()
                assert predicts.state()[value.name].tobytes() == array.tobytes()
    changed = {v.name for v, array in state.items() if not np.array_equal(array, program.graph.state[v])}
    assert changed
    assert changed <= variables


def test_the_threshold_is_part_of_the_text_and_of_the_fingerprint() -> None:
    plain, skips = (sm.compile(small_network(), "last:2", options=Options(4, skip_below=b)).graph for b in (0.0, 0.1))
    assert parse_graph(print_graph(skips), {**skips.constants, **skips.state}) == skips
    assert parse_graph(print_graph(plain), {**plain.constants, **plain.state}) == plain
    assert "skip_below" not in print_graph(plain)
    assert fingerprint(plain) != fingerprint(skips)


def test_the_header_says_which_steps_learn_nothing() -> None:
    programs = [sm.compile(small_network(), "last:2", options=Options(4, skip_below=b)) for b in (0.0, 0.25)]
    plain, skips = (" ".join(p.sources.files["model.h"].replace(" * ", " ").split()) for p in programs)
    assert "below 0.25 ends there" in skips
    assert "below" not in plain
    assert "< 0.25f) return" in programs[1].sources.files["model.c"]


@pytest.mark.parametrize("below", [-0.1, float("nan"), float("inf"), 1e39])
def test_a_threshold_that_is_no_loss_is_refused(below: float) -> None:
    with pytest.raises(InputError, match="cannot be skipped; give a number from 0 up"):
        Options(4, skip_below=below).check()


@pytest.mark.parametrize("written", ["-0.1", "nan", "1e39", "'a'", "1"])
def test_text_with_a_threshold_that_is_no_loss_is_refused(written: str) -> None:
    graph = sm.compile(small_network(), "last:2", options=Options(4, skip_below=0.25)).graph
    text = print_graph(graph).replace("skip_below=0.25", f"skip_below={written}")
    with pytest.raises(GraphError):
        parse_graph(text, {**graph.constants, **graph.state})


def test_a_step_whose_loss_comes_late_cannot_skip() -> None:
    graph = sm.compile(small_network(), "last:2", options=Options(4, skip_below=0.25)).graph
    end = graph.prediction_end
    loss = graph.nodes[end]
    before = replace(loss, outs=tuple(replace(v, name=f"{v.name}.before") for v in loss.outs))
    late = replace(graph, nodes=(*graph.nodes[:end], before, *graph.nodes[end:]))
    verify(replace(late, roles=replace(roles_of(graph), skip_below=0.0)))
    with pytest.raises(GraphError, match="does not come first"):
        verify(late)


def test_a_fleet_refuses_to_skip_in_a_sentence() -> None:
    graph = sm.compile(small_network(), "last:2", options=Options(4, skip_below=0.25)).graph
    with pytest.raises(InputError, match=r"skips steps below a loss of 0.25, a fleet learns from all of them"):
        Simulation([graph])
