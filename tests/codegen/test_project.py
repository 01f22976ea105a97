"""An exported project: folders that say what is what, names of one prefix, headers for C++, two models in a program."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from smidgen import cli
from smidgen.codegen import RUNTIME
from smidgen.codegen.project import LISTING
from smidgen.frontends.native import write_smg
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import M7
from smidgen.targets.toolchain import core_flags, find
from smidgen.training import Options
from tests.support.house import TOP
from tests.support.networks import CLASSES, branches, inverted_residual
from tests.support.tiers import first

SUPPORT = Path(__file__).parents[1] / "support"
PAGE = (TOP / "docs" / "firmware.md").read_text()
ZIG = (sys.executable, "-m", "ziglang")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
STEPS = 6


def learner(prefix: str, target: str = "host", streamed: bool = False) -> Program:
    options = Options(CLASSES)
    return compile(inverted_residual(3), "last:2", target, options=options, streamed_input=streamed, prefix=prefix)


def execute(*command: str | Path, folder: Path, path: str = PATH) -> subprocess.CompletedProcess[str]:
    """What a command does that is called by a person: where `make` runs the tests, its variables stay outside."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | {"PATH": path}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def succeed(*command: str | Path, folder: Path, path: str = PATH) -> str:
    """What a command that goes well prints."""
    done = execute(*command, folder=folder, path=path)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("target", ["host", "cortex-m7"])
def test_a_projects_folders_hold_the_model_the_kernels_and_the_board(target: str) -> None:
    program = learner("kws", target)
    folders: dict[str, set[str]] = {}
    for name in program.files():
        folder, _, file = name.rpartition("/")
        folders.setdefault(folder, set()).add(file)
    assert folders.pop("") == {"README.md", "Makefile", "CMakeLists.txt", LISTING}
    assert folders.pop("model") == {"kws.h", "kws.c", "kws_link.h", "kws_weights.h", "kws_weights.c"}
    kernels = {path.name for path in program.sources.runtime}
    store = {"smidgen_store.h", "store.c", *(f"store_{part}.{kind}" for part in ("blocks", "sectors") for kind in "ch")}
    store |= {"smidgen_replay.h", "replay.c", "replay_slots.c", "replay_slots.h"}
    assert folders.pop("smidgen") == kernels | {"link.c", "smidgen_link.h", "CMakeLists.txt"} | store
    assert folders.pop("flash") == {"esp32.c", "nrf52.c", "rp2040.c", "stm32f7.c"}
    own = {"startup.c", "board.ld", "port.h", "keep.h", "flash.c"} if target != "host" else set()
    assert folders.pop("board") == {"main.c"} | own
    assert not folders


@pytest.mark.parametrize("target", ["host", "cortex-m7"])
@pytest.mark.parametrize("streamed", [False, True], ids=["buffered", "streamed"])
def test_a_prefix_takes_the_place_of_the_usual_one_in_every_name(target: str, streamed: bool) -> None:
    files, usual = (learner(prefix, target, streamed).files() for prefix in ("kws", "model"))
    names = re.compile(r"\bmodel(?=_\w|\.[ch]\b)|\bMODEL(?=_\w)")

    def renamed(text: str) -> str:
        return names.sub(lambda found: "KWS" if found[0] == "MODEL" else "kws", text)

    assert {renamed(name) for name in usual} == set(files)
    for name, text in files.items():
        assert not names.search(text), name
    for name in ("model/model.h", "model/model.c", "model/model_weights.h", "board/main.c"):
        assert files[renamed(name)].split() == renamed(usual[name]).split()  # lines are wrapped elsewhere


def test_every_symbol_and_macro_of_a_program_begins_with_its_prefix(tmp_path: Path) -> None:
    program = learner("kws", "cortex-m7", streamed=True)
    for name, text in program.sources.files.items():
        (tmp_path / name).write_text(text)
        macros = re.findall(r"^#define (\w+)", text, re.MULTILINE)
        assert all(macro.startswith("KWS_") for macro in macros)
    symbols: set[str] = set()
    for name in ("kws", "kws_weights"):
        find("zig", M7)(f"-I{RUNTIME}", "-c", f"{name}.c", folder=tmp_path)
        symbols |= set(_global(tmp_path / f"{name}.o", defined=True))
    assert {"kws_init", "kws_train", "kws_load", "kws_source"} <= symbols
    assert {name for name in symbols if not name.startswith("kws_")} == set()


