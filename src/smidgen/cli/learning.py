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
from smidgen.cli.options import HeadOption, Learning, with_learning
from smidgen.cli.searching import choose_scheme
from smidgen.cli.shared import MEMORY_TEXT, Json, Memory, Model, TrainingTarget, app, memory_bytes, path_option, show
from smidgen.cli.terminal import progress_console, say, spinner, warn
from smidgen.data import Augment, Data, examples, load_data, pixel_encoding
from smidgen.data.decoding import SHORT_SIDE
from smidgen.data.files import made_folder
from smidgen.errors import InputError
from smidgen.fitting.stages import training_target
from smidgen.frontends import exchange_suffix, export_model
from smidgen.ir import Graph, Told
from smidgen.learning import (
    Course,
    Learned,
    LearningProgress,
    extend,
    in_order_of,
    learn,
    read_checkpoint,
    same_classes,
)
from smidgen.pipeline import Program, compile
from smidgen.results.verbs import TrainingSummary
from smidgen.selection.rates import ChosenRate, RateProgress, choose_rate
from smidgen.training import Options
from smidgen.training.losses import Loss
from smidgen.training.scheme import Scheme
from smidgen.zoo.loading import load

ImageSource = Annotated[
    str,
    typer.Option(
        "--data", help="A folder of images by label, a published data set, a .zip of either, an .npz, or cifar10."
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


LearningRate = Annotated[
    str, typer.Option("--learning-rate", "--lr", help="Per sample: auto (short trials), a number, or as in 0.1/256.")
]
Crop = Annotated[
    float | None,
    typer.Option(help="Smallest share of an image that a random crop keeps; 1 for no crops. For classes 0.08."),
]
Flip = Annotated[
    bool | None,
    typer.Option("--flip/--no-flip", help="Mirror images at random, half of the time. For classes they are."),
]
AUTO = "auto"
CROP = 0.08  # the smallest share of a picture that a random crop keeps, unasked


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
    crop: Crop = None,
    flip: Flip = None,
    test_every: Annotated[int, typer.Option(help="Test after every so many epochs, and after the last.")] = 1,
    *,
    learning: Learning,
    short_side: ShortSide = SHORT_SIDE,
    resume: Annotated[Path | None, path_option(help="Continue this run from its checkpoint.")] = None,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Train on images with the device's own arithmetic; write the model and a checkpoint."""
    given, augment = None if rate == AUTO else parse_rate(rate), _augment(crop, flip, "classes")
    course = Course(epochs, given or 0.0, schedule.value, warmup, augment, learning.seed, test_every)
    course.check()
    with spinner(f"reading {source}"):
        most = memory_bytes(memory)
        graph, data = load(model, most), load_data(source, most, short_side)
    graph, data, options = with_head(graph, data, learning)
    course = replace(course, augment=_augment(crop, flip, data.told))
    names = data.names if (2 if options.classes == 1 else options.classes) == len(data.classes) else ()
    files = _learned_files(graph, output, Path(model))
    picked = _choose(graph, scheme, budget, target, options)
    with spinner(f"compiling {graph.name} for {target}"):
        images = examples(data.train, pixel_encoding(graph))
        program = compile(graph, picked, training_target(target), options=options, images=images, class_names=names)
    chosen = None
    if given is None:
        here = program if target == "host" else compile(graph, picked, options=options, images=images)
        course, chosen = _with_rate(course, here, data, resume)
    with made_folder(output), _progress_bar(course) as on_progress:
        learned = learn(program, data, course, checkpoint=files[2], resume=resume, on_progress=on_progress)
    _write(learned, files)
    show(_summary(learned, data, scheme or "searched", program, files, course, chosen, options.loss), as_json)


def _augment(crop: float | None, flip: bool | None, told: Told) -> Augment | None:
    """How pictures are cropped and flipped: unasked not at all where maps or vectors may tell what is where in them."""
    fixed = told in ("maps", "vectors")
    if told == "maps" and (flip or (crop is not None and crop < 1)):
        raise InputError(
            "the data tells a class for each cell of a picture, and crops and flips would move what is in them; leave "
            "--crop and --flip away"
        )
    scale, flips = (1.0 if fixed else CROP) if crop is None else crop, not fixed if flip is None else flip
    return None if fixed and scale == 1 and not flips else Augment((scale, 1.0), flip=flips)


def with_head(graph: Graph, data: Data, learning: Learning) -> tuple[Graph, Data, Options]:
    """The model and the data with their classes in one order, and the options: its head kept, new, or extended."""
    if learning.head is HeadOption.extend:
        with spinner(f"adding classes to {graph.name}"):
            extended = extend(graph, data)
        say(f"{graph.name} knows {len(graph.classes)} classes; added: {', '.join(extended.added)}", err=True)
        return extended.model, extended.data, learning.options(None)
    data.check_several()
    same, new = same_classes(graph, data), learning.head is HeadOption.new
    ordered = in_order_of(graph, data) if learning.head is HeadOption.keep or (same and not new) else data
    options = learning.options_on(graph, ordered)
    return graph, ordered, options if same or learning.head is not None else replace(options, head="new")


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
    chosen = choose_scheme(graph, scheme, budget, board, options, streamed_input=True)
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
    loss: Loss,
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
        before=learned.first.accuracy,
        accuracy=learned.last.accuracy,
        epochs=learned.record,
        warnings=learned.warnings,
        files=tuple(map(str, files)),
        loss=loss,
        error_before=learned.first.error,
        error=learned.last.error,
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
