"""The verb train."""

from __future__ import annotations

import json
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
from smidgen.data import Data, examples, pixel_encoding
from smidgen.data.files import made_folder, write_whole
from smidgen.data.samples import renumbered
from smidgen.errors import InputError
from smidgen.fitting import training_target
from smidgen.fitting.ledger import digest_of
from smidgen.frontends import exchange_suffix, export_model
from smidgen.ir import Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import Course, Learned, LearningProgress
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.quantization import is_float, quantize_with, settle_pixels
from smidgen.records import read_record, to_plain
from smidgen.results.profile import Profile, profile
from smidgen.results.report import render
from smidgen.results.report.training import TrainingRun, report_training
from smidgen.results.summaries import TrainingSummary
from smidgen.selection.choice import Choice
from smidgen.selection.estimates import shipped_or_estimated
from smidgen.selection.ladder import climb
from smidgen.selection.launchers import find_launcher
from smidgen.selection.proposals import propose
from smidgen.selection.rates import ChosenRate, choose_rate
from smidgen.selection.runs import open_runs
from smidgen.targets import find_board
from smidgen.targets.boards import BOARDS, parse_size
from smidgen.training import Options
from smidgen.training.options import options_on
from smidgen.training.scheme import load_scheme

Files = tuple[Path, Path, Path, Path]  # the model, the model for others, the checkpoint, the report
CHOICE = ".choice.json"  # ends the name of the file of a choice, beside the checkpoint
BUDGET = "128KB"  # without one


def train_(asked: verbs.Train) -> None:
    rate, augment = None if asked.rate == AUTO else shared.parse_rate(asked.rate), shared.augmentation(asked, "classes")
    course = Course(asked.epochs, rate or 0.0, asked.schedule, asked.warmup, augment, asked.seed, asked.test_every)
    course.check()
    once = asked.one_pass and asked.scheme is None and asked.budget is None
    graph, data = shared.read_both(asked)
    if once and len(data.classes) == 1:  # which the distance from it tells from anything else
        data = replace(data, classes=(data.classes[0], f"not {data.classes[0]}"))
    _learned_files(asked, graph)  # refuses before work that takes long
    graph, data, options = _with_head(asked, graph, data)
    course = replace(course, augment=shared.augmentation(asked, data.label_kind))
    files, outputs = _learned_files(asked, graph), 2 if options.classes == 1 else options.classes  # one scores two
    if once:
        teach(asked, graph, data, options, files[:2])
        return
    names = data.names if outputs == len(data.classes) else ()
    choice = None if asked.scheme else _judge(asked, graph, data, options, course, files[2])
    if choice is not None and not choice.candidate.steps:
        teach(asked, graph, data, options, files[:2])
    else:
        _steps(asked, graph, data, options, course, choice, names, files)


def _steps(
    asked: verbs.Train, graph: Graph, data: Data, options: Options, course: Course, choice: Choice | None,
    names: tuple[str, ...], files: Files,
) -> None:  # fmt: skip
    """Learn by steps what the scheme names or the choice is, and write the model and the report."""
    picked = choice.candidate.scheme if choice else load_scheme(str(asked.scheme), graph)
    once = asked.one_pass or (choice is not None and choice.candidate.start == "one pass")
    where = "host" if choice and once and asked.target == "cuda" else asked.target  # fleets have no sums
    with spinner(f"compiling {graph.name} for {where}"):
        images, target = examples(data.train, pixel_encoding(graph)), training_target(where)
        program = compile(graph, picked, target, options=options, images=images, class_names=names, one_pass=once)
    chosen, before = None, None if asked.resume is None else learning.read_checkpoint(asked.resume).course
    if asked.rate == AUTO and choice is not None:
        course = replace(course, learning_rate=choice.learning_rate)
    elif asked.rate == AUTO:
        here = program if where == "host" else compile(graph, picked, options=options, images=images)
        chosen = try_rates(here, data, course) if before is None else None
        course = replace(course, learning_rate=(chosen or before or course).learning_rate)
    if before is not None and before.epochs != course.epochs:
        warn(_new_length(course, before, asked.resume))
    with made_folder(asked.output):
        learned, again = _learn(asked, program, data, course, files[2]), asked.again()
        run = TrainingRun(graph, picked, options, program, data, course, chosen, learned, again, files[:2], choice)
        _write(run, files)
    show(_summary(run, asked.scheme or picked.name, files), asked.as_json)


