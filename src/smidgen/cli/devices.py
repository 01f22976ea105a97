"""The verb that talks to a board: device PORT train, test, predict, replay, save, load, monitor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from smidgen.cli.curves import LOSSES, curve_bar
from smidgen.cli.interrupting import going_on, same_command, stopping_in_between
from smidgen.cli.judging import progress_bar
from smidgen.cli.learning import (
    AUTO,
    ImageSource,
    LearningRate,
    Schedule,
    ScheduleOption,
    ShortSide,
    parse_rate,
    rate_bar,
)
from smidgen.cli.options import HeadOption, Learning, with_learning
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Force,
    ImageInput,
    Input,
    Json,
    LabelColumns,
    Memory,
    Verbs,
    app,
    check_file,
    check_int8,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import say, spinner, warn
from smidgen.data import Data, load_data
from smidgen.data.images import SHORT_SIDE
from smidgen.data.samples import renumbered
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.inference import predict, test
from smidgen.inference.predicting import TOP
from smidgen.ir import Graph
from smidgen.learning import Course, Learned, in_order_of, learn
from smidgen.link import (
    Hello,
    Line,
    LinkedDevice,
    LinkTarget,
    Restarted,
    connect,
    fitting_target,
    load_file,
    load_there,
    open_port,
    replay_there,
    save_file,
    save_there,
)
from smidgen.link.frames import BAUD
from smidgen.pipeline import Program, compile
from smidgen.results.summaries import BoardReplayed, BoardState, BoardTraining, BoardWatched, curve
from smidgen.selection.rates import choose_rate
from smidgen.zoo.loading import load

SAVE_EVERY = 1000  # steps


class PortVerbs(Verbs):
    """Verbs behind a port, whose options may stand before it or behind it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {name for parameter in self.get_params(ctx) for name in parameter.opts if name.startswith("--")}
        at = 1
        while args and not args[0].startswith("-") and at < len(args) and args[at].partition("=")[0] in names:
            at += 1 if "=" in args[at] or args[at] == "--help" else 2
        return super().parse_args(ctx, [*args[1:at], *args[:1], *args[at:]])


device = typer.Typer(
    cls=PortVerbs,
    no_args_is_help=True,
    help="Talk to a board that runs a program: train, test, predict, replay, save, load, monitor.",
)
app.add_typer(device, name="device")

BoardModel = Annotated[str, typer.Option("--model", help="What the board's program was compiled from, as for compile.")]
BoardScheme = Annotated[str | None, typer.Option(help="What learns on the board, as it was given to compile.")]


@dataclass(frozen=True)
class Port:
    """Where a board is."""

    name: str
    baud: int
    project: Path | None = None
    flash: Path | None = None


@device.callback()
def _port(
    context: typer.Context,
    port: Annotated[
        str,
        typer.Argument(
            metavar="PORT",
            help="A serial port such as /dev/ttyACM0 or COM3, emulated:cortex-m7, or exec:COMMAND for a program that "
            "serves on stdin and stdout.",
        ),
    ],
    baud: Annotated[int, typer.Option(help="Bits per second of a UART; USB does not care.")] = BAUD,
    project: Annotated[
        Path | None, path_option("--project", help="An emulated board runs the program that was compiled into this.")
    ] = None,
    flash: Annotated[
        Path | None, path_option("--flash", help="An emulated board's flash: what it saves is there the next time.")
    ] = None,
) -> None:
    context.obj = Port(port, baud, project, flash)


