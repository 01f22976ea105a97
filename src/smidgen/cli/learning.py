"""Verbs that learn: train and demo."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from smidgen.cli.demonstration import demonstrate
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Accumulate,
    Classes,
    HeadKind,
    HeadType,
    Json,
    Memory,
    Model,
    Momentum,
    Qas,
    Seed,
    Target,
    WeightBits,
    app,
    memory_bytes,
    show,
    spinner,
)
from smidgen.data import Augment, Data, examples, intake, load_data
from smidgen.errors import InputError
from smidgen.frontends import export_model
from smidgen.ir import Graph
from smidgen.learning import Course, Learned, learn
from smidgen.learning import Progress as Heard
from smidgen.ops import Lookup
from smidgen.pipeline import Program, compile
from smidgen.results.verbs import Taught
from smidgen.training import Options
from smidgen.zoo.loading import load


class Schedule(StrEnum):
    """How the learning rate goes."""

    cosine = "cosine"
    constant = "constant"


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
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Learn from images with the device's own arithmetic; write the model and a checkpoint."""
    course = Course(epochs, _rate(lr), schedule.value, warmup, Augment((crop, 1.0), flip=flip), seed, test_every)
    course.check()
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, data = load(model, most), load_data(source, most)
    options = Options(classes or len(data.classes), weight_bits, qas, momentum, accumulate, head.value, seed)
    files = _learned_files(graph, output, Path(model))
    with spinner(f"compiling {graph.name} for {target}"):
        images = examples(data.train, intake(graph))
        program = compile(graph, scheme, target, options=options, images=images)
    output.mkdir(parents=True, exist_ok=True)
    with _epochs(course) as hear:
        learned = learn(program, data, course, checkpoint=files[2], resume=resume, hear=hear)
    for file in files[:2]:
        export_model(learned.model, file)
    for warning in learned.warnings:
        typer.echo(f"smidgen: {warning}", err=True)
    show(_taught(learned, data, scheme, program, files), as_json)


def _rate(text: str) -> float:
    """A learning rate, or a quotient of two numbers."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"a learning rate of {text} cannot be used; give a number, or a quotient as 0.1/256") from None


def _learned_files(graph: Graph, folder: Path, source: Path) -> tuple[Path, Path, Path]:
    """The model as .smg and .tflite, or .onnx where TFLite lacks its functions; the checkpoint; never the source."""
    stem = re.sub(r"[^\w.-]", "_", graph.name).strip(".") or "model"
    foreign = ".onnx" if any(isinstance(node.op, Lookup) for node in graph.nodes) else ".tflite"
    smg, exported, checkpoint = (folder / f"{stem}{suffix}" for suffix in (".smg", foreign, ".ckpt"))
    if source.exists() and any(file.exists() and file.samefile(source) for file in (smg, exported, checkpoint)):
        raise InputError(f"{source} would be overwritten by what is learned from it; name another folder than {folder}")
    return smg, exported, checkpoint


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
    show(result, as_json)
