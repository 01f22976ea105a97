"""The verb that measures what is worth training: analyze."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from smidgen.cli.interrupting import going_on, same_command
from smidgen.cli.learning import ImageSource, ShortSide, parse_rate
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Audio,
    Force,
    Json,
    LabelColumns,
    Memory,
    Model,
    app,
    check_file,
    check_int8,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import progress_console, spinner, warn
from smidgen.data import load_data
from smidgen.data.audio import with_front_end
from smidgen.data.files import write_whole
from smidgen.data.images import SHORT_SIDE
from smidgen.results.choices import contributions_page, summarize
from smidgen.selection.analysis import MOST, AnalysisProgress, analyze, journal_path
from smidgen.zoo.loading import load


@app.command("analyze")
def analyze_(
    context: typer.Context,
    model: Model,
    source: ImageSource,
    output: Annotated[Path, path_option("--output", "-o", help="The file of contributions to write.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Bound the work to 100,000 steps; says what it leaves out.")
    ] = (False),
    target: Annotated[str | None, typer.Option(help="host (this machine's cores) or cuda (a GPU).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes to use; one for each core unless given.")] = None,
    ray: Annotated[
        str | None, typer.Option(help="Run on a Ray cluster: auto, or its address such as host:6379.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each kind, whose mean counts.")] = 1,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a run; by the number of images unless given.")] = None,
    learning_rate: Annotated[
        str, typer.Option(help="Learning rate per sample: a number or a quotient such as 0.4/256.")
    ] = "1/256",
    limit: Annotated[int | None, typer.Option(help="Learn from at most so many images.")] = None,
    most: Annotated[str, typer.Option(help="Leave out what takes more analytic memory than this.")] = MOST,
    reach: Annotated[int | None, typer.Option(help="Try the last so many layers alone.")] = None,
    picture: Annotated[Path | None, path_option(help="Also draw the contributions in this HTML file.")] = None,
    audio: Audio = None,
    short_side: ShortSide = SHORT_SIDE,
    label: LabelColumns = None,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Measure by training what each depth of biases and each layer's weights add to accuracy."""
    for path in (output, *([picture] if picture else [])):
        check_file(path, force)
    rate = parse_rate(learning_rate)
    with spinner(f"reading {source}"):
        room = memory_bytes(memory)
        graph, data = load(model, room), load_data(source, room, short_side, label)
        data.check_several()
        graph = with_front_end(graph, data.train.images, audio)
    check_int8(graph, model, source)
    with going_on(lambda: _kept(context, output)), _progress_bar(output) as on_progress:
        found = analyze(
            graph, data, output=output, quick=quick, seeds=seeds, epochs=epochs, learning_rate=rate, limit=limit,
            most=most, reach=reach, target=target, workers=workers, ray=ray, on_progress=on_progress,
        )  # fmt: skip
    if picture:
        write_whole(picture, contributions_page(found).encode())
    show(summarize(found, graph, str(output), str(picture) if picture else None), as_json)


def _kept(context: typer.Context, output: Path) -> str:
    """What an interrupted analysis leaves, and how it goes on."""
    journal = journal_path(output)
    kept = f"the runs that are done are kept in {journal}" if journal.exists() else "no run was done yet"
    return f"{kept}; go on with {same_command(context)}"


@contextmanager
def _progress_bar(output: Path) -> Iterator[Callable[[AnalysisProgress], None]]:
    """Runs done and the time the rest will take, on stderr where that is a terminal."""
    console = progress_console()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} runs", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("analyzing", total=1)

        def on_progress(progress: AnalysisProgress) -> None:
            if progress.done == progress.found and not progress.part:
                if progress.found:
                    warn(f"{progress.found} of {progress.total} runs were found in {journal_path(output)}")
                bar.reset(task, total=progress.total, completed=progress.found)
            bar.update(task, completed=progress.done + progress.part)

        yield on_progress
