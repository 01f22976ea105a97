"""The best scheme whose compiled program fits a budget: candidates by their least SRAM, with the planner in the loop.

Each proposal is planned. Where it takes more SRAM than its lower bound promised, either its biases alone have a larger
arena, which is known for that depth from then on, or proposals are made for a little less than the budget. So a scheme
that fits is found in a few plans. Then every candidate that promises more is planned too, best first, until one fits or
none is left: that proves the answer, or bounds how much better another could be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from smidgen.callbacks import ignore
from smidgen.codegen.entries import audio_bytes
from smidgen.ir import Graph
from smidgen.memory import ALIGNMENT, Memory, planned_memory, state_bytes
from smidgen.pipeline import plan
from smidgen.selection.methods import BestFirst, Promises
from smidgen.selection.problem import Candidate, Problem, SearchError
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.scheme import Scheme

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

Propose = Callable[[Sequence[Problem], int], Candidate | None]  # the best candidate it finds within a budget


@dataclass(frozen=True)
class FittingCandidate:
    """A candidate that fits, the bytes it takes, and the most that any other could gain."""

    candidate: Candidate
    planned: Memory
    best_possible: int | None = None  # None where the method gives no bound


class Refinement:
    """Problems by bits, a planner, and the known arenas by number of biases."""

    def __init__(self, problems: Sequence[Problem], planner: Planner) -> None:
        self.problems, self.planner = problems, planner
        self.known = {0: planner.biases(0, problems[0].bits)}
        self.plans = 1  # asked for, known or not: what is known before must not change what is found

    def find(self, budget: int, propose: Propose) -> FittingCandidate:
        """Return the first proposal that fits."""
        if budget < self.known[0].sram:
            raise SearchError(self._too_small(budget))
        margin = 0
        while True:
            candidate = propose(self._with_floors(certain=False), budget - margin)
            if candidate is None:  # the margin leaves no room: the head alone, which fits
                candidate = self.problems[0].candidate(0, ())
            # Where the image, not what is kept, sets the arena, biases alone show as much as the candidate, and sooner.
            if candidate.arena < self.known[0].peak and self._learn(candidate.biases):
                continue
            planned = self._plan(candidate)
            if planned.sram <= budget:
                return FittingCandidate(candidate, planned)
            if not self._learn(candidate.biases):
                margin = max(margin + ALIGNMENT, planned.sram - candidate.cost)

    def prove(self, budget: int, answer: FittingCandidate, promises: Sequence[Promises]) -> FittingCandidate:
        """Return the answer, or a better one, with the most that any scheme within the budget can gain."""
        most = self.plans + PROOFS
        while True:
            search = BestFirst(self._with_floors(certain=True), promises, budget)
            for candidate in takewhile(lambda one: one.gain > answer.candidate.gain, search):
                if self.plans >= most:
                    return replace(answer, best_possible=candidate.gain)
                if self._learn(candidate.biases):
                    break
                planned = self._plan(candidate)
                if planned.sram <= budget:
                    return FittingCandidate(candidate, planned, candidate.gain)
            else:
                left = search.most  # above the answer's gain only where the search was cut short
                gain = answer.candidate.gain
                return replace(answer, best_possible=gain if left is None else max(left, gain))

    def _plan(self, candidate: Candidate) -> Memory:
        self.plans += 1
        (problem,) = (one for one in self.problems if one.bits == candidate.bits)
        return self.planner(problem.scheme(candidate))

    def _learn(self, biases: int) -> bool:
        """Plan biases alone; return whether that was new."""
        if biases in self.known:
            return False
        self.plans += 1
        self.known[biases] = self.planner.biases(biases, self.problems[0].bits)
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

    def _too_small(self, budget: int) -> str:
        head, planner = self.known[0], self.planner
        return (
            f"a budget of {budget:,} bytes is too small for {planner.graph.name} on {planner.target.name}: the head "
            f"alone takes {head.sram:,} (arena {head.peak:,}, state {head.state:,}, stack and other data up to "
            f"{head.overhead:,}); give at least that"
        )
