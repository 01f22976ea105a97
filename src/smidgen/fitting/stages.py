"""The stages of a fit: each makes one result and its files, from the files of earlier stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from smidgen.data import Data, DataError, examples, pixel_encoding
from smidgen.data.files import write_whole
from smidgen.errors import InputError, TargetError
from smidgen.fitting.fitted import ContributionsMade, LearnedHere, ModelMade, Written
from smidgen.fitting.ledger import digest_of
from smidgen.frontends import exchange_suffix, export_model
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import Array, Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import Course, LearningProgress, check_head, learn
from smidgen.learning.checkpoint import read_checkpoint, start_fingerprint
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.quantization import GivenPixels, QuantizationProgress, is_float, quantize_with, settle_pixels
from smidgen.records import read_record, to_plain
from smidgen.results.inspection import describe
from smidgen.results.profile import Profile, profile, sample_instructions
from smidgen.selection.analysis import MOST, AnalysisProgress, analyze
from smidgen.selection.choice import Choice, Row
from smidgen.selection.contributions import Contributions, ContributionsError, read_contributions, write_contributions
from smidgen.selection.estimates import estimate, shipped_contributions
from smidgen.selection.judging import Recipe
from smidgen.selection.ladder import Effort, LadderProgress, climb
from smidgen.selection.launchers import find_launcher
from smidgen.selection.other_networks import better_networks
from smidgen.selection.proposals import propose
from smidgen.selection.rates import RateProgress, choose_rate
from smidgen.selection.runs import open_runs
from smidgen.selection.trials import agenda, hold_back
from smidgen.targets import find, find_board
from smidgen.targets.boards import parse_size
from smidgen.targets.device import Target
from smidgen.targets.saved import read_saved, write_saved
from smidgen.training import Options
from smidgen.training.scheme import Scheme

Analysis = Literal["quick", "full"]
Where = Literal["host", "cuda"]
ShowProgress = Callable[[str, int, int], None]  # what is done, how much of it, of how much
ENOUGH = 200  # images held back; with fewer, a part's gain is lost in noise
COMPARED = 3  # steps of the board that numpy takes too
MODEL, CONTRIBUTIONS, SCHEME, CHOICE = "model.smg", "contributions.json", "scheme.json", "choice.json"
RUNS = "choice.json.part"  # runs that are done while candidates are judged
NO_ROOM = (
    "the budget has no room for the sums that one pass needs on the board: it is done on this machine, and the program "
    "in project begins with the head that it made"
)
LEARNED = "learned.state"  # what was learned, as the board's program saves and loads it
CHECKPOINT, PROFILE, PROJECT, REPORT = "checkpoint.ckpt", "profile.json", "project", "report.html"


@dataclass(frozen=True)
class Wish:
    """The request of a fit: what to make, and how."""

    budget: int  # bytes of SRAM
    target: str  # a board
    course: Course  # whose rate is chosen
    options: Options  # with loss and outputs; whether the head is kept is decided with the model
    analysis: Analysis | None = None  # None: contributions that are given or shipped, else a quick analysis
    where: Where = "host"  # trials and learning run there
    workers: int | None = None  # cores to use; None: all
    ray: str | None = None  # trials run on this cluster
    given: Contributions | None = None
    effort: Effort = "normal"
    rate: float | None = None  # of one sample; None: chosen with the candidate
    pixels: GivenPixels = None
    command: str = ""  # that started the fit, for the report


class Stages:
    """The work of the stages; each reads the files that others wrote."""

    def __init__(self, source: Graph, data: Data, folder: Path, wish: Wish, show: ShowProgress) -> None:
        self.source, self.given, self.folder, self.wish, self.show = source, data, folder, wish, show
        self.trials_on = None if wish.ray and wish.where == "host" else wish.where  # a cluster's GPUs where it has any
        self.launcher = find_launcher(self.trials_on, wish.workers, wish.ray)

    def begin(self, made: ModelMade) -> None:
        """Take the classes in the order of the model's head, and the head as it was decided with the model."""
        known = made.classes == self.given.classes
        self.data = self.given if known else self.given.arranged(made.classes)
        self.options = replace(self.wish.options, head=made.head)

    @cached_property
    def graph(self) -> Graph:
        return replace(read_smg(self.folder / MODEL), name=self.source.name)

    @cached_property
    def contributions(self) -> Contributions:
        return read_contributions(self.folder / CONTRIBUTIONS)

    @cached_property
    def choice(self) -> Choice:
        return read_record(Choice, self.folder / CHOICE)

    @property
    def scheme(self) -> Scheme:
        return self.choice.candidate.scheme

    @cached_property
    def here(self) -> Program:
        """The program that learns on this machine, in C."""
        return self._compile(self.choice.candidate, "host")

    @cached_property
    def there(self) -> Program:
        """The same for the board."""
        return self._compile(self.choice.candidate, self.wish.target)

    @cached_property
    def streamed(self) -> bool:
        """Return whether the board receives the image row by row; some networks need it whole."""
        return streams_input(self.graph, find_board(self.wish.target).working)

    @cached_property
    def known(self) -> tuple[str, Contributions] | None:
        """Contributions of each part, and where they were measured; None where they are to be measured."""
        if self.wish.given is not None:
            return "as given" if self.wish.given.measured else "by rule, not measured", self.wish.given
        if self.wish.analysis is not None:
            return None
        try:
            return "shipped with the package", shipped_contributions(self.graph)
        except ContributionsError:
            pass
        if self.data.label_kind != "classes":
            return "by rule, what parts add is measured of classes alone", estimate(self.graph)
        with suppress(DataError):  # too few to hold any back
            if len(hold_back(self.data).test) >= ENOUGH:
                return None
        return f"by rule, {len(self.data.train)} images are too few to measure it", estimate(self.graph)

    @property
    def most(self) -> int:
        """The analytic memory up to which layers are tried in an analysis."""
        return max(self.wish.budget, parse_size(MOST))

    def make_model(self) -> ModelMade:
        given = self.wish.pixels
        stated = replace(self.source, preprocessing=given) if isinstance(given, Preprocessing) else self.source
        checked = check_head(
            stated, self.given, self.wish.options.head,
            on_progress=lambda done, total: self.show("checking the head", done, total),
        )  # fmt: skip
        graph, pixels = checked.model, None

        def quantizing(at: QuantizationProgress) -> None:
            self.show(f"quantizing: {at.doing}", at.done, at.total)

        if is_float(graph):
            result = quantize_with(checked.calibration, graph, quantizing, given)
            graph, pixels = replace(result.graph, name=graph.name), result.pixels
        elif pixels := settle_pixels(graph, self.given.train.images, given=given):
            graph = replace(graph, preprocessing=pixels.preprocessing)
        write_smg(graph, self.folder / MODEL)
        summary = describe(graph)
        counts = len(summary.layers), summary.macs, summary.parameters
        return ModelMade(
            graph.name, is_float(self.source), *counts, pixels, checked.data.classes, checked.start, checked.note
        )

    def make_contributions(self) -> ContributionsMade:
        if self.known is not None:
            source, found = self.known
            found.check(self.graph)
            write_contributions(found, self.folder / CONTRIBUTIONS)
        else:
            source, found = f"measured here, {self.wish.analysis or 'quick'}", self._analyze()
        given = found.conditions
        return ContributionsMade(source, given.data, given.judged_with, len(found.depths) + len(found.shares))

    def _analyze(self) -> Contributions:
        """Measure contributions at a rate that suits a scheme of middling size."""
        quick = self.wish.analysis != "full"
        reference = agenda(self.graph, self.most, None, quick).reference
        program = compile(self.graph, reference, options=self.options, images=self._examples)
        chosen = choose_rate(program, self.data, self.wish.course, on_progress=self._trying)
        return analyze(
            self.graph, self.data, output=self.folder / CONTRIBUTIONS, quick=quick, most=self.most,
            target=self.trials_on, workers=self.wish.workers, ray=self.wish.ray,
            learning_rate=chosen.learning_rate, on_progress=self._analyzing,
        )  # fmt: skip

    def make_choice(self) -> Choice:
        """Judge candidates on the user's own samples, and write the scheme to keep."""
        found = propose(
            self.graph, self.contributions, self.wish.budget, find(self.wish.target), self.options,
            streamed_input=self.streamed, on_plan=lambda plans: self.show(f"planning scheme {plans}", 0, 0),
        )  # fmt: skip
        judged = (found, self.data.digest(), self.wish.course, self.wish.effort, self.wish.rate)
        with open_runs(self.folder / RUNS, digest_of(*judged)) as runs:
            choice = climb(
                self.graph, self.data, found.candidates, self.options, self.wish.course,
                beyond=found.beyond if self.wish.effort != "quick" else (), effort=self.wish.effort,
                learning_rate=self.wish.rate, launcher=self.launcher, known=runs.known, on_run=runs.add,
                on_progress=self._judging,
            )  # fmt: skip
        measured = self.contributions.conditions.judged_with > 0
        predicted = found.predicted if measured else None
        choice = replace(choice, rows=self._counted(choice, found.candidates), predicted=predicted)
        if not choice.candidate.on_board:
            choice = replace(choice, notes=(*choice.notes, NO_ROOM))
        if self.wish.effort != "quick" and choice.learned:
            choice = replace(choice, notes=(*choice.notes, *self._other_networks()))
        write_whole(self.folder / SCHEME, choice.candidate.scheme.to_json().encode() + b"\n")
        self._keep(CHOICE, choice)
        (self.folder / RUNS).unlink(missing_ok=True)
        return choice

    def _other_networks(self) -> Iterator[str]:
        """Yield which network of the zoo would do better on these samples within the budget, if any does."""
        return better_networks(
            self.graph, self.data, self.wish.budget, find(self.wish.target), self.options, self.wish.course,
            lambda name: self.show(f"comparing with {name}", 0, 0),
        )  # fmt: skip

    def _counted(self, choice: Choice, candidates: tuple[Recipe, ...]) -> tuple[Row, ...]:
        """Return the rows with the instructions that a sample takes on the board, of those judged to the end."""
        known, rows = dict[tuple[Scheme, bool], int](), []
        by_name = {one.name: one for one in candidates}
        for row in choice.rows if self.wish.effort != "quick" else ():
            one = by_name[row.name]
            if row.finalist and (one.steps or one.on_board) and (one.scheme, one.steps) not in known:
                self.show(f"counting instructions: {row.name}", 0, 0)
                plain = replace(one, start="new head") if one.steps else one  # a step takes as much from any head
                program = self._compile(plain, self.wish.target)
                known[one.scheme, one.steps] = sample_instructions(program)
            rows.append(replace(row, instructions=known.get((one.scheme, one.steps))))
        return tuple(rows) or choice.rows

    def make_learned(self, choice: Choice) -> LearnedHere:
        course = replace(self.wish.course, learning_rate=choice.learning_rate) if choice.candidate.steps else None
        program = self.here
        if self.wish.where == "cuda" and choice.candidate.start != "one pass":
            program = self._compile(choice.candidate, training_target("cuda"))
        resume = self._to_resume(program, course) if course else None
        learned = learn(
            program, self.data, course, checkpoint=self.folder / CHECKPOINT, resume=resume, on_progress=self._learning
        )
        for name in self.models:
            export_model(learned.model, self.folder / name)
        write_saved(self.there.graph, self._on_board(learned.state), self.folder / LEARNED)
        counts, once = (len(self.data.train), len(self.data.test)), choice.candidate.start == "one pass"
        return LearnedHere(learned.first, learned.last, once, learned.record, *counts, learned.warnings)

    def _on_board(self, state: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return what was learned as the board's program has it, which may have no one pass: without the sums."""
        graph = self.there.graph
        return state if graph.one_pass else {v.name: state.get(v.name, first) for v, first in graph.state.items()}

    def make_board(self) -> Profile:
        self.show(f"measuring a step on the emulated {self.wish.target}", 0, 0)
        found = profile(self.there, COMPARED, self.wish.course.seed)
        self._keep(PROFILE, found)
        return found

    def make_project(self) -> Written:
        """Write firmware that begins with what was learned, where the flash has room for that."""
        folder, begins = self.folder / PROJECT, f"; it begins with the model: load {LEARNED} into it"
        program, board = self.there, find_board(self.wish.target)
        with suppress(TargetError):
            learned = program.beginning_with(read_saved(program.graph, self.folder / LEARNED))
            board.build(learned.graph, learned.sources)
            program, begins = learned, "; it begins with what was learned"
        program.write(folder, force=True)
        what = f"files: C sources, header, example and how to build it{begins}"
        return Written(sum(1 for _ in folder.iterdir()), what)

    def _keep(self, name: str, result: object) -> None:
        """Write a stage's result to its file."""
        write_whole(self.folder / name, json.dumps(to_plain(result), indent=1).encode() + b"\n")

    def _compile(self, one: Recipe, target: str | Target) -> Program:
        """Compile the program of a candidate; one for this machine holds the image whole."""
        return compile(
            self.graph, one.scheme, target, options=self.options, images=self._examples,
            streamed_input=one.streamed and target == self.wish.target,
            one_pass=one.start == "one pass" and (one.on_board or target != self.wish.target),
            class_names=self.data.names if self.options.classes in (1, len(self.data.classes)) else (),
        )  # fmt: skip

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The files of the model that was learned."""
        return ("learned.smg", f"learned{exchange_suffix(self.graph)}")

    @cached_property
    def _examples(self) -> tuple[Array, ...]:
        return examples(self.data.train, pixel_encoding(self.graph))

    def _to_resume(self, program: Program, course: Course) -> Path | None:
        """Return the checkpoint of this very run, if any; that of another run will be overwritten."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            return None
        found = read_checkpoint(path)
        same = (found.program, found.data, found.course) == (
            start_fingerprint(program.graph), self.data.digest(), course
        )  # fmt: skip
        return path if same else None

    def _trying(self, at: RateProgress) -> None:
        self.show("trying learning rates", at.done, at.total)

    def _judging(self, at: LadderProgress) -> None:
        self.show(f"{at.doing}; {at.leads} leads" if at.leads else at.doing, at.done, at.total)

    def _analyzing(self, at: AnalysisProgress) -> None:
        self.show("measuring what each part adds", at.done, at.total)

    def _learning(self, at: LearningProgress) -> None:
        loss = "" if at.loss is None else f", loss {at.loss:.3f}"
        self.show(f"{at.doing}, epoch {at.epoch} of {self.wish.course.epochs}{loss}", at.done, at.total)


def training_target(name: str) -> str | Target:
    """Return where a program learns: a target's name, or the simulated device on a GPU."""
    if name != "cuda":
        return name
    try:
        from smidgen.simulation.device import Simulator
    except ImportError:
        raise InputError("cuda needs PyTorch, which is not installed; install smidgen[torch]") from None
    return Simulator()
