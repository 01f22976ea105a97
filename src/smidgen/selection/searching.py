"""`search()`: the scheme that promises most within a budget, by one of three methods, and the curve over budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from smidgen.callbacks import ignore
from smidgen.codegen.entries import audio_bytes
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.memory import Memory
from smidgen.selection.bounds import pose_analytic, pose_planned
from smidgen.selection.contributions import Contributions
from smidgen.selection.estimates import shipped_contributions
from smidgen.selection.found import METHODS, Found, Improvement, LayerGain, Method, Pareto
from smidgen.selection.methods import EVALUATIONS, BestFirst, Promises, Trials, draw_lots, evolve, promise
from smidgen.selection.problem import UNIT, Candidate, Problem, SearchError
from smidgen.selection.refinement import PlanCallback, Planner, Refinement
from smidgen.selection.smoothing import smoothed
from smidgen.targets import find
from smidgen.targets.boards import parse_size
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.scheme import MadeFor

POINTS = 16  # of a Pareto curve, at most


def search(
    model: Graph,
    contributions: Contributions | None = None,
    budget: int | str = "128KB",
    target: str | Target = "cortex-m7",
    *,
    options: Options | None = None,
    method: Method = "exact",
    analytic: bool = False,
    streamed_input: bool = True,
    evaluations: int = EVALUATIONS,
    seed: int = 0,
    on_plan: PlanCallback = ignore,
) -> Found:
    """Search the scheme that promises most within a budget, in bytes or as "128KB" (of 1,024 bytes each).

    The budget is for all SRAM of the program that `compile` makes of it for the target, stack included; if `analytic`,
    for the paper's sum. Without `contributions` those that ship with the package are taken, and without `options` as
    many classes as in the contributions. The bits of weights are chosen too, unless `options` set them. `evaluations`
    bounds the evolutionary and the random search, `seed` draws their candidates.
    """
    searcher = Searcher(model, contributions, target, options, analytic, streamed_input, on_plan)
    return searcher.search(parse_size(str(budget)), method, evaluations, seed)


def pareto(
    model: Graph,
    contributions: Contributions | None = None,
    budget: int | str = "256KB",
    target: str | Target = "cortex-m7",
    *,
    options: Options | None = None,
    analytic: bool = False,
    streamed_input: bool = True,
    points: int = POINTS,
    on_plan: PlanCallback = ignore,
) -> Pareto:
    """Search the best schemes for budgets in equal steps, from the head alone to `budget`; keep those that gain."""
    if points < 2:
        raise InputError(f"a curve of {points} points cannot be drawn; give 2 or more")
    searcher = Searcher(model, contributions, target, options, analytic, streamed_input, on_plan)
    least, most = searcher.least, parse_size(str(budget))
    kept: list[Found] = []
    for step in range(points):
        found = searcher.search(least + max(most - least, 0) * step // (points - 1))
        if not kept or found.gain > kept[-1].gain:
            kept.append(found)
    return Pareto(model.name, searcher.target, tuple(kept))


def check_searchable(options: Options) -> None:
    """Raise InputError for options that no scheme is searched for."""
    bits, usual = options.bias_bits, Options.bias_bits
    if bits != usual:
        raise InputError(
            f"no schemes are searched for biases of {bits} bits; search with {usual}, and train or compile the scheme "
            f"that is found with {bits}"
        )


class Searcher:
    """A network with the gains and bytes of its parts, searched for one budget after another."""

    def __init__(
        self,
        model: Graph,
        contributions: Contributions | None,
        target: str | Target,
        options: Options | None,
        analytic: bool,
        streamed_input: bool,
        on_plan: PlanCallback,
    ) -> None:
        known = smoothed(contributions or shipped_contributions(model))
        known.check(model)
        chosen = options or Options(known.conditions.classes)
        chosen.check()
        check_searchable(chosen)
        self.model, self.contributions, self._bits = model, known, _bits(known, chosen)
        self.planner: Planner | None = None
        if analytic:
            self.problems = tuple(pose_analytic(model, known, bits) for bits in self._bits)
            return
        where = find(target) if isinstance(target, str) else target
        self.planner = Planner(model, where, chosen, streamed_input, on_plan)
        overhead = where.overhead + audio_bytes(model)
        self.problems = pose_planned(model, known, self._bits, chosen, where.working, overhead, streamed_input)

    @property
    def target(self) -> str | None:
        """The target whose SRAM is the cost; None where the cost is the analytic sum."""
        return self.planner.target.name if self.planner else None

    @property
    def least(self) -> int:
        """The least budget that has a scheme: the head alone."""
        return self.planner.biases(0, self.problems[0].bits).sram if self.planner else 0

    def search(self, budget: int, method: Method = "exact", evaluations: int = EVALUATIONS, seed: int = 0) -> Found:
        """Return the best scheme that a method finds for a budget."""
        if method not in METHODS:
            raise InputError(f"there is no method {method!r} to search by; known are {', '.join(METHODS)}")
        if evaluations < 1 or seed < 0:
            raise InputError(f"{evaluations} evaluations from seed {seed} cannot be made; give 1 or more, from 0 up")
        promises = tuple(promise(problem, budget) for problem in self.problems)
        proposer = _Proposer(method, promises, evaluations, seed)
        if self.planner is None:
            candidate = proposer(self.problems, budget)
            if candidate is None:
                raise SearchError(f"within {budget:,} bytes there is no scheme for {self.model.name}; give more")
            return self._found(candidate, None, candidate.gain if method == "exact" else None, budget, proposer, 0)
        refinement = Refinement(self.problems, self.planner)
        answer = refinement.find(budget, proposer)
        if method == "exact":
            answer = refinement.prove(budget, answer, promises)
        return self._found(answer.candidate, answer.planned, answer.best_possible, budget, proposer, refinement.plans)

    def _found(
        self,
        candidate: Candidate,
        planned: Memory | None,
        best_possible: int | None,
        budget: int,
        proposer: _Proposer,
        plans: int,
    ) -> Found:
        (problem,) = (one for one in self.problems if one.bits == candidate.bits)
        scheme = replace(problem.scheme(candidate), made_for=MadeFor.of(self.model))
        kept = self.contributions.kept(candidate.bits)
        shares = ((layer, part) for layer, part in scheme.weights if isinstance(part, Fraction))
        return Found(
            model=self.model.name,
            target=self.target,
            method=proposer.method,
            budget=budget,
            scheme=scheme,
            weight_bits=candidate.bits,
            cost=planned.sram if planned else candidate.cost,
            planned=planned,
            gain=candidate.gain / UNIT,
            biases_gain=self.contributions.biases_gain(candidate.biases),
            layers=tuple(
                LayerGain(layer, share, self.contributions.weights_gain(layer, share) * kept) for layer, share in shares
            ),
            best_possible=None if best_possible is None else best_possible / UNIT,
            evaluations=proposer.evaluated,
            schemes_planned=plans,
            improvements=proposer.improvements,
        )


@dataclass
class _Proposer:
    """A method of search, called for the best candidate within a budget."""

    method: Method
    promises: Sequence[Promises]
    limit: int  # evaluations of a search that draws
    seed: int
    evaluated: int = 0
    trials: Trials | None = field(default=None)

    def __call__(self, problems: Sequence[Problem], budget: int) -> Candidate | None:
        if self.method == "exact":
            search = BestFirst(problems, self.promises, budget)
            best = next(iter(search), None)
            self.evaluated += search.decisions
            return best
        draw = evolve if self.method == "evolutionary" else draw_lots
        self.trials = draw(problems, budget, self.limit, self.seed)
        self.evaluated += self.trials.tried
        return self.trials.best

    @property
    def improvements(self) -> tuple[Improvement, ...]:
        return tuple(self.trials.improvements) if self.trials else ()


def _bits(contributions: Contributions, options: Options) -> tuple[int, ...]:
    """Return the bits per weight to choose from: those given, else those measured, else those of the analysis."""
    if options.weight_bits is not None:
        return (options.weight_bits,)
    return tuple(one.bits for one in contributions.bits) or (contributions.conditions.weight_bits,)
