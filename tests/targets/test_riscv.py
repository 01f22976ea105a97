"""RISC-V boards learn the bytes of the host and of numpy, count their instructions and say what went wrong."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from unicorn import Uc
from unicorn import unicorn_const as uc

from smidgen.errors import TargetError
from smidgen.ir import Array, Graph
from smidgen.memory import state_offsets
from smidgen.pipeline import Program, compile
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.boards import BOARDS, RV32IMC, resize
from smidgen.targets.device import Device
from smidgen.targets.firmware import BoardDevice, BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.image import bound_stack, read_image
from smidgen.targets.toolchain import Toolchain
from smidgen.training import Options
from tests.codegen.test_board_projects import BUILDS, PATH, build
from tests.runtime.test_packed import CASE_RUNS, agrees
from tests.support.cases import GRAPHS, together
from tests.support.networks import CLASSES, inverted_residual, samples
from tests.support.qemu import RISCV, run_firmware
from tests.support.tiers import first
from tests.support.tools import need_compiler, needs
from tests.targets.test_board import check_fault, noise, pooled, start
from tests.targets.test_stack import built

RATE, STEPS = 0.02, 20
MAGIC = bytes.fromhex("1d04dbae" * 2)  # what the boot ROM of an ESP32-C3 looks for
ROOMY = resize(BOARDS["riscv32"], sram="8MB", flash="8MB")  # all cases at once need more than boards that are sold have


@pytest.fixture(scope="session")
def rv32(cache: Path) -> BoardTarget:
    return BoardTarget(BOARDS["riscv32"], cache=cache)


@pytest.fixture(scope="session")
def c3(cache: Path) -> BoardTarget:
    return BoardTarget(BOARDS["esp32-c3"], cache=cache)


def learner(target: BoardTarget | Host, streamed: bool = False) -> Program:
    return compile(inverted_residual(3), "last:4", target, options=Options(CLASSES), streamed_input=streamed)


def board_of(device: BoardDevice) -> EmulatedBoard:
    board = device._running()
    assert isinstance(board, EmulatedBoard)
    return board


def alike(board: BoardDevice, machine: Device, graph: Graph, steps: int) -> None:
    """Both learn the same of so many images, in every byte."""
    rng = np.random.default_rng(0)
    classes = graph.roles.logits.type.shape[1] if graph.roles else 1
    for step in range(steps):
        image = rng.integers(-128, 128, graph.image.type.shape).astype(np.int8)
        losses = [device.train(image, step % classes, RATE) for device in (board, machine)]
        assert losses[0] == losses[1], f"the losses of step {step} differ"
        for a, b in zip(board.outputs(), machine.outputs(), strict=True):
            assert a.tobytes() == b.tobytes(), f"the outputs of step {step} differ"
    kept, expected = board.state(), machine.state()
    assert [name for name in expected if kept[name].tobytes() != expected[name].tobytes()] == []


def test_every_case_agrees_with_numpy(cache: Path) -> None:
    agrees(GRAPHS, CASE_RUNS[-1:], compile(together(), target=BoardTarget(ROOMY, cache=cache)))


@pytest.mark.parametrize("compiler", first("zig", "gcc"))
@pytest.mark.parametrize("name", first("riscv32", "esp32-c3"))
def test_a_network_learns_alike_on_board_and_host(name: str, compiler: Toolchain, cache: Path, host: Host) -> None:
    need_compiler(compiler, "riscv")
    target = BoardTarget(BOARDS[name], compiler, cache)
    program = learner(target, streamed=True)
    with target.start(program.graph, program.sources) as board, learner(host, streamed=True).start() as machine:
        alike(board, machine, program.graph, 4)
        counts, memory = board.counts(), board.memory()
    sections = {section.name for section in board.image.sections}
    assert sections <= {".text", ".rodata", ".stack", ".data", ".bss"}, "a section that start-up knows nothing of"
    assert counts.total == sum(counts.by_function.values()) == sum(counts.by_node) + counts.between
    assert counts.between < counts.total / 50
    assert 0.7 * memory.stack_bound < memory.stack <= memory.stack_bound <= target.board.stack


@needs(RISCV[0])
def test_qemu_runs_the_same_firmware_in_as_many_instructions(rv32: BoardTarget, tmp_path: Path) -> None:
    program = learner(rv32, streamed=True)
    firmware = rv32.build(program.graph, program.sources)
    images = [image for image, _ in samples(program.graph, 3)]
    steps = [b"t" + np.float32(RATE).tobytes() + np.int32(1).tobytes() + image.tobytes() for image in images]
    (tmp_path / "requests").write_bytes(b"".join(steps) + b"s")
    run_firmware(firmware, tmp_path, machine=RISCV)
    with rv32.start(program.graph, program.sources) as board:
        losses = [np.float32(board.train(image, 1, RATE)).tobytes() for image in images]
        state, total = board.state(), board.finish()
    answers = (tmp_path / "answers").read_bytes()
    assert answers[: 4 * len(images)] == b"".join(losses)
    for value, at in state_offsets(program.graph).items():
        kept = answers[4 * len(images) + at :][: value.type.bytes]
        assert kept == state[value.name].tobytes(), f"%{value.name} differs"
    counted = tmp_path / "instructions"
    if not counted.exists():
        pytest.skip("the bytes are the same; this QEMU takes no plugin to count with")
    assert int(counted.read_text()) == total


def unaligned(device: BoardDevice, image: Array) -> set[str]:
    """Where a step reads or writes a word that is not aligned."""
    board, found = board_of(device), set()

    def accessed(emulator: Uc, kind: int, address: int, size: int, value: int, data: object) -> None:
        if address % size:
            found.add(board.image.place(emulator.reg_read(board._cpu.pc)))

    board._uc.hook_add(uc.UC_HOOK_MEM_READ | uc.UC_HOOK_MEM_WRITE, accessed)
    device.train(image, 1, RATE)
    return found


def test_no_word_is_read_or_written_that_is_not_aligned(rv32: BoardTarget) -> None:
    program = learner(rv32)
    image = noise(program.graph)
    with rv32.start(program.graph, program.sources) as device:
        assert unaligned(device, image) == set()
    with start(rv32, program, "volatile int odd = *(volatile int *)((char *)arena + 1); (void)odd;") as spoiled:
        assert {place.split("+")[0] for place in unaligned(spoiled, image)} <= {"model_run", "model_train"} != set()


FAULTS = {
    "flash": ("*(volatile int *)0x3c000004 = 1;", r"model_run\+0x\w+ wrote 4 bytes at 0x3c000004 \(flash\)"),
    "window": ("*(volatile int *)0x42100000;", r"read 4 bytes at 0x42100000 \(flash\)"),
    "jump": ("((void (*)(void))0x30000000)();", r"jumped from about model_\w+\+0x\w+ to 0x30000000 \(no memory\)"),
    "stack": ("*(volatile int *)0x3fc7fffc = 1;", r"outgrew its 4,096 bytes: .*larger stack$"),
    "undefined": ('__asm__ volatile("unimp");', r"met exception 2 in model_\w+\+0x\w+$"),
    "breakpoint": ('__asm__ volatile("ebreak");', r"faulted in model_\w+\+0x\w+: "),
    "exception": ('__asm__ volatile("ecall");', r"met exception \d+ in model_"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_told_with_the_place_and_what_lay_there(c3: BoardTarget, kind: str) -> None:
    check_fault(c3, *FAULTS[kind])


def test_the_flash_of_an_esp32_c3_begins_as_its_boot_rom_demands(c3: BoardTarget) -> None:
    program = compile(pooled(), target=c3)
    image = read_image(c3.build(program.graph, program.sources))
    written = dict(image.loads)
    assert written[0x3C00_0000][:8] == MAGIC
    assert image.section(".text").address == 0x4200_0000
    assert 0 <= image.section(".rodata").address - 0x3C00_0000 - image.section(".text").bytes < 16
    assert 0x3FC8_0000 < image.symbol("arena").address < 0x3FCE_0000


@pytest.fixture(scope="session")
def project(c3: BoardTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project written for an ESP32-C3, far from our tree."""
    folder = tmp_path_factory.mktemp("project") / "out"
    learner(c3, streamed=True).write(folder)
    return folder


