"""The verb train."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from smidgen import learning
from smidgen.cli import shared, verbs
from smidgen.cli.one_pass import teach
from smidgen.cli.options import AUTO, Learning
from smidgen.cli.shared import check_file, check_int8, given_pixels
from smidgen.cli.start import BOARD
from smidgen.cli.terminal import Progress, going_on, progress, say, show, spinner, stopping_in_between, warn
from smidgen.data import Augment, Data, examples, pixel_encoding
from smidgen.data.files import made_folder, write_whole
from smidgen.data.samples import renumbered
from smidgen.errors import InputError
from smidgen.fitting import training_target
from smidgen.frontends import exchange_suffix, export_model
from smidgen.ir import Graph, LabelKind
from smidgen.learning import Course, Learned, LearningProgress
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.quantization import is_float, quantize_with, settle_pixels
from smidgen.results.profile import Profile, profile
from smidgen.results.report import render
from smidgen.results.report.training import TrainingRun, report_training
from smidgen.results.summaries import TrainingSummary
from smidgen.selection.rates import ChosenRate, choose_rate
from smidgen.targets import find_board
from smidgen.targets.boards import BOARDS
from smidgen.training import Options
from smidgen.training.scheme import Scheme, load_scheme

Files = tuple[Path, Path, Path, Path]  # the model, the model for others, the checkpoint, the report
CROP = 0.08  # the smallest share of an image that a random crop keeps by default


def train_(asked: verbs.Train) -> None:
    rate, augment = None if asked.rate == AUTO else shared.parse_rate(asked.rate), _augment(asked, "classes")
    course = Course(asked.epochs, rate or 0.0, asked.schedule, asked.warmup, augment, asked.seed, asked.test_every)
    course.check()
    graph, data = shared.read_both(asked)
    _learned_files(asked, graph)  # refuses before work that takes long
    graph, data, options = _with_head(asked, _in_int8(asked, graph, data), data)
    course = replace(course, augment=_augment(asked, data.label_kind))
    files, outputs = _learned_files(asked, graph), 2 if options.classes == 1 else options.classes  # one scores two
    if asked.one_pass and asked.scheme is None and asked.budget is None:
        teach(asked, graph, data, options, files[:2])
        return
    picked = _choose(asked, graph, options)
    with spinner(f"compiling {graph.name} for {asked.target}"):
        images, target = examples(data.train, pixel_encoding(graph)), training_target(asked.target)
        program = compile(
            graph,
            picked,
            target,
            options=options,
            images=images,
            class_names=data.names if outputs == len(data.classes) else (),
            one_pass=asked.one_pass,
        )
    chosen, before = None, None if asked.resume is None else learning.read_checkpoint(asked.resume).course
    if rate is None:
        here = program if asked.target == "host" else compile(graph, picked, options=options, images=images)
        chosen = try_rates(here, data, course) if before is None else None
        course = replace(course, learning_rate=(chosen or before or course).learning_rate)
    if before is not None and before.epochs != course.epochs:
        warn(_new_length(course, before, asked.resume))
    with made_folder(asked.output):
        learned = _learn(asked, program, data, course, files[2])
        run = TrainingRun(graph, picked, options, program, data, course, chosen, learned, asked.again(), files[:2])
        _write(run, files)
    show(_summary(run, asked.scheme or "searched", files), asked.as_json)


def _augment(asked: verbs.Train, labels: LabelKind) -> Augment | None:
    """Return how images are cropped and flipped; off by default for maps and vectors, where position has meaning."""
    crop, flip, fixed = asked.crop, asked.flip, labels in ("maps", "vectors")
    if labels == "maps" and (flip or (crop is not None and crop < 1)):
        raise InputError(
            "the labels are a class for each cell of an image, which crops and flips would move; leave out --crop and "
            "--flip"
        )
    scale, flips = (1.0 if fixed else CROP) if crop is None else crop, not fixed if flip is None else flip
    return None if fixed and scale == 1 and not flips else Augment((scale, 1.0), flip=flips)


def _in_int8(asked: verbs.Train, graph: Graph, data: Data) -> Graph:
    """Return the model, quantized with the images to learn from where --quantize asks for it."""
    if not asked.quantized:
        check_int8(graph, asked.model, asked.source, ", or give --quantize to have it done with these images")
    given = given_pixels(asked, graph)
    if not is_float(graph):
        if asked.quantized:
            warn(f"{asked.model} is int8 already, and --quantize has nothing to do")
        pixels = settle_pixels(graph, data.train.images, given=given)
        return replace(graph, preprocessing=pixels.preprocessing) if pixels else graph
    with progress() as bar:
        result = quantize_with(data, graph, lambda at: bar.update(at.done, at.total, at.doing), given)
    say("\n".join(filter(None, (str(result.report), str(result.pixels or "")))), err=True)
    return replace(result.graph, name=graph.name)


def _with_head(asked: Learning, graph: Graph, data: Data) -> tuple[Graph, Data, Options]:
    """Return the model and the data with their classes in one order, and the options: head kept, new, or extended."""
    if asked.head == "extend":
        with spinner(f"adding classes to {graph.name}"):
            extended = learning.extend(graph, data)
        say(f"{graph.name} knows {len(graph.classes)} classes; added: {', '.join(extended.added)}", err=True)
        return extended.model, extended.data, shared.learning_options(asked, None)
    data.check_several()
    others = asked.head is None and not learning.same_classes(graph, data)
    data = ordered(asked, graph, data)
    options = shared.options_on(asked, graph, data)
    return graph, data, replace(options, head="new") if others else options


def ordered(asked: Learning, graph: Graph, data: Data) -> Data:
    """Return the data with its classes in the model's order, if the head is kept; else those it shares first."""
    return learning.in_order_of(graph, data) if asked.head == "keep" else renumbered(data, graph.classes)