def _in_int8(asked: verbs.Train, graph: Graph, data: Data) -> Graph:
    """Return the model, quantized with the images to learn from where --quantize asks for it."""
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


def _with_head(asked: verbs.Train, graph: Graph, data: Data) -> tuple[Graph, Data, Options]:
    """Return the int8 model and the data, their classes in one order, and the options: head kept, new, or extended."""
    if not asked.quantized:
        check_int8(graph, asked.model, asked.source, ", or give --quantize to have it done with these images")
    if asked.head == "extend":
        both = shared.extended(_in_int8(asked, graph, data), data)
        return both.model, both.data, shared.learning_options(asked, None)
    data.check_several(one_class=asked.one_pass)
    wanted = shared.learning_options(asked, asked.classes)
    if isinstance(given := given_pixels(asked, graph), Preprocessing):
        graph = replace(graph, preprocessing=given)
    with progress("checking the head") as bar:
        checked = learning.check_head(graph, data, wanted.head, on_progress=bar.update)
    if checked.note:
        warn(checked.note)
    graph = _in_int8(asked, checked.model, checked.calibration)
    options = options_on(graph, checked.data, replace(wanted, head=checked.start), shared.chosen_loss(asked))
    return graph, checked.data, options


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


def _judge(asked: verbs.Train, graph: Graph, data: Data, options: Options, course: Course, kept: Path) -> Choice:
    """Judge candidates for a board's budget on the training samples, or return the choice of the run that goes on."""
    if asked.resume is not None and (known := asked.resume.with_suffix(CHOICE)).exists():
        return read_record(Choice, known)
    board = find_board(BOARD if asked.target in ("host", "wasm", "cuda") else asked.target)
    streamed = streams_input(graph, board.working)
    budget, part = parse_size(asked.budget or BUDGET), kept.with_suffix(f"{CHOICE}.part")
    rate = None if asked.rate == AUTO else course.learning_rate

    def kept_and_again() -> str:
        done = f"trials that are done are kept in {part}" if part.exists() else "nothing was tried yet"
        return f"{done}; go on with {asked.again()}"

    with made_folder(asked.output), going_on(kept_and_again), progress() as bar:
        found = propose(
            graph, shipped_or_estimated(graph), budget, board, options, streamed_input=streamed,
            on_plan=lambda plans: bar.update(plans, 0, "planning candidates"),
        )  # fmt: skip
        offered = [one for one in found.candidates if one.start == "one pass" or not asked.one_pass]
        if asked.target in BOARDS:
            offered = [one for one in offered if one.on_board]
        if not offered:
            raise InputError(f"no candidate learns in one pass within {budget:,} bytes; give more, or no --one-pass")
        with open_runs(part, digest_of(offered, data.digest(), options, course, asked.effort, rate)) as runs:
            choice = climb(
                graph, data, offered, options, course, effort=asked.effort, learning_rate=rate,
                launcher=find_launcher("cuda" if asked.target == "cuda" else "host", None, None), known=runs.known,
                on_run=runs.add, on_progress=lambda at: bar.update(at.done, at.total, at.doing, f"{at.leads} leads"),
            )  # fmt: skip
    write_whole(kept.with_suffix(CHOICE), json.dumps(to_plain(choice), indent=1).encode() + b"\n")
    part.unlink(missing_ok=True)
    say(f"{choice}\n{choice.table()}", err=True)
    for note in choice.notes:
        warn(note)
    return choice


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
        choice=run.choice,
        loss=run.options.loss,
        error_before=learned.first.error,
        error=learned.last.error,
    )
