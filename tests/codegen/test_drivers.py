"""Drivers of flash that a written project brings: a program keeps what it learned by them."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from smidgen.codegen import RUNTIME
from smidgen.compiler import Cache, find_compiler
from smidgen.pipeline import compile
from smidgen.targets import toolchain
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import INSIDE
from smidgen.targets.image import read_image
from smidgen.targets.toolchain import start_files
from smidgen.training import Options
from tests.support.chip_flash import ChipBoard, Nvmc, Stm32f7
from tests.support.native import SANITIZE
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import first

SUPPORT = Path(__file__).parents[1] / "support"
STORE = RUNTIME / "store"
HEADERS = {"rp2040": ("hardware/flash.h", "hardware/sync.h"), "esp32": ("esp_partition.h",)}  # of the chips' SDKs
# Chips whose registers a driver writes: a board, its controller, and the sectors of a store.
CORES = {"nrf52": ("nrf52840", Nvmc, 16), "stm32f7": ("stm32f746", Stm32f7, 2)}
LIMIT = 100_000_000  # instructions
WARNINGS = ("-pedantic", "-Wshadow", "-Wstrict-prototypes", "-Wconversion", "-Wsign-conversion")
BLANK = bytes([0xFF]) * (2 << 20)


def test_every_driver_is_tried() -> None:
    assert {path.stem for path in (STORE / "flash").iterdir()} == HEADERS.keys() | CORES.keys()


@pytest.mark.parametrize("chip", first(*HEADERS))
def test_a_program_goes_on_from_what_it_kept_in_a_chips_flash(chip: str, cache: Path, tmp_path: Path) -> None:
    program = compile(inverted_residual(0), "last:2", options=Options(CLASSES))
    program.write(tmp_path / "out")
    for name in HEADERS[chip]:
        (tmp_path / "sdk" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sdk" / name).write_text('#include "pretended_sdk.h"\n')
    sources = [*(tmp_path / "out/model").glob("*.c"), *(tmp_path / "out/smidgen").glob("store*.c")]
    kernels = program.sources.objects(Cache(cache, find_compiler()), *INSIDE)
    folders = [f"-I{folder}" for folder in ("out/model", "out/smidgen", "sdk", SUPPORT)]
    main = (tmp_path / f"out/flash/{chip}.c", SUPPORT / "pretended_sdk.c")
    find_compiler()(*SANITIZE, *folders, "-o", "kept", *main, *sources, *kernels, folder=tmp_path)
    (tmp_path / "chip").write_bytes(BLANK)

    def run(steps: int) -> tuple[int, bytes]:
        done = subprocess.run([tmp_path / "kept", "chip", str(steps)], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return int(done.stdout[:4]), done.stdout[4:]

    found, learned = run(3)
    assert found == -1, "nothing was there"
    assert run(0) == (0, learned)
    again, more = run(2)
    assert again == 0
    assert more != learned
    assert run(0) == (0, more)
    assert (tmp_path / "chip").read_bytes().count(0xFF) > len(BLANK) - (64 << 10)


@pytest.mark.parametrize("chip", first(*CORES))
def test_a_driver_that_writes_registers_keeps_what_was_learned_through_restarts(chip: str, cache: Path) -> None:
    name, controller, sectors = CORES[chip]
    target = BoardTarget(BOARDS[name], cache=cache)
    paths = (*STORE.glob("*.[ch]"), STORE / "flash" / f"{chip}.c", SUPPORT / "chip_main.c")
    files = {**start_files(target.board), **{path.name: path.read_text() for path in paths}}
    own = [file for file in files if file.endswith(".c")]
    built = Cache(cache, toolchain.find("zig", target.board.core))
    link = (*WARNINGS, f"-DREGION={sectors}", "-I.", "-T", "board.ld", *toolchain.link_flags("zig", target.board.core))
    image = read_image(built.build(".elf", files, *link, *own))
    flash, learned, erases = None, b"", 0
    for restart in range(3):
        board = ChipBoard(target.board, image, cache, controller(), flash)
        answers = {}
        for request in ("o", "l", "w", "s", "s"):
            answer = board.exchange(request.encode(), LIMIT)
            answers[request] = struct.unpack_from("<i", answer)[0], answer[4:]
        there = 0 if restart else -1
        assert [answers[request][0] for request in "olws"] == [there, there, 0, 0]
        assert answers["l"][1] == (learned or bytes(len(answers["l"][1]))), "what the last program saved"
        assert board.controller.wrong == []
        flash, learned, erases = board.held(), answers["s"][1], erases + board.controller.erases
    assert erases > 2
