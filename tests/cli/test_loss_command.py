"""The command line learns by the loss that fits the data, by the one asked for, and refuses what does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from smidgen.data import Data
from smidgen.frontends.native import write_smg
from smidgen.learning import learn, read_checkpoint
from smidgen.ops import Mean
from smidgen.targets.host import Host
from smidgen.training.options import choose_loss, options_on
from tests.cli.test_cli import fail, invoke
from tests.support.loss_tasks import Int8Net, Task, cells, pictures, position, several, spectra, yes_or_no

Make = Callable[[], Task]


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, with programs built where the other tests build theirs."""
    monkeypatch.chdir(tmp_path)
    for module in ("host", "firmware"):
        monkeypatch.setattr(f"smidgen.targets.{module}.cache_folder", lambda: cache)
    return tmp_path


def written(make: Make) -> Task:
    """The task's model and data as files."""
    task = make()
    write_smg(task.model, Path("model.smg"))
    parts = {}
    for suffix, samples in (("", task.data.train), ("_test", task.data.test)):
        parts[f"x{suffix}"] = np.stack(samples.images)
        if task.data.label_kind != "nothing":
            parts[f"y{suffix}"] = np.stack(samples.targets) if samples.targets else np.array(samples.labels)
    np.savez("data.npz", **parts)  # type: ignore[arg-type]
    return task


def train(task: Task, *more: str) -> dict[str, object]:
    options = ("--data", "data.npz", "--scheme", task.scheme, "--lr", str(task.rate), "-o", "out", "--json", *more)
    printed: dict[str, object] = json.loads(invoke("train", "model.smg", *options))
    return printed


@pytest.mark.parametrize("make", [several, position, spectra, pictures, cells])
def test_train_learns_by_the_loss_that_fits_the_data(make: Make, folder: Path) -> None:
    task = written(make)
    printed = train(task, "--epochs", "6")
    before, error = printed["error_before"], printed["error"]
    assert printed["loss"] == task.options.loss
    assert isinstance(before, float)
    assert isinstance(error, float)
    assert error < 0.6 * before
    assert (printed["accuracy"] is None) is (task.options.loss in ("mse", "reconstruction"))
    text = invoke("train", "model.smg", "--data", "data.npz", "--scheme", "head", "--lr", "0.01", "-o", "u")
    assert "before     error" in text
    assert f"loss {task.options.loss}, {len(task.data.train)} samples to learn from" in text


def one_output() -> sm.Graph:
    """A network that says yes or no."""
    n = Int8Net(31, 32, 32, 3)
    x = n.conv(n.conv(n.x, 6, 3), 8)
    return n.g.graph(n.dense(n.g.emit(Mean(), x, q=x.type.q), 1, 0))


def test_two_classes_and_one_output_are_yes_or_no(folder: Path) -> None:
    task = written(lambda: replace(yes_or_no(), model=one_output(), scheme="last:2"))
    printed = train(task, "--epochs", "1")
    assert printed["loss"] == "sigmoid"
    assert printed["accuracy"] is not None
    assert printed["error"] is not None
    assert sm.load("out/net31.smg").scores.type.shape == (1, 1)


def test_what_is_printed_of_classes_is_what_it_was(folder: Path) -> None:
    task = written(yes_or_no)
    printed = train(task, "--epochs", "1")
    epochs = printed["epochs"]
    assert isinstance(epochs, list)
    epoch = epochs[0]
    assert (printed["loss"], printed["error"], printed["error_before"], epoch["error"]) == ("softmax", None, None, None)
    assert isinstance(printed["before"], float)
    assert printed["accuracy"] == epoch["accuracy"]
    assert {"model", "scheme", "target", "classes", "train_images", "test_images", "files"} <= printed.keys()


@pytest.mark.parametrize(
    ("make", "model", "loss", "outputs"),
    [
        (yes_or_no, None, "softmax", 2),
        (yes_or_no, one_output, "sigmoid", 1),
        (several, None, "sigmoid", 2),
        (position, None, "mse", 2),
        (spectra, None, "reconstruction", None),
        (cells, None, "cells", None),
    ],
)
def test_what_is_known_of_samples_says_the_loss_and_the_outputs(
    make: Make, model: Callable[[], sm.Graph] | None, loss: str, outputs: int | None
) -> None:
    task = make()
    graph = model() if model else task.model
    assert choose_loss(graph, task.data) == loss
    assert options_on(graph, task.data, sm.Options()).classes == outputs


def far() -> Task:
    """Positions beyond 1."""
    task = position()
    train, test = (replace(s, targets=tuple(3 * t for t in s.targets)) for s in (task.data.train, task.data.test))
    return replace(task, data=Data("far", (), train, test))


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (
            position,
            ("--loss", "softmax"),
            "has vectors as labels, .* by softmax from classes; choose the loss sigmoid or mse",
        ),
        (spectra, ("--loss", "mse", "--classes", "3"), "has no labels, .* learns by mse from vectors"),
        (
            far,
            ("--loss", "sigmoid"),
            r"sample 1 of data.npz: the target reaches from 1 to 2, a sigmoid from 0 to 1",
        ),
        (cells, ("--crop", "0.5"), "which crops and flips would move; leave out --crop and --flip"),
        (position, ("--loss", "reconstruction"), "takes 768 numbers and its head gives 5"),
    ],
)
def test_a_loss_that_does_not_fit_the_data_is_refused(
    make: Make,
    options: tuple[str, ...],
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(make)
    told = ("train", "model.smg", "--data", "data.npz", "--scheme", "head", "--lr", "0.1", "-o", "out", *options)
    assert re.search(said, fail(capsys, monkeypatch, *told))
    assert not Path("out").exists()


def test_a_rate_is_chosen_by_the_loss_of_samples_held_back(folder: Path) -> None:
    written(position)
    options = ("--data", "data.npz", "--scheme", "last:2", "--epochs", "3", "-o", "out", "--json")
    printed = json.loads(invoke("train", "model.smg", *options))
    chosen = printed["chosen_rate"]
    assert 0 < printed["learning_rate"] < 1
    assert chosen["guessing"] == pytest.approx(np.var(position().data.train.targets, axis=0).mean(), rel=1e-5)
    assert printed["error"] < 0.5 * printed["error_before"]


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(host: Host, tmp_path: Path) -> None:
    task, path = position(), tmp_path / "run.ckpt"
    program, course = task.compile(host), sm.Course(3, task.rate, augment=None)
    whole = learn(program, task.data, course)

    class Stop(Exception):
        pass

    def stop(at: object) -> None:
        if getattr(at, "epoch", 0) == 2 and getattr(at, "done", 0) == 20:
            raise Stop

    with pytest.raises(Stop):
        learn(program, task.data, course, checkpoint=path, on_progress=stop, save_steps=8)
    assert read_checkpoint(path).position.error == whole.first.error
    again = learn(program, task.data, course, resume=path)
    assert (again.first, again.record, again.last) == (whole.first, whole.record, whole.last)
    assert all(np.array_equal(array, again.state[name]) for name, array in whole.state.items())


def test_maps_do_not_follow_crops(host: Host) -> None:
    task = cells()
    with pytest.raises(sm.InputError, match=r"would move the pictures but not the maps; give Course\(augment=None\)"):
        learn(task.compile(host), task.data, sm.Course(1, 0.1))


def test_samples_that_do_not_fit_are_named(host: Host) -> None:
    task = position()
    wrong = replace(task.data.test, targets=(*task.data.test.targets[:-1], np.zeros(3, np.float32)))
    data = Data("odd", (), task.data.train, wrong)
    with pytest.raises(sm.InputError, match=r"sample 15 of odd: .* learns from vectors of float32\[2\]"):
        learn(task.compile(host), data, sm.Course(1, 0.1, augment=None))


def test_warnings_compare_with_what_giving_the_mean_would_cost(host: Host) -> None:
    task = position()
    learned = learn(task.compile(host), task.data, sm.Course(1, 50.0, augment=None))
    assert any("that of giving the mean 0.1" in warning for warning in learned.warnings)


def test_compile_and_profile_take_a_loss(folder: Path) -> None:
    written(spectra)
    invoke("compile", "model.smg", "--scheme", "head", "--loss", "mse", "--classes", "2", "-o", "c")
    assert "float model_train(const float *target, float learning_rate);" in Path("c/model/model.h").read_text()
    assert "`target` holds 2 numbers, one for each output." in Path("c/README.md").read_text()
    options = ("--scheme", "last:2", "--loss", "reconstruction", "--head-dtype", "int8", "--json")
    assert json.loads(invoke("profile", "model.smg", *options))["exact"]["equal"]
