"""The candidates of a ladder: what a budget of SRAM allows on a board, from the head alone to everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from smidgen.callbacks import ignore
from smidgen.codegen.entries import audio_bytes
from smidgen.errors import StreamError, TargetError
from smidgen.ir import Graph
from smidgen.pipeline import compile
from smidgen.selection.contributions import Contributions
from smidgen.selection.found import Found
from smidgen.selection.judging import Recipe
from smidgen.selection.methods import SearchError
from smidgen.selection.searching import Planner, Searcher
from smidgen.targets.boards import KIB
from smidgen.targets.device import Target
from smidgen.targets.firmware import BoardTarget
from smidgen.training import Options
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, load_scheme

PARTS = (1.0, 0.75, 0.5)  # of the budget, for which schemes are searched
BEYOND, WORTH = 2.0, 1.25  # times the budget: what is looked at beyond it, and the least that is worth a look


@dataclass(frozen=True)
class Proposals:
    """Candidates within a budget, and the gain over the head that contributions predict for the largest one."""

    candidates: tuple[Recipe, ...]
    beyond: tuple[Recipe, ...]  # that a larger budget would allow
    predicted: float


def propose(
    graph: Graph,
    contributions: Contributions,
    budget: int,
    target: Target,
    options: Options,
    *,
    streamed_input: bool = True,
    on_plan: Callable[[int], None] = ignore,
) -> Proposals:
    """Return every candidate that fits: schemes that were searched, the last biases, the last layers, everything.

    Raise SearchError where the budget is too small for the head alone.
    """
    searcher = Searcher(graph, contributions, target, options, False, streamed_input, on_plan)
    assert searcher.planner is not None
    planner, whole = searcher.planner, searcher.search(budget)
    schemes = [load_scheme("head", graph)]
    for part in PARTS:
        found = whole if part == PARTS[0] else _searched(searcher, int(budget * part))
        if found is not None and found.scheme.biases:
            schemes.append(replace(found.scheme, name=_name(int(budget * part))))
    kept, seen = list[Recipe](), set[object]()
    for scheme, plans in [*((scheme, planner) for scheme in schemes), *_simple(graph, planner, budget)]:
        same = (scheme.biases, scheme.weights, options.bits(scheme) if scheme.weights else 0)
        if same not in seen:
            seen.add(same)
            kept += _starts(graph, scheme, plans, options, budget)
    return Proposals(tuple(kept), _beyond(searcher, planner, budget, kept), whole.gain)


def _name(budget: int) -> str:
    return f"searched for {budget / KIB:.0f} KB"


def _starts(graph: Graph, scheme: Scheme, plans: Planner, options: Options, budget: int) -> Iterator[Recipe]:
    """Yield a scheme from a new or kept head, and behind one pass; the head also without any step.

    Where the board has no room for the sums, which many classes need, one pass is done on this machine.
    """
    head = options.head_of(graph)
    new = head.start == "new"
    sram, streamed = plans(scheme).sram, plans.streamed_input
    most = scheme.name == _name(budget)
    one = Recipe(scheme, "new head" if new else "kept head", sram, streamed=streamed, most=most)
    yield one
    if not new and not scheme.biases:
        yield replace(one, steps=False)
    if new and head.dtype == "float32" and options.loss == "softmax" and not graph.variables:
        taken, once = _with_one_pass(graph, scheme, plans, options), replace(one, start="one pass", on_board=False)
        if taken is not None and taken <= budget:
            once = replace(once, sram_bytes=taken, on_board=True)
        yield from (once,) if scheme.biases else (once, replace(once, steps=False))


def _beyond(searcher: Searcher, planner: Planner, budget: int, kept: Sequence[Recipe]) -> tuple[Recipe, ...]:
    """Return the scheme searched for a larger budget that the board has, from every start, or nothing."""
    largest = planner.target.largest_budget if isinstance(planner.target, BoardTarget) else budget
    more = min(int(BEYOND * budget), largest)
    found = _searched(searcher, more) if more >= WORTH * budget else None
    if found is None or found.cost <= budget:
        return ()
    scheme = replace(found.scheme, name=_name(more))
    starts = dict.fromkeys((one.start, one.on_board) for one in kept)
    return tuple(
        Recipe(scheme, start, found.cost, streamed=planner.streamed_input, on_board=on) for start, on in starts
    )


def _searched(searcher: Searcher, budget: int) -> Found | None:
    try:
        return searcher.search(budget)
    except SearchError:  # the head alone takes more than this part of the budget
        return None


def _simple(graph: Graph, planner: Planner, budget: int) -> Iterator[tuple[Scheme, Planner]]:
    """Yield the most biases of the later half, and the most last layers, that fit; all layers are `full`.

    Where the first layers learn, they read the image again: it is held whole.
    """
    count, whole = len(layers(graph)), replace(planner, streamed_input=False, _known={})

    def fits(name: str) -> Planner | None:
        for one in (planner, whole) if planner.streamed_input else (planner,):
            with suppress(StreamError):
                return one if one(load_scheme(name, graph)).sram <= budget else None
        return None

    for kind, most in (("bias", -(-count // 2)), ("last", count)):
        found, fitting, too_many = None, 0, most + 1
        while too_many - fitting > 1:
            middle = (fitting + too_many) // 2
            if plans := fits(f"{kind}:{middle}"):
                found, fitting = plans, middle
            else:
                too_many = middle
        if found is not None:
            name = "full" if kind == "last" and fitting == count else f"{kind}:{fitting}"
            yield load_scheme(name, graph), found


def _with_one_pass(graph: Graph, scheme: Scheme, planner: Planner, options: Options) -> int | None:
    """Return the SRAM of a scheme's program that also learns in one pass; None where the board has less."""
    try:
        program = compile(
            graph, scheme, planner.target, options=options, streamed_input=planner.streamed_input, one_pass=True
        )
    except TargetError:
        return None
    return program.memory.sram + planner.target.overhead + audio_bytes(program.graph)
