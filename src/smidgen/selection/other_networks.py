"""Networks of the zoo that would do better than the user's own, by closed-form heads on the same samples held back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from smidgen.callbacks import ignore
from smidgen.data import Data
from smidgen.data.inputs import shows_image
from smidgen.errors import PlanError, StreamError
from smidgen.ir import Graph
from smidgen.learning import Course
from smidgen.memory.streaming import streams_input
from smidgen.selection.choice import SURE, Row
from smidgen.selection.judging import Recipe
from smidgen.selection.ladder import climb
from smidgen.selection.searching import Planner
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.scheme import load_scheme
from smidgen.zoo import NAMES, load_zoo


def better_networks(
    graph: Graph,
    data: Data,
    budget: int,
    target: Target,
    options: Options,
    course: Course,
    on_network: Callable[[str], None] = ignore,
) -> Iterator[str]:
    """Yield a sentence on the network of the zoo that does clearly better within the budget; nothing where none does.

    Every network is judged by a closed-form head on at most a thousand photographs, from one pass and without steps.
    """
    if data.label_kind != "classes" or not shows_image(data.train.images[0]) or graph.variables:
        return
    plain = replace(options, classes=len(data.classes), head="new", head_dtype=None)

    def judged(network: Graph) -> Row | None:
        on_network(network.name)
        return judge_network(network, data, plain, course)

    own = judged(graph)
    if own is None or own.score is None:
        return
    found = []
    for name in NAMES:
        network = load_zoo(name)
        if name != graph.name and (sram := least_sram(network, target, plain)) <= budget:
            row = judged(network)
            if row and row.score and row.score - own.score > SURE * math.hypot(row.error, own.error):
                found.append((row.score, sram, name))
    if found:
        score, sram, name = max(found)
        yield (
            f"{name} of the zoo would do better on these photographs: a head made in one pass is right on {score:.1%} "
            f"of the samples held back, with {graph.name} on {own.score:.1%}; its head learns in {sram:,} bytes of SRAM"
        )


def judge_network(network: Graph, data: Data, options: Options, course: Course) -> Row | None:
    """Judge a network by a head made in one pass, on samples held back; None where none can be."""
    one = Recipe(load_scheme("head", network), "one pass", 0, steps=False)
    choice = climb(network, data, (one,), options, replace(course, augment=None), effort="quick")
    return choice.rows[0] if choice.rows else None


def least_sram(network: Graph, target: Target, options: Options) -> float:
    """Return the SRAM of a program that learns the head alone, endless where there is no plan."""
    try:
        streamed = streams_input(network, target.working)
        return Planner(network, target, options, streamed)(load_scheme("head", network)).sram
    except (PlanError, StreamError):
        return math.inf
