"""A ladder judges by samples it did not learn from, keeps what its rule says, and says where nothing was learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smidgen.callbacks import ignore
from smidgen.data import Data, Samples
from smidgen.learning import Course, LearningError
from smidgen.selection.choice import Choice
from smidgen.selection.folds import CROSS, FOLDS, MORE_FOLDS, make_folds
from smidgen.selection.judging import Recipe, Run, Scores
from smidgen.selection.ladder import climb
from smidgen.selection.priors import (
    FEW,
    LEAST_VARIANCE,
    MEASURED,
    PRIOR_DEVIATION,
    TRIAL_DEVIATION,
    expected_gain,
    prior_gain,
)
from smidgen.selection.rates import BATCH
from smidgen.training import Options
from smidgen.training.scheme import load_scheme
from tests.support.networks import inverted_residual
from tests.support.shapes import SHAPES, draw_shapes

GRAPH = inverted_residual(3)
DATA = draw_shapes(40, 2)
COURSE = Course(3, 0.0, seed=1)
HEAD = Recipe(load_scheme("head", GRAPH), "new head", 1_000)
CHEAP = Recipe(load_scheme("bias:2", GRAPH), "new head", 2_000)
DEAR = Recipe(load_scheme("last:2", GRAPH), "new head", 3_000, most=True)


@dataclass(frozen=True)
class Invented:
    """Runs nothing: each run gets the scores that a function gives its candidate for the samples that judge."""

    score: Callable[[int, int], float | None]  # of a candidate and a sample
    workers: int = 1

    def launch(
        self, work: Any, items: Sequence[Any], on_part: Callable[[float], None] = ignore
    ) -> Generator[tuple[Any, Any]]:
        for run in items:
            yield run, self.scores(work.folds[run.fold].held, run)

    def scores(self, held: Sequence[int], run: Run) -> Scores:
        found = [self.score(run.candidate, place) for place in held]
        return None if None in found else tuple(one for one in found if one is not None)

    @contextmanager
    def connected(self) -> Iterator[None]:
        yield


def kept(score: Callable[[int, int], float | None], data: Data = DATA) -> Choice:
    """What is kept of the head, the cheap and the dear candidate, in this order, by invented scores."""
    launcher = Invented(score)
    return climb(GRAPH, data, (HEAD, CHEAP, DEAR), Options(len(SHAPES)), COURSE, effort="quick", launcher=launcher)


def right(*shares: float) -> Callable[[int, int], float]:
    """Each candidate is right on its share of the samples, the same ones where the share is the same."""
    return lambda candidate, place: float((place * (0.6180339887 + shares[candidate])) % 1 < shares[candidate])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 99))
def test_each_sample_judges_once_and_a_single_one_of_its_class_is_learned_from(labels: list[int], seed: int) -> None:
    samples = Samples(tuple(np.zeros((1, 1, 3), np.uint8) for _ in labels), tuple(labels))
    folds, counts = make_folds(samples, 5, seed), Counter(labels)
    held = [place for fold in folds for place in fold.held]
    assert sorted(held) == [place for place, label in enumerate(labels) if counts[label] > 1]
    assert len(folds) <= (MORE_FOLDS if max(counts.values()) <= FEW else FOLDS)
    for fold in folds:
        assert {*fold.train} | {*fold.held} == {*range(len(labels))}
        assert not {*fold.train} & {*fold.held}
        assert {labels[place] for place in fold.held} <= {labels[place] for place in fold.train}


def test_of_many_samples_a_quarter_is_held_back_once() -> None:
    labels = tuple(i % 3 for i in range(CROSS + 1))
    (fold,) = make_folds(Samples(tuple(np.zeros((1, 1, 3), np.uint8) for _ in labels), labels), 3, 0)
    assert len(fold.held) == pytest.approx((CROSS + 1) / FOLDS, abs=3)


def test_what_gains_most_on_other_data_is_kept_where_samples_cannot_tell() -> None:
    found = kept(right(0.80, 0.70, 0.795))
    assert found.candidate == DEAR
    assert "going by other data sets too, this one is expected to do better" in found.reason


def test_beyond_what_was_measured_the_largest_scheme_is_kept_unless_another_is_clearly_better() -> None:
    many = draw_shapes(MEASURED + 1, 2)
    found = kept(right(0.80, 0.70, 0.795), many)
    assert (found.candidate, found.rows[0].expected) == (DEAR, None)
    assert "a trial shorter than the course may hide" in found.reason
    assert kept(right(0.95, 0.70, 0.70), many).candidate == HEAD


def test_what_answers_every_sample_alike_is_kept_where_it_is_cheaper() -> None:
    found = kept(right(0.8, 0.8, 0.8))
    assert found.candidate == HEAD
    assert "more learning adds nothing here" in found.reason
    assert kept(right(0.7, 0.8, 0.9)).candidate == DEAR


def test_what_is_clearly_better_is_kept_before_what_gains_on_other_data() -> None:
    found = kept(right(0.9, 0.6, 0.6))
    assert found.candidate == HEAD
    assert "more learning harms here" in found.reason
    assert kept(right(0.6, 0.9, 0.7)).candidate == CHEAP


def test_a_kept_head_has_no_gains_elsewhere_and_the_cheapest_within_the_error_is_kept() -> None:
    heads = [replace(one, start="kept head") for one in (HEAD, CHEAP, DEAR)]
    launcher = Invented(right(0.79, 0.80, 0.80))
    found = climb(GRAPH, DATA, heads, Options(len(SHAPES)), COURSE, effort="quick", launcher=launcher)
    assert (found.candidate, found.rows[0].expected) == (heads[1], None)


@given(st.floats(-0.1, 0.1), st.lists(st.sampled_from((-1.0, 0.0, 1.0)), min_size=2, max_size=400))
def test_the_expected_gain_is_the_mean_of_the_posterior(elsewhere: float, seen: list[float]) -> None:
    differences, gains = np.array(seen), np.linspace(-1.5, 1.5, 200_001)
    error = (differences.var(ddof=1) + LEAST_VARIANCE) / len(seen) + TRIAL_DEVIATION**2
    log = -((gains - elsewhere) ** 2) / (2 * PRIOR_DEVIATION**2) - (gains - differences.mean()) ** 2 / (2 * error)
    likely = np.exp(log - log.max())
    assert expected_gain(elsewhere, differences) == pytest.approx(
        float((gains * likely).sum() / likely.sum()), abs=1e-6
    )


def test_gains_elsewhere_are_those_of_the_nearest_rate() -> None:
    assert prior_gain(DEAR, 0.5 / BATCH, FEW) == pytest.approx(0.020)
    assert prior_gain(DEAR, 0.5 / BATCH, FEW + 1) == pytest.approx(0.023)
    assert prior_gain(replace(HEAD, start="one pass", steps=False), 0.0, 5) == pytest.approx(0.016)


def test_candidates_that_diverge_are_not_kept_and_all_of_them_end_in_a_sentence() -> None:
    found = kept(lambda candidate, place: None if candidate == 2 else float(place % 3 > 0))
    assert found.candidate != DEAR
    assert next(row for row in found.rows if row.name == "last:2").score is None
    with pytest.raises(LearningError, match="all of 3 candidates diverged"):
        kept(lambda candidate, place: None)


def test_a_rate_that_was_given_is_kept_and_one_that_was_found_is_lowered_for_a_longer_course() -> None:
    long, launcher = replace(COURSE, epochs=2_000), Invented(right(0.6, 0.7, 0.9))
    found = [
        climb(GRAPH, DATA, (HEAD, CHEAP, DEAR), Options(4), long, effort="quick", launcher=launcher, learning_rate=rate)
        for rate in (0.01, None)
    ]
    assert found[0].learning_rate == 0.01
    assert found[1].learning_rate < (found[1].rows[found[1].chosen].learning_rate or 0.0)


def test_a_rate_at_which_another_diverges_is_still_there_for_the_head() -> None:
    @dataclass(frozen=True)
    class Diverging(Invented):
        def scores(self, held: Sequence[int], run: Run) -> Scores:
            if run.candidate:
                return None if run.learning_rate > 0.0035 else tuple(0.5 for _ in held)
            return tuple(float(run.learning_rate > 0.0035) for _ in held)

    diverging = Diverging(right(0.5, 0.5, 0.5))
    found = climb(GRAPH, DATA, (HEAD, CHEAP, DEAR), Options(4), COURSE, effort="quick", launcher=diverging)
    assert (found.candidate, found.rows[found.chosen].score) == (HEAD, 1.0)


def test_labels_at_random_teach_nothing_and_it_says_so() -> None:
    rng = np.random.default_rng(5)
    train = replace(DATA.train, labels=tuple(int(one) for one in rng.permutation(DATA.train.labels)))
    found = climb(GRAPH, replace(DATA, train=train), (HEAD, DEAR), Options(len(SHAPES)), COURSE, effort="quick")
    assert not found.learned
    (note,) = found.notes
    assert "nothing was learned" in note
    assert "check the labels" in note


def test_of_few_samples_it_is_said_that_they_are_few() -> None:
    found = kept(lambda candidate, place: float(place % 2), replace(DATA, train=DATA.train.at(range(12))))
    assert not found.learned
    (note,) = found.notes
    assert "12 samples are too few to tell" in note
    assert "add samples" in note


def test_one_sample_of_a_class_leaves_none_to_judge_with_and_one_pass_is_kept() -> None:
    one_each = DATA.train.at(DATA.train.labels.index(label) for label in range(len(SHAPES)))
    once = replace(HEAD, start="one pass", steps=False)
    data = replace(DATA, train=one_each)
    found = climb(GRAPH, data, (HEAD, once, DEAR), Options(len(SHAPES)), COURSE, effort="quick")
    assert (found.candidate, found.rows) == (once, ())
    assert "leave none to judge with" in found.reason
