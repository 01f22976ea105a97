"""The verb that searches for a scheme, and the choice of one where a verb is given a budget and no scheme."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from smidgen.cli.interrupting import going_on, same_command
from smidgen.cli.options import Learning, with_learning
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Force,
    ImageInput,
    Input,
    Json,
    Memory,
    Model,
    app,
    as_text,
    check_file,
    check_int8,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.shared import Target as TargetName
from smidgen.cli.terminal import printable, progress_console, say, spinner, warn
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.results.choices import pareto_page, search_page
from smidgen.selection import Contributions, Found, Pareto, estimate, pareto, search
from smidgen.selection.contributions import read_several
from smidgen.selection.estimates import shipped_contributions, shipped_or_estimated
from smidgen.selection.found import METHODS
from smidgen.selection.methods import EVALUATIONS
from smidgen.selection.refinement import PlanCallback
from smidgen.selection.searching import POINTS, Searcher
from smidgen.targets.boards import parse_size
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
    list[Path] | None,
    path_option(help="What smidgen analyze wrote, by default what ships with the package; of several files the mean."),
]
Estimated = Annotated[bool, typer.Option("--estimate", help="Go by the shapes of layers; needs no contributions.")]
SchemeFile = Annotated[
    Path | None, path_option("--output", "-o", help="The scheme's file to write, or with --pareto the curve's.")
]
Picture = Annotated[
    Path | None, path_option(help="Also draw the scheme and the search, or the curve, in this HTML file.")
]
HowToSearch = Annotated[MethodName, typer.Option(help="How to search.")]
Evaluations = Annotated[int, typer.Option(help="Candidates that an evolutionary or random search tries.")]
Analytic = Annotated[
    bool, typer.Option("--analytic", help="Let the budget be for the paper's analytic sum, not for planned SRAM.")
]
Curve = Annotated[
    bool, typer.Option("--pareto", help="The best schemes for all budgets from the head alone up to this one.")
]
Points = Annotated[int, typer.Option(help="With --pareto: for so many budgets.")]


@app.command("search")
@with_learning
def search_(
    context: typer.Context,
    model: Model,
    budget: Budget,
    contributions: ContributionsFile = None,
    estimated: Estimated = False,
    output: SchemeFile = None,
    picture: Picture = None,
    target: TargetName = "cortex-m7",
    image: Input = ImageInput.streamed,
    method: HowToSearch = MethodName.exact,
    evaluations: Evaluations = EVALUATIONS,
    analytic: Analytic = False,
    curve: Curve = False,
    points: Points = POINTS,
    *,
    learning: Learning,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Find the scheme that promises the most accuracy within a budget."""
    for path in filter(None, (output, picture)):
        check_file(path, force)
    if curve and method is not MethodName.exact:
        raise InputError(f"a curve is searched for exactly, not by {method.value} search; leave --method out")
    with spinner(f"reading {model}"):
        graph = load(model, memory_bytes(memory))
        check_int8(graph, model)
        known = _known(graph, contributions, estimated, learning)
    options, streamed = learning.options(learning.classes or known.conditions.classes), image is ImageInput.streamed
    with _status(context, model) as on_plan:
        if curve:
            result: Found | Pareto = pareto(
                graph, known, budget, target, options=options, analytic=analytic, streamed_input=streamed,
                points=points, on_plan=on_plan,
            )  # fmt: skip
        else:
            searcher = Searcher(graph, known, target, options, analytic, streamed, on_plan)
            find = partial(searcher.search, parse_size(budget), evaluations=evaluations, seed=learning.seed)
            result = find(method.value)
        others = [find(other) for other in METHODS if other != method.value] if picture and not curve else []
        page = _page(graph, result, others, options) if picture else b""
    if output:
        text = result.scheme.to_json() if isinstance(result, Found) else as_text(result)
        write_whole(output, text.encode() + b"\n")
    if picture:
        write_whole(picture, page)
    show(result, as_json)


def _known(graph: Graph, contributions: list[Path] | None, estimated: bool, learning: Learning) -> Contributions:
    """The contributions to search on: those of a file, an estimate, or those that ship."""
    if not estimated:
        return read_several(contributions) if contributions else shipped_contributions(graph)
    if contributions:
        raise InputError(f"--estimate goes by the shapes of layers, not by {contributions[0]}; leave one of them out")
    if learning.classes is None:
        raise InputError(f"an estimate does not say how many classes {graph.name} is to learn; give --classes")
    return estimate(graph)


@contextmanager
def _status(context: typer.Context, model: str) -> Iterator[PlanCallback]:
    """How many schemes were planned so far, on stderr; how to begin anew, where it is interrupted."""
    anew = f"a search keeps nothing; begin anew with {same_command(context)}"
    with going_on(lambda: anew), progress_console().status(Text(printable(f"searching for {model}"))) as status:
        yield lambda planned: status.update(Text(printable(f"searching for {model}: {planned} schemes planned")))


def _page(graph: Graph, result: Found | Pareto, others: list[Found], options: Options) -> bytes:
    if isinstance(result, Pareto):
        return pareto_page(graph, result, options).encode()
    return search_page(graph, [result, *others], options).encode()


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
        known = shipped_or_estimated(graph)
        found = search(graph, known, budget, target, options=options, streamed_input=streamed_input)
    if not known.measured:
        warn(
            f"what the layers of {graph.name} are worth was not measured; a rule about their shapes chose. To measure "
            f"it: smidgen analyze {graph.name} --data DATA -o contributions.json, then smidgen search"
        )
    say(str(found), err=True)
    return found.scheme
