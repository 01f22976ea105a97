"""A board's example keeps what it learned in its own flash: through resets and power cuts, at the cost that is said."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.flash import BOARD_FLASH, EmulatedFlash, Kept, Store, Torn
from smidgen.codegen import SECTOR_BYTES, kept_sectors
from smidgen.errors import TargetError
from smidgen.ir import Array
from smidgen.link import Line, LinkedDevice, LinkError
from smidgen.link.frames import Command
from smidgen.pipeline import Program, compile
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.boards import BOARDS, resize
from smidgen.targets.counter import Counter
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import read_image
from smidgen.targets.lines import BLANK, EmulatedStream, LinkedBoard, emulated_line
from smidgen.training import Options
from tests.codegen.test_project import succeed
from tests.support.chip_flash import ChipBoard, Controller, Nvmc, Stm32f7
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import first
from tests.support.tools import need_compiler

RATE = 0.05
MAGIC = 0x53474D53  # of a store's sectors
LIMIT = 200_000_000
SAVED = b"\1\0\0\0"


def learner(target: BoardTarget | str = "cortex-m7") -> Program:
    return compile(inverted_residual(3), "last:2", target, options=Options(CLASSES))


def recorded(target: BoardTarget, firmware: Path) -> tuple[EmulatedStream, EmulatedFlash]:
    """The line to a board whose flash counts operations and can lose its power."""
    stream = emulated_line("board", target, firmware)
    stream.flash = flash = EmulatedFlash(BOARD_FLASH, stream.flash.sectors)
    stream.reset()
    return stream, flash


def image_of(program: Program) -> Array:
    return np.random.default_rng(0).integers(-128, 128, program.graph.image.type.shape).astype(np.int8)


def same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "out"
    learner().write(folder)
    return folder


def made(project: Path, *switches: str) -> Path:
    """The firmware that `make` builds of the project as it was written."""
    succeed(
        "make", "-s", "CFLAGS=-O1 -Wall -Wextra -Werror -ffunction-sections -fdata-sections", *switches, folder=project
    )
    return project / "firmware.elf"


@pytest.mark.parametrize("compiler", first("zig", "gcc"))
def test_a_written_project_that_keeps_what_it_learned_has_it_after_a_reset(
    project: Path, compiler: str, cache: Path
) -> None:
    need_compiler(compiler)
    program, firmware = learner(), made(project, "LINK=1", "KEEPS=1", f"COMPILER={compiler}")
    stream = emulated_line("board", BoardTarget(cache=cache, limit=LIMIT), firmware)
    with LinkedDevice(program.graph, Line(stream)) as board:
        at_first = board.state()
        board.train(image_of(program), 1, RATE)
        board.save()
        saved = board.state()
        board.train(image_of(program), 0, RATE)
    stream.reset()
    with LinkedDevice(program.graph, Line(stream)) as board:
        assert same(board.state(), saved)
    assert not same(saved, at_first)
    assert (stream.flash.bytes != BLANK).any()


def test_make_builds_anew_where_it_is_to_build_otherwise_and_only_there(project: Path) -> None:
    sizes = {words: made(project, *words).stat() for words in ((), ("LINK=1",), ("LINK=1", "KEEPS=1"))}
    assert len({size.st_size for size in sizes.values()}) == 3
    again = made(project, "LINK=1", "KEEPS=1").stat()
    assert again.st_mtime_ns == sizes["LINK=1", "KEEPS=1"].st_mtime_ns


def test_a_link_without_a_driver_for_flash_keeps_nothing_and_says_so(project: Path, cache: Path) -> None:
    firmware = made(project, "LINK=1")
    assert not read_image(firmware).section(".kept").bytes
    stream = emulated_line("board", BoardTarget(cache=cache, limit=LIMIT), firmware)
    with (
        LinkedDevice(learner().graph, Line(stream)) as board,
        pytest.raises(LinkError, match="save failed on the board, its function gave 1: it has nowhere to keep"),
    ):
        board.save()


def rested(board: EmulatedBoard) -> tuple[bytes, bytes]:
    """Whether an example has saved, and its last loss, once it has learned and rests in an endless loop."""
    with pytest.raises(TargetError, match=r"was stopped in main"):
        board.exchange(b"", LIMIT)
    saved, loss = (bytes(board._uc.mem_read(board.image.symbol(name).address, 4)) for name in ("saved", "loss"))
    return saved, loss


def test_an_example_without_a_link_goes_on_from_what_it_kept(project: Path, cache: Path) -> None:
    image = read_image(made(project, "KEEPS=1"))
    flash = EmulatedFlash(BOARD_FLASH, image.section(".kept").bytes // SECTOR_BYTES)

    def started() -> LinkedBoard:
        return LinkedBoard(BOARDS["cortex-m7"], image, Counter(image, {}, (), 0), cache, flash)

    first, second = rested(started()), rested(started())
    assert first[0] == second[0] == SAVED
    assert first[1] != second[1], "the second one began where the first ended"


CHIPS: dict[str, tuple[str, type[Controller], int]] = {
    "nrf52": ("nrf52840", Nvmc, 16),
    "stm32f7": ("stm32f746", Stm32f7, 2),
}


@pytest.mark.parametrize("chip", first(*CHIPS))
def test_an_example_with_a_chips_own_driver_goes_on_from_what_it_kept(chip: str, tmp_path: Path, cache: Path) -> None:
    name, controller, sectors = CHIPS[chip]
    folder = tmp_path / "out"
    learner(name).write(folder)
    shutil.copy(folder / "flash" / f"{chip}.c", folder / "board" / "flash.c")
    keep = folder / "board" / "keep.h"
    keep.write_text(re.sub(r"KEPT_SECTORS = \d+", f"KEPT_SECTORS = {sectors}", keep.read_text()))
    image = read_image(made(folder, "KEEPS=1"))
    boards = [ChipBoard(BOARDS[name], image, cache, controller(), None)]
    first = rested(boards[0])
    boards.append(ChipBoard(BOARDS[name], image, cache, controller(), boards[0].held()))
    second = rested(boards[1])
    assert first[0] == second[0] == SAVED
    assert first[1] != second[1], "the second one began where the first ended"
    assert [board.controller.wrong for board in boards] == [[], []]


@pytest.mark.parametrize("torn", first("some", "nothing", "everything"))
def test_power_that_fails_during_a_save_leaves_the_old_or_the_new_state_on_the_board(torn: Torn, cache: Path) -> None:
    target = BoardTarget(cache=cache)
    program = learner(target)
    firmware = target.linked(program.graph, program.sources)
    stream, flash = recorded(target, firmware)
    with LinkedDevice(program.graph, Line(stream)) as board:
        board.train(image_of(program), 0, RATE)
        board.save()
        old = board.state()
        board.train(image_of(program), 1, RATE)
        new, kept = board.state(), flash.bytes.copy()
    stream.reset()
    with LinkedDevice(program.graph, Line(stream)) as board:  # a save after a restart is another than one before it
        board.restore(new)
        before = flash.operations
        board.save()
    count, found = flash.operations - before, []
    for cut in np.linspace(0, count - 1, 12).astype(int):
        flash.bytes[:] = kept
        stream.reset()
        with LinkedDevice(program.graph, Line(stream)) as board:
            board.restore(new)
            flash.cut(int(cut), torn)
            with pytest.raises(TargetError, match="cortex-m7 lost its power while it wrote to flash; reset it"):
                board.line.ask(Command.SAVE)
        stream.reset()
        with LinkedDevice(program.graph, Line(stream)) as board:
            state = board.state()
            assert same(state, old) or same(state, new)
            found.append(same(state, new))
    assert count > 50
    assert not found[0]
    assert found[-1] or torn != "everything"


# Programs a word of the board's flash twice, by its driver.
TWICE = """#include "smidgen_store.h"
extern const smg_flash chip_flash;
int main(void) {{
    const uint32_t first = 0x0000ffff, second = {};
    if (chip_flash.erase(0, 0) || chip_flash.program(0, 64, &first, 4)) return 1;
    chip_flash.program(0, 64, &second, 4);
    for (;;) {{
    }}
}}
"""


@pytest.mark.parametrize(("second", "said"), [("0x0000f0f0", "was stopped"), ("0x00010000", "only an erase sets bits")])
def test_flash_of_an_emulated_board_sets_no_bit_without_an_erase(second: str, said: str, cache: Path) -> None:
    target = BoardTarget(cache=cache)
    program = learner(target)
    files = program.files()
    own = {Path(name).name: files[name] for name in ("board/flash.c", "smidgen/smidgen_store.h")}
    firmware = target.build(program.graph, program.sources, {**own, "main.c": TWICE.format(second)})
    with pytest.raises(TargetError, match=said):
        emulated_line("board", replace(target, limit=1_000_000), firmware)


def another_programs(flash: EmulatedFlash, cache: Path) -> None:
    memory: Array = np.ones(100, np.uint8)
    Store(flash, memory, Kept(flash.sectors, program=(1, 2)), cache).save()


def another_layouts(flash: EmulatedFlash, cache: Path) -> None:
    head = struct.pack("<II", MAGIC, 2) + bytes(32)
    flash.program(0, head + struct.pack("<I", zlib.crc32(head)))


def worn(flash: EmulatedFlash, cache: Path) -> None:
    flash.bytes[9::SECTOR_BYTES] = 0
    flash.worn = set(range(flash.sectors))


REFUSED: dict[Callable[[EmulatedFlash, Path], None], tuple[int, str]] = {
    another_programs: (-3, "another program"),
    another_layouts: (-4, "another version"),
    worn: (-6, "too few"),
}


@pytest.mark.parametrize("spoiled", REFUSED, ids=lambda spoiled: str(spoiled.__name__))
def test_flash_that_a_board_cannot_save_to_is_told_by_the_host_and_stays_as_it_is(
    spoiled: Callable[[EmulatedFlash, Path], None], cache: Path
) -> None:
    target = BoardTarget(cache=cache)
    program, (code, words) = learner(target), REFUSED[spoiled]
    stream, flash = recorded(target, target.linked(program.graph, program.sources))
    spoiled(flash, cache)
    held = flash.bytes.copy()
    stream.reset()
    with LinkedDevice(program.graph, Line(stream)) as board:
        board.train(image_of(program), 1, RATE)
        learned = board.state()
        with pytest.raises(LinkError, match=rf"save failed on the board, its function gave {code} .*{words}"):
            board.save()
        assert same(board.state(), learned)
    assert np.array_equal(flash.bytes, held)


def test_a_region_without_room_for_two_states_is_told_by_the_host(project: Path, tmp_path: Path, cache: Path) -> None:
    small = shutil.copytree(project, tmp_path / "small")
    keep = small / "board" / "keep.h"
    keep.write_text(re.sub(r"KEPT_SECTORS = \d+", "KEPT_SECTORS = 1", keep.read_text()))
    stream = emulated_line("board", BoardTarget(cache=cache), made(small, "LINK=1", "KEEPS=1"))
    with (
        LinkedDevice(learner().graph, Line(stream)) as board,
        pytest.raises(LinkError, match=r"save failed on the board, its function gave -5 .*no room for two states"),
    ):
        board.save()


@pytest.mark.parametrize("size", [1, 100, 3900, 4000, 4032, 8064, 37_064, 124_992])
def test_the_sectors_of_a_project_hold_two_states_and_two_may_wear_out(size: int, cache: Path) -> None:
    flash = EmulatedFlash(BOARD_FLASH, kept_sectors(size))
    store = Store(flash, np.zeros(size, np.uint8), Kept(flash.sectors), cache)
    assert store.needed + 2 <= flash.sectors <= store.needed + 4


def test_a_bare_program_has_nothing_of_the_store(cache: Path) -> None:
    target = BoardTarget(cache=cache)
    program = learner(target)
    bare, kept = (read_image(make(program.graph, program.sources)) for make in (target.build, target.linked))
    assert not any(symbol.name.startswith("smg_store") for symbol in bare.symbols)
    assert not bare.section(".kept").bytes
    assert kept.section(".kept").bytes == kept_sectors(program.memory.state) * SECTOR_BYTES


def test_a_board_with_no_room_to_keep_anything_is_told_what_that_takes(cache: Path) -> None:
    board = resize(BOARDS["cortex-m7"], flash="64KB")
    target = BoardTarget(board, cache=cache)
    program = learner(target)
    said = r"bytes of flash, cortex-m7 has 65,536: code [\d,]+, constants [\d,]+, what is kept [\d,]+\. Take a smaller"
    with pytest.raises(TargetError, match=said):
        target.linked(program.graph, program.sources)
