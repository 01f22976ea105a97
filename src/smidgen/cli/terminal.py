"""The terminal: results, warnings, progress, Ctrl-C.

Names and paths come from files and from users, and none of them may command the terminal.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from smidgen.errors import SmidgenError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.progress import Progress as RichProgress

PLAIN = {  # what a terminal is sent that cannot show a character
    "→": "->", "×": "x", "…": "...", "−": "-", "–": "-", "·": "*", "²": "2", "µ": "u", "±": "+-", "≤": "<=", "’": "'",
}  # fmt: skip
WIDTH = 120  # columns, where the output is not a terminal
_LABEL = re.compile(r" *\S+( \S+){0,2} {2,}")  # of a line, set off by blanks
INTERRUPTED = 130  # the exit code after Ctrl-C, as shells have it


def degrade_streams() -> None:
    """Let stdout and stderr spell out characters that their encoding lacks, as in a terminal of the C locale."""
    codecs.register_error("smidgen", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="smidgen")


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(PLAIN.get(c, c.encode("ascii", "backslashreplace").decode()) for c in lacking), error.end


def printable(text: str) -> str:
    """Return the text with every character that acts on a terminal (escape sequences, bidirectional marks) escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def say(text: str, err: bool = False) -> None:
    """Print text without markup."""
    print(printable(text), file=sys.stderr if err else sys.stdout, flush=True)


def warn(text: str) -> None:
    """Print a sentence to stderr."""
    say(f"smidgen: {text}", err=True)


def show(result: Any, as_json: bool) -> None:
    """Print a result, a dataclass: as a table if it has one, as text, or as JSON."""
    if as_json:
        say(as_text(result))
    elif hasattr(result, "__rich__"):
        print_rich(result)
    else:
        say(wrapped(str(result)))


def wrapped(text: str) -> str:
    """Return the text with lines no wider than the terminal, broken between words below what a line begins with."""
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    width, lines = shutil.get_terminal_size().columns, list[str]()
    for line in text.splitlines():
        label = _LABEL.match(line)
        indent = " " * (label.end() if label and label.end() < width // 2 else 2)
        broken = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += broken if len(line) > width else [line]
    return "\n".join(lines)


def as_text(result: Any) -> str:
    """Return a result as one JSON object; shares of channels are written as 1/8."""
    plain = result.as_plain() if hasattr(result, "as_plain") else asdict(result)
    return json.dumps(plain, allow_nan=False, default=str)


class _Printable:
    """An object for rich with every character escaped that acts on a terminal."""

    def __init__(self, shown: RenderableType) -> None:
        self.shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self.shown, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def print_rich(shown: RenderableType) -> None:
    """Print a table or a group to stdout."""
    from rich.console import Console

    terminal = sys.stdout is not None and sys.stdout.isatty()
    Console(width=None if terminal else WIDTH, markup=False, emoji=False).print(_Printable(shown))


def progress_console() -> Console:
    """Return the console for progress: stderr, without markup."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False)


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on stderr if that is a terminal; what it yields changes the text."""
    from rich.text import Text

    with progress_console().status(Text(printable(text))) as status:
        yield lambda text: status.update(Text(printable(text)))


class Progress:
    """A bar on stderr if that is a terminal: what is done, how far it is, a detail, and the time it takes."""

    def __init__(self, bar: RichProgress, doing: str) -> None:
        self._bar, self._task, self._done = bar, bar.add_task(printable(doing), total=None, detail=""), math.inf

    def update(self, done: float, total: float, doing: str | None = None, detail: str = "") -> None:
        """Show how much is done; a total of 0 is not known. What starts over is timed from there."""
        if done < self._done:
            self._bar.reset(self._task, completed=int(done), detail=detail)
        self._done = done
        words = None if doing is None else printable(doing)
        self._bar.update(self._task, completed=done, total=total or None, description=words, detail=printable(detail))

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, highlight=False)


@contextmanager
def progress(doing: str = "starting") -> Iterator[Progress]:
    """Show a bar while the work is done."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    console = progress_console()
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(), TimeRemainingColumn(elapsed_when_finished=True),
    )  # fmt: skip
    with RichProgress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Progress(bar, doing)


def abandon_stdout() -> None:
    """Discard what stdout still holds, so that the interpreter does not complain when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, ValueError, OSError, io.UnsupportedOperation):
        return  # there is none, or it is no file


@contextmanager
def stopping_in_between() -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C was pressed, for work that stops between two steps; pressed again, it stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed: list[int] = []

    def press(number: int, _: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    except SmidgenError:  # a compiler that was interrupted too has failed
        if pressed:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def going_on(sentence: Callable[[], str]) -> Iterator[None]:
    """End an interrupted command with one sentence, what is kept and how to go on, and without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; {sentence()}")
        raise typer.Exit(INTERRUPTED) from None
