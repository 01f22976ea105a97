"""A run goes on after Ctrl-C or to more epochs, and ends with the bytes of one that was asked for it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen.data import examples, pixel_encoding
from smidgen.learning import CheckpointError, Course, Learned, LearningProgress, learn, read_checkpoint
from smidgen.pipeline import Program, compile
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

DATA = draw_shapes(4, 2)
STEPS, TESTS = len(DATA.train), len(DATA.test)
CONSTANT = Course(2, 0.01, "constant", test_every=2)


@pytest.fixture(scope="module")
def program(host: Host) -> Program:
    graph = small_network()
    return compile(graph, "last:3", host, options=Options(4), images=examples(DATA.train, pixel_encoding(graph)))


def rates_heard(program: Program, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rates that devices are given from now on."""
    rates: list[float] = []
    usual = Course.rate

    def rate(course: Course, epoch: int, step: int, steps: int) -> float:
        rates.append(usual(course, epoch, step, steps))
        return rates[-1]

    monkeypatch.setattr(Course, "rate", rate)
    return rates


def same(a: Learned, b: Learned) -> bool:
    states = a.state.keys() == b.state.keys() and all(np.array_equal(a.state[k], b.state[k]) for k in a.state)
    return states and (a.before, a.record, a.warnings, a.model) == (b.before, b.record, b.warnings, b.model)


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_constant_rate_goes_on_to_more_epochs_as_if_asked_for_them_at_once(
    program: Program, tmp_path: Path, first: int
) -> None:
    more, short, whole = replace(CONSTANT, epochs=4), tmp_path / "short.ckpt", tmp_path / "whole.ckpt"
    learn(program, DATA, replace(CONSTANT, epochs=first), checkpoint=short)
    once = learn(program, DATA, more, checkpoint=whole)
    assert same(learn(program, DATA, more, checkpoint=short, resume=short), once)
    assert short.read_bytes() == whole.read_bytes()


def test_a_cosine_goes_on_by_the_longer_one(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, longer = tmp_path / "run.ckpt", Course(5, 0.01)
    learn(program, DATA, Course(2, 0.01), checkpoint=path)
    rates = rates_heard(program, monkeypatch)
    learned = learn(program, DATA, longer, resume=path)
    monkeypatch.undo()
    assert rates == [longer.rate(epoch, step, STEPS) for epoch in (2, 3, 4) for step in range(STEPS)]
    assert [one.number for one in learned.record] == [1, 2, 3, 4, 5]


def test_a_run_may_end_earlier_than_planned_but_not_before_where_it_is(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"

    class Stopped(Exception):
        pass

    def stop(at: LearningProgress) -> None:
        if at.epoch == 4 and at.done == 9:
            raise Stopped

    with pytest.raises(Stopped):
        learn(program, DATA, replace(CONSTANT, epochs=9), checkpoint=path, on_progress=stop, save_steps=8)
    at = read_checkpoint(path).position
    assert (at.epoch, at.step) == (3, 8)
    with pytest.raises(CheckpointError, match="in epoch 4 of its run, which cannot end after 3; ask for 4 epochs or"):
        learn(program, DATA, replace(CONSTANT, epochs=3), resume=path)
    four = replace(CONSTANT, epochs=4)
    assert same(learn(program, DATA, four, resume=path), learn(program, DATA, four))


def test_the_last_epoch_is_tested_even_where_none_was_due_when_it_was_learned(program: Program, tmp_path: Path) -> None:
    path, three = tmp_path / "run.ckpt", replace(CONSTANT, epochs=3)
    kept: dict[int, bytes] = {}

    def keep(at: LearningProgress) -> None:
        if path.exists():
            kept[read_checkpoint(path).position.epoch] = path.read_bytes()

    learn(program, DATA, replace(CONSTANT, epochs=4), checkpoint=path, on_progress=keep)
    path.write_bytes(kept[3])
    assert read_checkpoint(path).position.record[-1].accuracy is None
    assert same(learn(program, DATA, three, checkpoint=path, resume=path), learn(program, DATA, three))
    assert read_checkpoint(path).position.record[-1].accuracy is not None


def stops_after(count: int) -> Callable[[], bool]:
    asked = iter(range(1, 10**6))
    return lambda: next(asked) >= count


@pytest.mark.parametrize("after", [1, STEPS - 1, STEPS, STEPS + 3, 2 * STEPS + TESTS + 5])
def test_a_run_that_is_asked_to_stop_keeps_every_step_it_took(program: Program, tmp_path: Path, after: int) -> None:
    path, course = tmp_path / "run.ckpt", Course(3, 0.01)
    with pytest.raises(KeyboardInterrupt):
        learn(program, DATA, course, checkpoint=path, stop=stops_after(TESTS + after))
    at = read_checkpoint(path).position
    taken = at.epoch * STEPS + at.step
    epochs, rest = divmod(after, STEPS + TESTS)
    assert taken == epochs * STEPS + min(rest, STEPS)
    assert same(learn(program, DATA, course, checkpoint=path, resume=path), learn(program, DATA, course))


def test_a_run_that_is_asked_to_stop_before_it_learned_leaves_no_checkpoint(program: Program, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        learn(program, DATA, CONSTANT, checkpoint=tmp_path / "run.ckpt", stop=stops_after(2))
    assert list(tmp_path.iterdir()) == []
