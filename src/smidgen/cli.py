"""The command line: each verb calls one stage and shows the result object it returns."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
import typer
from rich.console import Console, RichCast
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from smidgen import __version__
from smidgen.data import Augment, Data, examples, load_data
from smidgen.demo import Demonstration, demonstrate
from smidgen.errors import InputError, SmidgenError
from smidgen.frontends import WRITERS, export_model
from smidgen.frontends.files import parse_npy, read_whole, write_whole
from smidgen.frontends.native import write_smg
from smidgen.inspection import Summary, describe
from smidgen.ir import Array, Graph, check_inputs, evaluate
from smidgen.learning import Course, Learned, learn
from smidgen.learning import Progress as Heard
from smidgen.loading import load
from smidgen.pipeline import Program, compile
from smidgen.profiling import Profile, profile
from smidgen.results import Compiled, Run, Taught, Use, Written, largest
from smidgen.targets import find_board
from smidgen.training import Head, Options

WIDTH = 120  # columns, where the output is no terminal

app = typer.Typer(
    help="Train int8 neural networks on microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Image(StrEnum):
    """How a program gets its image."""

    streamed = "streamed"
    buffered = "buffered"


class HeadKind(StrEnum):
    """What a new classifier computes in."""

    float32 = "float32"
    int8 = "int8"


class Schedule(StrEnum):
    """How the learning rate goes."""

    cosine = "cosine"
    constant = "constant"


Model = Annotated[str, typer.Argument(metavar="MODEL", help="A network of the zoo, or a model file.")]
Target = Annotated[str, typer.Option(help="This machine, or a board: host, cortex-m7, cortex-m4, stm32f746, …")]
Input = Annotated[Image, typer.Option("--input", help="The image row by row while it is used, or whole in SRAM.")]
OneScheme = Annotated[str | None, typer.Option(help="What learns; without it the program only infers.")]
Classes = Annotated[int | None, typer.Option(help="Classes to learn.")]
WeightBits = Annotated[int, typer.Option(help="Bits kept of a weight that learns: 8, 10 or 12.")]
HeadType = Annotated[HeadKind, typer.Option("--head", help="Arithmetic of the classifier.")]
Momentum = Annotated[float, typer.Option(help="Momentum, from 0 up to 1.")]
Accumulate = Annotated[int, typer.Option(help="Samples whose gradients make one step.")]
Qas = Annotated[bool, typer.Option("--qas/--no-qas", help="Quantization-aware scaling of gradients.")]
Seed = Annotated[int, typer.Option(help="Fixes the head's first weights, the order and the crops.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

Result = Summary | Run | Written | Compiled | Profile | Taught | Demonstration


def _show(result: Result, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(result), allow_nan=False))
    elif isinstance(result, Summary | Profile):
        _print(result)
    else:
        typer.echo(str(result))


def _print(shown: RichCast | Table) -> None:
    Console(width=None if sys.stdout.isatty() else WIDTH).print(shown)


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """A spinner on stderr; nothing where that is no terminal."""
    with Console(stderr=True).status(text):
        yield


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"smidgen {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    pass


@app.command()
def info(model: Model, as_json: Json = False) -> None:
    """Layers, shapes, MACs, parameters, quantization."""
    _show(describe(load(model)), as_json)


@app.command()
def run(
    model: Model,
    inputs: Annotated[list[Path], typer.Option("--input", "-i", help="A .npy file for each input, in order.")],
    outputs: Annotated[list[Path] | None, typer.Option("--output", "-o", help="A .npy file for each output.")] = None,
    target: Annotated[str, typer.Option(help="Where to compute: reference, host, or a board.")] = "reference",
    as_json: Json = False,
) -> None:
    """Raw tensors through a model."""
    graph = load(model)
    files: list[Path] | list[None] = outputs or [None] * len(graph.outputs)
    arrays = tuple(parse_npy(read_whole(path), str(path)) for path in inputs)
    check_inputs(graph, arrays)
    if len(files) != len(graph.outputs):
        raise InputError(f"{graph.name} has {len(graph.outputs)} outputs, {len(files)} files were named for them")
    with _progress(f"running {graph.name} on {target}"):
        results = _compute(graph, arrays, target)
    for file, array in zip(files, results, strict=True):
        if file:
            _write_npy(file, array)
    shown = [
        largest(value, array, str(file) if file else None)
        for value, array, file in zip(graph.outputs, results, files, strict=True)
    ]
    _show(Run(graph.name, target, tuple(shown)), as_json)


def _compute(graph: Graph, arrays: tuple[Array, ...], target: str) -> tuple[Array, ...]:
    if target == "reference":
        return evaluate(graph, *arrays)
    with compile(graph, target=target).start() as device:
        return device.run(*arrays)


def _write_npy(path: Path, array: Array) -> None:
    data = BytesIO()
    np.save(data, array, allow_pickle=False)
    write_whole(path, data.getvalue())


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A model file, or a network of the zoo.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="model.smg, or model.tflite or model.onnx to export.")],
    as_json: Json = False,
) -> None:
    """Read a model of another format and write it as .smg, .tflite or .onnx."""
    if output.suffix not in WRITERS:
        raise InputError(f"{output} should end in {', '.join(WRITERS)}: those are the files that are written")
    with _progress(f"importing {source}"):
        graph = load(source)
        export_model(graph, output)
    size, summary = output.stat().st_size, describe(graph)
    result = Written(graph.name, str(output), size, len(summary.layers), summary.macs, summary.parameters)
    _show(result, as_json)


def _tflite(graph: Graph) -> bytes:
    from smidgen.frontends.tflite import write_tflite  # here, because its schema takes a while to import

    return write_tflite(graph)


@app.command("compile")
def compile_(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder that is new or empty.")],
    scheme: OneScheme = None,
    target: Target = "host",
    image: Input = Image.buffered,
    budget: Annotated[
        str | None, typer.Option(help="The most SRAM that arena and state may take, as 128KB (of 1,024 bytes each).")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="An HTML file to draw its memory in.")] = None,
    classes: Classes = None,
    weight_bits: WeightBits = 12,
    head: HeadType = HeadKind.float32,
    momentum: Momentum = 0.0,
    accumulate: Accumulate = 1,
    qas: Qas = True,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """C sources, header, example main, and how to build them."""
    options = _options(model, scheme, classes, (weight_bits, qas, momentum, accumulate, head.value, seed))
    with _progress(f"compiling {model} for {target}"):
        streamed = image is Image.streamed
        program = compile(load(model), scheme, target, options=options, streamed_input=streamed, budget=budget)
        page = _drawn(program) if picture else b""
        program.write(output)
        if picture:
            write_whole(picture, page)
    _show(_compiled(program, output, picture), as_json)


def _drawn(program: Program) -> bytes:
    from smidgen.report import draw_memory  # here, because plotly takes a while to import

    return draw_memory(program).encode()


def _options(
    model: str, scheme: str | None, classes: int | None, how: tuple[int, bool, float, int, Head, int]
) -> Options | None:
    """How a program learns; None for one that only infers."""
    if scheme is None:
        if classes is not None:
            raise InputError(f"{classes} classes can only be learned with a scheme; give --scheme")
        return None
    if classes is None:
        raise InputError(f"how many classes {model} shall learn with {scheme} is not said; give --classes")
    return Options(classes, *how)


def _compiled(program: Program, folder: Path, picture: Path | None) -> Compiled:
    memory = program.memory
    return Compiled(
        model=program.graph.name,
        target=program.target.name,
        folder=str(folder),
        files=tuple(sorted(path.name for path in folder.iterdir())),
        peak_bytes=memory.peak,
        lower_bound_bytes=memory.lower_bound,
        state_bytes=memory.state,
        constant_bytes=memory.constants,
        at_peak=tuple(Use(buffer.name, buffer.bytes) for buffer in memory.at_peak),
        picture=str(picture) if picture else None,
    )


@app.command("profile")
def profile_(
    model: Model,
    scheme: OneScheme = None,
    target: Target = "cortex-m7",
    image: Input = Image.streamed,
    steps: Annotated[int, typer.Option(help="Steps to compare with the reference.")] = 3,
    sram: Annotated[str | None, typer.Option(help="SRAM of the board, as 128KB, instead of its own.")] = None,
    flash: Annotated[str | None, typer.Option(help="Flash of the board, as 1MB, instead of its own.")] = None,
    stack: Annotated[str | None, typer.Option(help="SRAM set aside for the stack, as 4KB.")] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show every node, too.")] = False,
    classes: Classes = None,
    weight_bits: WeightBits = 12,
    head: HeadType = HeadKind.float32,
    momentum: Momentum = 0.0,
    accumulate: Accumulate = 1,
    qas: Qas = True,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """SRAM, flash, instructions and exactness, measured on an emulated board."""
    options = _options(model, scheme, classes, (weight_bits, qas, momentum, accumulate, head.value, seed))
    where = find_board(target, sram, flash, stack)
    with _progress(f"compiling {model} for {target}"):
        program = compile(load(model), scheme, where, options=options, streamed_input=image is Image.streamed)
    with _progress(f"measuring {program.graph.name} on {target}"):
        result = profile(program, steps, seed)
    if layers and not as_json:
        _print(result.layers())
    _show(result, as_json)


@app.command()
def train(
    model: Model,
    scheme: Annotated[str, typer.Option(help="What learns: a published name, a file, full, last:K, bias:K or head.")],
    source: Annotated[Path, typer.Option("--data", help="A folder of images by label, a .zip of one, or an .npz.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the model and its checkpoint.")],
    target: Target = "host",
    classes: Classes = None,
    epochs: Annotated[int, typer.Option(help="Times every image is seen.")] = 12,
    lr: Annotated[str, typer.Option(help="Learning rate of one sample; a quotient such as 0.1/256 is taken.")] = (
        "0.1/256"
    ),
    schedule: Annotated[Schedule, typer.Option(help="How the rate goes.")] = Schedule.cosine,
    warmup: Annotated[float, typer.Option(help="Epochs over which the rate rises.")] = 0.0,
    crop: Annotated[float, typer.Option(help="Least share of an image that a crop keeps; 1: no random crops.")] = 0.08,
    flip: Annotated[bool, typer.Option("--flip/--no-flip", help="Mirror half of the images.")] = True,
    test_every: Annotated[int, typer.Option(help="Epochs between tests; the last is always followed by one.")] = 1,
    weight_bits: WeightBits = 12,
    head: HeadType = HeadKind.float32,
    momentum: Momentum = 0.0,
    accumulate: Accumulate = 1,
    qas: Qas = True,
    seed: Seed = 0,
    resume: Annotated[Path | None, typer.Option(help="A checkpoint of this very run to go on from.")] = None,
    as_json: Json = False,
) -> None:
    """Learn from images with the device's own arithmetic; write the model and a checkpoint."""
    course = Course(epochs, _rate(lr), schedule.value, warmup, Augment((crop, 1.0), flip=flip), seed, test_every)
    course.check()
    with _progress(f"reading {source}"):
        graph, data = load(model), load_data(source)
    options = Options(classes or len(data.classes), weight_bits, qas, momentum, accumulate, head.value, seed)
    files = _learned_files(graph, output, Path(model))
    with _progress(f"compiling {graph.name} for {target}"):
        images = examples(data.train, graph.inputs[0].type)
        program = compile(graph, scheme, target, options=options, images=images)
    output.mkdir(parents=True, exist_ok=True)
    with _epochs(course) as hear:
        learned = learn(program, data, course, checkpoint=files[2], resume=resume, hear=hear)
    write_smg(learned.model, files[0])
    write_whole(files[1], _tflite(learned.model))
    for warning in learned.warnings:
        typer.echo(f"smidgen: {warning}", err=True)
    _show(_taught(learned, data, scheme, program, files), as_json)


