"""A machine whose locale is not UTF-8 runs every command; its terminal is sent what it can show."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smidgen.data import load_data
from smidgen.frontends.native import write_smg
from tests.support.small_network import small_network

SOURCES = Path("src/smidgen")
LOCALES = {
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "piped ascii": {"PYTHONIOENCODING": "ascii"},
}


def run(folder: Path, words: tuple[str, ...], variables: dict[str, str]) -> tuple[int, bytes]:
    """Return the exit code and all that a command prints."""
    env = {**os.environ, **variables}
    ran = subprocess.run(
        (sys.executable, "-m", "smidgen", *words), cwd=folder, env=env, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    return ran.returncode, ran.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("locale")
    for label in ("größe", "日本"):
        (place / "data" / label).mkdir(parents=True)
        for number in range(5):
            pixels = np.full((8, 8, 3), 40 * number, np.uint8)
            Image.fromarray(pixels).save(place / "data" / label / f"ü{number}.png")
    write_smg(small_network(), place / "grün.smg")
    return place


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("info", "grün.smg"), rb"\d+x\d+"),
        (("compile", "grün.smg", "--scheme", "head", "--classes", "2", "-o", "out", "--force"), b"-> out"),
        (("predict", "grün.smg", "data"), rb"/(\\xfc|\xfc)4.png"),
    ],
)
def test_a_command_prints_what_the_terminal_can_show(
    folder: Path, locale: str, words: tuple[str, ...], shown: bytes
) -> None:
    code, printed = run(folder, words, LOCALES[locale])
    text = printed.decode("latin-1")
    assert code == 0, text
    assert "Traceback" not in text
    assert re.search(shown.decode("latin-1"), text) or locale == "latin-1", text
    printed.decode("latin-1" if locale == "latin-1" else "ascii")


def test_names_of_files_are_the_same_in_every_locale(folder: Path) -> None:
    """Where the locale is ASCII, Python hands over names with the bytes of UTF-8 as lone surrogates."""
    code = "import smidgen as sm; print(ascii(sm.load_data('data').classes))"
    env = {**os.environ, **LOCALES["ascii"]}
    ran = subprocess.run((sys.executable, "-c", code), cwd=folder, env=env, capture_output=True, check=True)
    assert ran.stdout.decode().strip() == ascii(load_data(folder / "data").classes)


def _unnamed(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which a text file is opened, or a program's text read, in the encoding of the locale."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {one.arg for one in node.keywords}
        binary = any("b" in str(one.value) for one in node.args if isinstance(one, ast.Constant))
        unnamed = (
            (name == "read_text" and not node.args)
            or (name == "write_text" and len(node.args) < 2)
            or (name == "open" and isinstance(node.func, ast.Name) and not binary)
            or given & {"text", "universal_newlines"}
        )
        if unnamed and "encoding" not in given:
            yield node.lineno


def test_every_text_file_is_opened_in_a_named_encoding() -> None:
    files = sorted(SOURCES.rglob("*.py"))
    found = [f"{file}:{line}" for file in files for line in _unnamed(ast.parse(file.read_text("utf-8")))]
    assert len(files) > 100
    assert found == []
