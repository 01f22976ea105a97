"""`import smidgen` and `--help` load next to nothing; names and options that are stated twice agree."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import get_args

import pytest

import smidgen as sm
from smidgen.cli import options
from smidgen.codegen import PackageKind
from smidgen.data import images
from smidgen.data.files import MEMORY
from smidgen.inference.prediction import TOP
from smidgen.link.frames import BAUD
from smidgen.quantization import METHODS as CALIBRATION_METHODS
from smidgen.selection import analysis, methods, searching
from smidgen.selection.found import METHODS as SEARCH_METHODS
from smidgen.targets.boards import parse_size
from tests.support.house import ROOT

HEAVY = ("numpy", "tflite", "flatbuffers", "onnx", "torch", "PIL", "unicorn", "jinja2", "safetensors")
COUNTED = "import atexit, sys; atexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr)); "


def loaded(code: str, *words: str) -> list[str]:
    """The modules that a fresh interpreter has loaded at its end."""
    command = (sys.executable, "-c", COUNTED + code, *words)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.split()


def own(modules: list[str]) -> list[str]:
    return [name for name in modules if name.split(".")[0] == "smidgen"]


def test_import_smidgen_loads_itself_alone() -> None:
    modules = loaded("import smidgen")
    assert own(modules) == ["smidgen"]
    assert not {name.split(".")[0] for name in modules} & {*HEAVY, "typer", "rich"}


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("train", "--help"), ("device", "PORT", "--help")])
def test_help_loads_the_options_and_nothing_that_computes(words: tuple[str, ...]) -> None:
    modules = loaded("from smidgen.cli import main; main()", *words)
    assert set(own(modules)) <= {
        "smidgen", "smidgen.errors", "smidgen.cli", "smidgen.cli.options", "smidgen.cli.terminal", "smidgen.cli.verbs",
    }  # fmt: skip
    assert not {name.split(".")[0] for name in modules} & set(HEAVY)


def test_the_readers_of_other_formats_are_loaded_with_their_files() -> None:
    modules = loaded("from smidgen.cli import main; main()", "info", "mcunet-5fps", "--json")
    assert not {name.split(".")[0] for name in modules} & {"tflite", "flatbuffers", "onnx", "torch"}


def test_every_public_name_is_where_it_is_said_to_be() -> None:
    (block,) = (node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == {name: f"smidgen.{module}" for name, module in vars(sm)["_HOMES"].items()}
    assert sorted(typed) == sorted(set(sm.__all__) - {"__version__"})
    assert set(sm.__all__) <= set(dir(sm))


def test_defaults_and_choices_are_those_of_the_library() -> None:
    assert parse_size(options.MEMORY) == MEMORY
    assert (options.SHORT_SIDE, options.TOP, options.BAUD) == (images.SHORT_SIDE, TOP, BAUD)
    assert (options.MOST, options.EVALUATIONS) == (analysis.MOST, methods.EVALUATIONS)
    assert searching.POINTS == options.POINTS
    assert get_args(options.Package) == tuple(kind.value for kind in PackageKind)
    assert get_args(options.SearchMethod) == SEARCH_METHODS
    assert get_args(options.CalibrationMethod) == CALIBRATION_METHODS
