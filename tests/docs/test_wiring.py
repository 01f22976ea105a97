"""What docs/device.md and docs/internals/flash.md say to type works: their commands run, and their C is C."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smidgen.compiler import find_compiler
from smidgen.frontends.native import write_smg
from smidgen.pipeline import compile
from smidgen.training import Options
from tests.cli.test_cli import invoke
from tests.support.house import TOP
from tests.support.networks import CLASSES, inverted_residual
from tests.support.small_network import small_network

DEVICE, FLASH = ((TOP / "docs" / name).read_text() for name in ("device.md", "internals/flash.md"))
PORT = "/dev/ttyACM0"
EMULATED = ("emulated:cortex-m7", "--project", "out", "--flash", "chip")  # in the place of a board at a port
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only")


def blocks(page: str) -> list[str]:
    """The C of a page."""
    return re.findall(r"```c\n(.*?)```", page, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and photographs, called as on the page."""
    folder = tmp_path_factory.mktemp("wiring")
    write_smg(small_network(), folder / "model.smg")
    rng = np.random.default_rng(0)
    for name in ("cup", "hand", "key"):
        for index in range(8):
            (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (24, 24, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{index}.png")
    Image.fromarray(pixels).save(folder / "photo.jpg")
    return folder


def test_the_commands_of_the_page_about_boards_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (block,) = (text for text in re.findall(r"```bash\n(.*?)```", DEVICE, re.DOTALL) if PORT in text)
    lines = re.findall(r"^smidgen (.*)$", block, re.MULTILINE)  # the others are run by test_docs_commands.py
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[0] == "device" and words[1] == PORT:
            words = ["device", *EMULATED, *words[2:]]
        more = ("--looks", "1") if words[-1] == "monitor" else ()
        assert invoke(*words, *more), line
    assert (folder / "chip").stat().st_size > 16


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c") / "out"
    compile(inverted_residual(3), "last:2", "cortex-m7", options=Options(CLASSES), streamed_input=True).write(folder)
    return folder


def checked(project: Path, text: str, *flags: str) -> None:
    (project / "typed.c").write_text(text)
    includes = [f"-I{project / name}" for name in ("model", "smidgen", "board")]
    find_compiler()(*STRICT, *flags, *includes, "typed.c", folder=project)


# Prints the first pixels of the last row, which are 0, 1, 2, 3 and 5 of a line that is longer by a quarter.
LAST_ROW = """
#include <stdio.h>
static const uint16_t line[PIXELS] = {0xf800, 0xf800, 0x07e0, 0x001f, 0, 0xffff}, other[PIXELS];
const uint16_t *camera_wait_line(int at) { return at == LINES - 1 ? line : other; }
int main(void) {
    int8_t row[COLUMNS * 3];
    camera_row(0, row, ROWS - 1);
    for (int i = 0; i < 15; i++) printf("%d ", row[i]);
    return 0;
}
"""


def test_the_camera_of_the_page_gives_the_bytes_that_a_model_reads(project: Path) -> None:
    (camera,) = (block for block in blocks(DEVICE) if "camera_row" in block)
    checked(project, camera)
    row = camera[camera.index("enum") : camera.index("/* Once per image")]
    (project / "camera.c").write_text("#include <stdint.h>\n" + row + LAST_ROW)
    find_compiler()("-o", "camera", "camera.c", folder=project)
    said = subprocess.run([project / "camera"], capture_output=True, text=True, check=True).stdout
    pixels = np.array(said.split(), int).reshape(5, 3).tolist()
    red, green, blue, white = [127, -128, -128], [-128, 127, -128], [-128, -128, 127], [127, 127, 127]
    assert pixels == [red, red, green, blue, white]


def test_the_store_of_the_page_about_flash_is_c(project: Path) -> None:
    (store,) = (block for block in blocks(FLASH) if "int main(void)" in block)
    checked(project, store, "-Wno-unused-but-set-variable")


def test_the_uart_of_the_page_is_c(project: Path) -> None:
    (uart,) = (block for block in blocks(DEVICE) if "USART1_IRQHandler" in block)
    registers = "#include <stdint.h>\nvoid USART1_IRQHandler(void);\nenum { USART_ISR_TXE = 128 };\n"
    registers += "static volatile struct { uint32_t RDR, TDR, ISR; } usart;\n#define USART1 (&usart)\n"
    checked(project, registers + uart)
