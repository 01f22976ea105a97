"""JSON in the files of data sets: whole, or one by one the objects of the long lists in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from smidgen.data.samples import DataError

_SPACE = re.compile(r"[ \t\n\r]*")


def parse_json(data: bytes, where: str) -> object:
    """What a JSON file holds."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise _refused(where) from None
    return value


def members(data: bytes, where: str, lists: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """The elements of these lists at the top of a file, each by its list's name; no more than one is held at a time."""
    try:
        text = data.decode()
        yield from _Walk(text, lists).members()
    except (ValueError, RecursionError):
        raise _refused(where) from None


def _refused(where: str) -> DataError:
    return DataError(f"{where} is not whole JSON; unpack the data set again as it was published")


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
        self.next()
        value: object
        value, self.at = self.decoder.raw_decode(self.text, self.at)
        return value
