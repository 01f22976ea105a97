"""Verbs on models: info, run, import."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from smidgen.cli.shared import (
    MEMORY_TEXT,
    Force,
    Json,
    Memory,
    Model,
    Sizes,
    app,
    check_file,
    input_shapes,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import spinner
from smidgen.data.files import parse_npy, read_whole, write_whole
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.ir import Array, Graph, check_inputs, evaluate
from smidgen.pipeline import compile, with_classes
from smidgen.results.inspection import describe
from smidgen.results.summaries import RunSummary, WrittenModel, largest
from smidgen.zoo.loading import load

LARGEST_NAMES = 2**22  # bytes of a file of names


@app.command()
def info(model: Model, shape: Sizes = None, memory: Memory = MEMORY_TEXT, as_json: Json = False) -> None:
    """Show the layers of a model: shapes, MACs, parameters, quantization."""
    show(describe(load(model, memory_bytes(memory), input_shapes(shape))), as_json)


@app.command()
def run(
    model: Model,
    inputs: Annotated[list[Path], path_option("--input", "-i", help="A .npy file for each input, in order.")],
    outputs: Annotated[list[Path] | None, path_option("--output", "-o", help="A .npy file for each output.")] = None,
    target: Annotated[
        str, typer.Option(help="Where to run: reference (numpy), host (this machine's C), or a board.")
    ] = "reference",
    shape: Sizes = None,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Run a model on raw tensors."""
    for path in outputs or ():
        check_file(path, force)
    graph = load(model, memory_bytes(memory), input_shapes(shape))
    files: list[Path] | list[None] = outputs or [None] * len(graph.outputs)
    arrays = tuple(parse_npy(read_whole(path, memory_bytes(memory)), str(path)) for path in inputs)
    check_inputs(graph, arrays)
    if len(files) != len(graph.outputs):
        raise InputError(
            f"{graph.name} has {len(graph.outputs)} outputs, {len(files)} files were given for them; give one per "
            "output, or none"
        )
    with spinner(f"running {graph.name} on {target}"):
        results = _compute(graph, arrays, target)
    for file, array in zip(files, results, strict=True):
        if file:
            _write_npy(file, array)
    shown = [
        largest(value, array, str(file) if file else None)
        for value, array, file in zip(graph.outputs, results, files, strict=True)
    ]
    show(RunSummary(graph.name, target, tuple(shown)), as_json)


def _compute(graph: Graph, arrays: tuple[Array, ...], target: str) -> tuple[Array, ...]:
    if target == "reference":
        return evaluate(graph, *arrays)
    with compile(graph, target=target).start() as device:
        return device.run(*arrays)


def _write_npy(path: Path, array: Array) -> None:
    data = BytesIO()
    np.save(data, array, allow_pickle=False)
    write_whole(path, data.getvalue())


def _names(text: str) -> tuple[str, ...]:
    """The names in a file, a line each, or in a list parted by commas."""
    path = Path(text)
    if "," in text or not path.is_file():
        return tuple(name.strip() for name in text.split(","))
    try:
        return tuple(line.strip() for line in read_whole(path, LARGEST_NAMES).decode().splitlines() if line.strip())
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text; give a file with the name of a class on each line") from None


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A model file, or a network of the zoo.")],
    output: Annotated[Path, path_option("--output", "-o", help="The file to write: .smg, .tflite or .onnx.")],
    plain: Annotated[
        bool, typer.Option("--plain", help="model.onnx with only ONNX's own operators: faster, rounded by the runtime.")
    ] = False,
    classes: Annotated[
        str | None, typer.Option(help="Name what the model scores, in order: cat,dog, or a text file with a line each.")
    ] = None,
    shape: Sizes = None,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Read a model of another format and write it as .smg, .tflite or .onnx."""
    check_writable(output, plain)
    check_file(output, force)
    with spinner(f"importing {source}"):
        graph = load(source, memory_bytes(memory), input_shapes(shape))
        if classes is not None:
            graph = with_classes(graph, _names(classes))
        export_model(graph, output, plain)
    size, summary = output.stat().st_size, describe(graph)
    result = WrittenModel(
        graph.name, str(output), size, len(summary.layers), summary.macs, summary.parameters, graph.notes
    )
    show(result, as_json)
