"""JSON in the files of data sets: whole, or one by one the objects of the long lists in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from smidgen.data.budget import Budget
from smidgen.data.samples import DataError

GROWTH = 32  # bytes of memory for a byte of text, at most
WINDOWS = (2**13, 2**17, 2**22)  # characters that one element is sought in: most take a few hundred
_SPACE = re.compile(r"[ \t\n\r]*")


def parse_json(data: bytes, where: str, budget: Budget) -> object:
    """What a JSON file holds; as Python's objects it takes far more than as text."""
    budget.check(f"{where}, parsed,", GROWTH * len(data))
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise _refused(where) from None
    return value


def members(data: bytes, where: str, lists: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """The elements of these lists at the top of a file, each by its list's name; one is held at a time."""
    try:
        text = data.decode()
        yield from _Walk(text, lists).members()
    except (ValueError, RecursionError):
        raise _refused(where, f", or has an entry of over {WINDOWS[-1]:,} characters") from None


def _refused(where: str, but: str = "") -> DataError:
    return DataError(f"{where} is not whole JSON{but}; unpack the data set again as it was published")


class _Walk:
    """A place in a text that moves on; whatever does not fit is a ValueError."""

    def __init__(self, text: str, lists: tuple[str, ...]) -> None:
        self.text, self.lists, self.at = text, lists, 0
        self.decoder = json.JSONDecoder()

    def members(self) -> Iterator[tuple[str, object]]:
        self.take("{")
        while self.next() != "}":
            key = self.value()
            self.take(":")
            if key in self.lists and self.next() == "[":
                yield from ((str(key), value) for value in self.elements())
            else:
                self.value()
            if self.next() != "}":
                self.take(",")

    def elements(self) -> Iterator[object]:
        self.take("[")
        while self.next() != "]":
            yield self.value()
            if self.next() != "]":
                self.take(",")
        self.take("]")

    def next(self) -> str:
        """The next character that is not space."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if self.at >= len(self.text):
            raise ValueError("the text ends")
        return self.text[self.at]

    def take(self, character: str) -> None:
        if self.next() != character:
            raise ValueError(f"no {character}")
        self.at += 1

    def value(self) -> object:
        """The value that begins here; one longer than the widest window is refused, before it grows in memory."""
        self.next()
        for window in WINDOWS:
            try:
                value, end = self.decoder.raw_decode(self.text[self.at : self.at + window])
            except ValueError:
                if window == WINDOWS[-1] or self.at + window >= len(self.text):
                    raise
                continue
            if end < window:  # else it may be a number that goes on
                self.at += end
                return value
        raise ValueError("a value without end")
