"""The verb that searches for a scheme, and the choice of one where a verb is given a budget and no scheme."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from smidgen.cli.options import Learning, with_learning
from smidgen.cli.shared import (
    MEMORY_TEXT,
    ImageInput,
    Input,
    Json,
    Memory,
    Model,
    app,
    as_text,
    check_folder,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.shared import Target as TargetName
from smidgen.cli.terminal import printable, progress_console, say, spinner
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.selection import pareto, search
from smidgen.selection.contributions import read_contributions
from smidgen.selection.sampling import EVALUATIONS
from smidgen.selection.searching import POINTS
from smidgen.selection.shipped import shipped_contributions
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.scheme import Scheme
from smidgen.zoo.loading import load


class MethodName(StrEnum):
    """How to search."""

    exact = "exact"
    evolutionary = "evolutionary"
    random = "random"


Budget = Annotated[
    str, typer.Option(help="The most SRAM, stack included, such as 128KB (1 KB is 1,024 bytes); a curve ends there.")
]
ContributionsFile = Annotated[
    Path | None, path_option(help="What smidgen analyze wrote; by default what ships with the package.")
]
SchemeFile = Annotated[
    Path | None, path_option("--output", "-o", help="The scheme's file to write, or with --pareto the curve's.")
]
Evaluations = Annotated[int, typer.Option(help="Candidates that an evolutionary or random search tries.")]
Analytic = Annotated[
    bool, typer.Option("--analytic", help="Let the budget be for the paper's analytic sum, not for planned SRAM.")
]
Curve = Annotated[
    bool, typer.Option("--pareto", help="The best schemes for all budgets from the head alone up to this one.")
]


@app.command("search")
@with_learning
def search_(
    model: Model,
    budget: Budget,
    contributions: ContributionsFile = None,
    output: SchemeFile = None,
    target: TargetName = "cortex-m7",
    image: Input = ImageInput.streamed,
    method: Annotated[MethodName, typer.Option(help="How to search.")] = MethodName.exact,
    evaluations: Evaluations = EVALUATIONS,
    analytic: Analytic = False,
    curve: Curve = False,
    points: Annotated[int, typer.Option(help="With --pareto: for so many budgets.")] = POINTS,
    *,
    learning: Learning,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Find the scheme that promises the most accuracy within a budget."""
    if output:
        check_folder(output, Path())
    if curve and method is not MethodName.exact:
        raise InputError(f"a curve is searched for exactly, not by {method.value} search; leave --method out")
    with spinner(f"reading {model}"):
        graph = load(model, memory_bytes(memory))
        known = read_contributions(contributions) if contributions else shipped_contributions(graph)
    options, streamed = learning.options(learning.classes or known.conditions.classes), image is ImageInput.streamed
    with progress_console().status(Text(printable(f"searching for {model}"))) as status:

        def on_plan(planned: int) -> None:
            status.update(Text(printable(f"searching for {model}: {planned} schemes planned")))

        if curve:
            drawn = pareto(
                graph, known, budget, target, options=options, analytic=analytic, streamed_input=streamed,
                points=points, on_plan=on_plan,
            )  # fmt: skip
        else:
            found = search(
                graph, known, budget, target, options=options, method=method.value, analytic=analytic,
                streamed_input=streamed, evaluations=evaluations, seed=learning.seed, on_plan=on_plan,
            )  # fmt: skip
    if output:
        write_whole(output, (as_text(drawn) if curve else found.scheme.to_json()).encode() + b"\n")
    show(drawn if curve else found, as_json)


def choose_scheme(
    graph: Graph,
    scheme: str | None,
    budget: str | None,
    target: str | Target,
    options: Options | None,
    streamed_input: bool,
) -> str | Scheme | None:
    """The scheme given, or where it learns without one the best known for the budget; None where it only infers."""
    if scheme is not None or budget is None or options is None:
        return scheme
    with spinner(f"choosing what {graph.name} learns"):
        found = search(graph, None, budget, target, options=options, streamed_input=streamed_input)
    say(str(found), err=True)
    return found.scheme
