"""A board at the end of a bad line learns what it would have learned on a good one: no step is lost or taken twice."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from experiments.lines import Faulty, Flaky
from smidgen.errors import InputError
from smidgen.ir import Array
from smidgen.link import Line, LinkedDevice, LinkError, Stream, Timing, connect
from smidgen.link.frames import (
    REQUEST,
    Command,
    Frames,
    ProcessStream,
    Status,
    frame,
    read_answer,
    request_frame,
)
from smidgen.pipeline import Program, compile
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.lines import EmulatedStream
from smidgen.training import Options
from tests.support.native import SANITIZE
from tests.support.networks import CLASSES, inverted_residual, samples

RATE = 0.02
QUICK = Timing(again=0.01, silent=30)
INPUTS = {"buffered": False, "streamed": True}


def learner(target: str | BoardTarget = "host", streamed: bool = False) -> Program:
    return compile(inverted_residual(3), "last:2", target, options=Options(CLASSES), streamed_input=streamed)


def built(folder: Path, program: Program, *flags: str) -> Path:
    """The example of a written project, as `make` builds it."""
    program.write(folder)
    subprocess.run(["make", "-s", f"CFLAGS={' '.join(flags or ('-O1',))}"], cwd=folder, check=True)
    return folder / "example"


@pytest.fixture(scope="module", params=INPUTS)
def streamed(request: pytest.FixtureRequest) -> bool:
    return INPUTS[request.param]


@pytest.fixture(scope="module")
def example(streamed: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("link") / "out", learner(streamed=streamed))


def served(example: Path, kept: Path) -> Stream:
    return ProcessStream(f"{example} link {kept}")


@pytest.fixture(scope="module")
def m7(cache: Path) -> BoardTarget:
    return BoardTarget(cache=cache)


@pytest.fixture
def emulated(m7: BoardTarget, streamed: bool) -> tuple[Program, EmulatedStream]:
    program = learner(m7, streamed)
    device = connect("emulated:cortex-m7", program)
    assert isinstance(device.line.stream, EmulatedStream)
    return program, device.line.stream


def learned(program: Program, count: int) -> tuple[list[float], Mapping[str, Array]]:
    """The losses of so many steps, and the state after them, without a line."""
    with program.start() as device:
        losses = [device.train(image, label, RATE) for image, label in samples(program.graph, count)]
        return losses, device.state()


def same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_a_thousand_samples_over_a_line_with_faults_leave_the_state_that_they_leave_without(
    example: Path, tmp_path: Path, streamed: bool
) -> None:
    program = learner(streamed=streamed)
    count = 1000 if streamed else 100
    losses, state = learned(program, count)
    line = Faulty(served(example, tmp_path / "kept"), share=0.01)
    with LinkedDevice(program.graph, Line(line, QUICK)) as device:
        assert [device.train(image, label, RATE) for image, label in samples(program.graph, count)] == losses
        assert same(device.state(), state)
        figures = device.statistics()
    assert figures.steps == figures.runs == count
    assert line.faults > count
    assert figures.damaged > count / 10
    assert figures.repeated > count / 10


def test_the_emulated_board_learns_over_a_line_with_faults_what_the_host_learns(
    emulated: tuple[Program, EmulatedStream], streamed: bool
) -> None:
    program, stream = emulated
    losses, state = learned(learner(streamed=streamed), 30)
    line = Faulty(stream, share=0.01)
    with LinkedDevice(program.graph, Line(line, QUICK)) as device:
        assert [device.train(image, label, RATE) for image, label in samples(program.graph, 30)] == losses
        assert same(device.state(), state)
    assert line.faults > 30


@pytest.mark.parametrize("saves", [False, True], ids=["never-saved", "saved"])
def test_a_board_that_restarts_is_noticed_and_goes_on_where_it_was(
    emulated: tuple[Program, EmulatedStream], streamed: bool, saves: bool
) -> None:
    program, stream = emulated
    losses, state = learned(learner(streamed=streamed), 12)
    line = Flaky(stream, at=(6, 9, 17, 18, 19, 40, 60, 61, 80))
    with LinkedDevice(program.graph, Line(line, QUICK)) as device:
        for place, (image, label) in enumerate(samples(program.graph, 12)):
            assert device.train(image, label, RATE) == losses[place]
            if saves and place % 3 == 0:
                device.save()
        assert same(device.state(), state)
        assert device.restarts >= 7, "two of a row may be one to the host"


def test_a_restart_costs_only_the_steps_since_the_last_save(
    emulated: tuple[Program, EmulatedStream], streamed: bool
) -> None:
    program, stream = emulated
    with LinkedDevice(program.graph, Line(stream)) as device:
        for place, (image, label) in enumerate(samples(program.graph, 6)):
            device.train(image, label, RATE)
            if place == 3:
                device.save()
        stream.reset()
        device.predict(image)
        assert device.restarts == 1
        assert device.statistics().steps == 2


def test_outputs_are_those_of_the_last_image_although_the_board_restarted(
    emulated: tuple[Program, EmulatedStream], streamed: bool
) -> None:
    program, stream = emulated
    with LinkedDevice(program.graph, Line(stream)) as device, learner(streamed=streamed).start() as machine:
        for image, label in samples(program.graph, 3):
            assert device.train(image, label, RATE) == machine.train(image, label, RATE)
            assert device.predict(image) == machine.predict(image)
            stream.reset()
            place = program.graph.outputs.index(program.graph.scores)  # the loss is of a step
            assert device.outputs()[place].tobytes() == machine.outputs()[place].tobytes()


def test_a_request_that_comes_again_is_answered_again_and_done_once(emulated: tuple[Program, EmulatedStream]) -> None:
    program, stream = emulated
    (image, label), *_ = samples(program.graph, 1)
    pieces = [image.tobytes()[at : at + 100] for at in range(0, image.nbytes, 100)]
    asked = [(Command.HELLO, b""), (Command.LABEL, struct.pack("<Ii", 0, label))]
    asked += [(Command.ROWS, struct.pack("<I", 100 * i) + piece) for i, piece in enumerate(pieces)]
    asked += [(Command.TRAIN, struct.pack("<f", RATE)), (Command.STATISTICS, b"")]
    for number, (command, data) in enumerate(asked, start=7):
        answers = [_asked(stream, request_frame(9, number, command, data)) for _ in range(3)]
        assert answers[0][10] == Status.DONE
        if command != Command.STATISTICS:  # which counts repetitions
            assert answers[0] == answers[1] == answers[2]
    steps, runs = struct.unpack_from("<II", answers[2], 11)
    assert (steps, runs) == (1, 1)


def _asked(stream: Stream, sent: bytes) -> bytes:
    """The content of the one frame that answers a request."""
    stream.write(sent)
    (content,) = Frames().take(stream.read(1))
    assert content is not None
    return content


def test_requests_out_of_order_and_without_a_session_change_nothing(emulated: tuple[Program, EmulatedStream]) -> None:
    _, stream = emulated
    stream.reset()
    assert _asked(stream, request_frame(9, 7, Command.STATISTICS, b""))[10] == Status.STRANGER
    assert _asked(stream, request_frame(9, 7, Command.HELLO, b""))[10] == Status.DONE
    assert _asked(stream, request_frame(9, 9, Command.STATISTICS, b""))[10] == Status.DISORDER
    assert _asked(stream, request_frame(8, 8, Command.STATISTICS, b""))[10] == Status.STRANGER
    assert _asked(stream, request_frame(9, 8, Command.TRAIN, struct.pack("<f", RATE)))[10] == Status.REFUSED
    assert _asked(stream, request_frame(9, 9, Command.REPLAY, b""))[10] == Status.UNKNOWN
    assert _asked(stream, request_frame(9, 10, Command.LABEL, struct.pack("<Ii", 4, 1)))[10] == Status.REFUSED


def test_another_request_under_the_last_ones_number_is_not_taken_for_it(
    emulated: tuple[Program, EmulatedStream],
) -> None:
    _, stream = emulated
    assert _asked(stream, request_frame(9, 7, Command.HELLO, b""))[10] == Status.DONE
    assert _asked(stream, request_frame(9, 8, Command.RESET, b""))[10] == Status.DONE
    assert _asked(stream, request_frame(9, 8, Command.RESET, b"\1"))[10] == Status.DISORDER
    assert _asked(stream, request_frame(9, 8, Command.SAVE, b""))[10] == Status.DISORDER
    assert _asked(stream, request_frame(9, 8, Command.RESET, b""))[10] == Status.DONE
    assert _asked(stream, request_frame(9, 9, Command.SAVE, b""))[10] == Status.DONE


def test_frames_longer_than_any_are_damaged_and_the_next_one_is_read(emulated: tuple[Program, EmulatedStream]) -> None:
    _, stream = emulated
    for size in (225, 229, 240, 300, 5000):
        answer = _asked(stream, request_frame(9, 7, Command.HELLO, bytes(size)))
        assert (answer[:4], answer[10]) == (bytes(4), Status.DAMAGED)
        assert _asked(stream, request_frame(9, 7, Command.HELLO, bytes(224)))[10] == Status.DONE


class Halved:
    """A stream to a board that from its restart on learns at half the rate that it is told."""

    def __init__(self, stream: EmulatedStream) -> None:
        self.stream, self.name, self._halves = stream, stream.name, False

    def read(self, seconds: float) -> bytes:
        return self.stream.read(seconds)

    def write(self, data: bytes) -> None:
        (content,) = Frames().take(data)
        assert content is not None
        session, number, command = REQUEST.unpack_from(content)
        if self._halves and command == Command.TRAIN:
            (rate,) = struct.unpack("<f", content[REQUEST.size :])
            data = request_frame(session, number, command, struct.pack("<f", rate / 2))
        self.stream.write(data)

    def close(self) -> None:
        self.stream.close()

    def reset(self) -> None:
        self._halves = True
        self.stream.reset()


def test_a_board_that_learns_otherwise_after_a_restart_is_not_gone_on_with(
    emulated: tuple[Program, EmulatedStream],
) -> None:
    program, stream = emulated
    line = Halved(stream)
    with LinkedDevice(program.graph, Line(line)) as device:
        for image, label in samples(program.graph, 3):
            device.train(image, label, RATE)
        line.reset()
        with pytest.raises(LinkError, match=r"a step that was taken before now gives .*its memory or its program has"):
            device.predict(image)


def test_an_image_that_breaks_off_teaches_nothing(emulated: tuple[Program, EmulatedStream], streamed: bool) -> None:
    program, stream = emulated
    image, label = samples(program.graph, 1)[0]
    losses, state = learned(learner(streamed=streamed), 1)
    with LinkedDevice(program.graph, Line(stream)) as device:
        line = device.line
        line.put(Command.LABEL, struct.pack("<i", label))
        line.ask(Command.ROWS, struct.pack("<I", 0) + b"\x55" * 80)
        with pytest.raises(LinkError, match="train was refused"):
            line.ask(Command.TRAIN, struct.pack("<f", RATE))
        for number, (command, data) in enumerate([(Command.HELLO, b""), (Command.ROWS, bytes(4) + b"\x55" * 80)]):
            assert _asked(stream, request_frame(5, number, command, data))[10] == Status.DONE
        refused = _asked(stream, request_frame(5, 2, Command.PREDICT, b""))
        assert refused[10] == Status.REFUSED, "and the image that broke off is not answered besides"
        assert _asked(stream, request_frame(5, 3, Command.ROWS, bytes(4) + b"\x55" * 80))[10] == Status.DONE
        with LinkedDevice(program.graph, Line(stream)) as another:  # a host that died is followed by the next
            assert another.train(image, label, RATE) == losses[0]
            assert same(another.state(), state)


def test_half_a_state_is_never_learned_from(emulated: tuple[Program, EmulatedStream]) -> None:
    program, stream = emulated
    image, label = samples(program.graph, 1)[0]
    with LinkedDevice(program.graph, Line(stream)) as device:
        device.train(image, label, RATE)
        device.save()
        kept = device.state()
        device.line.ask(Command.WRITE, struct.pack("<I", 0) + b"\x7f" * 100)
        for command in (Command.ROWS, Command.SAVE, Command.ADOPT):
            with pytest.raises(LinkError):
                device.line.ask(command, struct.pack("<I", 0) + bytes(100 * (command == Command.ROWS)))
    with LinkedDevice(program.graph, Line(stream)) as device:
        assert same(device.state(), kept), "what was saved takes the place of a mix"


def test_a_load_that_fails_leaves_what_was_learned(emulated: tuple[Program, EmulatedStream]) -> None:
    program, stream = emulated
    image, label = samples(program.graph, 1)[0]
    with LinkedDevice(program.graph, Line(stream)) as device:
        device.train(image, label, RATE)
        before = device.state()
        with pytest.raises(LinkError, match=r"load failed on the board, its function gave -1 .* it holds nothing yet"):
            device.load()
        assert same(device.state(), before)
        device.save()
        device.train(image, label, RATE)
        device.load()
        assert same(device.state(), before)
    flash = stream.flash.bytes
    flash[np.flatnonzero(flash != 0xFF)[100]] ^= 1
    stream.reset()
    with LinkedDevice(program.graph, Line(stream)) as device:
        assert not same(device.state(), before), "what is damaged is not loaded"
        device.train(image, label, RATE)
        after = device.state()
        with pytest.raises(
            LinkError, match=r"load failed on the board, its function gave -2 .* it holds no whole state"
        ):
            device.load()
        assert same(device.state(), after)


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on files that a program writes is POSIX's")
def test_an_example_that_dies_while_it_saves_leaves_the_last_save(
    example: Path, streamed: bool, tmp_path: Path
) -> None:
    program, kept = learner(streamed=streamed), tmp_path / "kept"
    image, label = samples(program.graph, 1)[0]
    with connect(f"exec:{example} link {kept}", program) as device:
        device.train(image, label, RATE)
        device.save()
    before = kept.read_bytes()
    with connect(f"exec:sh -c 'ulimit -f 0; exec {example} link {kept}'", program) as device:
        device.train(image, label, RATE)
        with pytest.raises(LinkError):
            device.save()
    assert kept.read_bytes() == before


def test_a_board_with_another_program_is_refused_by_its_fingerprint(example: Path, tmp_path: Path) -> None:
    other = compile(inverted_residual(4), "last:2", options=Options(CLASSES))
    said = r"runs another program: its fingerprint is \w{16}, that of net4 .* flash it again"
    with pytest.raises(LinkError, match=said):
        connect(f"exec:{example} link {tmp_path / 'kept'}", other)


def test_a_program_that_only_infers_is_asked_over_a_link(tmp_path: Path, m7: BoardTarget) -> None:
    program = compile(inverted_residual(3))
    example = built(tmp_path / "out", program)
    with connect(f"exec:{example} link", program) as device, program.start() as machine:
        for image, _ in samples(program.graph, 2):
            assert device.run(image)[0].tobytes() == machine.run(image)[0].tobytes()
            assert device.predict(image) == machine.predict(image)
        with pytest.raises(InputError, match="does not learn"):
            device.train(image, 0, RATE)
        with pytest.raises(LinkError, match="save is not in this program"):
            device.save()


@pytest.fixture(scope="module")
def sanitized(streamed: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("sanitized") / "out", learner(streamed=streamed), *SANITIZE, "-O0")


def hostile(rng: np.random.Generator, count: int) -> Iterator[bytes]:
    """Noise, frames of nonsense, and requests of every kind with data of every length, some of them in order."""
    number = int(rng.integers(65536))
    yield request_frame(1, number, Command.HELLO, b"")
    for _ in range(count):
        kind = rng.integers(4)
        data = rng.bytes(int(rng.integers(600)))
        if kind == 0:
            yield data
        elif kind == 1:
            yield frame(data)
        else:
            number += 1
            at = int(rng.choice([0, 1, 100, 2**31, 2**32 - 1]))
            yield request_frame(
                1, number & 0xFFFF, int(rng.integers(17)), struct.pack("<I", at) + data[: int(rng.choice([220, 600]))]
            )


def test_no_bytes_make_the_firmware_leave_its_buffers(sanitized: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sent = b"".join(hostile(rng, 3000)) + b"\0" + request_frame(2, 5, Command.HELLO, b"")
    command = [str(sanitized), "link", str(tmp_path / "kept")]
    ran = subprocess.run(command, input=sent, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr.decode()[:3000]
    answers = [read_answer(content) for content in Frames().take(ran.stdout) if content is not None]
    said = {answer.status for answer in answers if answer is not None}
    assert said >= {Status.DONE, Status.DAMAGED, Status.UNKNOWN, Status.REFUSED}
    assert answers[-1] is not None
    assert (answers[-1].session, answers[-1].status) == (2, Status.DONE)
