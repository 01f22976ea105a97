"""The verbs analyze and search."""

from __future__ import annotations

from functools import partial
from typing import get_args

from smidgen.cli import verbs
from smidgen.cli.options import SearchMethod
from smidgen.cli.shared import check_file, check_int8, learning_options, load_model, parse_rate, read_both
from smidgen.cli.terminal import as_text, going_on, progress, show, spinner, warn
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.results.choices import contributions_page, pareto_page, search_page, summarize
from smidgen.selection import Contributions, Found, Pareto, estimate, pareto
from smidgen.selection.analysis import AnalysisProgress, analyze, journal_path
from smidgen.selection.contributions import read_several
from smidgen.selection.estimates import shipped_contributions
from smidgen.selection.searching import Searcher
from smidgen.targets.boards import parse_size


def analyze_(asked: verbs.Analyze) -> None:
    check_file(asked.output, asked.force)
    check_file(asked.picture, asked.force)
    rate = parse_rate(asked.learning_rate)
    graph, data = read_both(asked)
    data.check_several()
    check_int8(graph, asked.model, asked.source)
    journal = journal_path(asked.output)

    def show_runs(at: AnalysisProgress) -> None:
        if at.found and at.done == at.found and not at.part:
            warn(f"{at.found} of {at.total} runs were found in {journal}")
        bar.update(at.done + at.part, at.total, detail=f"{at.done} of {at.total} runs")

    kept = partial(asked.kept, journal, "the runs that are done are", "no run was done yet")
    with going_on(kept), progress("analyzing") as bar:
        found = analyze(
            graph, data, output=asked.output, quick=asked.quick, seeds=asked.seeds, epochs=asked.epochs,
            learning_rate=rate, limit=asked.limit, most=asked.most, reach=asked.reach, target=asked.target,
            workers=asked.workers, ray=asked.ray, on_progress=show_runs,
        )  # fmt: skip
    if asked.picture:
        write_whole(asked.picture, contributions_page(found).encode())
    picture = str(asked.picture) if asked.picture else None
    show(summarize(found, graph, str(asked.output), picture), asked.as_json)


def search_(asked: verbs.Search) -> None:
    check_file(asked.output, asked.force)
    check_file(asked.picture, asked.force)
    if asked.curve and asked.method != "exact":
        raise InputError(f"a curve is searched for exactly, not by {asked.method} search; leave --method out")
    with spinner(f"reading {asked.model}"):
        graph = load_model(asked, asked.model)
        check_int8(graph, asked.model)
        known = _known(asked, graph)
    options, streamed = learning_options(asked, asked.classes or known.conditions.classes), asked.image == "streamed"
    restart, searching = f"a search keeps nothing; start again with {asked.again()}", f"searching for {asked.model}"
    with going_on(lambda: restart), spinner(searching) as status:

        def on_plan(planned: int) -> None:
            status(f"{searching}: {planned} schemes planned")

        result: Found | Pareto
        if asked.curve:
            result = pareto(
                graph, known, asked.budget, asked.target, options=options, analytic=asked.analytic,
                streamed_input=streamed, points=asked.points, on_plan=on_plan,
            )  # fmt: skip
            page = pareto_page(graph, result, options) if asked.picture else ""
        else:
            searcher = Searcher(graph, known, asked.target, options, asked.analytic, streamed, on_plan)
            find = partial(searcher.search, parse_size(asked.budget), evaluations=asked.evaluations, seed=asked.seed)
            others = [method for method in get_args(SearchMethod) if method != asked.method] if asked.picture else []
            found = [find(method) for method in (asked.method, *others)]
            result, page = found[0], search_page(graph, found, options) if asked.picture else ""
    if asked.output:
        text = result.scheme.to_json() if isinstance(result, Found) else as_text(result)
        write_whole(asked.output, text.encode() + b"\n")
    if asked.picture:
        write_whole(asked.picture, page.encode())
    show(result, asked.as_json)


def _known(asked: verbs.Search, graph: Graph) -> Contributions:
    """Return the contributions to search with: those of files, an estimate, or those that ship."""
    if not asked.estimated:
        return read_several(asked.contributions) if asked.contributions else shipped_contributions(graph)
    if asked.contributions:
        raise InputError(f"--estimate uses the shapes of layers, not {asked.contributions[0]}; leave one of them out")
    if asked.classes is None:
        raise InputError(f"an estimate does not say how many classes {graph.name} is to learn; give --classes")
    return estimate(graph)
