"""Verbs that do everything: fit and demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from smidgen.cli.demonstration import demonstrate
from smidgen.cli.interrupting import going_on, same_command
from smidgen.cli.learning import Crop, ImageSource, ShortSide
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Audio,
    Force,
    Json,
    LabelColumns,
    Memory,
    Model,
    Sizes,
    app,
    input_shapes,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import progress_console, spinner, warn
from smidgen.data import Augment, load_data
from smidgen.data.audio import with_front_end
from smidgen.data.images import SHORT_SIDE
from smidgen.fitting import FitProgress, fit
from smidgen.selection.contributions import read_several
from smidgen.zoo.loading import load


class AnalysisKind(StrEnum):
    """How thoroughly contributions are measured."""

    quick = "quick"
    full = "full"


class Machine(StrEnum):
    """Where trials and learning run."""

    host = "host"
    cuda = "cuda"


@app.command("fit")
def fit_(
    context: typer.Context,
    model: Model,
    source: ImageSource,
    output: Annotated[Path, path_option("--output", "-o", help="The folder for everything; stages there are reused.")],
    budget: Annotated[
        str, typer.Option(help="All SRAM of the program, such as 128KB (1 KB is 1,024 bytes).")
    ] = "128KB",
    target: Annotated[str, typer.Option(help="A board: cortex-m7, stm32f746, esp32-c3, …")] = "cortex-m7",
    epochs: Annotated[int | None, typer.Option(help="Epochs to learn; by the number of images unless given.")] = None,
    crop: Crop = None,
    contributions: Annotated[
        list[Path] | None,
        path_option(help="What smidgen analyze wrote; of several files the mean."),
    ] = None,
    analysis: Annotated[
        AnalysisKind | None, typer.Option("--analyze", help="Measure what each part adds, even if that is known.")
    ] = None,
    machine: Annotated[Machine, typer.Option("--on", help="Where trials and learning run.")] = Machine.host,
    seed: Annotated[int, typer.Option(help="Fixes the head's first weights, the order and the crops.")] = 0,
    shape: Sizes = None,
    audio: Audio = None,
    short_side: ShortSide = SHORT_SIDE,
    label: LabelColumns = None,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """From a model and images to C that learns within a budget: quantize, analyze, search, train, profile, compile."""
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, data = load(model, most, input_shapes(shape)), load_data(source, most, short_side, label)
        data.check_several()
        graph = with_front_end(graph, data.train.images, audio)
        known = read_several(contributions) if contributions else None
    with going_on(lambda: _kept(context, output)), fit_bar() as on_progress:
        augment = None if crop is None else Augment((crop, 1.0))
        fitted = fit(
            graph, data, output, budget=budget, target=target, epochs=epochs, augment=augment, seed=seed,
            contributions=known, analysis=analysis.value if analysis else None, where=machine.value,
            command=same_command(context), force=force, on_progress=on_progress,
        )  # fmt: skip
    for warning in fitted.learned.warnings:
        warn(warning)
    show(fitted, as_json)


def _kept(context: typer.Context, output: Path) -> str:
    """What an interrupted fit leaves, and how it goes on."""
    kept = f"the stages that are done are kept in {output}" if output.exists() else "no stage was done yet"
    return f"{kept}; go on with {same_command(context)}"


@app.command()
def demo(
    context: typer.Context,
    output: Annotated[Path, path_option("--output", "-o", help="The folder to write.")] = Path("out/demo"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a network that ships to images that ship, and let an emulated board learn the same bytes."""
    with going_on(lambda: _kept(context, output)), fit_bar() as on_progress:
        result = demonstrate(output, on_progress, force, same_command(context))
    show(result, as_json)


@contextmanager
def fit_bar() -> Iterator[Callable[[FitProgress], None]]:
    """The stage under way and how far it is, on stderr where that is a terminal."""
    console = progress_console()
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task, shown = bar.add_task("starting", total=None), [""]

        def on_progress(at: FitProgress) -> None:
            words = f"{at.stage}: {at.doing}" if at.doing else at.stage
            if at.stage != shown[0]:
                shown[0] = at.stage
                bar.reset(task, total=None)
            bar.update(task, description=words, completed=at.done, total=at.total or None)

        yield on_progress
