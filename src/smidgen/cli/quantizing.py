"""The verb quantize."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from smidgen.cli.shared import MEMORY_TEXT, Json, Memory, app, memory_bytes, path_option, show
from smidgen.cli.terminal import print_rich, progress_console, spinner
from smidgen.data import load_images
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.ir import Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.quantization import QuantizationProgress, Recipe, quantize
from smidgen.results.verbs import QuantizedFile
from smidgen.zoo.loading import load


class Method(StrEnum):
    """How ranges are found."""

    minmax = "minmax"
    average = "average"
    percentile = "percentile"
    mse = "mse"


class Order(StrEnum):
    """Channels as the network sees them."""

    rgb = "rgb"
    bgr = "bgr"
    gray = "gray"


class Fit(StrEnum):
    """How images of another shape are made to fit."""

    crop = "crop"
    stretch = "stretch"


@app.command("quantize")
def quantize_(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A float32 model file: .onnx, .pt2, .tflite or .smg.")],
    source: Annotated[str, typer.Option("--data", help="Calibration images: a folder, a data set, a .zip or an .npz.")],
    output: Annotated[Path, path_option("--output", "-o", help="The file to write: .smg, .tflite or .onnx.")],
    images: Annotated[int, typer.Option(help="How many images to use at most, evenly spaced.")] = 128,
    method: Annotated[Method, typer.Option(help="Calibration method that finds the ranges.")] = Method.mse,
    percentile: Annotated[float, typer.Option(help="Percent of elements that --method percentile keeps.")] = 99.99,
    mean: Annotated[
        str | None, typer.Option(help="Mean of the pixels: one number, or one per channel, as in 0.5,0.4,0.4.")
    ] = None,
    std: Annotated[str | None, typer.Option(help="Standard deviation of the pixels, given like --mean.")] = None,
    pixels: Annotated[
        str | None, typer.Option(help="What pixels 0 and 255 stand for, before mean and std: 0,1.")
    ] = None,
    order: Annotated[Order | None, typer.Option(help="Order of the channels the network expects.")] = None,
    fit: Annotated[Fit | None, typer.Option(help="Crop or stretch images of another shape.")] = None,
    equalise: Annotated[
        bool, typer.Option("--equalise/--no-equalise", help="Cross-layer equalization of channel ranges.")
    ] = True,
    correct: Annotated[
        bool, typer.Option("--correct/--no-correct", help="Bias correction by each channel's mean error.")
    ] = True,
    layers: Annotated[
        bool, typer.Option("--layers", help="Also show the signal-to-noise ratio of every layer.")
    ] = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Quantize a float32 model to int8, calibrated on images, and report how close it stays."""
    check_writable(output)
    if images < 1:
        raise InputError(f"{images} images are too few; give at least 8, better about 100")
    recipe = Recipe(method.value, percentile, equalise, correct)
    recipe.check()
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, given = load(model, most), load_images(source, images, most)
    stated = _chosen_preprocessing(graph, mean, std, pixels, order, fit)
    with _progress_bar() as on_progress:
        result = quantize(graph, given, recipe, preprocessing=stated, on_progress=on_progress)
    export_model(result.graph, output)
    if layers and not as_json:
        print_rich(result.report.table())
    show(QuantizedFile(str(output), output.stat().st_size, result.graph.preprocessing, result.report), as_json)


def _chosen_preprocessing(
    graph: Graph, mean: str | None, std: str | None, pixels: str | None, order: Order | None, fit: Fit | None
) -> Preprocessing | None:
    """The model's preprocessing with what the options say instead; None where they say nothing."""
    if all(option is None for option in (mean, std, pixels, order, fit)):
        return None
    was = graph.preprocessing or Preprocessing()
    ends = was.range if pixels is None else _numbers("--pixels", pixels)
    if len(ends) != 2:
        raise InputError(f"--pixels {pixels} must be the two numbers that pixels 0 and 255 stand for, such as 0,1")
    return Preprocessing(
        was.mean if mean is None else _numbers("--mean", mean),
        was.std if std is None else _numbers("--std", std),
        was.order if order is None else order.value,
        (ends[0], ends[1]),
        was.fit if fit is None else fit.value,
    )


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text[:40]} is not a list of numbers; write them like 0.5,0.4,0.4") from None


@contextmanager
def _progress_bar() -> Iterator[Callable[[QuantizationProgress], None]]:
    """A bar on stderr, where that is a terminal."""
    console = progress_console()
    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting")
        yield lambda at: bar.update(task, description=at.doing, completed=at.done, total=at.total)
