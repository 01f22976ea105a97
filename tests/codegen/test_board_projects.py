"""A project written for a board is built by its own makefile and by CMake, far from our tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.image import read_image
from smidgen.training import Options
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import first
from tests.support.tools import need_compiler


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project written for a board, far from our tree."""
    folder = tmp_path_factory.mktemp("project") / "out"
    graph = inverted_residual(3)
    compile(graph, "head", "stm32f746", options=Options(CLASSES), streamed_input=True).write(folder)
    return folder


PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def build(folder: Path, *command: str) -> None:
    env = {**os.environ, "PATH": PATH}
    built = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


BUILDS = {
    "make": (("make", "-s", "COMPILER={}", "CFLAGS=-O1 -Wall -Wextra -Werror"), "firmware.elf"),
    "cmake": (("cmake", "-DCOMPILER={}", "-B", "build-{}"), "build-{}/firmware.elf"),
}


@pytest.mark.parametrize("compiler", first("zig", "gcc"))
@pytest.mark.parametrize("tool", first(*BUILDS))
def test_a_written_project_builds_without_a_file_of_ours(project: Path, tool: str, compiler: str) -> None:
    need_compiler(compiler)
    if not shutil.which(tool, path=PATH):
        pytest.skip(f"{tool} is not installed")
    command, firmware = BUILDS[tool]
    (project / "firmware.elf").unlink(missing_ok=True)
    build(project, *(word.format(compiler) for word in command))
    if tool == "cmake":
        build(project, "cmake", "--build", f"build-{compiler}")
    image = read_image(project / firmware.format(compiler))
    assert BOARDS["stm32f746"].sram.origin < image.symbol("arena").address
    assert image.symbol("main").is_code


def test_a_written_project_says_what_the_board_has(project: Path, tmp_path: Path) -> None:
    script, readme = ((project / name).read_text() for name in ("board/board.ld", "README.md"))
    assert "LENGTH = 327680" in script
    assert "320 KB of SRAM" in readme
    compile(inverted_residual(3), target="nrf52840").write(tmp_path / "out")
    assert "ORIGIN = 0x00000000, LENGTH = 1048576" in (tmp_path / "out" / "board" / "board.ld").read_text()
