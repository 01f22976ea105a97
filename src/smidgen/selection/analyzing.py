"""What each depth of biases and each layer's weights add, by real training in the device's arithmetic."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.ir import Graph, refuse_variables, verify
from smidgen.learning import Course
from smidgen.selection.cluster import OnRay
from smidgen.selection.contributions import (
    BiasDepth,
    BitsTried,
    Conditions,
    Contributions,
    LayerShare,
    layer_names,
    write_contributions,
)
from smidgen.selection.holding import hold_back, limit_samples
from smidgen.selection.journal import Journal, journal_path, open_journal
from smidgen.selection.runs import Launcher, OnDevice, OnHost, Outcome, Setup
from smidgen.selection.trials import WEIGHT_BITS, Agenda, Trial, agenda
from smidgen.targets.boards import parse_size
from smidgen.training.scheme import Scheme

LEARNING_RATE = 1 / 256
MOST = "256KB"  # analytic memory of what is tried
STEPS = 24_000  # of a trial, as many epochs as come near it
LEAST_EPOCHS, MOST_EPOCHS = 8, 50
MOST_SEEDS = 1000
QUICK_STEPS = 100_000  # of all trials of a quick analysis
QUICK_EPOCHS = 5  # at least: with more images than that many steps allow, some are left out
QUICK_JUDGED = 500  # images


@dataclass(frozen=True)
class AnalysisProgress:
    """Trials done of how many, and of those under way so much, in trials.

    The first so many were found in the journal of an interrupted analysis.
    """

    done: int
    total: int
    found: int
    part: float = 0.0


def analyze(
    model: Graph,
    data: Data,
    *,
    output: Path | None = None,
    quick: bool = False,
    seeds: int = 1,
    epochs: int | None = None,
    learning_rate: float = LEARNING_RATE,
    limit: int | None = None,
    most: int | str = MOST,
    reach: int | None = None,
    target: str | None = None,
    workers: int | None = None,
    ray: str | None = None,
    on_progress: Callable[[AnalysisProgress], None] = lambda _: None,
) -> Contributions:
    """Train a network many times, each time with other biases and weights, and judge it on training images held back.

    With `output` the contributions are written there, and on the way each outcome to a journal beside it, from which
    an interrupted analysis goes on. `quick` takes about QUICK_STEPS steps and says in `left_out` what it leaves out.
    `limit` is the most images to learn from; `most` the analytic memory up to which layers are tried, `reach` tries
    the last so many alone. `target` is "host" or "cuda"; `ray` is "auto" or the address of a cluster, whose GPUs are
    used where it has any and the target is not "host". Neither changes a number.
    """
    verify(model)
    refuse_variables(model, "an analysis")
    data.check_classes("what a part adds is judged")
    launcher = find_launcher(target, workers, ray)
    if not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"{seeds} seeds cannot be run; give 1 to {MOST_SEEDS:,}")
    todo = agenda(model, parse_size(str(most)), reach, quick)
    trials = todo.trials(seeds)
    steps = QUICK_STEPS // len(trials) if quick else None
    setup, left_out = _set_up(model, data, steps, epochs, learning_rate, limit)
    with open_journal(journal_path(output), setup) if output else nullcontext(Journal()) as journal:
        outcomes = _run(launcher, setup, trials, journal, on_progress)
    found = _contributions(setup, todo, seeds, outcomes, (*todo.left_out, *left_out))
    if output:
        write_contributions(found, output)
        journal_path(output).unlink(missing_ok=True)
    return found


def find_launcher(target: str | None, workers: int | None, ray: str | None) -> Launcher:
    """What runs the trials."""
    if target not in (None, "host", "cuda"):
        raise InputError(f"{target} cannot run an analysis; give host or cuda")
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers cannot run anything; give 1 or more")
    count = workers or os.cpu_count() or 1
    if ray is not None:
        return OnRay(ray, count, target)
    return OnDevice(count) if target == "cuda" else OnHost(count)


def _set_up(
    model: Graph, data: Data, steps: int | None, epochs: int | None, learning_rate: float, limit: int | None
) -> tuple[Setup, tuple[str, ...]]:
    """The images to learn from and to judge with and the course, of so many steps at most where they are limited."""
    classes = len(data.classes)
    if limit is not None and limit < classes:
        raise InputError(f"{limit} images cannot show {classes} classes; give as many at least")
    held, left_out = hold_back(data), []
    most = limit or len(held.train)
    if steps is None:
        learned, judged = limit_samples(held.train, most, classes), held.test
    else:
        learned = limit_samples(held.train, min(most, max(steps // QUICK_EPOCHS, 1)), classes)
        judged = limit_samples(held.test, QUICK_JUDGED, classes)
        if (len(learned), len(judged)) != (len(held.train), len(held.test)):
            left_out.append(
                f"images: it learned from {len(learned):,} of {len(held.train):,} and judged with {len(judged):,} of "
                f"{len(held.test):,}"
            )
    if epochs is None:
        epochs = _epochs(len(learned)) if steps is None else max(1, steps // len(learned))
    course = Course(epochs, learning_rate, test_every=max(epochs, 1))
    course.check()
    return Setup(model, replace(held, train=learned, test=judged), course), tuple(left_out)


def _epochs(images: int) -> int:
    return min(max(math.ceil(STEPS / images), LEAST_EPOCHS), MOST_EPOCHS)


def _run(
    launcher: Launcher,
    setup: Setup,
    trials: Sequence[Trial],
    journal: Journal,
    on_progress: Callable[[AnalysisProgress], None],
) -> dict[Trial, Outcome]:
    """The outcome of every trial: of those in the journal what stands there, of the rest what the launcher gives."""
    outcomes = {trial: journal.known[trial] for trial in trials if trial in journal.known}
    found = len(outcomes)
    on_progress(AnalysisProgress(found, len(trials), found))
    missing = [trial for trial in trials if trial not in outcomes]

    def on_part(part: float) -> None:
        on_progress(AnalysisProgress(len(outcomes), len(trials), found, part))

    with closing(launcher.launch(setup, missing, on_part)) as running:
        for trial, outcome in running:
            journal.add(trial, outcome)
            outcomes[trial] = outcome
            on_progress(AnalysisProgress(len(outcomes), len(trials), found))
    return outcomes


def _contributions(
    setup: Setup, todo: Agenda, seeds: int, outcomes: Mapping[Trial, Outcome], left_out: Iterable[str]
) -> Contributions:
    def mean(scheme: Scheme, bits: int = WEIGHT_BITS) -> float:
        return math.fsum(outcomes[Trial(scheme, bits, seed)].accuracy for seed in range(seeds)) / seeds

    model, data, course = setup.model, setup.data, setup.course
    return Contributions(
        model.name,
        layer_names(model),
        Conditions(
            data.name, data.digest(), len(data.classes), len(data.train), len(data.test), course.epochs,
            course.learning_rate, tuple(range(seeds)), WEIGHT_BITS,
        ),
        tuple(BiasDepth(biases, mean(todo.depth(biases))) for biases in todo.depths),
        todo.base,
        tuple(LayerShare(layer, share, mean(todo.share(layer, share))) for layer, share in todo.shares),
        tuple(BitsTried(bits, mean(todo.reference, bits)) for bits in todo.bits),
        tuple(left_out),
    )  # fmt: skip
