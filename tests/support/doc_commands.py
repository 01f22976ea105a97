"""Commands in documents, checked against the command line and the scripts they call without running anything."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
from typer.main import get_command

import smidgen as sm
from smidgen import cli
from tests.support.house import TOP

LEFT_OUT = "…"
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*(\.\w+)?|<\w+>")  # MODEL, FILE.html
SEPARATORS = ("|", "||", "&&", "&", ";", "(", ")")
LEADING = ("do", "then", "else", "if", "time", "!", "$")


def simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a shell's text, without assignments before it and redirections behind it."""
    for line in _lines(text):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in SEPARATORS:
                if command := _command(words):
                    yield command
                words = []
            else:
                words.append(word)


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, continued ones as one, without the documents that stand in it."""
    lines = iter(re.sub(r"\\\n\s*", " ", text).splitlines())
    for line in lines:
        yield line
        if found := re.search(r"<<-?\s*['\"]?(\w+)", line):
            for inner in lines:
                if inner.strip() == found[1]:
                    break


def _command(words: list[str]) -> list[str]:
    while words and (words[0] in LEADING or re.match(r"\w+=", words[0])):
        words = words[1:]
    kept, skip = [], False
    for word in words:
        if skip or re.fullmatch(r"[<>]+&?", word):
            skip = not skip
        else:
            kept.append(word)
    return kept


def is_placeholder(word: str) -> bool:
    """Return whether a word is a placeholder for the reader's value."""
    return word == LEFT_OUT or PLACEHOLDER.fullmatch(word) is not None


class Refused(Exception):
    """A command that the command line would not take."""


def check_smidgen(words: list[str], whole: bool) -> None:
    """Raise Refused unless these words behind `smidgen` name a verb, options it knows, and values of their kind.

    A `whole` command has all that is required; one in a sentence may leave things out.
    """
    command: Any = get_command(cli.app)
    whole = whole and LEFT_OUT not in words
    words = [word for word in words if word != LEFT_OUT]
    eager = {name for parameter in command.params for name in parameter.opts}
    if set(words) & eager or words[-1:] == ["--help"]:
        words = [word for word in words if word not in eager | {"--help"}]
        whole = False
    context: Any = None
    path = ["smidgen"]
    while hasattr(command, "commands") and words:
        context, words = _enter(command, path, words, context)
        if not words or is_placeholder(words[0]):
            return
        if words[0] not in command.commands:
            raise Refused(f"{' '.join(path)} has no verb {words[0]!r}")
        command = command.get_command(context, words[0])
        path, words = [*path, words[0]], words[1:]
    if not hasattr(command, "commands"):
        _check_verb(command, path, words, whole)


def _enter(command: Any, path: list[str], words: list[str], parent: Any) -> tuple[Any, list[str]]:
    """A group's own options and arguments, and the words behind them."""
    try:
        context = command.make_context(path[-1], list(words), parent=parent)
    except typer.Exit:
        return None, []
    except Exception as error:
        raise Refused(f"{' '.join(path)}: {getattr(error, 'message', error)}") from error
    return context, [*context._protected_args, *context.args]


def _check_verb(command: Any, path: list[str], words: list[str], whole: bool) -> None:
    name = " ".join(path)
    context = command.context_class(command, info_name=path[-1])
    try:
        more = [] if whole or not words or not words[-1].startswith("-") else _value_of(command, words[-1])
        values, left, _ = command.make_parser(context).parse_args([*words, *more])
        if left:
            raise Refused(f"{name}: {left} are too many words")
        for parameter in command.params:
            given = values.get(parameter.name)
            several = given if isinstance(given, list | tuple) else [given]
            if given and not any(isinstance(value, str) and is_placeholder(value) for value in several):
                parameter.process_value(context, given)
            if whole and parameter.required and given in (None, [], ()):
                raise Refused(f"{name}: {parameter.name} is missing")
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{name}: {getattr(error, 'message', error)}") from error


def _value_of(command: Any, option: str) -> list[str]:
    """Return a placeholder for the value that a sentence leaves out behind an option, if it takes one."""
    takes = any(option in parameter.opts and not getattr(parameter, "is_flag", False) for parameter in command.params)
    return ["VALUE"] if takes else []


@cache
def targets() -> frozenset[str]:
    """Return the targets of the Makefile."""
    return frozenset(re.findall(r"^([a-z][\w-]*):", (TOP / "Makefile").read_text(), re.MULTILINE))


def check_make(words: list[str]) -> None:
    """Raise Refused where a target is named that the Makefile does not have."""
    wanted = [word for word in words if "=" not in word and not word.startswith("-")]
    if "-C" not in words and set(wanted) - targets():
        raise Refused(f"make has no target {', '.join(sorted(set(wanted) - targets()))}")


def check_python_text(text: str, place: str) -> list[str]:
    """Return what is wrong with Python that is not run: its syntax, or names that `sm` does not have."""
    try:
        tree = ast.parse(text, place)
    except SyntaxError as error:
        return [f"{place}: {error}"]
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("sm", "smidgen")
    }
    return [f"{place}: sm.{name} is not there" for name in sorted(used - set(sm.__all__))]


def check_shell(text: str, place: str, whole: bool = True) -> tuple[list[str], list[list[str]]]:
    """Return what is wrong with a shell block, and its calls of Python scripts, which `doc_scripts.py` checks."""
    wrong, scripts = [], []
    try:
        commands = list(simple_commands(text))
    except ValueError as error:
        return [f"{place}: {error}"], []
    for words in commands:
        try:
            if words[0] == "smidgen" or words[:3] == ["python", "-m", "smidgen"]:
                check_smidgen(words[1:] if words[0] == "smidgen" else words[3:], whole)
            elif words[0] == "make" and whole:
                check_make(words[1:])
            elif words[0] == "python" and len(words) > 1 and words[1].endswith(".py"):
                scripts.append(words[1:])
        except Refused as error:
            wrong.append(f"{place}: {error}")
    return wrong, scripts
