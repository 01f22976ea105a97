"""A release: the wheel holds all that the sources do and installs nothing else, and every file names one version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import smidgen
from tests.support.once import Once

TOP = Path(__file__).parents[1]
VERSION = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def wheel(once: Once) -> Path:
    return once("wheel", build_wheel)


def build_wheel(folder: Path) -> Path:
    """Build the wheel of a copy of the sources, so that no stray file gets into it."""
    shutil.copytree(TOP / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TOP / name, folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", "."]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "setuptools" in built.stderr and built.returncode:
        pytest.skip("setuptools cannot be installed here, and no wheel is built without it")
    assert built.returncode == 0, built.stderr
    return folder / "dist" / f"smidgen-{VERSION}-py3-none-any.whl"


def test_a_wheel_holds_every_file_of_the_sources_and_no_other(wheel: Path) -> None:
    source = TOP / "src"
    files = {path.relative_to(source).as_posix() for path in (source / "smidgen").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert len(files) > 300
    assert held == files


def test_a_wheel_is_small_enough_to_be_fetched_in_passing(wheel: Path) -> None:
    assert wheel.stat().st_size < 8 * 2**20


def test_every_file_names_the_same_version() -> None:
    assert smidgen.__version__ == VERSION
    assert f"version: {VERSION}\n" in (TOP / "CITATION.cff").read_text()
    released = re.findall(r"^## (\d[\d.]*)", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == VERSION
