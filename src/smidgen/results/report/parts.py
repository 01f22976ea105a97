"""A report as data: sections of charts, tables, stacks of bytes, samples and facts; `rendering` makes a page of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from smidgen.results.figures import Figure


@dataclass(frozen=True)
class KeyNumber:
    """One of the few numbers that matter: what it is, how much, and what that is to be seen beside."""

    name: str
    value: str
    said: str
    share: float | None = None  # of a limit, drawn as a bar; None without one


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, the number that it is sorted by, and a share of 1 drawn as a bar beside it."""

    text: str
    number: float | None = None
    bar: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells under names of columns."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = True  # behind a line that opens it
    kind: ClassVar[str] = "table"

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers, which stand to the right."""
        cells = [row[column] for row in self.rows if row[column].text]
        return bool(cells) and all(cell.number is not None for cell in cells)


@dataclass(frozen=True)
class Chart:
    """A figure, what there is to see in it, and its numbers as tables."""

    figure: Figure
    said: str
    tables: tuple[Table, ...]
    kind: ClassVar[str] = "chart"


@dataclass(frozen=True)
class Part:
    """Some bytes of a stack, and the tone they have in every picture."""

    name: str
    bytes: int
    tone: str


@dataclass(frozen=True)
class Stack:
    """Bytes in use beside those there are, and the limits between."""

    name: str
    parts: tuple[Part, ...]
    whole: int
    whole_name: str
    limit: int | None = None  # such as a budget, marked where it is less than the whole
    kind: ClassVar[str] = "stack"

    @property
    def used(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def places(self) -> tuple[tuple[Part, float, float], ...]:
        """Each part, where it begins and how wide it is, in percent of all there is to show."""
        most, at, placed = max(self.whole, self.used, 1), 0, list[tuple[Part, float, float]]()
        for part in self.parts:
            placed.append((part, round(100 * at / most, 3), round(100 * part.bytes / most, 3)))
            at += part.bytes
        return tuple(placed)


@dataclass(frozen=True)
class Answer:
    """What a model says of a sample, and whether that is right; None where nothing says so."""

    text: str
    right: bool | None


@dataclass(frozen=True)
class ShownSample:
    """A sample with what is true of it, and what the model said of it before and after learning."""

    name: str
    picture: str  # a data address; empty for samples that are no pictures
    truth: str
    before: Answer
    after: Answer


@dataclass(frozen=True)
class Gallery:
    """Samples of the test, before and after."""

    samples: tuple[ShownSample, ...]
    said: str
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Matrix:
    """How often samples of each class, a row, were said to be of each other, a column."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    said: str
    kind: ClassVar[str] = "matrix"

    def shade(self, row: int, column: int) -> int:
        """From 0 to 10, the share of a row's samples in tenths; what there is at all is not 0."""
        count, whole = self.counts[row][column], max(sum(self.counts[row]), 1)
        return -(-10 * count // whole)


@dataclass(frozen=True)
class Fact:
    """A name, what is said of it, and what is to be copied as it is."""

    name: str
    said: str
    code: str = ""


@dataclass(frozen=True)
class Facts:
    """Names with what is said of each."""

    facts: tuple[Fact, ...]
    kind: ClassVar[str] = "facts"


Block = Chart | Table | Stack | Gallery | Matrix | Facts


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and what is shown below."""

    key: str  # by which links lead to it
    title: str
    said: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Report:
    """A page: what it is about, the numbers that matter, and the sections."""

    title: str
    kicker: str  # what kind of page it is, above the title
    said: str
    numbers: tuple[KeyNumber, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]


def counted(count: int, bar: float | None = None) -> Cell:
    """A cell with a whole number."""
    return Cell(f"{count:,}", count, bar)


def percent(share: float | None, digits: int = 1) -> Cell:
    """A cell with a share of 1, empty where it is not known."""
    return Cell("") if share is None else Cell(f"{share:.{digits}%}", share, share)


def rows_of(rows: Iterable[Iterable[Cell | str]]) -> tuple[tuple[Cell, ...], ...]:
    """Rows of cells, of which some are plain text."""
    return tuple(tuple(Cell(one) if isinstance(one, str) else one for one in row) for row in rows)
