"""Packages built by the tools of their ecosystems, or as these would, and run: each learns the host's bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from smidgen.codegen import PackageKind
from smidgen.link import Line, LinkedDevice
from smidgen.link.frames import ProcessStream, Stream
from smidgen.pipeline import Program
from smidgen.targets import toolchain
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.lines import emulated_line
from smidgen.targets.toolchain import start_files
from tests.codegen.test_packages import learned, learned_here, learner, ran
from tests.support.tools import need

ECOSYSTEMS = Path(__file__).parents[1] / "ecosystems"
BUILDER = Path("/usr/share/arduino-builder")  # where Debian keeps its settings

AVR = Path("/usr/share/arduino/hardware/arduino/avr")
VIRT = "qemu-system-riscv32 -M virt -cpu rv32 -bios none -display none -monitor none -serial stdio"
DEFAULT_STACK = 1024  # bytes that Zephyr gives the main thread where nothing is said


def differing(stream: Stream, program: Program) -> list[str]:
    """What a device at the end of a line learned otherwise than this machine."""
    here = learned_here(program)
    with LinkedDevice(program.graph, Line(stream)) as device:
        there = learned(device, program)
    return [name for name in here if there[name] != here[name]]


def building(package: Path, hardware: Path, board: str, folder: Path) -> tuple[str | Path, ...]:
    """How arduino-builder builds the package's example in a folder: by what a sketch includes it finds libraries."""
    command = ("arduino-builder", "-compile", "-quiet", "-hardware", hardware, "-hardware", BUILDER, "-tools", BUILDER)
    where = ("-libraries", package.parent, "-build-path", folder, "-fqbn", board)
    return (*command, *where, package / "examples" / "Train" / "Train.ino")


@pytest.mark.slow
@pytest.mark.parametrize(("board", "own"), [("cortex-m7", True), ("cortex-m0plus", False)])
def test_arduinos_builder_finds_the_library_and_its_sketch_learns_the_hosts_bytes(
    board: str, own: bool, cache: Path, tmp_path: Path
) -> None:
    """With a core of our own, whose serial line is the emulator's: Debian packages none of 32 bits."""
    need("arduino-builder", "arm-none-eabi-gcc")
    target = BoardTarget(BOARDS[board], cache=cache)
    program = learner(target if own else None)
    program.write(tmp_path / "libraries" / "smidgen_net3", export=PackageKind.arduino)
    shutil.copytree(ECOSYSTEMS / "arduino" / "hardware", tmp_path / "hardware")
    for name, text in start_files(target.board).items():
        (tmp_path / "hardware/smidgen/emulated/cores/emulated" / name).write_text(text)
    name, built = f"smidgen:emulated:{board.removeprefix('cortex-')}", tmp_path / "built"
    built.mkdir()
    package = tmp_path / "libraries" / "smidgen_net3"
    ran(*building(package, tmp_path / "hardware", name, built), folder=tmp_path)
    assert differing(emulated_line(board, target, built / "Train.ino.elf"), program) == []


@pytest.mark.slow
def test_a_real_core_of_16_bits_is_refused_by_the_library_itself(tmp_path: Path) -> None:
    """The one core that Debian packages, for AVR: the builder finds the library, whose sources say why not."""
    need("arduino-builder", "avr-gcc")
    if not AVR.is_dir():
        pytest.skip("arduino-core-avr is not installed: apt install arduino-core-avr")
    package, built = tmp_path / "libraries" / "smidgen_net3", tmp_path / "built"
    learner().write(package, export=PackageKind.arduino)
    built.mkdir()
    command = building(package, AVR.parents[1], "arduino:avr:mega:cpu=atmega2560", built)
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert str(package / "src" / "smidgen_flags.h") in said.stderr
    assert re.search(
        r"an int of 32 bits for granted, and this core's has fewer: choose a board of 32 bits", said.stderr
    )


