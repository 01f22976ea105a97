"""The command line's comforts: `python -m`, completion, flags shown as flags, and no empty folder after a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.cli import shared
from smidgen.data.files import made_folder
from smidgen.errors import InputError
from smidgen.frontends.native import write_smg
from smidgen.pipeline import Program
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network


def smidgen(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "smidgen", *words)
    env = {**os.environ, **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_python_runs_the_package_as_the_command() -> None:
    assert smidgen("--version").stdout == f"smidgen {sm.__version__}\n"
    failed = smidgen("info", "nothing-of-this-name")
    assert failed.returncode == 2
    assert failed.stderr.startswith("smidgen: ")
    assert "Traceback" not in failed.stderr


def completed(line: str) -> list[str]:
    """What bash is offered for the last word of a line, by the way that the installed script asks for it."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    command = (sys.executable, "-c", "import sys; sys.argv[0] = 'smidgen'; from smidgen.cli import main; main()")
    env = {**os.environ, "_SMIDGEN_COMPLETE": "complete_bash", **words}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout.split()


def test_a_shell_completes_verbs_and_options() -> None:
    assert completed("smidgen comp") == ["compile"]
    assert completed("smidgen compile --pre") == ["--prefix"]
    assert completed("smidgen train --sche") == ["--scheme", "--schedule"]


def test_a_shell_completes_networks_targets_and_schemes() -> None:
    assert completed("smidgen info mcu") == ["mcunet-5fps"]
    assert completed("smidgen compile x --target cortex-m7") == ["cortex-m7"]
    assert "99kb" in completed("smidgen train x --scheme 9")


def test_the_help_is_in_groups_with_an_example() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    places = [shown.index(f"─ {group} ─") for group in ("Start", "Model", "Learn", "Board")]
    assert places == sorted(places)
    assert shown.index("demo") < shown.index("fit ") < shown.index("info")
    assert "For example: smidgen fit" in shown


def test_completion_can_be_installed_and_shown() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    assert "--install-completion" in shown
    assert "--show-completion" in shown


def help_lines(*verb: str) -> dict[str, str]:
    """The help of a verb: its lines by the option they begin with."""
    shown = CliRunner().invoke(cli.app, [*verb, "--help"], terminal_width=200).output
    begun = (line for line in shown.splitlines() if re.match(r"│[ *]{1,5}--", line))  # not a help text's next line
    return {line.split()[0]: line for line in (line.strip("│* ") for line in begun)}


VERBS: dict[str, Any] = vars(get_command(cli.app))["commands"]


@pytest.mark.parametrize("name", VERBS)
def test_an_option_that_takes_no_value_is_shown_without_a_type(name: str) -> None:
    lines = help_lines(name)
    flags = {option.opts[0] for option in VERBS[name].params if getattr(option, "is_flag", False)} | {"--help"}
    assert flags <= lines.keys()
    assert {option for option, line in lines.items() if "<" not in line} == flags
    assert not any("<" in line for option, line in help_lines().items() if option != "--show-completion")


class Late(Exception):
    """What goes wrong after a folder was made."""


def fail_in(folder: Path, written: str = "") -> None:
    with made_folder(folder):
        assert folder.is_dir()
        if written:
            (folder / written).write_text("")
        raise Late


def test_a_folder_that_was_made_for_nothing_is_removed_again(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for folder in ("there", "there/new", "a/b/c"):
        with pytest.raises(Late):
            fail_in(tmp_path / folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with made_folder(tmp_path / "new"):
        pass
    assert (tmp_path / "new").is_dir()


def test_a_folder_that_holds_something_stays(tmp_path: Path) -> None:
    with pytest.raises(Late):
        fail_in(tmp_path / "a" / "b", "checkpoint")
    assert (tmp_path / "a" / "b" / "checkpoint").exists()


ERRORS = (InputError("late"), OSError("the disk is full"), KeyboardInterrupt())


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_verb_that_fails_late_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    reached = []

    def late(*_: object, **__: object) -> None:
        reached.append(error)
        raise error

    def fails(*arguments: str) -> bool:
        return CliRunner().invoke(cli.app, arguments).exit_code != 0

    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    monkeypatch.setattr(shared, "load_data", lambda *_: draw_shapes(5, 2))
    monkeypatch.setattr("smidgen.learning.learn", late)
    assert fails(
        "train", "small.smg", "--scheme", "last:3", "--data", "photos", "--learning-rate", "0.01", "-o", "deep/out"
    )
    monkeypatch.setattr(Program, "files", late)
    assert fails("compile", "small.smg", "-o", "deep/out")
    assert reached == [error] * 2
    assert os.listdir() == ["small.smg"]
