"""Ctrl-C: learning is asked to stop between two steps, and a command that can go on says by which command."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from smidgen.cli.shared import INTERRUPTED, WORDS
from smidgen.cli.terminal import warn
from smidgen.errors import SmidgenError


@contextmanager
def stopping_in_between() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, for work that stops where it can; pressed again, it stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        if heard:
            raise KeyboardInterrupt
        heard.append(number)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield lambda: bool(heard)
    except SmidgenError:  # a compiler that was interrupted too has failed
        if heard:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def going_on(sentence: Callable[[], str]) -> Iterator[None]:
    """End an interrupted command with what is kept and how to go on, in one sentence, and without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; {sentence()}")
        raise typer.Exit(INTERRUPTED) from None


def same_command(context: typer.Context, **changed: str) -> str:
    """The command under way as one can paste it into a shell, with options set to these values."""
    words = list(context.meta[WORDS])
    for option, value in changed.items():
        words = [*_without(words, f"--{option}"), f"--{option}", value]
    return shlex.join(("smidgen", *words))


def _without(words: list[str], option: str) -> list[str]:
    """The words without an option and its value."""
    kept: list[str] = []
    places = iter(words)
    for word in places:
        if word == option:
            next(places, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept
