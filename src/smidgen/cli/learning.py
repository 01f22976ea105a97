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
from smidgen.cli.interrupting import going_on, same_command, stopping_in_between
from smidgen.cli.options import HeadOption, Learning, with_learning
from smidgen.cli.quantizing import quantization_bar
from smidgen.cli.reporting import write_report
from smidgen.cli.searching import choose_scheme
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Audio,
    Force,
    Json,
    LabelColumns,
    Memory,
    Model,
    TrainingTarget,
    app,
    check_file,
    check_int8,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import progress_console, say, spinner, warn
from smidgen.data import Augment, Data, examples, load_data, pixel_encoding
from smidgen.data.audio import with_front_end
from smidgen.data.files import made_folder
from smidgen.data.images import SHORT_SIDE
from smidgen.data.samples import renumbered
from smidgen.errors import InputError
from smidgen.fitting.stages import is_float, quantize_with, training_target
from smidgen.frontends import exchange_suffix, export_model
from smidgen.ir import Graph, LabelKind
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
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.results.report.training import Trained
from smidgen.results.summaries import TrainingSummary
from smidgen.selection.rates import ChosenRate, RateProgress, choose_rate
from smidgen.targets import find_board
from smidgen.training import Options
from smidgen.training.scheme import Scheme, load_scheme
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
Resume = Annotated[
    Path | None, path_option(help="Continue a run from its checkpoint, to as many --epochs as it had, or more.")
]
QuantizeFirst = Annotated[
    bool, typer.Option("--quantize", help="Quantize a float32 model first, calibrated on these images.")
]
Files = tuple[Path, Path, Path, Path]  # the model, the model for others, the checkpoint, the report
AUTO = "auto"
CROP = 0.08  # the smallest share of a picture that a random crop keeps, unasked


class ScheduleOption(StrEnum):
    """How the learning rate changes over the run."""

    cosine = "cosine"
    constant = "constant"


Schedule = Annotated[ScheduleOption, typer.Option(help="How the learning rate changes over the run.")]


