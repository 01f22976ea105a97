"""The choice of `fit` by the runs of `own_data`, with the gains of all other data sets, and the page of results."""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from experiments.own_data import DRAWN, Arm, Case
from smidgen.ir import Array
from smidgen.records import from_plain
from smidgen.selection.judging import Recipe
from smidgen.selection.priors import BASELINE_RATE, FEW, Gains, Kind, at_rate, expected_gain, kind_of
from smidgen.selection.rates import BATCH
from smidgen.training.scheme import Scheme

PUBLISHED = "49kb"
COLUMNS = (
    "network",
    "weights",
    "data",
    "of a class",
    "seeds",
    "fit",
    "head",
    "searched",
    "49kb",
    "before",
    "what fit keeps",
)
INTRODUCTION = """# What `fit` keeps on data it was not tuned on

`python benchmarks/own_data.py --page` writes this page from `benchmarks/results/own_data/`, which `python
benchmarks/own_data.py` measures: every candidate at every rate in every case, by trials on samples held back and by a
whole course judged with 1,000 test samples, 12-bit weights, a budget of 128 KB on a Cortex-M7 (Cars 256 KB: 196 classes
leave no room for the head of MCUNet in 128).

`fit` is what the [rule](../internals/selection.md#judged-on-the-users-samples) keeps by samples held back, with the
gains of **all other data sets** and none of the one at hand. The head, the searched and the published scheme begin
with a head at zero and take their rate by the same rule, which makes them stronger than they were; `before` is the
searched scheme as `fit` kept it earlier, from a drawn head, at the rate that the samples held back like best. The early
round that leaves out unlikely candidates is not part of these figures. `released` are the paper's ImageNet weights,
`zoo` those that ship. The data sets are parts of those beside the checkout and of public ones
(`experiments/public_sets.py`, `limit`).

"""


@dataclass(frozen=True, eq=False)
class Tried:
    """A candidate at a rate in a case: which samples held back were right, and top-1 of the test samples."""

    recipe: Recipe
    drawn: bool
    rate: float
    held: Array
    top1: float

    @property
    def name(self) -> str:
        return self.recipe.name


Cases = Mapping[Case, Sequence[Tried]]


def read(folder: Path) -> Cases:
    """Read the runs of every case; a candidate that diverged anywhere at a rate is left out at that rate."""
    found: dict[Case, dict[tuple[str, str, float], list[Arm]]] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            for line in file:
                arm = from_plain(Arm, json.loads(line))
                found.setdefault(arm.case, {}).setdefault((arm.candidate, arm.start, arm.rate), []).append(arm)
    return {case: [one for arms in by_arm.values() for one in _tried(arms)] for case, by_arm in found.items()}


def _tried(arms: Sequence[Arm]) -> Iterator[Tried]:
    if any(arm.right is None for arm in arms):
        return
    held = np.concatenate([right_of(arm) for arm in sorted(arms, key=lambda arm: arm.fold) if arm.part == "whole"])
    (course,) = (arm for arm in arms if arm.part == "course")
    most = course.scheme in (f"searched for {course.case.budget[:-2]} KB", PUBLISHED)
    drawn, steps = course.start == DRAWN, course.steps > 0
    start: Literal["one pass", "new head"] = "one pass" if course.start == "one pass" else "new head"
    recipe = Recipe(Scheme(course.scheme, course.biases), start, course.sram_bytes, steps, most=most)
    yield Tried(recipe, drawn, course.rate, held, float(right_of(course).mean()))


def right_of(arm: Arm) -> Array:
    """Return 1 for each sample that was right, else 0."""
    bits = f"{int(arm.right or '0', 16):0{arm.count}b}"
    return np.array([float(bit) for bit in bits])


def head_of(case: Sequence[Tried]) -> Tried:
    """Return the head at the usual rate, which gains are measured from."""
    (found,) = (one for one in case if one.name == "head" and abs(one.rate * BATCH - BASELINE_RATE) < 1e-6)
    return found


def gains(cases: Cases, few: bool) -> Gains:
    """Return the mean gain over the head of every kind at every rate, in points; every data set counts the same."""
    found: dict[Kind, dict[float, dict[str, list[float]]]] = {}
    for case, tried in cases.items():
        if (case.each is not None and case.each <= FEW) == few:
            usual = head_of(tried).top1
            for one in tried:
                if not one.drawn:
                    by_rate = found.setdefault(kind_of(one.recipe), {})
                    by_set = by_rate.setdefault(round(one.rate * BATCH, 3), {})
                    by_set.setdefault(case.data, []).append(100 * (one.top1 - usual))
    return {
        kind: {
            rate: statistics.fmean(map(statistics.fmean, by_set.values())) for rate, by_set in sorted(by_rate.items())
        }
        for kind, by_rate in sorted(found.items())
    }


