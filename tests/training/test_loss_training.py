"""Every loss trains: the same bytes by numpy, on the host and on a board; what it is told is checked; C says how."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from experiments.baselines import FloatTraining, Simulator
from smidgen.errors import GraphError, InputError, TrainingError
from smidgen.ir import Graph, evaluate_all, verify
from smidgen.ir.text import parse_graph, print_graph
from smidgen.learning import measure
from smidgen.ops import Lookup
from smidgen.ops.losses import loss_of
from smidgen.simulation.device import Simulator as SimulatedTarget
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host, HostDevice
from tests.support.drawn_heads import drawn_program
from tests.support.loss_tasks import (
    TASKS,
    Label,
    Task,
    brightness,
    cells,
    compare,
    pictures,
    position,
    several,
    spectra,
    yes_or_no,
)

tasks = pytest.mark.parametrize("make", TASKS, ids=[make.__name__ for make in TASKS])
Make = Callable[[], Task]


@tasks
def test_steps_leave_the_same_bytes_by_numpy_on_the_host_and_on_a_board(make: Make, host: Host, cache: Path) -> None:
    task = make()
    steps = [task.sample(place) for place in range(8)]
    losses = []
    for target in (host, BoardTarget(cache=cache)):
        program = task.compile(target)
        with program.start() as device:
            losses.append(compare(program, device, steps, task.rate))
    assert losses[0] == losses[1]


@tasks
def test_what_is_told_is_learned(make: Make, host: Host) -> None:
    task = make()
    course = sm.Course(6, task.rate, augment=None)
    learned = sm.learn(task.compile(host), task.data, course)
    first, last = learned.first, learned.last
    assert first.error is not None
    assert last.error is not None
    assert last.error < 0.6 * first.error
    if task.options.loss in ("sigmoid", "cells"):
        assert learned.accuracy > 0.97  # of the cells 15 in 16 are empty
    else:
        assert last.accuracy is None
        with pytest.raises(InputError, match="no right answers; take its error"):
            _ = learned.accuracy


def test_one_output_says_yes_where_it_is_above_0(host: Host) -> None:
    task = yes_or_no()
    program = task.compile(host)
    with program.start() as device:
        seen = set()
        for place in range(24):
            image, label = task.sample(place)
            device.train(image, label, 0.05)
            answer = device.predict(image)
            assert answer == int(device.outputs()[1][0, 0] > 0)
            seen.add(answer)
    assert seen == {0, 1}


def test_a_class_is_told_to_several_outputs_one_by_one(host: Host) -> None:
    task = several()
    image, _ = task.sample(0)
    program = drawn_program(task.compile(host))
    with program.start() as a, program.start() as b:
        assert a.train(image, 1, 0.05) == b.train(image, np.array([0, 1], np.float32), 0.05)
        assert all(np.array_equal(x, b.state()[name]) for name, x in a.state().items())


ZEROS = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("make", "label", "said"),
    [
        (yes_or_no, 2, "label 2 is not one of the 2 classes 0 to 1"),
        (yes_or_no, None, r"learns from vectors of float32\[1\], given was nothing"),
        (several, 2, "label 2 is not one of the 2 classes"),
        (several, np.array([0.0, 1.5], np.float32), "the target reaches from 0 to 1.5, a sigmoid from 0 to 1; use mse"),
        (several, np.zeros(3, np.float32), r"vectors of float32\[2\], given was float32\[3\]"),
        (position, 1, r"vectors of float32\[2\], given was int64\[\]"),
        (position, np.zeros(2), r"vectors of float32\[2\], given was float64\[2\]"),
        (position, np.array([0, np.nan], np.float32), "numbers that are not finite"),
        (spectra, 0, "learns to give its own input: there is no label; give None"),
        (cells, 1, r"maps of uint8\[4, 4\], given was int64\[\]"),
        (cells, np.zeros((4, 5), np.uint8), r"maps of uint8\[4, 4\], given was uint8\[4, 5\]"),
    ],
)
def test_what_a_loss_cannot_learn_from_is_refused(make: Make, label: Label, said: str, host: Host) -> None:
    task = make()
    image, _ = task.sample(0)
    with task.compile(host).start() as device, pytest.raises(InputError, match=said):
        device.train(image, label, 0.1)


def test_a_vector_is_no_class(host: Host) -> None:
    task = position()
    program = replace(task, options=sm.Options(3)).compile(host)
    image, _ = task.sample(0)
    with program.start() as device:
        for label, said in ((ZEROS, "the label is an array, but"), (None, "the label is nothing, but")):
            with pytest.raises(InputError, match=f"{said} the program learns 3 classes"):
                device.train(image, label, 0.1)


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (position, sm.Options(loss="reconstruction"), "takes 768 numbers and its head gives 5"),
        (cells, sm.Options(loss="mse", head="keep"), "its head cannot be kept"),
        (position, sm.Options(0, loss="mse"), "0 outputs cannot be learned; give 1 to 4096"),
        (position, sm.Options(1), "1 classes cannot be learned; give 2 to 4096"),
        (position, sm.Options(loss="hinge"), "there is no loss 'hinge'; known are softmax, sigmoid"),  # type: ignore[arg-type]
    ],
)
def test_a_loss_that_does_not_fit_the_head_is_refused(make: Make, options: sm.Options, said: str, host: Host) -> None:
    with pytest.raises((InputError, TrainingError), match=said):
        replace(make(), options=options).compile(host)


def test_a_kept_sigmoid_is_left_to_the_loss(host: Host) -> None:
    task = several()
    plain = task.model
    y = plain.outputs[0]
    ended = parse_graph(
        print_graph(plain).replace(f"output %{y.name}", "")
        + f"%odds: int8[1,5] q(0.00390625; -128) = Lookup(%{y.name}) function='sigmoid'\noutput %odds\n",
        plain.constants,
    )
    assert isinstance(ended.nodes[-1].op, Lookup)
    for loss, kept in (("sigmoid", False), ("mse", True)):
        options = sm.Options(head="keep", head_dtype="int8", loss=loss)  # type: ignore[arg-type]
        forward = replace(task, model=ended, options=options).compile(host).training
        assert forward is not None
        assert any(isinstance(node.op, Lookup) for node in forward.forward.nodes) is kept


SIGNATURES = {
    yes_or_no: "float model_train(const float *target, float learning_rate);",
    position: "float model_train(const float *target, float learning_rate);",
    cells: "float model_train(const unsigned char *labels, float learning_rate);",
    spectra: "float model_train(float learning_rate);",
}


@pytest.mark.parametrize("make", SIGNATURES, ids=[make.__name__ for make in SIGNATURES])
def test_an_example_hands_over_what_the_loss_compares_with(make: Make, host: Host, tmp_path: Path) -> None:
    make().compile(host).write(tmp_path / "c")
    header = (tmp_path / "c" / "model" / "model.h").read_text()
    assert SIGNATURES[make] in header
    assert ("float model_error(void);" in header) is (make is spectra)
    built = subprocess.run(
        ["make", "-s", "CFLAGS=-O1 -Werror"], cwd=tmp_path / "c", capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "c" / "example"], capture_output=True, text=True, check=True)
    *steps, seen = ran.stdout.splitlines()
    losses = [float(line.split()[-1]) for line in steps]
    assert len(losses) == 20
    assert sum(losses[-6:]) < sum(losses[:6])
    before, after = (
        seen.removeprefix("pattern 1 is seen as ").removesuffix(" after saving and loading").split(", and as ")
    )
    assert before == after


@pytest.mark.parametrize("make", [spectra, pictures], ids=["dense", "convolutions"])
def test_the_error_of_a_reconstruction_is_told_without_learning(make: Make, host: Host) -> None:
    task = make()
    with task.compile(host).start() as device:
        assert isinstance(device, HostDevice)
        state, samples = device.state(), task.data.train.at([0])
        expected = measure(device, samples).error
        error = device._function("error")
        error.restype = ctypes.c_float
        device.predict(task.sample(1)[0])
        device._feed(device.graph.prediction_inputs, (task.sample(0)[0],))
        assert error() == expected
        assert device.train(*task.sample(0), 0.0) == expected
        device.restore(state)


def test_fleets_and_training_in_float32_refuse_other_losses(host: Host) -> None:
    task = brightness()
    program = task.compile(host)
    assert program.training is not None
    with pytest.raises(InputError, match="learns by the loss mse, training in float32 by softmax alone; use the host"):
        FloatTraining(program.training)
    with pytest.raises(InputError, match="learns by the loss mse, a fleet by softmax alone; use the host, or a board"):
        sm.simulate([program], task.data, sm.Course(1, 0.1), device="cpu")


def step_of(make: Make, host: Host) -> Graph:
    training = make().compile(host).training
    assert training is not None
    return training.step


@tasks
def test_a_step_is_read_back_from_its_text(make: Make, host: Host) -> None:
    step = step_of(make, host)
    text = print_graph(step)
    assert (" label=%" in text) is (make not in (spectra, pictures))
    assert parse_graph(text, {**step.constants, **step.state}) == step


def test_a_label_of_another_type_is_refused(host: Host) -> None:
    step = step_of(position, host)
    assert step.roles is not None
    with pytest.raises(GraphError, match=r"is the label of the training step .*, but none of int32"):
        verify(replace(step, roles=replace(step.roles, label=step.roles.rate)))


def test_a_prediction_ends_before_the_loss(host: Host) -> None:
    step = step_of(spectra, host)
    assert step.roles is not None
    made = {v for node in step.nodes[: step.prediction_end] for v in node.outs}
    assert step.roles.logits in made
    assert step.roles.loss not in made
    assert step.roles.loss in step.nodes[step.prediction_end].outs


def test_the_image_of_a_reconstruction_cannot_be_streamed() -> None:
    task = pictures()
    with pytest.raises(sm.PlanError, match="stream"):
        sm.compile(task.model, "last:2", options=task.options, streamed_input=True)


@pytest.mark.parametrize("make", SIGNATURES, ids=[make.__name__ for make in SIGNATURES])
def test_an_example_for_a_board_builds_without_a_warning(make: Make, cache: Path, tmp_path: Path) -> None:
    make().compile(BoardTarget(cache=cache)).write(tmp_path / "c")
    flags = "CFLAGS=-O1 -std=c99 -ffp-contract=off -ffreestanding -Wall -Wextra -Wshadow -Wconversion -Werror"
    built = subprocess.run(
        ["make", "-s", f"PYTHON={sys.executable}", flags],
        cwd=tmp_path / "c",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr


@tasks
def test_gradients_of_whole_networks_are_those_of_pytorch(make: Make, host: Host) -> None:
    task = make()
    training = drawn_program(task.compile(host)).training
    assert training is not None
    reference = training.reference
    simulator, graph = Simulator(reference.loss_graph()), reference.graph
    wanted = tuple(v for v in reference.gradients if v in graph.state)
    for place in range(3):
        image, label = task.sample(place)
        target = loss_of(training.step).label(label, training.step)
        arrays = (image,) if target is None else (image, target)
        values = evaluate_all(graph, graph.state, *arrays)
        for value, theirs in zip(wanted, simulator.gradients(wanted, *arrays), strict=True):
            ours = values[reference.gradients[value]]
            assert np.abs(ours).max() > 0
            assert np.abs(ours - theirs).max() <= 2e-4 * np.abs(theirs).max(), value.name


def test_a_simulated_device_refuses_other_losses_when_it_is_compiled_for() -> None:
    with pytest.raises(InputError, match="learns by the loss mse, cpu by softmax alone; use the host, or a board"):
        brightness().compile(SimulatedTarget(name="cpu"))
