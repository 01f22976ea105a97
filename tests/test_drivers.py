"""Drivers of flash that a written project brings: a program keeps what it learned by them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from native import SANITIZE
from networks import CLASSES, inverted_residual
from smidgen.codegen import RUNTIME
from smidgen.pipeline import compile
from smidgen.targets import toolchain
from smidgen.targets.boards import BOARDS
from smidgen.targets.compiler import Cache, find_compiler
from smidgen.targets.host import INSIDE
from smidgen.training import Options

HERE = Path(__file__).parent
STORE = RUNTIME / "store"
HEADERS = {"rp2040": ("hardware/flash.h", "hardware/sync.h"), "esp32": ("esp_partition.h",)}  # of the chips' SDKs
CORES = {"nrf52": "nrf52840", "stm32f7": "stm32f746"}  # chips whose registers a driver writes
BLANK = bytes([0xFF]) * (2 << 20)


def test_every_driver_is_tried() -> None:
    assert {path.stem for path in (STORE / "flash").iterdir()} == HEADERS.keys() | CORES.keys()


@pytest.mark.parametrize("chip", HEADERS)
def test_a_program_goes_on_from_what_it_kept_in_a_chips_flash(chip: str, cache: Path, tmp_path: Path) -> None:
    program = compile(inverted_residual(0), "last:2", options=Options(CLASSES))
    program.write(tmp_path / "out")
    for name in HEADERS[chip]:
        (tmp_path / "sdk" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sdk" / name).write_text('#include "pretended_sdk.h"\n')
    sources = [*(tmp_path / "out/model").glob("*.c"), *(tmp_path / "out/smidgen").glob("store*.c")]
    headers, built = program.sources.headers, Cache(cache, find_compiler())
    kernels = [
        built.build(".o", {**headers, path.name: path.read_text()}, *INSIDE, "-I.", "-c", path.name)
        for path in program.sources.kernels
    ]
    folders = [f"-I{folder}" for folder in ("out/model", "out/smidgen", "sdk", HERE)]
    main = (tmp_path / f"out/flash/{chip}.c", HERE / "pretended_sdk.c")
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


@pytest.mark.parametrize("chip", CORES)
def test_a_driver_that_writes_registers_compiles_without_a_warning(chip: str, tmp_path: Path) -> None:
    warnings = ("-pedantic", "-Wshadow", "-Wstrict-prototypes", "-Wconversion", "-Wsign-conversion")
    compiler = toolchain.find("zig", BOARDS[CORES[chip]].core)
    source = STORE / "flash" / f"{chip}.c"
    compiler(*warnings, f"-I{STORE}", "-c", source, "-o", "driver.o", folder=tmp_path)
