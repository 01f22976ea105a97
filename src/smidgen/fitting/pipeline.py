"""fit(): from a model and images to firmware that learns within a budget, every stage in order, on one screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from smidgen.callbacks import ignore
from smidgen.data import Augment, Data
from smidgen.data.files import made_folder
from smidgen.errors import InputError, SmidgenError
from smidgen.fitting.fitted import (
    ContributionsMade,
    Fitted,
    LearnedHere,
    ModelMade,
    StageDone,
    Written,
    say_board,
)
from smidgen.fitting.ledger import Ledger, digest_of
from smidgen.fitting.lock import FitError, locked
from smidgen.fitting.report import make_report
from smidgen.fitting.stages import (
    CHOICE,
    CONTRIBUTIONS,
    LEARNED,
    MODEL,
    PROFILE,
    PROJECT,
    REPORT,
    SCHEME,
    Analysis,
    Stages,
    Where,
    Wish,
)
from smidgen.ir import Graph
from smidgen.ir.text import FORMAT, fingerprint
from smidgen.learning import Course, in_order_of
from smidgen.learning.heads import only_counts_agree
from smidgen.learning.run import check_course
from smidgen.ops.loss import Loss
from smidgen.ops.losses import LOSSES
from smidgen.quantization import GivenPixels, is_float
from smidgen.quantization.recipe import FEWEST
from smidgen.results.profile import Profile
from smidgen.results.report import Section
from smidgen.selection.analysis import usual_epochs
from smidgen.selection.choice import Choice
from smidgen.selection.contributions import Contributions
from smidgen.selection.ladder import Effort
from smidgen.selection.searching import check_searchable
from smidgen.selection.trials import hold_back
from smidgen.targets import find_board
from smidgen.targets.boards import parse_size
from smidgen.training import Options
from smidgen.training.options import options_on

Made = TypeVar("Made")


@dataclass(frozen=True)
class FitProgress:
    """The stage under way, what it does, and how much of that is done; a total of 0 is not known."""

    stage: str
    doing: str = ""
    done: int = 0
    total: int = 0
    last: StageDone | None = None  # the stage that has just been done


def fit(
    model: Graph,
    data: Data,
    folder: str | Path,
    *,
    budget: int | str = "128KB",
    target: str = "cortex-m7",
    epochs: int | None = None,
    augment: Augment | None = None,
    seed: int = 0,
    contributions: Contributions | None = None,
    analysis: Analysis | None = None,
    effort: Effort = "normal",
    options: Options | None = None,
    loss: Loss | None = None,
    learning_rate: float | None = None,
    preprocessing: GivenPixels = None,
    where: Where = "host",
    workers: int | None = None,
    ray: str | None = None,
    command: str = "",
    more: Callable[[], Section] | None = None,
    force: bool = False,
    on_progress: Callable[[FitProgress], None] = ignore,
) -> Fitted:
    """Make a program that learns these images on the target within the budget, and train the model here.

    A float32 model is quantized. The gain of each part of the network is taken from `contributions`, from the package,
    or measured here; `analysis` "quick" or "full" always measures it. Schemes that it promises are searched for the
    budget of SRAM. They, the head alone and the closed-form head are then tried on the training samples at a few rates,
    each judged on samples it did not learn from, with as much work as `effort` allows; the one with the highest
    expected gain is kept. It is trained on this machine ("host" or "cuda") with all training samples,
    and its program measured on the emulated board. The test samples decide nothing. A board reserves some SRAM for its
    stack: a budget of all its SRAM is lowered by that. Trials run on `workers` cores, on the GPU where `where` is
    "cuda", or on the Ray cluster at the address `ray`; the result is the same.
    `options` are those of learning, apart from the seed and the loss, which fits the labels if none is given, and
    `preprocessing` is how pixels become numbers, if nothing else says so. The model's head is kept where it scores the
    data's classes: by name, or as `check_head` finds by training samples. Every stage leaves its files in the folder;
    one whose inputs have not changed is not run again, and a fit that was interrupted or failed goes on. Files that no
    fit made or that were changed are left alone unless `force` is given. The report shows `command` as the way to
    repeat the fit, and last what `more` makes.
    """
    options = _check(model, data, replace(options or Options(), seed=seed), loss, analysis)
    wish = Wish(
        min(parse_size(str(budget)), find_board(target).largest_budget), target,
        _course(data, epochs, augment, seed, learning_rate), options, analysis, where, workers, ray, contributions,
        effort, learning_rate, preprocessing, command,
    )  # fmt: skip
    with made_folder(Path(folder)), locked(Path(folder)):
        return _Fit(model, data, Path(folder), wish, force, on_progress).run(more)


def _course(data: Data, epochs: int | None, augment: Augment | None, seed: int, rate: float | None) -> Course:
    """Return the passes over the data, whose rate is chosen later and which tests once, at the end."""
    count = usual_epochs(len(data.train)) if epochs is None else epochs
    shown = None if data.label_kind in ("vectors", "maps") else Augment()  # position carries meaning
    course = Course(count, 0.0, augment=augment or shown, seed=seed, test_every=count)
    replace(course, learning_rate=rate or 0.0).check()
    check_course(course, data)
    return course


def _check(model: Graph, data: Data, options: Options, loss: Loss | None, analysis: Analysis | None) -> Options:
    """Return the options for a model and its data; raise, before work that takes long, what cannot be fitted."""
    data.check_several()
    if analysis is not None:
        data.check_classes("an analysis judges what parts add")
        hold_back(data)
    if is_float(model) and len(data.train) < FEWEST:
        raise InputError(
            f"{data.name} holds {len(data.train)} training samples, too few to quantize {model.name} with; give at "
            f"least {FEWEST}, or an int8 model"
        )
    check_searchable(options)
    data = in_order_of(model, data) if options.head == "keep" else data
    options = options_on(model, data, options, loss)
    if data.label_kind == "classes" and LOSSES[options.loss].exclusive and options.classes != len(data.classes):
        raise InputError(
            f"{options.classes} classes were asked for, {data.name} holds {len(data.classes)}; fit to these, and "
            "compile the scheme it finds for more"
        )
    replace(options, head_dtype=None if is_float(model) else options.head_dtype).head_of(model)
    return options


class _Fit:
    """A fit under way."""

    def __init__(
        self, model: Graph, data: Data, folder: Path, wish: Wish, force: bool,
        on_progress: Callable[[FitProgress], None],
    ) -> None:  # fmt: skip
        self.folder, self.wish, self.on_progress = folder, wish, on_progress
        self.data, self.source, self.stage = data.digest(), fingerprint(model), ""
        request = digest_of(FORMAT, self.source, self.data, replace(wish, command="", workers=None, ray=None))
        self.ledger, self.done = Ledger(folder, request, force), list[StageDone]()
        self.work = Stages(model, data, folder, wish, self._show)

    def run(self, more: Callable[[], Section] | None) -> Fitted:
        """Run every stage; an error ends with what is kept."""
        try:
            return self._stages(more)
        except FitError:  # about the folder itself
            raise
        except SmidgenError as error:
            if self.done:
                kept = " and ".join(", ".join(one.stage for one in self.done).rsplit(", ", 1))
                what = f"{kept} {'are' if len(self.done) > 1 else 'is'} kept in {self.folder}"
                error.args = (f"{str(error).rstrip('.')}; {what}, and the next fit goes on from there",)
            raise

    def _stages(self, more: Callable[[], Section] | None) -> Fitted:
        work, wish = self.work, self.wish
        judged = is_float(work.source) or only_counts_agree(work.source, work.given, wish.options.head)
        data = self.data if judged else work.given.classes
        source = (work.source.name, self.source, data, wish.options.head, wish.pixels)
        model = self._run("model", (MODEL,), source, ModelMade, work.make_model)
        work.begin(model)
        known = work.known[1].to_json() if work.known else (wish.analysis, work.most, self._course, self.data)
        parts = self._from(MODEL, known)
        found = self._run("contributions", (CONTRIBUTIONS,), parts, ContributionsMade, work.make_contributions)
        limits = self._from(MODEL, CONTRIBUTIONS, wish.budget, wish.target, work.options)
        trials = (wish.course, wish.effort, wish.rate, self.data)
        choice = self._run("choice", (CHOICE, SCHEME), (*limits, *trials), Choice, work.make_choice)
        # Before minutes of learning: the linker and the emulated board show whether the program fits.
        made = self._from(MODEL, CHOICE, wish.target, work.options, self.data)
        board = self._run("board", (PROFILE,), made, Profile, work.make_board, say_board)
        course = self._from(MODEL, CHOICE, work.options, self._course, self.data)
        files = (*work.models, LEARNED)
        learned = self._run("learned", files, course, LearnedHere, lambda: work.make_learned(choice))
        self._run("project", (PROJECT,), (*made, self.ledger.digest(LEARNED)), Written, work.make_project)
        fitted = Fitted(str(self.folder), wish.budget, model, found, choice, learned, board, tuple(self.done))
        shown = (*made, model, found, choice, learned, board)
        self._run("report", (REPORT,), shown, Written, lambda: make_report(work, fitted, more))
        return replace(fitted, stages=tuple(self.done))

    @property
    def _course(self) -> str:
        return str(self.wish.course)

    def _from(self, *inputs: object) -> tuple[object, ...]:
        """Return a stage's inputs, with files replaced by their digests."""
        files = (MODEL, CONTRIBUTIONS, CHOICE)
        return tuple(self.ledger.digest(str(one)) if one in files else one for one in inputs)

    def _run(
        self, name: str, files: tuple[str, ...], inputs: tuple[object, ...], kind: type[Made],
        make: Callable[[], Made], say: Callable[[Made], str] = str,
    ) -> Made:  # fmt: skip
        """Return a stage's result, made now or by an earlier fit."""
        self.stage = name
        self._show("", 0, 0)
        self.ledger.check(name, files)
        before = digest_of(FORMAT, *inputs)
        found = self.ledger.result(name, before, files, kind)
        reused = found is not None
        if found is None:
            with self.ledger.begun(name):
                found = make()
            self.ledger.add(name, before, files, found, files[0] in (CHOICE, PROFILE))
        self.done.append(StageDone(name, files, reused, say(found)))
        self.on_progress(FitProgress(name, last=self.done[-1]))
        return found

    def _show(self, doing: str, done: int, total: int) -> None:
        self.on_progress(FitProgress(self.stage, doing, done, total))