def _global(file: Path, defined: bool) -> Iterator[str]:
    """The symbols an object file gives to others, or those it wants of them."""
    with file.open("rb") as opened:
        for symbol in ELFFile(opened).get_section_by_name(".symtab").iter_symbols():
            if symbol["st_info"]["bind"] == "STB_GLOBAL" and (symbol["st_shndx"] != "SHN_UNDEF") == defined:
                yield symbol.name


def test_public_headers_are_cpp_whose_functions_have_the_names_of_c(tmp_path: Path) -> None:
    for name, text in {**learner("kws").sources.files, **learner("kws").sources.interface_headers}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "calls.cpp").write_text(
        '#include "kws.h"\n#include "kws_weights.h"\n#include "smidgen.h"\n#include "smidgen_training.h"\n'
        "float call(const smg_lookup_s8_params *p, const smg_mask_s8_params *m, int8_t *x, uint8_t *y);\n"
        "float call(const smg_lookup_s8_params *p, const smg_mask_s8_params *m, int8_t *x, uint8_t *y) {\n"
        "    smg_lookup_s8(p, x, x, 1);\n    smg_mask_s8(m, x, y);\n    return kws_train(0, 0.1f);\n}\n"
    )
    warnings = ("-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror")
    succeed(*ZIG, "c++", *core_flags("zig", M7), *warnings, "-nostdinc++", "-c", "calls.cpp", folder=tmp_path)
    assert {"kws_train", "smg_lookup_s8", "smg_mask_s8"} <= set(_global(tmp_path / "calls.o", defined=False))


@pytest.mark.parametrize("learns", [False, True], ids=["infers", "learns"])
@pytest.mark.parametrize("target", ["host", "cortex-m7"])
def test_every_readme_tells_what_the_folders_hold_and_how_to_save_and_load(target: str, learns: bool) -> None:
    program = learner("kws", target) if learns else compile(inverted_residual(3), target=target, prefix="kws")
    readme = program.files()["README.md"]
    for word in ("`model/`", "`smidgen/`", "`board/`", "kws_init()", "add_subdirectory"):
        assert word in readme
    if learns:
        assert all(f"kws_{name}(" in readme for name in ("save", "load", "train"))
    else:
        assert "nothing to save" in readme
        assert not any(f"kws_{name}" in readme for name in ("save", "load", "train"))


def fake(folder: Path, *names: str) -> str:
    """A search path on which only these commands are."""
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(("there", "chosen"), [(("cc", "gcc"), "cc"), (("gcc",), "gcc"), ((), "-m ziglang cc")])
def test_make_takes_whatever_compiler_this_machine_has(tmp_path: Path, there: tuple[str, ...], chosen: str) -> None:
    learner("model").write(tmp_path / "out")
    (tmp_path / "bin").mkdir()
    make = shutil.which("make") or pytest.fail("make is not installed")
    shown = succeed(make, "-n", folder=tmp_path / "out", path=fake(tmp_path / "bin", *there))
    assert shown.split(" -O3")[0].endswith(chosen)
    assert succeed(make, "-n", "CC=mine", folder=tmp_path / "out").startswith("mine ")