@device.command("train")
@with_learning
def train_(
    context: typer.Context,
    model: BoardModel,
    source: ImageSource,
    scheme: BoardScheme = None,
    epochs: Annotated[int, typer.Option(help="How many times to go through the samples.")] = 1,
    rate: LearningRate = AUTO,
    schedule: Schedule = ScheduleOption.constant,
    fresh: Annotated[bool, typer.Option("--fresh", help="Let the board forget what it learned before.")] = False,
    save_every: Annotated[
        int, typer.Option(help="Let the board save after so many steps, and at the end; 0 for at the end alone.")
    ] = SAVE_EVERY,
    output: Annotated[
        Path | None, path_option("--output", "-o", help="Also write the learned model: .smg, .tflite or .onnx.")
    ] = None,
    image: Input = ImageInput.buffered,
    *,
    learning: Learning,
    short_side: ShortSide = SHORT_SIDE,
    label: LabelColumns = None,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Teach a board, sample by sample, from what it has learned so far; it saves what it learns."""
    course = Course(epochs, 0.0 if rate == AUTO else parse_rate(rate), schedule.value, augment=None, seed=learning.seed)
    course.check()
    if output:
        check_writable(output)
        check_file(output, force)
    if scheme is None:
        raise InputError(f"{model} without --scheme does not learn; give the scheme that the board was compiled with")
    program = _program(context.obj, model, scheme, learning, image, memory)
    data = _data(source, learning, program.graph, memory, short_side, label)
    if rate == AUTO:
        course = _with_rate(course, program, data, model, scheme, learning, memory)
    losses: list[float] = []
    with _connected(context.obj, program, save_every) as board:
        if fresh:
            board.reset()
        learned = _learn(context, board, program, data, course, losses)
        saved, figures = board.keep(), board.statistics()
    _write(learned, output)
    result = BoardTraining(
        learned.name, context.obj.name, len(data.train), len(data.test), course.learning_rate, learned.first,
        learned.record, tuple(losses), learned.warnings, board.restarts, saved, str(output) if output else None,
        figures,
    )  # fmt: skip
    show(result, as_json)


def _write(learned: Learned, output: Path | None) -> None:
    """The model, where it is wanted; what is to be warned of is said."""
    if output:
        export_model(learned.model, output)
    for warning in learned.warnings:
        warn(warning)


def _learn(
    context: typer.Context, board: LinkedDevice, program: Program, data: Data, course: Course, losses: list[float]
) -> Learned:
    """Learn; Ctrl-C lets the board save what it learned so far and says how to go on."""
    linked = replace(program, target=LinkTarget(board, program.target))

    def how() -> str:
        kept = "the board saved what it learned" if board.keep() else "the board holds what it learned, unsaved"
        return f"{kept}; go on with {same_command(context)}"

    with going_on(how), stopping_in_between() as stop, curve_bar(losses) as on_progress:
        return learn(linked, data, course, on_progress=on_progress, stop=stop)


@device.command("test")
@with_learning
def test_(
    context: typer.Context,
    model: BoardModel,
    source: ImageSource,
    scheme: BoardScheme = None,
    images: Annotated[int | None, typer.Option(help="Test with so many samples, evenly from all of them.")] = None,
    image: Input = ImageInput.buffered,
    *,
    learning: Learning,
    short_side: ShortSide = SHORT_SIDE,
    label: LabelColumns = None,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Test what a board has learned, as `smidgen test` does with a model."""
    program = _program(context.obj, model, scheme, learning, image, memory)
    data = _data(source, learning, program.graph, memory, short_side, label)
    with _connected(context.obj, program) as board, progress_bar(f"testing {board.graph.name}") as on_progress:
        target = LinkTarget(board, program.target)
        tested = test(_asked(program), data, target=target, images=images, on_progress=on_progress)
    show(tested, as_json)


@device.command("predict")
@with_learning
def predict_(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FILE|DIR", help="As for `smidgen predict`.")],
    model: BoardModel,
    scheme: BoardScheme = None,
    top: Annotated[int, typer.Option(help="How many of the likeliest classes to show.")] = TOP,
    image: Input = ImageInput.buffered,
    *,
    learning: Learning,
    label: LabelColumns = None,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Say what a board sees, as `smidgen predict` does with a model."""
    program = _program(context.obj, model, scheme, learning, image, memory)
    with _connected(context.obj, program) as board, progress_bar(f"asking {context.obj.name}") as on_progress:
        target, most = LinkTarget(board, program.target), memory_bytes(memory)
        found = predict(
            _asked(program), source, target=target, top=top, label=label, memory=most, on_progress=on_progress
        )
    show(found, as_json)


@device.command("replay")
def replay_(
    context: typer.Context,
    steps: Annotated[int, typer.Argument(metavar="N", help="How many examples to learn from, drawn by the board.")],
    rate: Annotated[str, typer.Option("--learning-rate", "--lr", help="Per sample: a number, or as in 0.1/256.")],
    save: Annotated[bool, typer.Option("--save/--no-save", help="Let the board save at the end.")] = True,
    as_json: Json = False,
) -> None:
    """Let a board learn again from what it kept of earlier images (compile --replay)."""
    losses: list[float] = []
    if rate == AUTO:
        raise InputError("a rate is chosen by trials on samples, and here are none; give the one that train took")
    chosen = parse_rate(rate)
    with _line(context.obj) as line:
        hello = replay_there(line, steps, chosen, losses.append)
        if save:
            save_there(line)
    show(BoardReplayed(context.obj.name, hello.fingerprint, chosen, tuple(losses), save), as_json)


@device.command("save")
def save_(
    context: typer.Context,
    output: Annotated[
        Path | None, path_option("--output", "-o", help="To this file here, instead of the board's own memory.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Keep what a board learned: in its own memory, or in a file."""
    if output:
        check_file(output, force)
    with _line(context.obj) as line:
        hello = save_file(line, output) if output else save_there(line)
    _show_moved(context.obj, hello, "written to" if output else "saved in", output, as_json)


@device.command("load")
def load_(
    context: typer.Context,
    file: Annotated[
        Path | None, path_option("--input", "-i", help="From this file, instead of the board's own memory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Give a board back what it saved: from its own memory, or from a file."""
    with _line(context.obj) as line:
        hello = load_file(line, file) if file else load_there(line)
    _show_moved(context.obj, hello, "loaded from", file, as_json)


@device.command("monitor")
def monitor(
    context: typer.Context,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 1.0,
    looks: Annotated[int, typer.Option(help="How often to look; 0 until Ctrl-C.")] = 0,
    as_json: Json = False,
) -> None:
    """Watch a board learn: steps, losses, faults of the line; Ctrl-C ends it."""
    if not 0 <= every <= 3600 or looks < 0:
        raise InputError(
            f"a look every {every:g} seconds, {looks} times, cannot be taken; give 0 up to 3600, and 0 or more"
        )
    losses: list[float] = []
    with _line(context.obj) as line:
        hello, restarts, seen = line.hello(), 0, line.statistics()
        try:
            while len(losses) < looks or not looks:
                try:
                    seen = line.statistics()
                except Restarted:
                    hello, restarts = line.hello(), restarts + 1
                    continue
                losses.append(seen.mean_loss or 0.0)
                say(f"{seen}  {curve(losses[-LOSSES:])}", err=True)
                if len(losses) != looks:
                    time.sleep(every)
        except KeyboardInterrupt:
            pass  # which is how one stops watching
    show(BoardWatched(context.obj.name, hello.fingerprint, restarts, tuple(losses[-LOSSES:]), seen), as_json)


def _show_moved(port: Port, hello: Hello, what: str, file: Path | None, as_json: bool) -> None:
    moved = BoardState(port.name, hello.fingerprint, hello.state_bytes, what, None if file is None else str(file))
    show(moved, as_json)


def _program(port: Port, model: str, scheme: str | None, learning: Learning, image: ImageInput, memory: str) -> Program:
    """The program that a board runs, compiled anew from the same model and options."""
    options = learning.options_for(model, scheme, None)
    with spinner(f"reading {model}"):
        graph = load(model, memory_bytes(memory))
    if options is not None:
        check_int8(graph, model)
    with spinner(f"compiling {graph.name}"):
        target, streamed = fitting_target(port.name, port.project), image is ImageInput.streamed
        return compile(graph, scheme, target, options=options, streamed_input=streamed)


def _data(source: str, learning: Learning, graph: Graph, memory: str, short_side: int, label: str | None) -> Data:
    with spinner(f"reading {source}"):
        data = load_data(source, memory_bytes(memory), short_side, label)
    return in_order_of(graph, data) if learning.head is HeadOption.keep else renumbered(data, graph.classes)


def _with_rate(
    course: Course, program: Program, data: Data, model: str, scheme: str | None, learning: Learning, memory: str
) -> Course:
    """The course at a rate chosen by trials on this machine."""
    here = program
    if program.target.name != "host":
        here = _program(Port("host", BAUD), model, scheme, learning, ImageInput.buffered, memory)
    with rate_bar() as on_progress:
        chosen = choose_rate(here, data, course, on_progress=on_progress)
    say(chosen.verdict, err=True)
    return replace(course, learning_rate=chosen.learning_rate)


def _asked(program: Program) -> Graph:
    """What a board's program says of an image, as a model that infers."""
    return program.training.forward if program.training else program.graph


@contextmanager
def _connected(port: Port, program: Program, save_every: int = 0) -> Iterator[LinkedDevice]:
    with spinner(f"greeting {port.name}"):
        board = connect(
            port.name, program, baud=port.baud, save_every=save_every, project=port.project, flash=port.flash
        )
    with board:
        yield board


@contextmanager
def _line(port: Port) -> Iterator[Line]:
    line = Line(open_port(port.name, port.baud, port.project, port.flash))
    try:
        yield line
    finally:
        line.close()
