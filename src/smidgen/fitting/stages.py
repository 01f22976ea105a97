"""The stages of a fit: each makes one result and its files, from the files of earlier stages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from smidgen.data import Data, examples, pixel_encoding
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.fitting.fitted import ContributionsMade, LearnedHere, ModelMade, Written
from smidgen.frontends import exchange_suffix, export_model
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import Array, Graph
from smidgen.learning import Course, LearningProgress, learn
from smidgen.learning.checkpoint import read_checkpoint, start_fingerprint
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.quantization import QuantizationProgress, is_float, quantize_with
from smidgen.records import to_plain
from smidgen.results.inspection import describe
from smidgen.results.profile import Profile, profile
from smidgen.selection.analysis import MOST, AnalysisProgress, analyze
from smidgen.selection.contributions import Contributions, ContributionsError, read_contributions, write_contributions
from smidgen.selection.estimates import estimate, shipped_contributions
from smidgen.selection.found import Found
from smidgen.selection.rates import ChosenRate, RateProgress, choose_rate
from smidgen.selection.searching import search
from smidgen.selection.trials import agenda, hold_back
from smidgen.targets import find_board
from smidgen.targets.boards import parse_size
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.options import choose_loss, outputs_for
from smidgen.training.scheme import Scheme

Analysis = Literal["quick", "full"]
Where = Literal["host", "cuda"]
ShowProgress = Callable[[str, int, int], None]  # what is done, how much of it, of how much
ENOUGH = 200  # images held back; with fewer, a part's gain is lost in noise
COMPARED = 3  # steps of the board that numpy takes too
MODEL, CONTRIBUTIONS, SCHEME, RATE = "model.smg", "contributions.json", "scheme.json", "rate.json"
CHECKPOINT, PROFILE, PROJECT, REPORT = "checkpoint.ckpt", "profile.json", "project", "report.html"


@dataclass(frozen=True)
class Wish:
    """The request of a fit: what to make, and how."""

    budget: int  # bytes of SRAM
    target: str  # a board
    course: Course  # whose rate is chosen
    analysis: Analysis | None = None  # None: contributions that are given or shipped, else a quick analysis
    where: Where = "host"  # analysis and learning run there
    given: Contributions | None = None
    command: str = ""  # that started the fit, for the report


class Stages:
    """The work of the stages; each reads the files that others wrote."""

    def __init__(self, source: Graph, data: Data, folder: Path, wish: Wish, show: ShowProgress) -> None:
        self.source, self.data, self.folder, self.wish, self.show = source, data, folder, wish, show
        loss = choose_loss(source, data)
        self.options = Options(outputs_for(source, data, loss), seed=wish.course.seed, loss=loss)

    @cached_property
    def graph(self) -> Graph:
        return replace(read_smg(self.folder / MODEL), name=self.source.name)

    @cached_property
    def contributions(self) -> Contributions:
        return read_contributions(self.folder / CONTRIBUTIONS)

    @cached_property
    def scheme(self) -> Scheme:
        return Scheme.from_json((self.folder / SCHEME).read_bytes(), str(self.folder / SCHEME))

    @cached_property
    def here(self) -> Program:
        """The program that learns on this machine, in C."""
        return self._compile("host")

    @cached_property
    def there(self) -> Program:
        """The same for the board."""
        return self._compile(self.wish.target, streamed_input=self.streamed)

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
        if len(hold_back(self.data).test) < ENOUGH:
            return f"by rule, {len(self.data.train)} images are too few to measure it", estimate(self.graph)
        return None

    @property
    def most(self) -> int:
        """The analytic memory up to which layers are tried in an analysis."""
        return max(self.wish.budget, parse_size(MOST))

    def make_model(self) -> ModelMade:
        graph, pixels = self.source, None

        def quantizing(at: QuantizationProgress) -> None:
            self.show(f"quantizing: {at.doing}", at.done, at.total)

        if is_float(graph):
            result = quantize_with(self.data, graph, quantizing)
            graph, pixels = replace(result.graph, name=graph.name), result.pixels
        write_smg(graph, self.folder / MODEL)
        summary = describe(graph)
        quantized = graph is not self.source
        return ModelMade(graph.name, quantized, len(summary.layers), summary.macs, summary.parameters, pixels)

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
            target=self.wish.where, learning_rate=chosen.learning_rate, on_progress=self._analyzing,
        )  # fmt: skip

    def make_scheme(self) -> Found:
        found = search(
            self.graph, self.contributions, self.wish.budget, self.wish.target, options=self.options,
            streamed_input=self.streamed, on_plan=lambda plans: self.show(f"planning scheme {plans}", 0, 0),
        )  # fmt: skip
        write_whole(self.folder / SCHEME, found.scheme.to_json().encode() + b"\n")
        return found

    def make_rate(self) -> ChosenRate:
        chosen = choose_rate(self.here, self.data, self.wish.course, on_progress=self._trying)
        self._keep(RATE, chosen)
        return chosen

    def make_learned(self, rate: float) -> LearnedHere:
        course = replace(self.wish.course, learning_rate=rate)
        program = self.here
        if self.wish.where == "cuda":
            program = self._compile(training_target("cuda"))
        kept = self.folder / CHECKPOINT
        learned = learn(
            program, self.data, course, checkpoint=kept, resume=self._to_resume(program, course),
            on_progress=self._learning,
        )  # fmt: skip
        for name in self.learned_files:
            export_model(learned.model, self.folder / name)
        return LearnedHere(learned.first, learned.record, len(self.data.train), len(self.data.test), learned.warnings)

    def make_board(self) -> Profile:
        self.show(f"measuring a step on the emulated {self.wish.target}", 0, 0)
        found = profile(self.there, COMPARED, self.wish.course.seed)
        self._keep(PROFILE, found)
        return found

    def make_project(self) -> Written:
        folder = self.folder / PROJECT
        self.there.write(folder, force=True)
        return Written(sum(1 for _ in folder.iterdir()), "files: C sources, header, example and how to build it")

    def _keep(self, name: str, result: object) -> None:
        """Write a stage's result to its file."""
        write_whole(self.folder / name, json.dumps(to_plain(result), indent=1).encode() + b"\n")

    def _compile(self, target: str | Target, streamed_input: bool = False) -> Program:
        """Compile the program that learns with the scheme that was found."""
        return compile(
            self.graph, self.scheme, target, options=self.options, images=self._examples,
            streamed_input=streamed_input, class_names=self.data.names,
        )  # fmt: skip

    @cached_property
    def learned_files(self) -> tuple[str, ...]:
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
