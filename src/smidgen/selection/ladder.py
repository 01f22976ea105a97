"""The ladder: candidates from cheap to dear, judged on samples held back, until the one to keep is known.

A quarter of the samples is held back; with up to 2,000 samples each one judges once, in 4 folds, or in 5 where no class
has more than 10. Candidates are tried at a few rates in two rounds: all of them for a quarter of a trial's steps, then
the six most promising for all steps on every fold, with the head and the closed-form head. The largest scheme is always
among the six, from each start: short trials favour what begins well. The head alone takes as many steps as the course.

Each candidate at each rate is ranked by its expected gain over the head: the gain seen on these samples, combined with
what candidates of its kind gained on other data sets (`priors.py`). The highest expected gain is kept; of candidates
that answer every sample alike, the cheapest. Where no gains were measured (more samples per class, or no classes), the
largest scheme from a new head is kept unless another is better by more than the standard error of their difference and
a point for each time that a trial halves the course. Where the model's own head is kept, the best is, or the cheapest
that is worse by no more than that error and by no more than a point.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from smidgen.callbacks import ignore
from smidgen.data import Data
from smidgen.ir import Array, Graph
from smidgen.learning import Course, LearningError
from smidgen.selection.choice import SURE, Choice, Row, shown
from smidgen.selection.folds import Fold, make_folds
from smidgen.selection.judging import Bench, Recipe, Run, Scores, make_bench
from smidgen.selection.launchers import Launcher, find_launcher
from smidgen.selection.priors import BASELINE_RATE, MEASURED, expected_gain, prior_gain
from smidgen.selection.rates import BATCH
from smidgen.selection.trials import limit_samples
from smidgen.training import Options

Effort = Literal["quick", "normal", "thorough"]
STEPS: Mapping[Effort, int] = {"quick": 40_000, "normal": 200_000, "thorough": 1_000_000}  # of all trials together
SAMPLES: Mapping[Effort, int] = {"quick": 1_000, "normal": 4_000, "thorough": 20_000}  # learned from, at most
LEAST_STEPS = 64  # of a run
CHEAP = 10  # a run of the head alone takes at most the work divided by this, in steps
JUDGES = 200  # samples that judge in the first round, where there are so many
FROM_NEW = tuple(rate / BATCH for rate in (0.1, 0.4, 1.0, 2.5))
FROM_ONE_PASS = tuple(rate / BATCH for rate in (0.05, 0.2, 1.0))
HIGHER, HIGHEST = 2.5, 20.0 / BATCH  # the factor to the next rate where the highest was best, and where that ends
FINALISTS = 6  # in the last round, each a candidate at one rate; heads come on top
QUARTER, WHOLE = 1 / 4, 1.0  # of the steps, in the two rounds
ENOUGH = 30  # samples that judge, from which learning can be distinguished from chance
POINT = 0.01  # of accuracy: a cheaper candidate is never kept where it seems to be worse by more

Tried = tuple[int, float]  # a candidate and a rate


@dataclass(frozen=True)
class LadderProgress:
    """The candidate that is tried, how many steps of all are done, and the candidate that leads."""

    doing: str
    done: int
    total: int
    leads: str = ""


def climb(
    model: Graph,
    data: Data,
    candidates: Sequence[Recipe],
    options: Options,
    course: Course,
    *,
    beyond: Sequence[Recipe] = (),
    effort: Effort = "normal",
    learning_rate: float | None = None,
    launcher: Launcher | None = None,
    known: Mapping[Run, Scores] | None = None,
    on_run: Callable[[Run, Scores], None] = ignore,
    on_progress: Callable[[LadderProgress], None] = ignore,
) -> Choice:
    """Judge candidates on the training samples, and choose one; the data's test samples are not looked at.

    `known` are the scores of runs that an earlier call finished; `on_run` gets those of each run as it ends. Candidates
    are trained and judged by the launcher, without one on all cores of this machine; the result is the same.
    `beyond` are candidates of a larger budget, tried only to say what it would bring.
    """
    classes = len(data.classes) if data.label_kind == "classes" else 0
    samples = limit_samples(data.train, SAMPLES[effort], max(classes, 1))
    folds = make_folds(samples, classes, course.seed)
    ordered = tuple(sorted(candidates, key=lambda one: (one.scheme.biases, len(one.scheme.weights), one.steps)))
    if not folds:
        return _unjudged(ordered, len(samples), learning_rate)
    launcher, whole = launcher or find_launcher(None, None, None), course.epochs * len(data.train)
    ladder = _Ladder(ordered, folds, STEPS[effort], whole, learning_rate, launcher, tuple(beyond))
    ladder.scores, ladder.on_run, ladder.on_progress = dict(known or {}), on_run, on_progress
    count = len(samples) / max(classes, 1)
    ladder.per_class = count if classes and count <= MEASURED else None
    ladder.bench = make_bench(
        model, options, course, ladder.everything, samples, folds, ladder.steps,
        lambda done, total: on_progress(LadderProgress("frozen layers", done, total)),
    )  # fmt: skip
    chance = max(Counter(samples.labels).values()) / len(samples) if classes else None
    with closing(ladder.bench), launcher.connected():
        return _choose(ladder, ladder.run(), chance, len(samples))


def _unjudged(ordered: tuple[Recipe, ...], samples: int, rate: float | None) -> Choice:
    """Choose without a judge: one pass, which needs no rate, or the cheapest."""
    chosen = next((one for one in ordered if not one.steps), ordered[0])
    reason = f"{samples} samples, one of each class, leave none to judge with; {chosen.name} needs the least of them"
    return Choice((), chosen, 0, 0.0 if not chosen.steps else rate or FROM_NEW[0], reason, samples, 0, None)


@dataclass(frozen=True, eq=False)
class _Judged:
    """A candidate at its best rate in the last round that it reached."""

    candidate: int
    row: Row
    scores: Array  # of each sample that judged
    worth: float  # the expected gain over the head, or the mean score


class _Ladder:
    """Candidates under way."""

    bench: Bench
    on_run: Callable[[Run, Scores], None]
    on_progress: Callable[[LadderProgress], None]
    per_class: float | None  # samples per class, on average; None where gains were not measured for so many
    has_priors: bool  # gains on other data are known for these candidates

    def __init__(
        self,
        candidates: tuple[Recipe, ...],
        folds: tuple[Fold, ...],
        work: int,
        whole: int,
        rate: float | None,
        launcher: Launcher,
        beyond: tuple[Recipe, ...],
    ) -> None:
        self.candidates, self.everything = candidates, (*candidates, *beyond)
        self.folds, self.whole, self.rate, self.launcher = folds, whole, rate, launcher
        self.scores: dict[Run, Scores] = {}
        self.done = 0
        self.tried = [(i, rate) for i, one in enumerate(candidates) for rate in self._rates(one)]
        self.deep = [one for one in self.tried if candidates[one[0]].scheme.biases]
        self.first = min(len(folds), -(-JUDGES // len(folds[0].held)))  # folds of the first round
        self.schemes = sum(1 for one in candidates if one.scheme.biases)
        self.cheap = max(min(work // CHEAP, whole), LEAST_STEPS)
        self.steps = max(min(int(work / self.work), whole), LEAST_STEPS) if self.deep else self.cheap

    @property
    def work(self) -> float:
        """The work of all rounds in runs of all steps; steps of the head alone hardly count."""
        return max(len(self.deep) * QUARTER * self.first + min(FINALISTS, len(self.deep)) * len(self.folds), 1.0)

    def taken(self, candidate: int, part: float) -> int:
        """Return the steps of a run that takes a part of all."""
        one = self.everything[candidate]
        return max(int((self.steps if one.scheme.biases else self.cheap) * part), LEAST_STEPS) if one.steps else 0

    def run(self) -> list[_Judged]:
        """Return every candidate, the most promising first, finalists before others."""
        first = self._round(self.tried, QUARTER, self.first)
        while more := self._higher(first):
            first |= self._round(more, QUARTER, self.first)
        worth = self._worth(first)
        alone = [one for i in range(len(self.candidates)) if not self._is_deep(one := self._at_best_rate(i, worth))]
        deep = sorted((one for one in worth if self._is_deep(one)), key=lambda one: (-worth[one], one[1], one[0]))
        largest = [self._at_best_rate(i, worth) for i, one in enumerate(self.candidates) if one.most]
        final = dict.fromkeys([*self._baseline(first), *alone, *largest, *deep[: FINALISTS - len(largest)]])
        last = self._round(list(final), WHOLE, len(self.folds))
        found, finally_worth = [], self._worth(last)
        self.has_priors = self.per_class is not None and bool(self._baseline(last))
        for i in range(len(self.candidates)):
            is_finalist = any(one[0] == i for one in last)
            scores, worth_of = (last, finally_worth) if is_finalist else (first, worth)
            tried = self._at_best_rate(i, worth_of)
            found.append(self._judged(tried, scores[tried], is_finalist, worth_of[tried]))
        return sorted(found, key=lambda one: (not one.row.finalist, -one.worth, one.row.sram_bytes))

    def is_promised(self, candidate: int) -> bool:
        """Return whether a candidate is kept unless another is clearly better: no gains are known to judge it by."""
        one = self.candidates[candidate]
        return one.most and one.start == "new head" and self.per_class is None

    def _is_deep(self, tried: Tried) -> bool:
        return bool(self.candidates[tried[0]].scheme.biases)

    def _baseline(self, scores: Mapping[Tried, Scores]) -> list[Tried]:
        """Return the new head at the usual rate, from which gains are measured; nothing where it was not tried."""
        usual_rate = math.log(BASELINE_RATE / BATCH)
        heads = [
            one for one, found in scores.items()
            if found and not self._is_deep(one) and self.candidates[one[0]].start == "new head"
        ]  # fmt: skip
        return sorted(heads, key=lambda one: abs(math.log(one[1]) - usual_rate))[:1]

    def _worth(self, scores: Mapping[Tried, Scores]) -> dict[Tried, float]:
        """Return the expected gain over the head of each candidate at each rate; without a prior, its mean score."""
        head = self._baseline(scores)
        if self.per_class is None or not head:
            return {one: sum(found) / len(found) if found else -math.inf for one, found in scores.items()}
        baseline = np.array(scores[head[0]])
        return {
            (i, rate): expected_gain(prior_gain(self.candidates[i], rate, self.per_class), np.array(found) - baseline)
            if found else -math.inf
            for (i, rate), found in scores.items()
        }  # fmt: skip

    def _at_best_rate(self, candidate: int, worth: Mapping[Tried, float]) -> Tried:
        """Return a candidate at its best rate; of equal ones, the lower."""
        return max((one for one in worth if one[0] == candidate), key=lambda one: (worth[one], -one[1]))

    def _higher(self, scores: Mapping[Tried, Scores]) -> list[Tried]:
        """Return the next rate of every candidate that was best at the highest rate it was tried at."""
        found, worth = [], self._worth(scores)
        for i, one in enumerate(self.candidates):
            _, best = self._at_best_rate(i, worth)
            if one.steps and self.rate is None and best < HIGHEST and best == max(rate for j, rate in scores if j == i):
                found.append((i, HIGHER * best))
        return found

    def learns(self, judged: _Judged) -> bool:
        """Return whether a candidate learns anything: the model as it is stands beside them to compare with."""
        one = self.candidates[judged.candidate]
        return one.steps or one.start == "one pass"

    def _rates(self, one: Recipe) -> tuple[float, ...]:
        if not one.steps:
            return (0.0,)
        if self.rate is not None:
            return (self.rate,)
        return FROM_ONE_PASS if one.start == "one pass" else FROM_NEW

    def _judged(self, tried: Tried, scores: Scores, final: bool, worth: float) -> _Judged:
        one, found = self.candidates[tried[0]], np.array(scores or ())
        mean, error = _mean(found) if scores else (None, 0.0)
        rate, steps = tried[1] if one.steps else None, self.taken(tried[0], WHOLE if final else QUARTER)
        row = Row(one.name, rate, mean, error, found.size, steps, one.sram_bytes, final and bool(scores))
        expected = worth if self.has_priors and scores else None
        return _Judged(tried[0], replace(row, expected=expected), found, worth)

    def _round(self, tried: Sequence[Tried], part: float, folds: int, half: bool = False) -> dict[Tried, Scores]:
        """Return the scores of candidates at rates, on the first folds together; None where one diverged.

        Rates are those of all steps; fewer take higher ones, as the square root of how many fewer there are.
        """
        some, higher = range(min(folds, len(self.folds))), 1 / math.sqrt(part)
        runs = {
            (i, rate): [Run(i, rate * higher, self.taken(i, part), fold, half) for fold in some] for i, rate in tried
        }
        self._finish([run for of_one in runs.values() for run in of_one])
        found: dict[Tried, Scores] = {}
        for one, of_one in runs.items():
            parts = [self.scores[run] for run in of_one]
            found[one] = None if None in parts else tuple(score for part in parts for score in part or ())
        return found

    def _finish(self, runs: Sequence[Run]) -> None:
        """Run what is not known yet."""
        missing = [run for run in runs if run not in self.scores]
        self.done += sum(run.steps for run in runs if run in self.scores)
        total = max(int(self.work * self.steps), self.done + sum(run.steps for run in missing))
        self.bench.prepare(missing, self.launcher.workers)

        def on_part(part: float) -> None:
            done = self.done + int(part * max(run.steps for run in missing))
            self.on_progress(LadderProgress(f"trying {len(missing)} runs", min(done, total), total, self._leads()))

        with closing(self.launcher.launch(self.bench, missing, on_part)) as results:
            for run, scores in results:
                self.scores[run] = scores
                self.on_run(run, scores)
                self.done += run.steps
                doing = f"trying {self.everything[run.candidate].name}"
                self.on_progress(LadderProgress(doing, self.done, total, self._leads()))

    def _leads(self) -> str:
        """Return the name of what leads among the longest runs."""
        inside = [
            (run, scores) for run, scores in self.scores.items() if scores and run.candidate < len(self.candidates)
        ]
        known = [(run.steps, sum(scores) / len(scores), run.candidate) for run, scores in inside]
        return self.candidates[max(known)[2]].name if known else ""

    def with_half(self, judged: _Judged) -> Array:
        """Return the scores of a candidate that learns from half of the samples."""
        return self._again(judged.candidate, judged, half=True)

    def beyond(self, judged: _Judged) -> tuple[Recipe, Array] | None:
        """Return what a larger budget allows, and its scores; None where nothing does."""
        start = self.candidates[judged.candidate].start
        for place, one in enumerate(self.everything):
            if place >= len(self.candidates) and one.start == start:
                return one, self._again(place, judged)
        return None

    def _again(self, place: int, judged: _Judged, half: bool = False) -> Array:
        """Return the scores of a candidate at the rate of another, in a last round; none where it diverged."""
        tried = place, judged.row.learning_rate or 0.0
        return np.array(self._round([tried], WHOLE, len(self.folds), half)[tried] or ())


def _mean(scores: Array) -> tuple[float, float]:
    """Return the mean of scores and its standard error."""
    return float(scores.mean()), float(scores.std(ddof=1) / math.sqrt(len(scores))) if len(scores) > 1 else 0.0


def _choose(ladder: _Ladder, judged: list[_Judged], chance: float | None, samples: int) -> Choice:
    """Keep the candidate of the highest expected gain, or the cheapest of those that are level with it."""
    finalists = [one for one in judged if one.row.finalist]
    if not finalists:
        raise LearningError(
            f"all of {len(judged)} candidates diverged in their trials: numbers were no longer finite; give a lower "
            "learning rate"
        )
    able = [one for one in finalists if ladder.learns(one)]
    best, level = able[0], list[_Judged]()
    short = POINT * math.log2(max(1.0, ladder.whole / ladder.steps))
    for one in able:
        mean, error = _mean(best.scores - one.scores)
        if ladder.is_promised(one.candidate) and mean <= error + short:
            level = [other for other in able if np.array_equal(other.scores, one.scores)]
            break
        within = mean <= (error if chance is None else min(error, POINT))
        if np.array_equal(one.scores, best.scores) if ladder.has_priors else within:
            level.append(one)
    chosen = min(level, key=lambda one: (one.row.sram_bytes, ladder.candidates[one.candidate].steps))
    rows, place = tuple(one.row for one in judged), judged.index(chosen)
    part = chosen.row.steps / ladder.whole if ladder.rate is None else 1.0  # a rate that was given stays
    shorter = math.sqrt(min(1.0, part))  # the course is longer, and takes a lower rate
    choice = Choice(
        rows, ladder.candidates[chosen.candidate], place, (chosen.row.learning_rate or 0.0) * shorter,
        _reason(ladder, able, chosen, chance), samples, len(ladder.folds), chance,
    )  # fmt: skip
    if choice.learned:
        return replace(choice, notes=tuple(_advice(ladder, finalists, chosen, chance)))
    right = f"{shown(chosen.row, chance)} of the samples held back are right, {chance:.1%} by the commonest class alone"
    few = chosen.row.judged_with < ENOUGH
    nothing = f"{samples} samples are too few to tell: {right}" if few else f"nothing was learned: {right}"
    return replace(choice, reason=nothing, notes=(f"{nothing}; {'add samples' if few else 'check the labels'}",))


def _reason(ladder: _Ladder, finalists: list[_Judged], chosen: _Judged, chance: float | None) -> str:
    """Say why a candidate is kept."""
    row, best = chosen.row, max(finalists, key=lambda one: one.scores.mean())
    judged = f"{shown(row, chance)} on {row.judged_with:,} samples held back"
    if best.scores.mean() > chosen.scores.mean():
        reached = f"{best.row.name} reaches {shown(best.row, chance)}"
        if ladder.has_priors:
            return f"{judged}; {reached}, but going by other data sets too, this one is expected to do better"
        if ladder.is_promised(chosen.candidate):
            return f"{judged}; {reached}, within the error and what a trial shorter than the course may hide"
        return f"{judged}, cheaper; {reached}, within the error of their difference"
    more = next((one for one in finalists if ladder.candidates[one.candidate].scheme.biases), None)
    if more is not None and not ladder.candidates[chosen.candidate].scheme.biases:
        mean, error = _mean(chosen.scores - more.scores)
        what = "harms" if mean > error else "adds nothing"
        return f"{judged}; more learning {what} here, {more.row.name} reaches {shown(more.row, chance)}"
    others = [one.row for one in finalists if one != chosen]
    second = f"; next is {others[0].name} with {shown(others[0], chance)}" if others else ""
    return f"{judged}, the best of {len(ladder.candidates)} candidates{second}"


def _advice(ladder: _Ladder, finalists: list[_Judged], chosen: _Judged, chance: float | None) -> Iterator[str]:
    """Yield what would do better by the samples held back; nothing where nothing would."""
    for one in finalists:
        if not ladder.learns(one):
            gain, error = _mean(chosen.scores - one.scores)
            if gain <= error:
                found, reached = shown(one.row, chance), shown(chosen.row, chance)
                yield f"learning adds nothing here: the model as it is reaches {found}, {chosen.row.name} {reached}"
    if chance is None:
        return
    head = next((one for one in finalists if not ladder.candidates[one.candidate].scheme.biases), chosen)
    half = ladder.with_half(head)
    if _is_more(head.scores, half):
        reached = f"{half.mean():.1%} with half of them, and {head.row.score:.1%} with all"
        yield f"more samples would help: {head.row.name} reaches {reached}"
    if not ladder.candidates[chosen.candidate].scheme.biases or (larger := ladder.beyond(chosen)) is None:
        return
    recipe, scores = larger
    if _is_more(scores, chosen.scores):
        yield (
            f"a larger budget would help: {recipe.name} reaches {scores.mean():.1%} of the samples held back in "
            f"{recipe.sram_bytes:,} bytes of SRAM, {chosen.row.name} {chosen.row.score:.1%}"
        )


def _is_more(scores: Array, than: Array) -> bool:
    """Return whether scores of the same samples are clearly higher."""
    if scores.size != than.size:
        return False  # one of them diverged
    gain, error = _mean(scores - than)
    return gain > SURE * error
