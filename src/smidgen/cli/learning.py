"""The verb that learns: train."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from smidgen.cli.demonstration import BOARD
from smidgen.cli.options import Learning, with_learning
from smidgen.cli.searching import choose_scheme
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Audio,
    Json,
    Memory,
    Model,
    TrainingTarget,
    app,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import progress_console, say, spinner, warn
from smidgen.data import Augment, Data, examples, load_data, pixel_encoding
from smidgen.data.decoding import SHORT_SIDE
from smidgen.data.files import made_folder
from smidgen.data.hearing import with_front_end
from smidgen.errors import InputError
from smidgen.fitting.stages import training_target
from smidgen.frontends import exchange_suffix, export_model
from smidgen.ir import Graph
from smidgen.learning import Course, Learned, LearningProgress, learn, read_checkpoint
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.results.verbs import TrainingSummary
from smidgen.selection.rates import ChosenRate, RateProgress, choose_rate
from smidgen.targets.finding import find_board
from smidgen.training import Options
from smidgen.training.scheme import Scheme
from smidgen.zoo.loading import load

ImageSource = Annotated[
    str,
    typer.Option(
        "--data",
        help="A folder of images or recordings by label, a published data set, a .zip of either, an .npz, .npy or .csv "
        "file, or cifar10.",
    ),
]
LearnedScheme = Annotated[
    str | None, typer.Option(help="What learns: a published name, full, last:K, bias:K, head, or a JSON file.")
]
BoardBudget = Annotated[
    str | None,
    typer.Option(help="Without --scheme: a board's SRAM, such as 128KB; the best known scheme for it learns."),
]
ShortSide = Annotated[int, typer.Option(help="Reduce larger image files to this short side, in pixels.")]
LabelColumns = Annotated[
    str | None,
    typer.Option(
        "--label", help="Of a .csv table: the column, or columns as in a,b, to learn; none for none. Else the last one."
    ),
]

LearningRate = Annotated[
    str, typer.Option("--learning-rate", "--lr", help="Per sample: auto (short trials), a number, or as in 0.1/256.")
]
AUTO = "auto"


class ScheduleOption(StrEnum):
    """How the learning rate changes over the run."""

    cosine = "cosine"
    constant = "constant"


@app.command()
@with_learning
def train(
    model: Model,
    source: ImageSource,
    output: Annotated[Path, path_option("--output", "-o", help="The folder for the model and its checkpoint.")],
    scheme: LearnedScheme = None,
    budget: BoardBudget = None,
    target: TrainingTarget = "host",
    epochs: Annotated[int, typer.Option(help="How many times to go through the images.")] = 12,
    rate: LearningRate = AUTO,
    schedule: Annotated[
        ScheduleOption, typer.Option(help="How the learning rate changes over the run.")
    ] = ScheduleOption.cosine,
    warmup: Annotated[float, typer.Option(help="Epochs over which the learning rate rises to its full value.")] = 0.0,
    crop: Annotated[
        float, typer.Option(help="Smallest share of an image that a random crop keeps; 1 for no crops.")
    ] = 0.08,
    flip: Annotated[bool, typer.Option("--flip/--no-flip", help="Mirror images at random, half of the time.")] = True,
    test_every: Annotated[int, typer.Option(help="Test after every so many epochs, and after the last.")] = 1,
    *,
    learning: Learning,
    audio: Audio = None,
    short_side: ShortSide = SHORT_SIDE,
    label: LabelColumns = None,
    resume: Annotated[Path | None, path_option(help="Continue this run from its checkpoint.")] = None,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Train on images with the device's own arithmetic; write the model and a checkpoint."""
    given, augment = None if rate == AUTO else parse_rate(rate), Augment((crop, 1.0), flip=flip)
    course = Course(epochs, given or 0.0, schedule.value, warmup, augment, learning.seed, test_every)
    course.check()
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, data = load(model, most), load_data(source, most, short_side, label)
        graph = with_front_end(graph, data.train.images, audio)
    options = learning.options(learning.classes or len(data.classes))
    files = _learned_files(graph, output, Path(model))
    picked = _choose(graph, scheme, budget, target, options)
    with spinner(f"compiling {graph.name} for {target}"):
        images = examples(data.train, pixel_encoding(graph))
        program = compile(graph, picked, training_target(target), options=options, images=images)
    chosen = None
    if given is None:
        here = program if target == "host" else compile(graph, picked, options=options, images=images)
        course, chosen = _with_rate(course, here, data, resume)
    with made_folder(output), _progress_bar(course) as on_progress:
        learned = learn(program, data, course, checkpoint=files[2], resume=resume, on_progress=on_progress)
    _write(learned, files)
    show(_summary(learned, data, scheme or "searched", program, files, course, chosen), as_json)