@pytest.mark.slow
def test_an_example_of_esp_idf_is_built_from_its_manifest_and_learns_the_hosts_bytes(tmp_path: Path) -> None:
    """With the kernels and for the core of an ESP32-C3, with a build system and drivers of our own; it runs in QEMU."""
    need("cmake", "riscv64-unknown-elf-gcc", "qemu-system-riscv32")
    program = learner("esp32-c3")
    program.write(tmp_path / "smidgen_net3", export=PackageKind.esp_idf)
    example = tmp_path / "smidgen_net3" / "examples" / "train"
    ran("cmake", "-E", "env", f"IDF_PATH={ECOSYSTEMS / 'esp_idf'}", "cmake", "-B", "build", folder=example)
    ran("cmake", "--build", "build", folder=example)
    firmware = example / "build" / "train.elf"
    assert differing(ProcessStream(f"{VIRT} -kernel {firmware}"), program) == []


@pytest.mark.slow
def test_a_sample_of_zephyr_builds_its_module_and_learns_the_hosts_bytes_on_the_stack_it_asks_for(
    cache: Path, tmp_path: Path
) -> None:
    """With a build system and a kernel of our own: a thread has the stack that the sample's settings give it."""
    need("cmake", "arm-none-eabi-gcc")
    package, board = tmp_path / "smidgen_net3", tmp_path / "board"
    program = learner(BoardTarget(BOARDS["cortex-m7"], cache=cache))
    program.write(package, export=PackageKind.zephyr)
    sample = package / "samples" / "train"
    settings = dict(line.split("=") for line in (sample / "prj.conf").read_text().splitlines() if "=" in line)
    stack = int(settings.get("CONFIG_MAIN_STACK_SIZE", DEFAULT_STACK))
    target = BoardTarget(replace(BOARDS["cortex-m7"], stack=stack), cache=cache)
    board.mkdir()
    for name, text in start_files(target.board).items():
        (board / name).write_text(text)
    base = f"ZEPHYR_BASE={ECOSYSTEMS / 'zephyr'}"
    ran("cmake", "-E", "env", base, "cmake", "-B", "build", f"-DBOARD_DIR={board}", folder=sample)
    ran("cmake", "--build", "build", folder=sample)
    assert differing(emulated_line("zephyr", target, sample / "build" / "zephyr.elf"), program) == []


@pytest.mark.slow
def test_the_files_that_a_pack_describes_are_a_program_that_learns_the_hosts_bytes(cache: Path, tmp_path: Path) -> None:
    """As an IDE builds them, for size and without a flag of ours; the line is what the example leaves to its user."""
    need("arm-none-eabi-gcc")
    target, folder = BoardTarget(BOARDS["cortex-m7"], cache=cache), tmp_path / "pack"
    program = learner(target)
    program.write(tmp_path / "written", export=PackageKind.cmsis_pack)
    (pack,) = (tmp_path / "written").glob("*.pack")
    with zipfile.ZipFile(pack) as archive:
        archive.extractall(folder)
    (described,) = folder.glob("*.pdsc")
    files = [(str(f.get("category")), str(f.get("name"))) for f in ElementTree.parse(described).iterfind(".//file")]
    includes = [f"-I{name}" for category, name in files if category == "include"]
    sources = [name for category, name in files if category in ("sourceC", "sourceAsm")]
    for name, text in {**start_files(target.board), "line.c": (ECOSYSTEMS / "cmsis/line.c").read_text()}.items():
        (folder / name).write_text(text)
    core = toolchain.core_flags("gcc", target.board.core)
    link = ("-T", "board.ld", *toolchain.link_flags("gcc", target.board.core), "-o", "program.elf")
    ran("arm-none-eabi-gcc", *core, "-Os", *includes, *sources, "line.c", "startup.c", *link, folder=folder)
    assert differing(emulated_line("pack", target, folder / "program.elf"), program) == []
