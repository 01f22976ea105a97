"""Verbs that say how good a model is: test and predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from smidgen.cli.learning import ShortSide
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
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import progress_console, say, spinner
from smidgen.data import load_data
from smidgen.data.files import write_whole
from smidgen.data.images import SHORT_SIDE
from smidgen.inference import InferenceProgress, predict, test
from smidgen.inference.predicting import TOP
from smidgen.results.report.learned import draw_tested
from smidgen.zoo.loading import load

Where = Annotated[
    str | None,
    typer.Option(
        help="host (C on this machine, the default), reference (numpy, as for float32 models), or a board: cortex-m7, …"
    ),
]


@app.command("test")
def test_(
    model: Model,
    source: Annotated[
        str, typer.Option("--data", help="As for train; its test samples are used, or every fifth where it has none.")
    ],
    target: Where = None,
    images: Annotated[int | None, typer.Option(help="Test with so many samples, evenly from all of them.")] = None,
    output: Annotated[Path | None, path_option("--output", "-o", help="Also write an HTML page with pictures.")] = None,
    audio: Audio = None,
    label: LabelColumns = None,
    short_side: ShortSide = SHORT_SIDE,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Test a model: accuracy, precision and recall by class, confusion; or errors where there are no classes."""
    if output:
        check_file(output, force)
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, data = load(model, most), load_data(source, most, short_side, label)
    with progress_bar(f"testing {graph.name}") as on_progress:
        tested = test(graph, data, target=target, images=images, audio=audio, on_progress=on_progress)
    if output:
        write_whole(output, draw_tested(tested).encode())
    show(tested, as_json)
    if output and not as_json:
        say(f"drawn in {output}")


@app.command("predict")
def predict_(
    model: Model,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DIR",
            help="A photograph, sound or recording, a folder or .zip of them, or rows (.npy .npz .csv).",
        ),
    ],
    target: Where = None,
    top: Annotated[int, typer.Option(help="How many of the likeliest classes to show.")] = TOP,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Show the outputs as numbers: they are not scores of classes.")
    ] = False,
    audio: Audio = None,
    label: LabelColumns = None,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Say what a model sees: classes by name with probabilities, cells of a map, numbers, or reconstruction errors."""
    with spinner(f"reading {model}"):
        graph = load(model, memory_bytes(memory))
    with progress_bar(f"running {graph.name}") as on_progress:
        found = predict(
            graph, source, target=target, top=top, numbers=numbers, label=label, audio=audio,
            memory=memory_bytes(memory), on_progress=on_progress,
        )  # fmt: skip
    show(found, as_json)


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[InferenceProgress], None]]:
    """A bar on stderr, where that is a terminal."""
    console = progress_console()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda at: bar.update(task, completed=at.done, total=at.total)