@pytest.mark.parametrize(("python", "chosen"), [(sys.executable, "-m ziglang cc"), ("false", "arm-none-eabi-gcc")])
def test_make_takes_gcc_for_a_board_where_there_is_no_zig(tmp_path: Path, python: str, chosen: str) -> None:
    learner("model", "cortex-m7").write(tmp_path / "out")
    shown = succeed("make", "-n", f"PYTHON={python}", folder=tmp_path / "out")
    assert chosen in shown.split(" -O3")[0]
    assert succeed("make", "-n", "PYTHON=false", "COMPILER=zig", folder=tmp_path / "out").startswith("false -m ziglang")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two projects of docs/firmware.md, by the commands that stand there, and its program around them."""
    folder = tmp_path_factory.mktemp("models")
    write_smg(inverted_residual(3), folder / "words.smg")
    write_smg(branches(3), folder / "people.smg")
    commands = re.findall(r"^smidgen (compile .*)$", PAGE, re.MULTILINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in commands:
            cli.app(shlex.split(command), standalone_mode=False)
    found = re.search(r"```cmake\n(.*?)```", PAGE, re.DOTALL)
    assert found
    (folder / "CMakeLists.txt").write_text(found[1])
    shutil.copy(SUPPORT / "two_models.cpp", folder / "main.cpp")
    shutil.copy(SUPPORT / "learner.h", folder)
    kernels = [{path.name for path in (folder / name / "smidgen").glob("*.c")} for name in ("kws", "vww")]
    assert kernels[0] & kernels[1]
    assert kernels[0] - kernels[1]
    assert kernels[1] - kernels[0]
    return folder


@pytest.fixture(scope="module")
def apart(models: Path) -> list[bytes]:
    """What each model learns in its own project, built by its Makefile with another main."""
    return [learned_apart(models / name, name) for name in ("kws", "vww")]


def learned_apart(project: Path, prefix: str) -> bytes:
    main = (SUPPORT / "one_model.c").read_text().replace("MODEL", prefix.upper()).replace("model", prefix)
    (project / "board" / "main.c").write_text(main)
    succeed("make", "-s", f"CFLAGS=-O1 -Werror -I{SUPPORT}", folder=project)
    succeed(project / "example", str(STEPS), "kept", folder=project)
    return (project / "kept").read_bytes()


COMPILERS: dict[str, tuple[str, ...]] = {
    "machine": (),
    "zig": (
        f"-DCMAKE_C_COMPILER={';'.join((*ZIG, 'cc'))}",
        f"-DCMAKE_CXX_COMPILER={';'.join((*ZIG, 'c++'))}",
        "-DCMAKE_CXX_FLAGS=-nostdlib++",  # which takes a minute to build, and which the program does not need
    ),
}


def needs_cmake() -> None:
    if not shutil.which("cmake", path=PATH):
        pytest.skip("cmake is not installed: pip install cmake")


@pytest.mark.parametrize("compiler", first(*COMPILERS))
def test_two_models_in_a_cpp_program_learn_the_bytes_they_learn_apart(
    models: Path, apart: list[bytes], compiler: str
) -> None:
    needs_cmake()
    if compiler == "machine" and not shutil.which("c++"):
        pytest.skip("this machine has no C++ compiler of its own")
    build = models / f"build-{compiler}"
    succeed("cmake", "-B", build, *COMPILERS[compiler], folder=models)
    succeed("cmake", "--build", build, "--parallel", "2", folder=models)
    kept: dict[int, list[bytes]] = {}  # by steps
    for steps in (0, STEPS):
        succeed(build / "app", str(steps), "kws.kept", "vww.kept", folder=models)
        kept[steps] = [(models / f"{name}.kept").read_bytes() for name in ("kws", "vww")]
    assert kept[STEPS] == apart
    assert all(before != after for before, after in zip(kept[0], kept[STEPS], strict=True)), "both learned"


@pytest.mark.skipif(not shutil.which("cc"), reason="this machine has no C compiler of its own")
def test_cmake_builds_the_example_of_a_project_by_itself(tmp_path: Path) -> None:
    needs_cmake()
    compile(inverted_residual(3), prefix="kws").write(tmp_path / "out")
    succeed("cmake", "-B", "build", folder=tmp_path / "out")
    succeed("cmake", "--build", "build", folder=tmp_path / "out")
    ran = succeed(tmp_path / "out" / "build" / "example", folder=tmp_path)
    assert ran.startswith("output 0 is largest at ")


def test_cmake_refuses_kernels_of_one_name_that_differ(models: Path, tmp_path: Path) -> None:
    needs_cmake()
    shutil.copytree(models, tmp_path / "two", ignore=shutil.ignore_patterns("build-*"))
    with (tmp_path / "two" / "vww" / "smidgen" / "smidgen.h").open("a") as header:
        header.write("/* Of another version. */\n")
    done = execute("cmake", "-B", "build", folder=tmp_path / "two")
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "vww/smidgen/smidgen.h differs from the file of that name that another model of this program brings" in said
