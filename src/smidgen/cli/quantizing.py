"""The verb quantize."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from smidgen.cli.shared import (
    MEMORY_TEXT,
    Audio,
    Force,
    Json,
    LabelColumns,
    Memory,
    Sizes,
    app,
    check_file,
    input_shapes,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import print_rich, progress_console, spinner
from smidgen.data import Labelled, Samples, load_images, load_labelled
from smidgen.data.audio import with_front_end
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.ir import Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.quantization import CONVENTIONS, QuantizationProgress, Recipe, quantize, scored_classes
from smidgen.results.summaries import QuantizedFile
from smidgen.zoo.loading import load

TESTED = 256  # labelled samples at most
PIXELS = (
    "What pixels 0 and 255 stand for, before mean and deviation: 0,255 or 0,1 or -1,1; or imagenet, caffe. Found out "
    "where left out."
)


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


ShowLayers = Annotated[bool, typer.Option("--layers", help="Also show the signal-to-noise ratio of every layer.")]


@app.command("quantize")
def quantize_(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A float32 model file: .onnx, .pt2, .tflite or .smg.")],
    source: Annotated[str, typer.Option("--data", help="Calibration samples: whatever train learns from.")],
    output: Annotated[Path, path_option("--output", "-o", help="The file to write: .smg, .tflite or .onnx.")],
    images: Annotated[int, typer.Option(help="How many samples to use at most, evenly spaced.")] = 128,
    method: Annotated[Method, typer.Option(help="Calibration method that finds the ranges.")] = Method.mse,
    percentile: Annotated[float, typer.Option(help="Percent of elements that --method percentile keeps.")] = 99.99,
    mean: Annotated[
        str | None, typer.Option(help="Mean of the pixels: one number, or one per channel, as in 0.5,0.4,0.4.")
    ] = None,
    std: Annotated[str | None, typer.Option(help="Standard deviation of the pixels, given like --mean.")] = None,
    pixels: Annotated[str | None, typer.Option(help=PIXELS)] = None,
    order: Annotated[Order | None, typer.Option(help="Order of the channels the network expects.")] = None,
    fit: Annotated[Fit | None, typer.Option(help="Crop or stretch images of another shape.")] = None,
    equalise: Annotated[
        bool, typer.Option("--equalise/--no-equalise", help="Cross-layer equalization of channel ranges.")
    ] = True,
    correct: Annotated[
        bool, typer.Option("--correct/--no-correct", help="Bias correction by each channel's mean error.")
    ] = True,
    label: LabelColumns = None,
    shape: Sizes = None,
    layers: ShowLayers = False,
    audio: Audio = None,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Quantize a float32 model to int8, calibrated on samples, and report how close it stays."""
    check_writable(output)
    check_file(output, force)
    _check_number(images)
    recipe = Recipe(method.value, percentile, equalise, correct).checked()
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, given = load(model, most, input_shapes(shape)), load_images(source, images, most, label)
        graph = with_front_end(graph, given, audio)
        known = load_labelled(source, TESTED, most, label)
    seen = PixelOptions(mean, std, pixels, order, fit)
    with quantization_bar() as on_progress:
        result = quantize(
            graph, given, recipe, labelled=_of_its_classes(graph, known), preprocessing=seen.preprocessing(graph),
            conventions=seen.conventions(), on_progress=on_progress,
        )  # fmt: skip
    export_model(result.graph, output)
    if layers and not as_json:
        print_rich(result.report.table())
    size = output.stat().st_size
    show(QuantizedFile(str(output), size, result.graph.preprocessing, result.pixels, result.report), as_json)


def _check_number(images: int) -> None:
    if images < 1:
        raise InputError(f"{images} images are too few; give at least 8, better about 100")


def _of_its_classes(graph: Graph, known: Labelled | None) -> Samples | None:
    """Labelled images where there are as many classes as the model scores."""
    return known.samples if known is not None and len(known.classes) == scored_classes(graph) else None


@dataclass(frozen=True)
class PixelOptions:
    """What the command line says of pixels; None where it says nothing."""

    mean: str | None
    std: str | None
    pixels: str | None
    order: Order | None
    fit: Fit | None

    def preprocessing(self, graph: Graph) -> Preprocessing | None:
        """What they and the model say together; None where neither says which numbers pixels stand for."""
        was = graph.preprocessing if isinstance(graph.preprocessing, Preprocessing) else None
        if self.pixels is not None and self.pixels in CONVENTIONS:
            was = CONVENTIONS[self.pixels]
        elif self.pixels is not None:
            was = Preprocessing((0.0,), (1.0,), range=self._range(self.pixels))
        elif was is None and (self.mean is not None or self.std is not None):
            was = Preprocessing()
        elif self._changes_nothing():
            return None
        if was is None:
            return None
        mean = was.mean if self.mean is None else _numbers("--mean", self.mean)
        return self._arranged(replace(was, mean=mean, std=was.std if self.std is None else _numbers("--std", self.std)))

    def conventions(self) -> dict[str, Preprocessing]:
        """The usual ones in the order and shape that the options say."""
        return {name: self._arranged(usual) for name, usual in CONVENTIONS.items()}

    def _arranged(self, was: Preprocessing) -> Preprocessing:
        order = was.order if self.order is None else self.order.value
        return replace(was, order=order, fit=was.fit if self.fit is None else self.fit.value)

    def _changes_nothing(self) -> bool:
        return all(option is None for option in (self.mean, self.std, self.order, self.fit))

    def _range(self, text: str) -> tuple[float, float]:
        ends = _numbers("--pixels", text)
        if len(ends) != 2:
            names = ", ".join(name for name in CONVENTIONS if name.isalpha())
            raise InputError(
                f"--pixels {text[:40]} must be the two numbers that pixels 0 and 255 stand for, such as 0,1, or one of "
                f"{names}"
            )
        return ends[0], ends[1]


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text[:40]} is not a list of numbers; write them like 0.5,0.4,0.4") from None


@contextmanager
def quantization_bar() -> Iterator[Callable[[QuantizationProgress], None]]:
    """A bar on stderr, where that is a terminal."""
    console = progress_console()
    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting")
        yield lambda at: bar.update(task, description=at.doing, completed=at.done, total=at.total)
