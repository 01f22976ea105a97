"""The verb quantize."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from smidgen.cli.shared import MEMORY_TEXT, Json, Memory, app, memory_bytes, print_rich, show, spinner
from smidgen.data import load_images
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.ir import Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.quantization import Progress as Heard
from smidgen.quantization import Recipe, quantize
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
    """What becomes of images of another shape."""

    crop = "crop"
    stretch = "stretch"


@app.command("quantize")
def quantize_(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A float32 model file: .onnx, .pt2, .tflite or .smg.")],
    source: Annotated[str, typer.Option("--data", help="Images, in folders or not: a folder, a .zip, an .npz.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="model.smg, model.tflite or model.onnx.")],
    images: Annotated[int, typer.Option(help="Images to take at most, evenly from all.")] = 128,
    method: Annotated[Method, typer.Option(help="How ranges are found.")] = Method.mse,
    percentile: Annotated[float, typer.Option(help="Share of the elements that the method percentile keeps.")] = 99.99,
    mean: Annotated[str | None, typer.Option(help="Mean of the pixels, one number or one a channel: 0.5,0.4,…")] = None,
    std: Annotated[str | None, typer.Option(help="Deviation of the pixels, likewise.")] = None,
    pixels: Annotated[str | None, typer.Option(help="Numbers of pixels 0 and 255 before mean and std: 0,1.")] = None,
    order: Annotated[Order | None, typer.Option(help="Channels as the network sees them.")] = None,
    fit: Annotated[Fit | None, typer.Option(help="What becomes of images of another shape.")] = None,
    equalise: Annotated[bool, typer.Option("--equalise/--no-equalise", help="Bring channels to one range.")] = True,
    correct: Annotated[bool, typer.Option("--correct/--no-correct", help="Mend biases by the mean error.")] = True,
    layers: Annotated[bool, typer.Option("--layers", help="Show every layer's signal to noise, too.")] = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Turn a float32 model into int8, calibrated on images, and say how well it follows."""
    check_writable(output)
    if images < 1:
        raise InputError(f"{images} images cannot be taken; give 8 at least, about 100")
    recipe = Recipe(method.value, percentile, equalise, correct)
    recipe.check()
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, given = load(model, most), load_images(source, images, most)
    stated = _stated(graph, mean, std, pixels, order, fit)
    with _bar() as hear:
        result = quantize(graph, given, recipe, preprocessing=stated, hear=hear)
    export_model(result.graph, output)
    if layers and not as_json:
        print_rich(result.report.table())
    show(QuantizedFile(str(output), output.stat().st_size, result.graph.preprocessing, result.report), as_json)


def _stated(
    graph: Graph, mean: str | None, std: str | None, pixels: str | None, order: Order | None, fit: Fit | None
) -> Preprocessing | None:
    """The model's preprocessing with what the options say instead; None where they say nothing."""
    if all(option is None for option in (mean, std, pixels, order, fit)):
        return None
    was = graph.preprocessing or Preprocessing()
    ends = was.range if pixels is None else _numbers("--pixels", pixels)
    if len(ends) != 2:
        raise InputError(f"--pixels {pixels} does not name the numbers of pixels 0 and 255; give two, as 0,1")
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
        raise InputError(f"{option} {text[:40]} is no list of numbers; give them as 0.5,0.4,0.4") from None


@contextmanager
def _bar() -> Iterator[Callable[[Heard], None]]:
    """A bar on stderr, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting")
        yield lambda heard: bar.update(task, description=heard.doing, completed=heard.done, total=heard.total)
