"""Packages for other ecosystems: what they hold, that their tools take them, and that they compute the same bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from smidgen.codegen import PackageKind
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.link import connect
from smidgen.pipeline import Program, compile
from smidgen.targets import find_board, toolchain
from smidgen.targets.device import Device
from smidgen.targets.firmware import BoardDevice, BoardTarget
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.graph_texts import graph_of
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import first
from tests.support.tools import need_compiler

ROOT = Path(__file__).parents[2]
RATE, STEPS = 0.01, 20
OPTIONS = Options(CLASSES, head="new", head_dtype="float32")
UNFILLED = re.compile(r"\$\{?(prefix|PREFIX|name|component|how|kept|usage|sentence|version)\b")
EXAMPLES = {
    PackageKind.arduino: "examples/Train/Train.ino",
    PackageKind.zephyr: "samples/train/src/main.c",
    PackageKind.platformio: "examples/train/src/main.cpp",
    PackageKind.esp_idf: "examples/train/main/main.c",
    PackageKind.cmsis_pack: "examples/train/main.c",
    PackageKind.cmake: "examples/train/main.c",
}


def learner(target: Host | BoardTarget | str | None = None) -> Program:
    return compile(inverted_residual(3), "last:2", target or Host(frugal=True), options=OPTIONS)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_package_holds_model_kernels_example_licence_and_readme(kind: PackageKind) -> None:
    program = learner()
    files = program.package(kind)
    kernels = {f"src/{path.name}" for path in program.sources.runtime}
    assert {"LICENSE", "README.md", "src/model.h", "src/model.c", "src/model_link.h", EXAMPLES[kind], *kernels} <= {
        *files
    }
    assert files["LICENSE"] == (ROOT / "LICENSE").read_text()
    for path, content in files.items():
        assert isinstance(content, bytes) or not UNFILLED.search(content), path


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_program_that_does_not_learn_can_be_packaged(kind: PackageKind) -> None:
    files = compile(inverted_residual(3), target=Host(frugal=True)).package(kind)
    example = str(files[EXAMPLES[kind]])
    assert "model_link_poll" in example
    assert "model_link_save" not in example
    assert "store.c" not in {Path(path).name for path in files}


def two_inputs() -> Graph:
    return graph_of("""
        graph sum
        input %x: int8[1,4] q
        input %y: int8[1,4] q
        %z: int8[1,4] q = Add(%x, %y)
        output %z
    """)


def test_what_cannot_be_packaged_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"^sum takes 2 inputs, .* leave out --export"):
        compile(two_inputs()).package("cmake")
    with pytest.raises(InputError, match="there is no package of kind 'pip'; known are arduino, "):
        learner().package("pip")
    with pytest.raises(InputError, match="esp-idf builds for no Cortex-M7; compile for the host"):
        learner("cortex-m7").package("esp-idf")
    with pytest.raises(InputError, match="cmsis-pack builds for no RISC-V RV32IMC; compile for the host"):
        learner("esp32-c3").package("cmsis-pack")


def test_a_component_for_an_esp32_c3_holds_its_kernels_and_names_the_chip() -> None:
    chip, any_core = (learner(target).package("esp-idf") for target in ("esp32-c3", None))
    assert "idf.py set-target esp32c3 &&" in str(chip["README.md"])
    assert "its kernels are for a RISC-V RV32IMC" in str(chip["README.md"])
    assert "idf.py set-target esp32s3 &&" in str(any_core["README.md"])


def images(program: Program) -> list[Array]:
    shape = program.graph.image.type.shape
    return list(np.random.default_rng(7).integers(-128, 128, (STEPS, *shape)).astype(np.int8))


def learned(device: Device, program: Program) -> dict[str, bytes]:
    """What a device learned, and the losses on the way."""
    losses = [device.train(image, step % CLASSES, RATE) for step, image in enumerate(images(program))]
    return {**{name: array.tobytes() for name, array in device.state().items()}, "losses": np.array(losses).tobytes()}


def learned_here(program: Program) -> dict[str, bytes]:
    """What the host's own build learns."""
    with compile(inverted_residual(3), "last:2", options=OPTIONS).start() as device:
        return learned(device, program)


def ran(*command: str | Path, folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


BUILT_FOR = {PackageKind.arduino: "cortex-m7", PackageKind.cmsis_pack: "cortex-m7", PackageKind.esp_idf: "esp32-c3"}


@pytest.mark.parametrize("kind", first(*BUILT_FOR))
@pytest.mark.parametrize("compiler", first("zig", "gcc"))
def test_sources_learn_the_hosts_bytes_however_a_tool_builds_them(
    kind: PackageKind, compiler: toolchain.Toolchain, tmp_path: Path
) -> None:
    """As one builds them that knows nothing of contraction, and for size."""
    target = find_board(BUILT_FOR[kind])
    core = target.board.core
    need_compiler(compiler, core.isa)
    program = learner(target)
    program.write(tmp_path / "package", export=kind)
    source = tmp_path / "package" / "src"
    board = {n: t for n, t in program.files().items() if n in ("board/startup.c", "board/board.ld")}
    for name, text in {**board, "serve.c": target.server(program.graph, program.sources)}.items():
        (source / Path(name).name).write_text(text)
    command = toolchain.find(compiler, core).command
    words = (*toolchain.core_flags(compiler, core), "-Os", "-g", "-I.", "-T", "board.ld")
    code = sorted(path.name for path in source.iterdir() if path.suffix in (".c", ".S"))
    ran(*command, *words, *toolchain.link_flags(compiler, core), *code, "-o", "firmware.elf", folder=source)
    with BoardDevice(program.graph, program.sources, target, source / "firmware.elf") as device:
        assert learned(device, program) == learned_here(program)


def test_a_project_of_another_finds_what_cmake_installed_and_learns_the_same(tmp_path: Path) -> None:
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    program, package, user = learner(), tmp_path / "package", tmp_path / "user"
    program.write(package, export="cmake")
    ran("cmake", "-B", "build", f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'installed'}", folder=package)
    ran("cmake", "--build", "build", folder=package)
    ran("cmake", "--install", "build", folder=package)
    user.mkdir()
    shutil.copy(package / "examples" / "train" / "main.c", user)
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(user C)\nfind_package(smidgen_net3 REQUIRED)\n"
        "add_executable(user main.c)\ntarget_link_libraries(user PRIVATE smidgen::smidgen_net3)\n"
    )
    ran("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}", folder=user)
    ran("cmake", "--build", "build", folder=user)
    with connect(f"exec:{user / 'build' / 'user'}", program) as device:
        assert learned(device, program) == learned_here(program)
