"""Checker of calls of Python scripts against their argparse: JSON lists of [place, script, words …] on stdin.

It runs in a separate process: each script is loaded up to where it parses its arguments, and stopped there. Mistakes
are printed, one line each.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

from tests.support.doc_commands import LEFT_OUT, is_placeholder

TOP = Path(__file__).parents[2]


class Reached(BaseException):
    """A script got to its arguments; `parser` is theirs."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


class Wrong(Exception):
    """Raised with argparse's complaint."""


def stop(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
    raise Reached(parser)


def complain(_: argparse.ArgumentParser, message: str) -> NoReturn:
    raise Wrong(message)


def parser_of(script: Path) -> argparse.ArgumentParser | None:
    """The parser that a script calls, or None where it has none, and is not loaded."""
    shared = script.parent.parent / "common.py"  # of the examples
    sources = (script, *([shared] if shared.is_file() else ()))
    if not any("parse_args(" in source.read_text() for source in sources):
        return None
    parse, sys.argv = argparse.ArgumentParser.parse_args, [str(script)]
    sys.path.insert(0, str(script.parent))
    argparse.ArgumentParser.parse_args = stop  # type: ignore[method-assign, assignment]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Reached as reached:
        return reached.parser
    except SystemExit:
        return None
    finally:
        argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign]
        sys.path.remove(str(script.parent))
    return None


def check(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Raise Wrong unless a parser takes these words; placeholders are of any kind."""
    if LEFT_OUT in words:
        unknown = [w for w in words if w.startswith("--") and w.partition("=")[0] not in parser._option_string_actions]
        if unknown:
            raise Wrong(f"unknown: {', '.join(unknown)}")
        return
    parser.parse_args(words)


def loosen() -> None:
    """Let argparse complain by an exception, and take a placeholder wherever a value belongs."""
    value, chosen = argparse.ArgumentParser._get_value, argparse.ArgumentParser._check_value

    def get_value(self: argparse.ArgumentParser, action: argparse.Action, text: str) -> Any:
        return text if is_placeholder(text) else value(self, action, text)

    def check_value(self: argparse.ArgumentParser, action: argparse.Action, found: Any) -> None:
        if not (isinstance(found, str) and is_placeholder(found)):
            chosen(self, action, found)

    argparse.ArgumentParser._get_value = get_value  # type: ignore[method-assign, assignment]
    argparse.ArgumentParser._check_value = check_value  # type: ignore[method-assign, assignment]
    argparse.ArgumentParser.error = complain  # type: ignore[method-assign, assignment]


def main() -> None:
    loosen()
    parsers: dict[str, argparse.ArgumentParser | None] = {}
    for place, script, *words in json.load(sys.stdin):
        if not (TOP / script).is_file():
            print(f"{place}: {script} is not there")
            continue
        if script not in parsers:
            parsers[script] = parser_of(TOP / script)
        parser = parsers[script]
        try:
            if parser is not None:
                check(parser, words)
        except Wrong as error:
            print(f"{place}: python {script}: {error}")


if __name__ == "__main__":
    main()
