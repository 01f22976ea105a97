"""Programs of every kind over a link: whatever a step is told, streams that go on, headers that C++ takes as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.lines import Faulty, Flaky
from smidgen.codegen import link_header
from smidgen.codegen.project import LINK
from smidgen.learning.testing import measure
from smidgen.link import Line, LinkedDevice, connect
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import M7
from smidgen.targets.device import restart
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.lines import EmulatedStream
from smidgen.targets.toolchain import core_flags
from smidgen.training import Options
from tests.codegen.test_project import ZIG, succeed
from tests.support.loss_tasks import Task, cells, position, spectra, yes_or_no
from tests.support.networks import CLASSES, inverted_residual
from tests.support.streams import CLASSES as STREAM_CLASSES
from tests.support.streams import stream_of, streaming_network

STRICT = (
    "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-ffreestanding",
)  # fmt: skip
FUNCTIONS = """#include "model.h"
static int model_link_read(void *data, int size) { (void)data; return size - size; }
static void model_link_write(const void *data, int size) { (void)data; (void)size; }
static int model_link_save(void) { return 1; }
static int model_link_load(void) { return 1; }
#include "model_link.h"
int serve(void);
int serve(void) {
    model_init();
    if (model_link_save()) model_link_start(7);
    return model_link_poll() + model_link_load();
}
"""


@pytest.fixture(scope="module")
def m7(cache: Path) -> BoardTarget:
    return BoardTarget(cache=cache)


def emulated(program: Program) -> EmulatedStream:
    stream = connect("emulated:cortex-m7", program).line.stream
    assert isinstance(stream, EmulatedStream)
    return stream


@pytest.mark.parametrize("make", [yes_or_no, position, cells, spectra], ids=lambda make: str(make.__name__))
def test_whatever_a_step_is_told_a_board_learns_it_over_a_bad_line(
    make: Callable[[], Task], m7: BoardTarget, host: Host
) -> None:
    task = make()
    program = task.compile(m7)
    line = Line(Faulty(emulated(program), share=0.002))
    with LinkedDevice(program.graph, line) as board, task.compile(host).start() as machine:
        for place in range(3):
            image, told = task.sample(place)
            assert board.train(image, told, task.rate) == machine.train(image, told, task.rate)
        assert {n: a.tobytes() for n, a in board.state().items()} == {
            n: a.tobytes() for n, a in machine.state().items()
        }
        some = task.data.test.at(range(2))
        assert measure(board, some) == measure(machine, some)


def test_a_stream_goes_on_although_the_board_restarts(m7: BoardTarget, host: Host) -> None:
    graph = streaming_network()
    boards, machines = (compile(graph, "last:2", t, options=Options(STREAM_CLASSES)) for t in (m7, host))
    line = Line(Flaky(emulated(boards), at=(5, 9, 14, 15)))
    with LinkedDevice(boards.graph, line) as board, machines.start() as machine:
        for place, image in enumerate(stream_of(graph, 6)):
            if place == 4:
                restart(board)
                restart(machine)
            assert board.predict(image) == machine.predict(image)
            assert board.train(image, place % STREAM_CLASSES, 0.01) == machine.train(
                image, place % STREAM_CLASSES, 0.01
            )
        kept = machine.state()
        assert all(array.tobytes() == kept[name].tobytes() for name, array in board.state().items())
        assert board.restarts >= 3


PROGRAMS: dict[str, Callable[[], Program]] = {
    "classes": lambda: compile(inverted_residual(3), "last:2", options=Options(CLASSES)),
    "rows": lambda: compile(inverted_residual(3), "last:2", options=Options(CLASSES), streamed_input=True),
    "infers": lambda: compile(inverted_residual(3)),
    "stream": lambda: compile(streaming_network()),
    "vectors": lambda: position().compile("host"),
    "maps": lambda: cells().compile("host"),
    "nothing": lambda: spectra().compile("host"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_header_is_strict_c_and_cpp(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]()
    files = {
        **program.sources.files,
        **program.sources.interface_headers,
        **link_header(program.graph, program.sources),
    }
    for file, text in {**files, "serve.c": FUNCTIONS, "serve.cpp": FUNCTIONS}.items():
        (tmp_path / file).write_text(text)
    core = core_flags("zig", M7)
    succeed(*ZIG, "cc", *core, "-std=c99", *STRICT, f"-I{LINK}", "-c", "serve.c", folder=tmp_path)
    succeed(*ZIG, "c++", *core, "-std=c++11", *STRICT, "-nostdinc++", f"-I{LINK}", "-c", "serve.cpp", folder=tmp_path)
