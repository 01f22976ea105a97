"""The verbs of a board: device PORT train, observe, solve, sums, test, predict, replay, save, load, monitor."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from smidgen import link
from smidgen.cli import verbs
from smidgen.cli.options import AUTO, Verb
from smidgen.cli.shared import check_file, memory_bytes, options_for, parse_rate, read_data, read_model, with_audio
from smidgen.cli.terminal import going_on, progress, say, show, spinner, stopping_in_between, warn
from smidgen.cli.train import ordered, show_learning, try_rates
from smidgen.data import Data, as_input, pixel_encoding
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.inference import predict, test
from smidgen.ir import Graph
from smidgen.learning import Course, Learned, LearningProgress, learn
from smidgen.learning.sums import KeptSums, read_sums, with_distance, write_sums
from smidgen.numerics.one_pass import Sums
from smidgen.pipeline import Program, compile
from smidgen.results.summaries import BoardReplayed, BoardState, BoardTraining, BoardWatched, SumsSummary, curve
from smidgen.targets.device import with_sums
from smidgen.training.one_pass import features_fingerprint

LOSSES = 200  # points of a curve that are kept, an even number


def train_(asked: verbs.BoardTrain) -> None:
    rate = 0.0 if asked.rate == AUTO else parse_rate(asked.rate)
    course = Course(asked.epochs, rate, asked.schedule, augment=None, seed=asked.seed)
    course.check()
    if asked.output:
        check_writable(asked.output)
        check_file(asked.output, asked.force)
    if asked.scheme is None:
        raise InputError(
            f"{asked.model} without --scheme does not learn; give the scheme that the board was compiled with"
        )
    port, program = asked.port, _program(asked, asked.port)
    data = _data(asked, program.graph)
    if asked.rate == AUTO:
        here = program
        if program.target.name != "host":
            here = _program(replace(asked, image="buffered"), replace(port, name="host", project=None))
        course = replace(course, learning_rate=try_rates(here, data, course).learning_rate)
    losses: list[float] = []
    with _connected(port, program, asked.save_every) as board:
        if asked.fresh:
            board.reset()
        learned = _learn(asked, board, program, data, course, losses)
        saved, figures = board.keep(), board.statistics()
    if asked.output:
        export_model(learned.model, asked.output)
    for warning in learned.warnings:
        warn(warning)
    result = BoardTraining(
        learned.name, port.name, len(data.train), len(data.test), course.learning_rate, learned.first, learned.record,
        tuple(losses), learned.warnings, board.restarts, saved, str(asked.output) if asked.output else None, figures,
    )  # fmt: skip
    show(result, asked.as_json)


def _learn(
    asked: Verb, board: link.LinkedDevice, program: Program, data: Data, course: Course, losses: list[float]
) -> Learned:
    """Learn; Ctrl-C lets the board save what it learned so far and prints how to go on."""
    linked, means = replace(program, target=link.LinkTarget(board, program.target)), _Means(losses)

    def how() -> str:
        kept = "the board saved what it learned" if board.keep() else "the board holds what it learned, unsaved"
        return f"{kept}; go on with {asked.again()}"

    def drawn(at: LearningProgress) -> str:
        means.take(at)
        return curve(losses)

    with going_on(how), stopping_in_between() as stop, progress() as bar:
        return learn(linked, data, course, on_progress=show_learning(bar, drawn=drawn), stop=stop)


class _Means:
    """The losses of steps, computed from the running mean of an epoch, in at most as many points as a curve has."""

    def __init__(self, losses: list[float]) -> None:
        self.losses, self._sum, self._done, self._every, self._held = losses, 0.0, 0, 1, list[float]()

    def take(self, at: LearningProgress) -> None:
        if at.loss is None:
            self._sum, self._done = 0.0, 0
            return
        if at.done <= self._done:
            self._sum, self._done = 0.0, 0
        total = at.loss * at.done
        self._held.append(total - self._sum)
        self._sum, self._done = total, at.done
        if len(self._held) >= self._every:
            self.losses.append(sum(self._held) / len(self._held))
            self._held.clear()
        if len(self.losses) >= LOSSES:
            self.losses[:] = [(a + b) / 2 for a, b in zip(self.losses[::2], self.losses[1::2], strict=True)]
            self._every *= 2


def test_(asked: verbs.BoardTest) -> None:
    program = _program(asked, asked.port)
    data = _data(asked, program.graph)
    with _connected(asked.port, program) as board, progress(f"testing {board.graph.name}") as bar:
        tested = test(
            _inference(program), data, target=link.LinkTarget(board, program.target), images=asked.images,
            on_progress=lambda at: bar.update(at.done, at.total),
        )  # fmt: skip
    show(tested, asked.as_json)


def predict_(asked: verbs.BoardPredict) -> None:
    program = _program(asked, asked.port)
    with _connected(asked.port, program) as board, progress(f"asking {asked.port.name}") as bar:
        found = predict(
            _inference(program), asked.source, target=link.LinkTarget(board, program.target), top=asked.top,
            label=asked.label, memory=memory_bytes(asked.memory), on_progress=lambda at: bar.update(at.done, at.total),
        )  # fmt: skip
    show(found, asked.as_json)


def observe_(asked: verbs.BoardObserve) -> None:
    program = _program(replace(asked, one_pass=True), asked.port)
    data, encoding = _data(asked, program.graph), pixel_encoding(program.graph)
    sign, doing = (-1, "forgetting") if asked.forget else (1, "observing")
    with _connected(asked.port, program) as board, progress(doing) as bar:
        for done, (image, label) in enumerate(zip(data.train.images, data.train.labels, strict=True), 1):
            board.count(as_input(image, encoding), label, sign)
            bar.update(done, len(data.train))
        board.keep()
        result = _summed(board, asked.port)
    show(result, asked.as_json)


def solve_(asked: verbs.BoardSolve) -> None:
    program = _program(replace(asked, one_pass=True), asked.port)
    with _connected(asked.port, program) as board:
        board.solve()
        board.keep()
        result = _summed(board, asked.port)
    show(result, asked.as_json)


def sums_(asked: verbs.BoardSums) -> None:
    if asked.action == "get":
        check_file(asked.file, asked.force)
    program = _program(replace(asked, one_pass=True), asked.port)
    features = features_fingerprint(program.graph)
    with _connected(asked.port, program) as board:
        own = KeptSums(board.sums(), features, program.graph.classes)
        if asked.action == "get":
            write_sums(own, asked.file)
        else:
            given = replace(read_sums(asked.file), classes=own.classes)  # a board counts classes, and names none
            empty = replace(own, sums=Sums.empty(*own.sums.m.shape))
            start, sign = (empty, 1) if asked.action == "put" else (own, -1 if asked.action == "forget" else 1)
            merged = start.merged(given, sign)
            board.restore(with_sums(program.graph, board.state(), merged.sums))
            board.keep()
        result = _summed(board, asked.port)
    show(result, asked.as_json)


def _summed(board: link.LinkedDevice, port: verbs.Port) -> SumsSummary:
    """Return what a board has observed."""
    graph, sums = board.graph, board.sums()
    kept = KeptSums(sums, features_fingerprint(graph), graph.classes)
    return SumsSummary(graph.name, graph.classes, tuple(int(n) for n in sums.n[:-1]), kept.digest, (port.name,))


def replay_(asked: verbs.BoardReplay) -> None:
    losses: list[float] = []
    if asked.rate == AUTO:
        raise InputError("auto tries rates on samples, and replay has none; give the rate that train used")
    rate = parse_rate(asked.rate)
    with _line(asked.context.obj) as line:
        hello = link.replay_there(line, asked.steps, rate, losses.append)
        if asked.save:
            link.save_there(line)
    result = BoardReplayed(asked.context.obj.name, hello.fingerprint, rate, tuple(losses), asked.save)
    show(result, asked.as_json)


def save_(asked: verbs.BoardSave) -> None:
    check_file(asked.output, asked.force)
    with _line(asked.context.obj) as line:
        hello = link.save_file(line, asked.output) if asked.output else link.save_there(line)
    _show_moved(asked, hello, "written to" if asked.output else "saved in", asked.output)


def load_(asked: verbs.BoardLoad) -> None:
    what = "loaded from"
    with _line(asked.context.obj) as line:
        if asked.file is None:
            hello = link.load_there(line)
        else:
            hello, unsaved = link.load_file(line, asked.file)
            if unsaved is None:
                what = "loaded and saved on the board from"
            else:
                warn(f"a reset loses what was loaded: {unsaved}")
    _show_moved(asked, hello, what, asked.file)


def _show_moved(asked: Verb, hello: link.Hello, what: str, file: Path | None) -> None:
    name = None if file is None else str(file)
    show(BoardState(asked.context.obj.name, hello.fingerprint, hello.state_bytes, what, name), asked.as_json)


def monitor_(asked: verbs.BoardMonitor) -> None:
    every, looks = asked.every, asked.looks
    if not 0 <= every <= 3600 or looks < 0:
        raise InputError(
            f"a look every {every:g} seconds, {looks} times, cannot be taken; give 0 up to 3600, and 0 or more"
        )
    losses: list[float] = []
    with _line(asked.context.obj) as line:
        hello, restarts, seen = line.hello(), 0, line.statistics()
        try:
            while len(losses) < looks or not looks:
                try:
                    seen = line.statistics()
                except link.Restarted:
                    hello, restarts = line.hello(), restarts + 1
                    continue
                losses.append(seen.mean_loss or 0.0)
                say(f"{seen}  {curve(losses[-LOSSES:])}", err=True)
                if len(losses) != looks:
                    time.sleep(every)
        except KeyboardInterrupt:
            pass  # which is how one stops watching
    result = BoardWatched(asked.context.obj.name, hello.fingerprint, restarts, tuple(losses[-LOSSES:]), seen)
    show(result, asked.as_json)


def _program(asked: verbs.BoardProgram, port: verbs.Port) -> Program:
    """Compile the program that a board runs, from the same model and options."""
    options = options_for(asked, asked.model, asked.scheme or ("head" if asked.one_pass else None), None)
    graph = with_audio(asked, read_model(asked, asked.model, learns=options is not None))
    with spinner(f"compiling {graph.name}"):
        target = link.fitting_target(port.name, port.project)
        return compile(
            graph, asked.scheme, target, options=options, streamed_input=asked.image == "streamed",
            one_pass=asked.one_pass,
        )  # fmt: skip


def _data(asked: verbs.BoardTrain | verbs.BoardObserve | verbs.BoardTest, graph: Graph) -> Data:
    with spinner(f"reading {asked.source}"):
        return ordered(asked, graph, read_data(asked, asked.source))


def _inference(program: Program) -> Graph:
    """Return the model with which a board's program infers; what learns in one pass measures distances, too."""
    graph = program.training.forward if program.training else program.graph
    parts = program.graph.one_pass
    return with_distance(graph, Sums.empty(*parts.sums[1].type.shape)) if parts else graph


def _connected(port: verbs.Port, program: Program, save_every: int = 0) -> link.LinkedDevice:
    with spinner(f"greeting {port.name}"):
        return link.connect(
            port.name, program, baud=port.baud, save_every=save_every, project=port.project, flash=port.flash
        )


def _line(port: verbs.Port) -> closing[link.Line]:
    return closing(link.Line(link.open_port(port.name, port.baud, port.project, port.flash)))
