"""Steps that are skipped because their loss is small: they change nothing, in numpy, on the host and on the board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import smidgen as sm
from experiments.baselines.simulator import FloatTraining
from smidgen.data import pixel_encoding
from smidgen.errors import GraphError, InputError
from smidgen.frontends.native import write_smg
from smidgen.ir import Array, evaluate_step, roles_of, verify
from smidgen.ir.text import fingerprint, parse_graph, print_graph
from smidgen.learning import Course, learn, read_checkpoint
from smidgen.ops.rules import SGD, Momentum, Sgd, UpdateRule
from smidgen.pipeline import Program
from smidgen.results.profile import profile, time_program
from smidgen.simulation import Simulation
from smidgen.targets.device import Target
from smidgen.targets.firmware import BoardDevice
from smidgen.targets.host import Host
from smidgen.training import Options, build_training, load_scheme
from tests.cli.test_cli import fail, invoke
from tests.support.drawn_heads import drawn_program
from tests.support.loss_tasks import TASKS, Label, Task, compare
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.streams import CLASSES, stream_of, streaming_network

RULES = (SGD, Momentum(0.9), Sgd(accumulate=3), Momentum(0.5, accumulate=2))
STEPS = 24


def classes(rule: UpdateRule = SGD, skip_below: float = 0.0) -> Task:
    """Crosses, discs and the like, of which some are soon well known."""
    options = Options(4, rule=rule, skip_below=skip_below)
    return Task(small_network(), options, draw_shapes(24, 8), 0.02, "last:4")


def skipping(task: Task, below: float) -> Task:
    return replace(task, options=replace(task.options, skip_below=below))


def drawn(task: Task, target: str | Target) -> Program:
    """Compile with a drawn head: all samples have the same loss by one at zero, until it learns from one."""
    return drawn_program(task.compile(target))


def steps_of(task: Task, count: int = STEPS) -> list[tuple[Array, Label]]:
    return [task.sample(i % len(task.data.train)) for i in range(count)]


def usual_loss(task: Task, host: Host) -> float:
    """A loss that a third of the first steps are below."""
    with drawn(task, host).start() as device:
        return float(np.quantile([device.train(*step, task.rate) for step in steps_of(task)], 1 / 3))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_is_learned_is_what_the_other_steps_teach_a_program_that_skips_none(host: Host, rule: UpdateRule) -> None:
    task = classes(rule)
    below = np.float32(usual_loss(task, host))
    with drawn(skipping(task, float(below)), host).start() as skips, drawn(task, host).start() as learns:
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
    program = drawn(skipping(made, below), host)
    with program.start() as device:
        losses = compare(program, device, steps_of(made), made.rate)
    assert 0 < sum(loss < np.float32(below) for loss in losses) < STEPS


def test_the_board_skips_them_too_and_runs_little_more_than_a_prediction(host: Host) -> None:
    task = classes(Momentum(0.9))
    below = usual_loss(task, host)
    program = drawn(skipping(task, below), "cortex-m7")
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        losses = compare(program, device, steps_of(task, 12), task.rate)
        assert 0 < sum(loss < np.float32(below) for loss in losses) < len(losses)
        device.predict(task.sample(0)[0])
        prediction, learned, skipped = device.counts().total, list[int](), list[int]()
        for place in range(12):
            loss = device.train(*task.sample(place), task.rate)
            (skipped if loss < np.float32(below) else learned).append(device.counts().total)
    assert max(skipped) < prediction + 3000, "the loss of four classes, and no more"
    assert min(learned) > 2 * max(skipped)


def test_a_latent_is_skipped_as_its_image_is(host: Host) -> None:
    task = classes()
    options = Options(4, skip_below=usual_loss(task, host))
    program = drawn_program(sm.compile(task.model, task.scheme, host, options=options, replay="64KB"))
    with program.start() as shown, program.start() as replayed:
        losses = []
        for image, label in steps_of(task):
            losses.append(shown.train(image, label, task.rate))
            assert replayed.replay(replayed.latent(image), label, task.rate) == losses[-1]
        assert 0 < sum(map(roles_of(program.graph).skips, losses)) < STEPS
        for name, array in shown.state().items():
            assert replayed.state()[name].tobytes() == array.tobytes(), name


def test_a_loss_at_the_threshold_is_learned_from(host: Host) -> None:
    task = classes()
    with drawn(task, host).start() as device:
        loss = device.train(*task.sample(0), task.rate)
    for below, learns in ((loss, True), (float(np.nextafter(np.float32(loss), np.float32(9))), False)):
        program = drawn(skipping(task, below), host)
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


def test_a_course_counts_what_it_skips_and_goes_on_as_if_it_had_not_stopped(host: Host, tmp_path: Path) -> None:
    task, course, path = skipping(classes(), 1.3), Course(3, 0.02, seed=1), tmp_path / "run.ckpt"
    program, steps = drawn(task, host), len(task.data.train)
    whole = learn(program, task.data, course)
    losses = [0.0] * steps
    with program.start() as device:
        encoding = pixel_encoding(program.graph)
        for step, i in enumerate(course.order(0, steps)):
            image = course.image(task.data.train.images[i], encoding, 0, i)
            losses[step] = device.train(image, task.data.train.labels[i], course.rate(0, step, steps))
    assert whole.record[0].skipped == sum(loss < np.float32(1.3) for loss in losses) / steps
    assert 0 < whole.record[-1].skipped < 1
    assert f"skipped {whole.record[-1].skipped:.1%}" in str(whole.record[-1])
    asked = iter(range(10**6))
    with pytest.raises(KeyboardInterrupt):
        learn(program, task.data, course, checkpoint=path, stop=lambda: next(asked) > 2 * steps)
    assert read_checkpoint(path).position.step
    again = learn(program, task.data, course, checkpoint=path, resume=path)
    assert again.record == whole.record
    assert all(again.state[name].tobytes() == array.tobytes() for name, array in whole.state.items())


def test_the_command_line_compiles_and_trains_programs_that_skip(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("smidgen.targets.host.cache_folder", lambda: cache)
    task = classes()
    write_smg(task.model, Path("model.smg"))
    parts = {"x": task.data.train, "x_test": task.data.test}
    arrays = {name: np.stack(samples.images) for name, samples in parts.items()}
    arrays |= {name.replace("x", "y"): np.array(samples.labels) for name, samples in parts.items()}
    np.savez("data.npz", **arrays)  # type: ignore[arg-type]
    invoke("compile", "model.smg", "--scheme", "last:2", "--classes", "4", "--skip-below", "0.25", "-o", "project")
    assert "< 0.25f) return" in Path("project/model/model.c").read_text()
    options = ("--data", "data.npz", "--scheme", "last:2", "--lr", "0.02", "--epochs", "2", "-o", "out")
    assert "skipped 100.0%" in invoke("train", "model.smg", *options, "--skip-below", "100")
    assert "cannot be skipped" in fail(
        capsys, monkeypatch, "train", "model.smg", *options, "--force", "--skip-below", "-1"
    )


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


def test_the_cost_of_a_skipped_step_is_not_taken_for_that_of_a_step(host: Host) -> None:
    task = skipping(classes(), 100.0)
    for measure, target in ((profile, "cortex-m7"), (time_program, host)):
        with pytest.raises(InputError, match="is skipped, as all below 100; measure a program that skips none"):
            measure(task.compile(target), steps=1)
    assert profile(skipping(classes(), 1e-6).compile("cortex-m7"), steps=1).exact.equal


@pytest.mark.parametrize("rule", [SGD, Momentum(0.5, accumulate=2)], ids=str)
def test_each_device_of_a_fleet_skips_by_its_own_threshold(host: Host, rule: UpdateRule) -> None:
    task = classes(rule)
    usual = usual_loss(task, host)
    programs = [
        drawn(replace(skipping(task, below), scheme=scheme), host)
        for below, scheme in ((1.2 * usual, "last:1"), (0.0, "last:4"), (usual, "last:2"), (usual, "last:4"))
    ]
    fleet, skipped = Simulation([program.graph for program in programs]), 0
    devices = [program.start() for program in programs]
    for image, label in steps_of(task):
        told = torch.tensor([label]), torch.full((1, len(programs)), task.rate)
        losses = fleet.train(fleet.front(torch.from_numpy(image)), *told)[0]
        for number, device in enumerate(devices):
            assert device.train(image, label, task.rate) == losses[number]
            skipped += roles_of(device.graph).skips(float(losses[number]))
    assert 0 < skipped < 3 * STEPS
    for number, device in enumerate(devices):
        found = fleet.state(number)
        assert all(found[name].tobytes() == array.tobytes() for name, array in device.state().items())
        device.close()


def test_training_in_float32_refuses_to_skip_in_a_sentence() -> None:
    model = small_network()
    training = build_training(model, load_scheme("last:2", model), Options(4, skip_below=0.25))
    with pytest.raises(InputError, match=r"skips steps below a loss of 0.25, training in float32 learns from all"):
        FloatTraining(training)
