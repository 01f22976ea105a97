"""`search()`: the scheme that promises most within a budget, by one of three methods, and the curve over budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import takewhile

from smidgen.callbacks import ignore
from smidgen.codegen.entries import audio_bytes
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.memory import ALIGNMENT, Memory, planned_memory, state_bytes
from smidgen.pipeline import plan
from smidgen.selection.bounds import pose_analytic, pose_planned
from smidgen.selection.contributions import Contributions
from smidgen.selection.estimates import shipped_contributions
from smidgen.selection.found import METHODS, Found, Improvement, LayerGain, Method, Pareto
from smidgen.selection.methods import (
    EVALUATIONS,
    FIRST,
    UNIT,
    BestFirst,
    Candidate,
    Problem,
    Promises,
    SearchError,
    evolve,
    promise,
)
from smidgen.selection.smoothing import smoothed
from smidgen.targets import find
from smidgen.targets.boards import parse_size
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.scheme import MadeFor, Scheme

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
        search = _Search(self.problems, self.planner, budget, method, evaluations, seed)
        found = search.run()
        if found is None:
            raise SearchError(f"within {budget:,} bytes there is no scheme for {self.model.name}; give more")
        candidate, planned, best_possible = found.candidate, found.planned, found.best_possible
        scheme = replace(search.problem(candidate).scheme(candidate), made_for=MadeFor.of(self.model))
        kept = self.contributions.kept(candidate.bits)
        shares = ((layer, part) for layer, part in scheme.weights if isinstance(part, Fraction))
        return Found(
            model=self.model.name,
            target=self.target,
            method=method,
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
            evaluations=search.evaluated,
            schemes_planned=search.plans,
            improvements=search.improvements,
        )


def _bits(contributions: Contributions, options: Options) -> tuple[int, ...]:
    """Return the bits per weight to choose from: those given, else those measured, else those of the analysis."""
    if options.weight_bits is not None:
        return (options.weight_bits,)
    return tuple(one.bits for one in contributions.bits) or (contributions.conditions.weight_bits,)


PlanCallback = Callable[[int], None]  # gets how many schemes were planned so far


@dataclass
class Planner:
    """Plans schemes of one network for one target, each once."""

    graph: Graph
    target: Target
    options: Options
    streamed_input: bool
    on_plan: PlanCallback = ignore
    _known: dict[tuple[object, ...], Memory] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """The number of schemes planned."""
        return len(self._known)

    def __call__(self, scheme: Scheme) -> Memory:
        with_bits = scheme.weights or self.options.head_of(self.graph).dtype == "int8"
        key = (scheme.biases, scheme.weights, scheme.channels, self.options.bits(scheme) if with_bits else None)
        if key not in self._known:
            self._known[key] = self._plan(scheme)
            self.on_plan(self.planned)
        return self._known[key]

    def biases(self, count: int, bits: int) -> Memory:
        """Plan biases without weights; an int8 head has weights of these bits."""
        return self(Scheme(f"bias:{count}", count, weight_bits=bits))

    def _plan(self, scheme: Scheme) -> Memory:
        layout = plan(self.graph, scheme, self.target, options=self.options, streamed_input=self.streamed_input)
        overhead = self.target.overhead + audio_bytes(layout.graph)
        return planned_memory(layout.plan, state_bytes(layout.graph), overhead=overhead)


PROOFS = 12  # schemes planned to prove that an answer is the best


@dataclass(frozen=True)
class FittingCandidate:
    """A candidate that fits, the bytes it takes, and the most that any other could gain."""

    candidate: Candidate
    planned: Memory | None  # None where the cost is the analytic sum
    best_possible: int | None = None  # None where the method gives no bound


@dataclass
class _Search:
    """A search for one budget: a method that proposes candidates, and a planner in the loop.

    Each proposal is planned. Where it takes more SRAM than its lower bound promised, either its biases alone have a
    larger arena, which is known for that depth from then on, or proposals are made for a little less than the budget.
    So a scheme that fits is found in a few plans. Then every candidate that promises more is planned too, best first,
    until one fits or none is left: that proves the answer, or bounds how much better another could be.
    """

    problems: Sequence[Problem]
    planner: Planner | None
    budget: int
    method: Method
    limit: int  # evaluations of a search that draws
    seed: int
    evaluated: int = 0
    improvements: tuple[Improvement, ...] = ()
    plans: int = 0  # asked for, known or not: what is known before must not change what is found
    known: dict[int, Memory] = field(default_factory=dict)  # by the number of biases alone

    def run(self) -> FittingCandidate | None:
        """Return the best candidate found; None where none fits."""
        exact = self.method == "exact"
        if self.planner is None:
            best = self._propose(self.problems, self.budget)
            return None if best is None else FittingCandidate(best, None, best.gain if exact else None)
        answer = self._find(self.planner)
        return self._prove(self.planner, answer) if exact else answer

    @cached_property
    def promises(self) -> tuple[Promises, ...]:
        return tuple(promise(problem, self.budget) for problem in self.problems)

    def problem(self, candidate: Candidate) -> Problem:
        """Return the problem that a candidate is one of."""
        (problem,) = (one for one in self.problems if one.bits == candidate.bits)
        return problem

    def _propose(self, problems: Sequence[Problem], budget: int) -> Candidate | None:
        """Return the best candidate that the method finds within a budget."""
        if self.method == "exact":
            search = BestFirst(problems, self.promises, budget)
            best = next(iter(search), None)
            self.evaluated += search.decisions
            return best
        trials = evolve(problems, budget, self.limit, self.seed, FIRST if self.method == "evolutionary" else 1.0)
        self.evaluated += trials.tried
        self.improvements = tuple(trials.improvements)
        return trials.best

    def _find(self, planner: Planner) -> FittingCandidate:
        """Return the first proposal that fits."""
        self._learn(planner, 0)
        if self.budget < self.known[0].sram:
            raise SearchError(_too_small(planner, self.known[0], self.budget))
        margin = 0
        while True:
            candidate = self._propose(self._with_floors(certain=False), self.budget - margin)
            if candidate is None:  # the margin leaves no room: the head alone, which fits
                candidate = self.problems[0].candidate(0, ())
            # Where the image, not what is kept, sets the arena, biases alone show as much as the candidate, and sooner.
            if candidate.arena < self.known[0].peak and self._learn(planner, candidate.biases):
                continue
            planned = self._plan(planner, candidate)
            if planned.sram <= self.budget:
                return FittingCandidate(candidate, planned)
            if not self._learn(planner, candidate.biases):
                margin = max(margin + ALIGNMENT, planned.sram - candidate.cost)

    def _prove(self, planner: Planner, answer: FittingCandidate) -> FittingCandidate:
        """Return the answer, or a better one, with the most that any scheme within the budget can gain."""
        most = self.plans + PROOFS
        while True:
            search = BestFirst(self._with_floors(certain=True), self.promises, self.budget)
            for candidate in takewhile(lambda one: one.gain > answer.candidate.gain, search):
                if self.plans >= most:
                    return replace(answer, best_possible=candidate.gain)
                if self._learn(planner, candidate.biases):
                    break
                planned = self._plan(planner, candidate)
                if planned.sram <= self.budget:
                    return FittingCandidate(candidate, planned, candidate.gain)
            else:
                left = search.most  # above the answer's gain only where the search was cut short
                gain = answer.candidate.gain
                return replace(answer, best_possible=gain if left is None else max(left, gain))

    def _plan(self, planner: Planner, candidate: Candidate) -> Memory:
        self.plans += 1
        return planner(self.problem(candidate).scheme(candidate))

    def _learn(self, planner: Planner, biases: int) -> bool:
        """Plan biases alone; return whether that was new."""
        if biases in self.known:
            return False
        self.plans += 1
        self.known[biases] = planner.biases(biases, self.problems[0].bits)
        return True

    def _with_floors(self, *, certain: bool) -> list[Problem]:
        """Return the problems with the arena that biases alone take in their plans, or take at least in any plan.

        A depth that was not planned takes at least as much as the buffers of a shallower one.
        """
        floors, floor = [], 0
        for biases in range(len(self.problems[0].bias_gains)):
            known = self.known.get(biases)
            floor = max(floor, known.lower_bound if known else 0)
            floors.append(floor if known is None or certain else known.peak)
        return [replace(problem, floors=tuple(floors)) for problem in self.problems]


def _too_small(planner: Planner, head: Memory, budget: int) -> str:
    return (
        f"a budget of {budget:,} bytes is too small for {planner.graph.name} on {planner.target.name}: the head alone "
        f"takes {head.sram:,} (arena {head.peak:,}, state {head.state:,}, stack and other data up to "
        f"{head.overhead:,}); give at least that"
    )