def _with_rate(course: Course, program: Program, data: Data, resume: Path | None) -> tuple[Course, ChosenRate | None]:
    """The course at the rate of the run that goes on, or at one chosen, which is said as soon as it is known."""
    if resume is not None:
        return replace(course, learning_rate=read_checkpoint(resume).course.learning_rate), None
    with rate_bar() as on_progress:
        chosen = choose_rate(program, data, course, on_progress=on_progress)
    say(chosen.verdict, err=True)
    return replace(course, learning_rate=chosen.learning_rate), chosen


def _choose(graph: Graph, scheme: str | None, budget: str | None, target: str, options: Options) -> str | Scheme:
    """The scheme given, or the best known for a budget, which is of a chip: this machine has room for anything."""
    board = BOARD if target in ("host", "cuda") else target
    streamed = scheme is None and streams_input(graph, find_board(board).working)
    chosen = choose_scheme(graph, scheme, budget, board, options, streamed)
    if chosen is None:
        raise InputError("what is to learn is not said; give --scheme, or --budget to have a scheme chosen")
    return chosen


def parse_rate(text: str) -> float:
    """A learning rate, or a quotient of two numbers."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"a learning rate of {text} cannot be used; give auto, a number, or a quotient such as 0.1/256"
        ) from None


def _learned_files(graph: Graph, folder: Path, source: Path) -> tuple[Path, Path, Path]:
    """The model as .smg and .tflite, or .onnx where TFLite lacks its functions; the checkpoint; never the source."""
    stem = re.sub(r"[^\w.-]", "_", graph.name).strip(".") or "model"
    smg, exported, checkpoint = (folder / f"{stem}{suffix}" for suffix in (".smg", exchange_suffix(graph), ".ckpt"))
    if source.exists() and any(file.exists() and file.samefile(source) for file in (smg, exported, checkpoint)):
        raise InputError(f"{source} would be overwritten by what is learned from it; name another folder than {folder}")
    return smg, exported, checkpoint


def _write(learned: Learned, files: tuple[Path, Path, Path]) -> None:
    """The model's two files; what is to be warned of is said."""
    for file in files[:2]:
        export_model(learned.model, file)
    for warning in learned.warnings:
        warn(warning)


def _summary(
    learned: Learned,
    data: Data,
    scheme: str,
    program: Program,
    files: tuple[Path, ...],
    course: Course,
    chosen: ChosenRate | None,
) -> TrainingSummary:
    return TrainingSummary(
        model=learned.name,
        scheme=scheme,
        target=program.target.name,
        classes=data.classes,
        train_images=len(data.train),
        test_images=len(data.test),
        learning_rate=course.learning_rate,
        chosen_rate=chosen,
        before=learned.before,
        accuracy=learned.accuracy,
        epochs=learned.record,
        warnings=learned.warnings,
        files=tuple(map(str, files)),
    )


@contextmanager
def rate_bar() -> Iterator[Callable[[RateProgress], None]]:
    """A progress bar of trials on stderr, where that is a terminal."""
    console = progress_console()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("choosing the learning rate")
        yield lambda at: bar.update(task, completed=at.done, total=at.total)


@contextmanager
def _progress_bar(course: Course) -> Iterator[Callable[[LearningProgress], None]]:
    """A progress bar on stderr where that is a terminal, and a line there for each finished epoch."""
    console = progress_console()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[loss]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task, shown = bar.add_task("starting", loss=""), [0]

        def on_progress(progress: LearningProgress) -> None:
            if progress.last is not None and progress.last.number > shown[0]:
                shown[0] = progress.last.number
                bar.console.print(str(progress.last), highlight=False)
            what = f"{progress.doing} {progress.epoch}/{course.epochs}"
            loss = "" if progress.loss is None else f"loss {progress.loss:.3f}"
            bar.update(task, description=what, completed=progress.done, total=progress.total, loss=loss)

        yield on_progress
