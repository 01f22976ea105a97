"""Packages by the rules of tools that cannot be installed; each rule is shown to see what breaks it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from smidgen.codegen import PackageKind
from tests.codegen.test_package_tools import ran, tool, written
from tests.codegen.test_packages import learner
from tests.support.package_rules import module_faults, pack_faults, sample_faults

LOAD = "import json, sys; from ruamel.yaml import YAML; print(json.dumps(YAML(typ='safe').load(open(sys.argv[1]))))"
BROKEN = {  # in a description: what is replaced, by what, and how the fault begins
    "M302": ("<vendor>Smidgen</vendor>", ""),
    "M304": ("<url>https://arxiv.org/abs/2206.15472/</url>", ""),
    "M305": (f'<release version="{version("smidgen")}">As compiled by Smidgen.</release>', ""),
    "M308": ('Cgroup="Smidgen" ', ""),
    "M316": ("2206.15472/", "2206.15472"),
    "M323": ("src/model.c", "src/modell.c"),
    "M329": ("As compiled by Smidgen.", ""),
    "M332": ('condition="exact"', 'condition="other"'),
    "M333": (' condition="exact"', ""),
    "M337": ('category="sourceC" name="src/model.c"', 'category="sourceAsm" name="src/model.c"'),
    "M340": ('name="src/"', 'name="src"'),
    "M343": (' select="Training over a byte stream"', ""),
    "M383": ("<name>smidgen_net3", "<name>smidgen net3"),
    "schema": ('Dcore="Cortex-M7"', 'Dcore="cortex-m7"'),
    "src/model.c": ('        <file category="sourceC" name="src/model.c"/>\n', ""),
}


def unpacked(folder: Path, target: str | None) -> Path:
    """A pack out of its archive, as an IDE would have it."""
    learner(target).write(folder / "written", export=PackageKind.cmsis_pack)
    (pack,) = (folder / "written").glob("Smidgen.smidgen_net3.*.pack")
    with zipfile.ZipFile(pack) as archive:
        archive.extractall(folder / "pack")
    return folder / "pack"


@pytest.mark.parametrize("target", [None, "cortex-m7", "cortex-m0plus", "cortex-m55"])
def test_a_pack_breaks_none_of_packchks_rules(target: str | None, tmp_path: Path) -> None:
    assert pack_faults(unpacked(tmp_path, target)) == []


def test_packchks_rules_see_what_breaks_them(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, "cortex-m7")
    (path,) = folder.glob("*.pdsc")
    text = path.read_text()
    for fault, (before, after) in BROKEN.items():
        assert text.count(before) >= 1, before
        path.write_text(text.replace(before, after))
        assert any(found.startswith(fault) for found in pack_faults(folder)), fault
    path.write_text(text)
    path.rename(folder / "Smidgen.other.pdsc")
    assert pack_faults(folder) == ["M207: the file is named Smidgen.other.pdsc"]


def loaded(path: Path) -> Mapping[str, object]:
    """A YAML file, as a parser of another reads it."""
    python = Path(tool("compote")).parent / "python"
    read: Mapping[str, object] = json.loads(ran(python, "-c", LOAD, path, folder=path.parent))
    return read


def test_a_module_and_its_sample_keep_zephyrs_schemas(tmp_path: Path) -> None:
    package = written(PackageKind.zephyr, tmp_path)
    module, sample = (loaded(package / name) for name in ("zephyr/module.yml", "samples/train/sample.yaml"))
    assert module_faults(module, package) == []
    assert sample_faults(sample) == []


def test_zephyrs_rules_see_what_breaks_them(tmp_path: Path) -> None:
    build = {"cmake": "zephyr", "kconfig": "zephyr/Kconfig"}
    (tmp_path / "zephyr").mkdir()
    assert module_faults({"name": "m", "build": build}, tmp_path) == [
        "build.cmake names a folder without CMakeLists.txt",
        "build.kconfig names no file",
    ]
    (tmp_path / "zephyr" / "CMakeLists.txt").touch()
    (tmp_path / "zephyr" / "Kconfig").touch()
    assert module_faults({"name": "m", "build": build}, tmp_path) == []
    assert module_faults({"name": 3, "builds": build}, tmp_path) == ["builds is unknown", "name is no text"]
    assert module_faults({"build": {**build, "cmak": "."}}, tmp_path) == ["build.cmak is unknown"]
    assert module_faults({"samples": ["zephyr"]}, tmp_path) == ["samples names a folder without a sample"]
    assert module_faults({"samples": "zephyr"}, tmp_path) == ["samples is no list of texts"]
    good = {"sample": {"name": "m"}, "tests": {"sample.m.train": {"build_only": True, "min_ram": 64}}}
    assert sample_faults(good) == []
    assert sample_faults({**good, "sample": {}}) == ["sample has no name"]
    assert sample_faults({**good, "tests": {}}) == ["there are no tests"]
    assert sample_faults({**good, "tests": {"train": {"min_ram": "64", "ram": 1}}}) == [
        "train is no name of a test",
        "train.min_ram is '64'",
        "train.ram is 1",
    ]