@app.command()
@with_learning
def train(
    context: typer.Context,
    model: Model,
    source: ImageSource,
    output: Annotated[Path, path_option("--output", "-o", help="The folder for model, checkpoint and report.")],
    scheme: LearnedScheme = None,
    budget: BoardBudget = None,
    target: TrainingTarget = "host",
    epochs: Annotated[int, typer.Option(help="How many times to go through the images.")] = 12,
    rate: LearningRate = AUTO,
    schedule: Schedule = ScheduleOption.cosine,
    warmup: Annotated[float, typer.Option(help="Epochs over which the learning rate rises to its full value.")] = 0.0,
    crop: Crop = None,
    flip: Flip = None,
    test_every: Annotated[int, typer.Option(help="Test after every so many epochs, and after the last.")] = 1,
    *,
    learning: Learning,
    audio: Audio = None,
    short_side: ShortSide = SHORT_SIDE,
    label: LabelColumns = None,
    resume: Resume = None,
    quantized: QuantizeFirst = False,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Train on images with the device's own arithmetic; write the model, a checkpoint and a report."""
    given, augment = None if rate == AUTO else parse_rate(rate), _augment(crop, flip, "classes")
    course = Course(epochs, given or 0.0, schedule.value, warmup, augment, learning.seed, test_every)
    course.check()
    graph, data = _read(model, source, memory_bytes(memory), short_side, label, audio)
    _learned_files(graph, output, Path(model), resume, force)  # which tells before work that takes long
    graph = _in_int8(graph, data, model, source, quantized)
    graph, data, options = with_head(graph, data, learning)
    course = replace(course, augment=_augment(crop, flip, data.label_kind))
    files, names = _learned_files(graph, output, Path(model), resume, force), _names(data, options)
    picked = _choose(graph, scheme, budget, target, options)
    with spinner(f"compiling {graph.name} for {target}"):
        images = examples(data.train, pixel_encoding(graph))
        program = compile(graph, picked, training_target(target), options=options, images=images, class_names=names)
    chosen = None
    if given is None:
        here = program if target == "host" else compile(graph, picked, options=options, images=images)
        course, chosen = _with_rate(course, here, data, resume)
    _say_new_length(course, resume)
    with made_folder(output):
        learned = _learn(context, program, data, course, files[2], resume)
        run = Trained(graph, picked, options, program, data, course, chosen, learned, same_command(context), files[:2])
        _write(run, files)
    show(_summary(run, scheme or "searched", files), as_json)


def _read(
    model: str, source: str, most: int, short_side: int, label: str | None, audio: str | None
) -> tuple[Graph, Data]:
    """The model, with the front end that sound needs, and the data."""
    with spinner(f"reading {source}"):
        graph, data = load(model, most), load_data(source, most, short_side, label)
        return with_front_end(graph, data.train.images, audio), data


def _names(data: Data, options: Options) -> tuple[str, ...]:
    """The names of the classes that the outputs tell: one output tells two."""
    return data.names if (2 if options.classes == 1 else options.classes) == len(data.classes) else ()


def _augment(crop: float | None, flip: bool | None, labels: LabelKind) -> Augment | None:
    """Return how pictures are cropped and flipped; off by default for maps and vectors, where position matters."""
    fixed = labels in ("maps", "vectors")
    if labels == "maps" and (flip or (crop is not None and crop < 1)):
        raise InputError(
            "the labels are a class for each cell of a picture, and crops and flips would move what is in them; leave "
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
    others = learning.head is None and not same_classes(graph, data)
    ordered = in_order_of(graph, data) if learning.head is HeadOption.keep else renumbered(data, graph.classes)
    options = learning.options_on(graph, ordered)
    return graph, ordered, replace(options, head="new") if others else options


def _check_free(files: Files, resume: Path | None, force: bool) -> None:
    """Raise where files would be overwritten unasked; a run that goes on may overwrite its own."""
    kept = files[2]
    if force or (resume is not None and kept.exists() and kept.samefile(resume)):
        return
    if kept.exists() and not kept.is_dir():
        raise InputError(
            f"{kept} is there already, the checkpoint of a run; give --resume {kept} to go on with it, --force to "
            "overwrite it, or another folder"
        )
    for file in files:
        check_file(file, force, file.parent)


def _in_int8(graph: Graph, data: Data, model: str, source: str, quantized: bool) -> Graph:
    """The model, quantized with the images to learn from where that is asked for."""
    if not quantized:
        check_int8(graph, model, source, ", or give --quantize to have it done with these images")
        return graph
    if not is_float(graph):
        warn(f"{model} is int8 already, and --quantize has nothing to do")
        return graph
    with quantization_bar() as on_progress:
        result = quantize_with(data, graph, on_progress)
    say("\n".join(filter(None, (str(result.report), str(result.pixels or "")))), err=True)
    return replace(result.graph, name=graph.name)


def _say_new_length(course: Course, resume: Path | None) -> None:
    """Say that the rates of a run change where it is to have another number of epochs."""
    if resume is None or (before := read_checkpoint(resume).course.epochs) == course.epochs:
        return
    rates = "the rate stays what it is"
    if course.schedule == "cosine":
        rates = f"from here on the rates are those of a cosine over {course.epochs} epochs, not of one over {before}"
    warn(f"{resume} is of a run of {before} epochs, which goes on to {course.epochs}; {rates}")


def _learn(
    context: typer.Context, program: Program, data: Data, course: Course, kept: Path, resume: Path | None
) -> Learned:
    """Learn; Ctrl-C keeps what is learned so far and says how to go on."""
    before = _stamp(kept)

    def how() -> str:
        if _stamp(kept) == before and resume is None:
            return f"nothing was learned yet that could be kept; begin anew with {same_command(context)}"
        going = kept if _stamp(kept) != before else resume
        return f"go on with {same_command(context, resume=str(going))}"

    with going_on(how), stopping_in_between() as stop, _progress_bar(course) as on_progress:
        return learn(program, data, course, checkpoint=kept, resume=resume, on_progress=on_progress, stop=stop)


def _stamp(file: Path) -> tuple[int, int] | None:
    """What tells one version of a file from the next."""
    return (file.stat().st_ino, file.stat().st_mtime_ns) if file.exists() else None


def _with_rate(course: Course, program: Program, data: Data, resume: Path | None) -> tuple[Course, ChosenRate | None]:
    """The course at the rate of the run that goes on, or at one chosen, which is said as soon as it is known."""
    if resume is not None:
        return replace(course, learning_rate=read_checkpoint(resume).course.learning_rate), None
    with rate_bar() as on_progress:
        chosen = choose_rate(program, data, course, on_progress=on_progress)
    say(chosen.verdict, err=True)
    return replace(course, learning_rate=chosen.learning_rate), chosen


def _choose(graph: Graph, scheme: str | None, budget: str | None, target: str, options: Options) -> Scheme:
    """The scheme given, or the best known for a budget, which is of a chip: this machine has room for anything."""
    board = BOARD if target in ("host", "cuda") else target
    streamed = scheme is None and streams_input(graph, find_board(board).working)
    chosen = choose_scheme(graph, scheme, budget, board, options, streamed)
    if chosen is None:
        raise InputError("what is to learn is not said; give --scheme, or --budget to have a scheme chosen")
    return load_scheme(chosen, graph) if isinstance(chosen, str) else chosen


def parse_rate(text: str) -> float:
    """A learning rate, or a quotient of two numbers."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"a learning rate of {text} cannot be used; give auto, a number, or a quotient such as 0.1/256"
        ) from None


def _learned_files(graph: Graph, folder: Path, source: Path, resume: Path | None, force: bool) -> Files:
    """The model as .smg and .tflite, or .onnx where TFLite lacks it; the checkpoint; the report; never the source."""
    stem = re.sub(r"[^\w.-]", "_", graph.name).strip(".") or "model"
    smg, exported, kept, page = (
        folder / f"{stem}{suffix}" for suffix in (".smg", exchange_suffix(graph), ".ckpt", ".html")
    )
    files = smg, exported, kept, page
    if source.exists() and any(file.exists() and file.samefile(source) for file in files):
        raise InputError(f"{source} would be overwritten by what is learned from it; name another folder than {folder}")
    _check_free(files, resume, force)
    return files


def _write(run: Trained, files: Files) -> None:
    """The model's two files and the report; what is to be warned of is said."""
    for file in files[:2]:
        export_model(run.learned.model, file)
    for warning in run.learned.warnings:
        warn(warning)
    write_report(run, files[3])


def _summary(run: Trained, scheme: str, files: Files) -> TrainingSummary:
    learned = run.learned
    return TrainingSummary(
        model=learned.name,
        scheme=scheme,
        target=run.program.target.name,
        classes=run.data.classes,
        train_images=len(run.data.train),
        test_images=len(run.data.test),
        learning_rate=run.course.learning_rate,
        chosen_rate=run.chosen,
        before=learned.first.accuracy,
        accuracy=learned.last.accuracy,
        epochs=learned.record,
        warnings=learned.warnings,
        files=tuple(map(str, files[:3])),
        report=str(files[3]),
        loss=run.options.loss,
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