def _rate(text: str) -> float:
    """A learning rate, or a quotient of two numbers."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"a learning rate of {text} cannot be used; give a number, or a quotient as 0.1/256") from None


def _learned_files(graph: Graph, folder: Path, source: Path) -> tuple[Path, Path, Path]:
    """The model as .smg and .tflite, and the checkpoint; never the file that is learned from."""
    stem = re.sub(r"[^\w.-]", "_", graph.name).strip(".") or "model"
    smg, tflite, checkpoint = (folder / f"{stem}{suffix}" for suffix in (".smg", ".tflite", ".ckpt"))
    if source.exists() and any(file.exists() and file.samefile(source) for file in (smg, tflite, checkpoint)):
        raise InputError(f"{source} would be overwritten by what is learned from it; name another folder than {folder}")
    return smg, tflite, checkpoint


def _taught(learned: Learned, data: Data, scheme: str, program: Program, files: tuple[Path, ...]) -> Taught:
    return Taught(
        model=learned.name,
        scheme=scheme,
        target=program.target.name,
        classes=data.classes,
        train_images=len(data.train),
        test_images=len(data.test),
        before=learned.before,
        accuracy=learned.accuracy,
        epochs=learned.record,
        warnings=learned.warnings,
        files=tuple(map(str, files)),
    )


@contextmanager
def _epochs(course: Course) -> Iterator[Callable[[Heard], None]]:
    """A bar on stderr, where that is a terminal, and a line there for each epoch that is done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task, shown = bar.add_task("starting", loss=""), [0]

        def hear(heard: Heard) -> None:
            if heard.last is not None and heard.last.number > shown[0]:
                shown[0] = heard.last.number
                bar.console.print(str(heard.last), highlight=False)
            what = f"{heard.doing} {heard.epoch}/{course.epochs}"
            loss = "" if heard.loss is None else f"loss {heard.loss:.3f}"
            bar.update(task, description=what, completed=heard.done, total=heard.total, loss=loss)

        yield hear


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where its files go.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """A network from file to C, checked byte for byte against the reference."""
    with Console(stderr=True).status("starting") as status:
        result = demonstrate(output, status.update)
    _show(result, as_json)


def main() -> None:
    """Run a command; what the user can mend is said in one sentence, without a traceback."""
    try:
        app()
    except SmidgenError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(message: str) -> NoReturn:
    typer.echo(f"smidgen: {message}", err=True)
    sys.exit(2)
