"""Text on the terminal: names and paths come from files and from users, and none of them may command it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

WIDTH = 120  # columns, where the output is not a terminal


def printable(text: str) -> str:
    """The text with everything that is not seen but acted upon (escape sequences, bidirectional marks) spelled out."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def say(text: str, err: bool = False) -> None:
    """Print text as it is, without markup."""
    typer.echo(printable(text), err=err)


def warn(text: str) -> None:
    """Print a sentence to stderr."""
    say(f"smidgen: {text}", err=True)


class _Printable:
    """What another object shows, every character of it printable."""

    def __init__(self, shown: RenderableType) -> None:
        self.shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.shown, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def print_rich(shown: RenderableType) -> None:
    """Print a table or a group to stdout."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    Console(width=None if terminal else WIDTH, markup=False, emoji=False).print(_Printable(shown))


def progress_console() -> Console:
    """Where progress goes: stderr, as it is written."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """A spinner on stderr; nothing where that is not a terminal."""
    with progress_console().status(Text(printable(text))):
        yield


def abandon_stdout() -> None:
    """Let what stdout still holds go nowhere, so that the interpreter does not complain when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, ValueError, OSError, io.UnsupportedOperation):
        return  # there is none, or it is no file