def chosen(
    tried: Sequence[Tried], known: Gains, is_wanted: Callable[[Tried], bool], tolerance: float = 0.0
) -> Tried | None:
    """Return what the rule of `fit` keeps, or the cheapest whose expected gain is lower by no more than a tolerance."""
    usual = head_of(tried).held
    worth = {
        one: expected_gain(at_rate(known[kind_of(one.recipe)], one.rate), one.held - usual)
        for one in tried
        if is_wanted(one) and kind_of(one.recipe) in known
    }
    least = max(worth.values(), default=0.0) - tolerance
    level = [one for one in worth if worth[one] >= least]
    return min(level, key=lambda one: (one.recipe.sram_bytes, -worth[one]), default=None)


@dataclass(frozen=True)
class Outcome:
    """Top-1 in percent of what each way keeps in a case; a way that diverged at every rate is not there."""

    case: Case
    kept: str
    sram_bytes: int  # of what is kept
    top1: Mapping[str, float]


def outcomes(cases: Cases, tolerance: float = 0.0) -> Iterator[Outcome]:
    """Yield what every way gives in every case, by the gains of the other data sets."""
    for case, tried in sorted(cases.items(), key=lambda pair: str(pair[0])):
        others = {other: runs for other, runs in cases.items() if other.data != case.data}
        known = gains(others, case.each is not None and case.each <= FEW)
        kept = chosen(tried, known, lambda one: not one.drawn and one.recipe.scheme.name != PUBLISHED, tolerance)
        assert kept is not None
        drawn = [one for one in tried if one.drawn]
        ways = {
            "fit": kept,
            "head": chosen(tried, known, lambda one: one.name == "head"),
            "searched": chosen(tried, known, _is_new_and_most),
            "49kb": chosen(tried, known, lambda one: one.name == PUBLISHED),
            "before": max(drawn, key=lambda one: (one.held.mean(), -one.rate), default=None),
        }
        top1 = {name: 100 * one.top1 for name, one in ways.items() if one is not None}
        yield Outcome(case, kept.name, kept.recipe.sram_bytes, top1)


def _is_new_and_most(one: Tried) -> bool:
    return not one.drawn and one.recipe.most and one.recipe.start == "new head" and one.name != PUBLISHED


def rows(found: Iterable[Outcome]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each network, data set and number of samples: means over seeds in percent, and what was kept."""
    for (network, weights, data, each), some in grouped(
        found, lambda c: (c.network, c.weights, c.data, str(c.each or "all"))
    ):
        means = [mean_of(some, way) for way in COLUMNS[5:10]]
        kept = "; ".join(dict.fromkeys(one.kept for one in some))
        yield (network, weights, data, each, str(len(some)), *means, kept)


def mean_of(some: Sequence[Outcome], way: str) -> str:
    there = [one.top1[way] for one in some if way in one.top1]
    return f"{statistics.fmean(there):.1f}" if len(there) == len(some) else "—"


def grouped(
    found: Iterable[Outcome], key: Callable[[Case], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], list[Outcome]]]:
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for one in found:
        groups.setdefault(key(one.case), []).append(one)
    return sorted(groups.items())


def verdicts(found: Sequence[Outcome]) -> Iterator[str]:
    """Yield how what is kept stands beside the others: by samples of a class, then by data set."""
    for (each,), some in grouped(found, lambda case: (f"{case.each:02}" if case.each else "all",)):
        sets = grouped(some, lambda case: (case.data,))
        gaps = {
            way: statistics.fmean(_gap(of_set, way) for _, of_set in sets) for way in ("head", "searched", "before")
        }
        below = {name: _below_best(of_set) for (name,), of_set in sets}
        sram = statistics.fmean(statistics.fmean(one.sram_bytes for one in of_set) for _, of_set in sets)
        listed = ", ".join(f"{name} {gap:+.1f}" for name, gap in sorted(below.items()))
        yield (
            f"{each.lstrip('0')} samples of a class, {len(some)} cases of {len(sets)} data sets: what `fit` keeps is "
            f"{gaps['head']:+.1f} points from the head, {gaps['searched']:+.1f} from the searched scheme from zero and "
            f"{gaps['before']:+.1f} from the searched scheme as it was before (means of data sets), in {sram:,.0f} "
            f"bytes of SRAM; from whichever of head, searched and published is best on a data set by its test samples: "
            f"{listed}"
        )


def _gap(some: Sequence[Outcome], way: str) -> float:
    return statistics.fmean(one.top1["fit"] - one.top1[way] for one in some if way in one.top1)


def _below_best(some: Sequence[Outcome]) -> float:
    """Return how far what is kept is from the best of three ways on a data set, each by its mean."""
    ways = [way for way in ("head", "searched", "49kb") if all(way in one.top1 for one in some)]
    best = max(statistics.fmean(one.top1[way] for one in some) for way in ways)
    return statistics.fmean(one.top1["fit"] for one in some) - best


def page(cases: Cases) -> str:
    """Return the page of results."""
    found = list(outcomes(cases))
    table = [COLUMNS, tuple("---" for _ in COLUMNS), *rows(found)]
    lines = "\n".join("| " + " | ".join(row) + " |" for row in table)
    return INTRODUCTION + "\n".join(f"- {line}." for line in verdicts(found)) + f"\n\n{lines}\n"
