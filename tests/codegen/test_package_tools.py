"""Packages through the very tools that take them, each in a folder of its own; a tool that is not there is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from smidgen.codegen import PackageKind
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.lines import emulated_line
from smidgen.targets.toolchain import start_files
from tests.codegen.test_package_boards import ECOSYSTEMS, differing
from tests.codegen.test_packages import learner
from tests.support.tools import need

TOOLS = Path(__file__).parents[2] / "build" / "tools" / "bin"  # where `make package-tools` installs them
# PlatformIO asks the network which licences there are; all else of its packer is as it is.
PACK = """
import sys
from platformio.package.manifest.schema import ManifestSchema
from platformio.package.pack import PackagePacker
ManifestSchema.load_spdx_licenses = staticmethod(lambda: {"licenses": [{"licenseId": "Apache-2.0"}]})
print(PackagePacker(sys.argv[1]).pack(sys.argv[2]))
"""


# PlatformIO brings SCons by itself, as a package of its registry: here it is Python's.
SCONS = "from SCons.Script.Main import main; main()"
WANTED = "from platformio.dependencies import get_core_dependencies as d; print(d()['tool-scons'].lstrip('~'))"
# It asks nobody how it is, nor for a newer version of itself.
QUIET = ("PLATFORMIO_SETTING_ENABLE_TELEMETRY=no", "PLATFORMIO_SETTING_CHECK_PLATFORMIO_INTERVAL=100000")


def tool(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((str(TOOLS), os.environ.get("PATH", ""))))
    if found is None:
        pytest.skip(f"{name} is not installed: make package-tools")
    return found


def ran(*command: str | Path, folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def written(kind: PackageKind, folder: Path) -> Path:
    learner().write(folder / "smidgen_net3", export=kind)
    return folder / "smidgen_net3"


@pytest.mark.slow
def test_platformio_packs_a_library(tmp_path: Path) -> None:
    python = Path(tool("pio")).parent / "python"
    ran(python, "-c", PACK, written(PackageKind.platformio, tmp_path), tmp_path / "packed.tar.gz", folder=tmp_path)
    with tarfile.open(tmp_path / "packed.tar.gz") as packed:
        names = packed.getnames()
        manifest = packed.extractfile("library.json")
        assert manifest is not None
        assert json.load(manifest)["name"] == "smidgen_net3"
    assert {"src/model.c", "examples/train/platformio.ini", "LICENSE"} <= {*names}


def registry(folder: Path, target: BoardTarget) -> Path:
    """What PlatformIO would have from its registry: SCons, and a platform for an emulated board."""
    python, scons = Path(tool("pio")).parent / "python", folder / "packages" / "tool-scons"
    about = {"name": "tool-scons", "version": ran(python, "-c", WANTED, folder=folder.parent).strip()}
    scons.mkdir(parents=True)
    (scons / "scons.py").write_text(SCONS)
    (scons / "package.json").write_text(json.dumps(about))
    spec = {"owner": "platformio", "id": None, "name": "tool-scons", "requirements": None, "uri": None}
    (scons / ".piopm").write_text(json.dumps({"type": "tool", **about, "spec": spec}))
    platform = folder / "platforms" / "emulated"
    shutil.copytree(ECOSYSTEMS / "platformio" / "emulated", platform)
    for path in (platform / "builder").iterdir():
        path.rename(path.with_suffix(".py"))
    shutil.copytree(ECOSYSTEMS / "arduino/hardware/smidgen/emulated/cores/emulated", platform / "core")
    for name, text in start_files(target.board).items():
        (platform / "core" / name).write_text(text)
    return folder


@pytest.mark.slow
def test_platformio_runs_an_example_whose_library_learns_the_hosts_bytes(cache: Path, tmp_path: Path) -> None:
    """Its own builder finds the library and takes its flags; the board is one of our own."""
    need("arm-none-eabi-gcc")
    if not (Path(tool("pio")).parent / "scons").exists():
        pytest.skip("scons is not installed beside pio: rm -r build/tools && make package-tools")
    target = BoardTarget(BOARDS["cortex-m7"], cache=cache)
    program = learner(target)
    program.write(tmp_path / "smidgen_net3", export=PackageKind.platformio)
    example = tmp_path / "smidgen_net3" / "examples" / "train"
    with (example / "platformio.ini").open("a") as settings:
        settings.write("\n[env:m7]\nplatform = emulated\nboard = m7\n")
    core = f"PLATFORMIO_CORE_DIR={registry(tmp_path / 'core', target)}"
    ran("env", core, *QUIET, tool("pio"), "run", "-e", "m7", folder=example)
    line = emulated_line("pio", target, example / ".pio" / "build" / "m7" / "program.elf")
    assert differing(line, program) == []


@pytest.mark.slow
def test_the_component_manager_of_esp_idf_packs_a_component(tmp_path: Path) -> None:
    package = written(PackageKind.esp_idf, tmp_path)
    ran(tool("compote"), "component", "pack", "--name", "smidgen_net3", "--dest-dir", tmp_path / "dist", folder=package)
    (packed,) = (tmp_path / "dist").glob("*.tgz")
    with tarfile.open(packed) as archive:
        assert {"src/model.c", "idf_component.yml", "CMakeLists.txt"} <= {
            name.removeprefix("./") for name in archive.getnames()
        }


@pytest.mark.slow
def test_the_component_manager_finds_no_fault_in_the_manifests(tmp_path: Path) -> None:
    package = written(PackageKind.esp_idf, tmp_path)
    for manifest in ("idf_component.yml", "examples/train/main/idf_component.yml"):
        ran(tool("compote"), "manifest", "lint", package / manifest, folder=package)


@pytest.mark.slow
def test_a_module_of_zephyr_is_configured_by_its_kconfig(tmp_path: Path) -> None:
    python = Path(tool("menuconfig")).parent / "python"
    package = written(PackageKind.zephyr, tmp_path)
    show = (
        "import kconfiglib; k = kconfiglib.Kconfig('zephyr/Kconfig'); k.load_config('samples/train/prj.conf'); "
        "print(k.syms['SMIDGEN_NET3'].str_value, len(k.syms['SMIDGEN_NET3'].nodes))"
    )
    assert ran(python, "-c", show, folder=package).split()[-2:] == ["y", "1"]
