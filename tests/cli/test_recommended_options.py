"""Every option that a message of the library or the command line recommends is one of the verb that prints it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from smidgen import cli
from smidgen.cli import verbs
from smidgen.cli.options import DataReading, Learning, Limited, Overwriting
from tests.support.house import ROOT

KINDS = (*(kind for _, _, kinds in verbs.VERBS for kind in kinds), *verbs.BOARD_VERBS)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"smidgen ([a-z]+)\b(?![^,;]*[,;])(?!.* and )")  # that goes on to the end
EVERYWHERE = {"--help", "--version", "--json"}
COMMANDS: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
READING = tuple(kind for kind in KINDS if issubclass(kind, Limited))
DATA = tuple(kind for kind in READING if "source" in kind.__dataclass_fields__ and kind is not verbs.Import)
# Which verbs print the messages of a file. Without --short-side, images are reduced to a size that fits.
RAISED_BY: dict[str, tuple[type, ...]] = {
    "frontends/onnx/read/decode.py": READING,
    "data/files.py": READING,
    "data/images.py": tuple(kind for kind in KINDS if issubclass(kind, DataReading)),
    "data/tables.py": DATA,
    "data/load.py": DATA,
    "data/audio.py": DATA,
    "ir/log_mel.py": DATA,
    "quantization/pixels.py": (verbs.Quantize,),
    "results/inspection.py": (verbs.Info,),
    "results/modules.py": (verbs.Profile,),
    "play/serving.py": (verbs.Play,),
    "results/summaries.py": (verbs.Compile,),
    "learning/models.py": tuple(kind for kind in KINDS if issubclass(kind, Learning) and issubclass(kind, DataReading)),
    "selection/estimates.py": (verbs.Search, verbs.Fit),
    "selection/contributions.py": (verbs.Analyze,),
    "selection/launchers.py": (verbs.Analyze,),
    "codegen/project.py": (verbs.Compile,),
    "codegen/packages.py": (verbs.Compile,),
    "fitting/ledger.py": (verbs.Fit, verbs.Demo),
    "targets/device.py": (*verbs.BOARD_VERBS[:6], verbs.Compile, verbs.Train),
    "targets/lines.py": (verbs.Port,),
    "link/device.py": (verbs.Port,),
    "cli/search.py": (verbs.Search,),
    "cli/programs.py": (verbs.Profile,),
    "cli/models.py": (verbs.Quantize,),
    "cli/device.py": verbs.BOARD_VERBS[:6],
    "cli/train.py": (verbs.Train,),
}
# Of helpers that several verbs call, by what the sentence begins with.
SHARED = {
    "the labels are a class": (verbs.Fit, verbs.Train), "{} classes can only": (verbs.Compile, verbs.Profile),
    "{} exists already": tuple(kind for kind in KINDS if issubclass(kind, Overwriting)),
}  # fmt: skip


def options_of(kind: type) -> set[str]:
    """The options of a verb, as its help lists them."""
    name = kind.__name__.lower()
    board = name.removeprefix("board")
    command = COMMANDS["device"] if kind is verbs.Port else COMMANDS.get(name) or COMMANDS["device"].commands[board]
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def messages() -> Iterator[tuple[str, str]]:
    """Each string of the library that is no docstring and names an option, with its file; {} stands for a value."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | docs:
                text = node.value
            if " " in text and set(OPTION.findall(text)) - EVERYWHERE:
                yield str(path.relative_to(ROOT)), text


SAID = [one for one in messages() if not one[0].startswith(("cli/options", "cli/verbs", "cli/__init__"))]


def test_messages_that_name_options_are_found() -> None:
    assert len(SAID) > 30


@pytest.mark.parametrize(("file", "text"), SAID, ids=lambda text: text[:40])
def test_a_recommended_option_is_one_of_the_verb(file: str, text: str) -> None:
    for found in OPTION.finditer(text):
        option, before = found[0], text[: found.start()]
        if option in EVERYWHERE or not before:  # a sentence that begins with an option is about one that was given
            continue
        if named := COMMAND.search(before):
            assert option in {name for one in COMMANDS[named[1]].params for name in one.opts}, text
            continue
        raised = RAISED_BY.get(file) or next((some for begin, some in SHARED.items() if text.startswith(begin)), None)
        assert raised, f"{file} recommends {option}; list above which verbs print this: {text}"
        for kind in raised:
            assert option in options_of(kind), f"{kind.__name__} has no {option}: {text}"


def test_fit_takes_what_train_takes_but_for_what_it_decides_by_itself() -> None:
    own = {"--classes", "--scheme", "--schedule", "--warmup", "--test-every", "--resume", "--quantize", "--one-pass"}
    assert options_of(verbs.Train) - options_of(verbs.Fit) == own


def test_names_of_classes_are_given_alike_wherever_a_model_meets_data() -> None:
    for kind in (verbs.Fit, verbs.Train, verbs.Import, verbs.Test, verbs.Predict, verbs.Quantize, verbs.BoardTrain):
        assert "--class-names" in options_of(kind)
    assert "--classes" in options_of(verbs.Import)