def _learned_files(asked: verbs.Train, graph: Graph) -> Files:
    """Return the model as .smg and .tflite, or .onnx where TFLite lacks an op; the checkpoint; the report."""
    stem, source = re.sub(r"[^\w.-]", "_", graph.name).strip(".") or "model", Path(asked.model)
    smg, exported, kept, page = (
        asked.output / f"{stem}{suffix}" for suffix in (".smg", exchange_suffix(graph), ".ckpt", ".html")
    )
    files = smg, exported, kept, page
    if source.exists() and any(file.exists() and file.samefile(source) for file in files):
        raise InputError(
            f"{source} would be overwritten by the model learned from it; name another folder than {asked.output}"
        )
    if asked.force or (asked.resume is not None and kept.exists() and kept.samefile(asked.resume)):
        return files
    if kept.exists() and not kept.is_dir():
        raise InputError(
            f"{kept} exists already, the checkpoint of a run; give --resume {kept} to go on with it, --force to "
            "overwrite it, or another folder"
        )
    for file in files:
        check_file(file, asked.force, file.parent)
    return files


def _choose(asked: verbs.Train, graph: Graph, options: Options) -> Scheme:
    """Return the scheme given, or the best known for a budget of a board: this machine has room for anything."""
    board = BOARD if asked.target in ("host", "cuda") else asked.target
    streamed = asked.scheme is None and streams_input(graph, find_board(board).working)
    chosen = shared.choose_scheme(graph, asked.scheme, asked.budget, board, options, streamed)
    if chosen is None:
        raise InputError("no scheme is given; give --scheme, or --budget to have one chosen")
    return load_scheme(chosen, graph) if isinstance(chosen, str) else chosen


def try_rates(program: Program, data: Data, course: Course) -> ChosenRate:
    """Choose a learning rate by trials, and print why."""
    with progress("choosing the learning rate") as bar:
        chosen = choose_rate(program, data, course, on_progress=lambda at: bar.update(at.done, at.total))
    say(chosen.verdict, err=True)
    return chosen


def _new_length(course: Course, before: Course, resume: Path | None) -> str:
    """Return how the rates of a run change if it is to have another number of epochs."""
    rates = "the rate stays the same"
    if course.schedule == "cosine":
        rates = (
            f"from here on the rates are those of a cosine over {course.epochs} epochs, not of one over {before.epochs}"
        )
    return f"{resume} is of a run of {before.epochs} epochs, which goes on to {course.epochs}; {rates}"


def _learn(asked: verbs.Train, program: Program, data: Data, course: Course, kept: Path) -> Learned:
    """Learn; Ctrl-C keeps what is learned so far and prints how to go on."""
    before, resume = _stamp(kept), asked.resume

    def how() -> str:
        if _stamp(kept) == before and resume is None:
            return f"nothing was learned yet that could be kept; start again with {asked.again()}"
        return f"go on with {asked.again(resume=str(kept if _stamp(kept) != before else resume))}"

    with going_on(how), stopping_in_between() as stop, progress() as bar:
        on_progress = show_learning(bar, f"/{course.epochs}")
        return learning.learn(program, data, course, checkpoint=kept, resume=resume, on_progress=on_progress, stop=stop)


def show_learning(
    bar: Progress, of: str = "", drawn: Callable[[LearningProgress], str] = lambda _: ""
) -> Callable[[LearningProgress], None]:
    """Return a callback that shows learning in a bar, with the loss and a curve, and a line for each finished epoch."""
    shown = 0

    def on_progress(at: LearningProgress) -> None:
        nonlocal shown
        if at.last is not None and at.last.number > shown:
            shown = at.last.number
            bar.line(str(at.last))
        curve = drawn(at)
        detail = "" if at.loss is None else f"loss {at.loss:.3f} {curve}".rstrip()
        bar.update(at.done, at.total, f"{at.doing} {at.epoch}{of}", detail)

    return on_progress


def _stamp(file: Path) -> tuple[int, int] | None:
    """Return what distinguishes one version of a file from the next."""
    return (file.stat().st_ino, file.stat().st_mtime_ns) if file.exists() else None


def _write(run: TrainingRun, files: Files) -> None:
    """Write the model's two files and the report, measured on the board if the model learned on one."""
    for file in files[:2]:
        export_model(run.learned.model, file)
    for warning in run.learned.warnings:
        warn(warning)
    with spinner(f"writing {files[3]}"):
        write_whole(files[3], render(report_training(replace(run, profile=_measured(run)))).encode())


def _measured(run: TrainingRun) -> Profile | None:
    """Profile the program on its board; None where instructions are not counted or a step is skipped."""
    if run.program.target.name not in BOARDS:
        return None
    try:
        return profile(run.program, 1, run.course.seed)
    except InputError:
        return None


def _summary(run: TrainingRun, scheme: str, files: Files) -> TrainingSummary:
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
