"""Measure by real training what each depth of biases and each layer's weights add, and keep the outcomes."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from smidgen.callbacks import ignore
from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.ir import Graph, refuse_variables, verify
from smidgen.ir.text import fingerprint
from smidgen.learning import Course
from smidgen.records import RecordError, from_plain, parse_object
from smidgen.selection.contributions import (
    BiasDepth,
    BitsTried,
    Conditions,
    Contributions,
    ContributionsError,
    LayerShare,
    layer_names,
    write_contributions,
)
from smidgen.selection.launchers import Launcher, find_launcher
from smidgen.selection.trials import WEIGHT_BITS, Agenda, Outcome, Setup, Trial, agenda, hold_back, limit_samples
from smidgen.targets.boards import parse_size
from smidgen.training.scheme import Scheme, SchemeError

FORMAT = 1
LINE = ("scheme", "bits", "seed", "accuracy", "loss")  # of a journal, behind the first
_NOTHING: Mapping[Trial, Outcome] = MappingProxyType({})


class Journal:
    """Known outcomes, and the file for the next ones; without a file they are not kept."""

    def __init__(self, file: IO[bytes] | None = None, known: Mapping[Trial, Outcome] = _NOTHING) -> None:
        self._file, self.known, self.empty = file, known, not known

    def add(self, trial: Trial, outcome: Outcome) -> None:
        """Add a line; it is on the disk when this returns."""
        if self._file is None:
            return
        self.empty = False
        scheme = json.loads(trial.scheme.to_json())
        line = {"scheme": scheme, "bits": trial.weight_bits, "seed": trial.seed, **asdict(outcome)}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def journal_path(output: Path) -> Path:
    """Return the file that keeps the outcomes of an analysis until it is complete."""
    return output.with_name(f"{output.name}.part")


@contextmanager
def open_journal(path: Path, setup: Setup) -> Iterator[Journal]:
    """Open the journal of this analysis, or begin one; raise ContributionsError where it belongs to another."""
    try:
        file = path.open("a+b")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"{path} is being written by another analysis; wait for it, or name another file"
            ) from None
        file.seek(0)
        text, header = file.read(), _header(setup)
        whole = text[: text.rfind(b"\n") + 1]  # a last line without an end was cut off when it was written
        first = json.dumps(header).encode() + b"\n"
        if not whole and not first.startswith(text):
            raise ContributionsError(f"{path} was not written by smidgen analyze; remove it to start over")
        journal = Journal(file, _known(whole.decode(errors="replace").splitlines(), header, path))
        file.truncate(len(whole))
        if not whole:
            file.write(first)
            file.flush()
        try:
            yield journal
        finally:
            if journal.empty:
                path.unlink()


def _header(setup: Setup) -> dict[str, Any]:
    course = json.loads(json.dumps(asdict(setup.course)))
    return {"format": FORMAT, "model": fingerprint(setup.model), "data": setup.data.digest(), "course": course}


def _known(lines: list[str], header: Mapping[str, Any], path: Path) -> dict[Trial, Outcome]:
    found = {}
    for number, line in enumerate(lines, start=1):
        try:
            plain = parse_object(line, *(header if number == 1 else LINE))
            if number == 1:
                _check_header(plain, header, path)
            else:
                trial, outcome = _parsed(plain)
                found[trial] = outcome
        except (RecordError, SchemeError) as error:
            raise ContributionsError(
                f"line {number} of {path} was not written by smidgen analyze: {error}; remove the file to start over"
            ) from None
    return found


def _check_header(found: Any, header: Mapping[str, Any], path: Path) -> None:
    """Raise ContributionsError naming the first difference between the journal's analysis and this one."""
    way_out = f"give the same, or remove {path} to start over"
    if found["format"] != header["format"]:
        raise ContributionsError(
            f"{path} has format {str(found['format'])[:20]}, this version writes {FORMAT}; {way_out}"
        )
    if found["model"] != header["model"]:
        raise ContributionsError(f"{path} holds the outcomes of another model; {way_out}")
    if found["data"] != header["data"]:
        raise ContributionsError(f"{path} holds outcomes on other images, or on more or fewer of them; {way_out}")
    course = from_plain(dict[str, Any], found["course"])
    for key, now in header["course"].items():
        if (was := course.get(key)) != now:
            raise ContributionsError(f"{path} holds the outcomes of runs with {key} {was}, these have {now}; {way_out}")


def _parsed(plain: Any) -> tuple[Trial, Outcome]:
    scheme = Scheme.from_json(json.dumps(plain["scheme"]), "a scheme of the journal")
    outcome = from_plain(Outcome, {"accuracy": plain["accuracy"], "loss": plain["loss"]})
    if not 0 <= outcome.accuracy <= 1:
        raise RecordError(f"it has a top-1 of {outcome.accuracy}")
    return Trial(scheme, from_plain(int, plain["bits"]), from_plain(int, plain["seed"])), outcome


LEARNING_RATE = 1 / 256
MOST = "256KB"  # analytic memory of what is tried
STEPS = 24_000  # of a course, as many epochs as come near it
LEAST_EPOCHS, MOST_EPOCHS = 8, 50
MOST_STEPS = 200_000  # of a course of more than one epoch
MOST_SEEDS = 1000
QUICK_STEPS = 100_000  # of all trials of a quick analysis
QUICK_EPOCHS = 5  # at least: with more images than that many steps allow, some are left out
QUICK_JUDGED = 500  # images


@dataclass(frozen=True)
class AnalysisProgress:
    """Trials done, and how far those under way are."""

    done: int
    total: int
    found: int  # of those done, in the journal of an interrupted analysis
    part: float = 0.0  # of those under way, in trials


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
    on_progress: Callable[[AnalysisProgress], None] = ignore,
) -> Contributions:
    """Train a network many times, each time with other biases and weights, and test it on training images held back.

    With `output` the contributions are written there, and on the way each outcome to a journal beside it, from which
    an interrupted analysis continues. `quick` takes about QUICK_STEPS steps; `left_out` lists what it does not measure.
    `limit` is the most images to learn from, `most` the analytic memory up to which layers are tried, `reach` the
    number of last layers to try. `target` is "host" or "cuda"; `ray` is "auto" or the address of a cluster, whose GPUs
    are used where it has any and the target is not "host". Neither changes a number.
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


def _set_up(
    model: Graph, data: Data, steps: int | None, epochs: int | None, learning_rate: float, limit: int | None
) -> tuple[Setup, tuple[str, ...]]:
    """Return the samples, the course of at most `steps` steps where given, and what a limit leaves out."""
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
        epochs = usual_epochs(len(learned)) if steps is None else max(1, steps // len(learned))
    course = Course(epochs, learning_rate, test_every=max(epochs, 1))
    course.check()
    return Setup(model, replace(held, train=learned, test=judged), course), tuple(left_out)


def usual_epochs(images: int) -> int:
    """Return the epochs that come near the usual number of steps, within limits; one of more samples than those."""
    return max(1, min(max(math.ceil(STEPS / images), LEAST_EPOCHS), MOST_EPOCHS, MOST_STEPS // images))


def _run(
    launcher: Launcher,
    setup: Setup,
    trials: Sequence[Trial],
    journal: Journal,
    on_progress: Callable[[AnalysisProgress], None],
) -> dict[Trial, Outcome]:
    """Return the outcome of every trial, from the journal where it is known and else from the launcher."""
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