@pytest.mark.parametrize(("tool", "compiler"), first(("make", "zig"), ("cmake", "gcc")))
def test_a_written_project_builds_without_a_file_of_ours(project: Path, tool: str, compiler: Toolchain) -> None:
    need_compiler(compiler, "riscv")
    if not shutil.which(tool, path=PATH):
        pytest.skip(f"{tool} is not installed")
    command, firmware = BUILDS[tool]
    build(project, *(word.format(compiler) for word in command))
    if tool == "cmake":
        build(project, "cmake", "--build", f"build-{compiler}")
    image = read_image(project / firmware.format(compiler))
    assert dict(image.loads)[0x3C00_0000].startswith(MAGIC)
    assert image.symbol("main").address in BOARDS["esp32-c3"].code
    assert "esptool.py write_flash 0 firmware.bin" in (project / "README.md").read_text()


def test_a_program_too_large_for_the_chip_is_refused_with_the_figures(c3: BoardTarget) -> None:
    small = replace(c3, board=resize(c3.board, flash="16KB"))
    with pytest.raises(TargetError, match=r"net3 needs \d\d,\d{3} bytes of flash, esp32-c3 has 16,384: code"):
        learner(small).start()
    small = replace(c3, board=resize(c3.board, sram="8KB"))
    with pytest.raises(TargetError, match=r"needs \d{1,2},\d{3} bytes of SRAM, esp32-c3 has 8,192: "):
        compile(pooled(side=40), target=small).start()
    with pytest.raises(TargetError, match=r"of SRAM cannot be emulated; give a multiple of 4,096, up to 3,670,016"):
        resize(c3.board, sram="4MB")


FAR = """
__attribute__((noinline)) int far(int n) { volatile char a[600]; for (int i = 0; i < 600; i++) a[i] = (char)n;
    return a[n]; }
void reset(void) { volatile int n = 3; n = far(n); for (;;) { } }
"""


def test_calls_that_no_linker_shortened_are_followed(tmp_path: Path) -> None:
    bound = bound_stack(built(FAR, RV32IMC, "zig", tmp_path, "-mno-relax"))
    assert [name for name, _ in bound.path] == ["reset", "far"]
    assert 600 < bound.bytes < 700


TABLE = """
__asm__(".globl far\\n.type far, @function\\nfar:\\n\\tauipc a4, 0\\n\\tslli a5, a0, 2\\n\\tadd a5, a5, a4\\n"
        "\\tjr 16(a5)\\n\\tnop\\n\\tret\\n.size far, .-far\\n");
int far(int n);
int deep(int n);
int deep(int n) { volatile char a[600]; a[n] = 1; return a[0]; }
int (*volatile kept)(int) = deep;
void reset(void) { volatile int n = 3; n = far(n) + (kept != 0); for (;;) { } }
"""


def test_a_switch_by_a_table_is_no_call_through_a_pointer(tmp_path: Path) -> None:
    path = bound_stack(built(TABLE, RV32IMC, "zig", tmp_path)).path
    assert [name for name, _ in path] == ["reset", "far"]
