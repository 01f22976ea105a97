"""Tables of numbers, .csv: a row is a sample, or a whole file is one recording."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from smidgen.data.arrays import EACH
from smidgen.data.files import Budget, SampleFile
from smidgen.data.samples import MAX_CLASSES, DataError, Given, Samples, repeated, sorted_labels
from smidgen.ir import Array

SUFFIX = ".csv"
SEPARATORS = ",;\t"
LABELS = ("label", "class", "target", "y")  # usual names of the label column
TIMES = ("timestamp", "time")  # names of columns that are no features
NONE = "none"  # the choice of no column
LONGEST = 2**20  # characters of a line
LARGEST = float(np.finfo(np.float32).max)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True)
class Row:
    """A line of a table, cut into its cells."""

    where: str  # line and file, for errors
    cells: tuple[str, ...]

    def check_width(self, width: int) -> None:
        """Raise DataError unless there are as many cells as in the first line."""
        if len(self.cells) != width:
            raise DataError(
                f"{self.where} has {len(self.cells):,} cells, the first line {width:,}; give all rows the same"
            )

    def cell(self, place: int, names: Sequence[str]) -> str:
        """Return a cell, which may not be empty."""
        if not self.cells[place]:
            raise DataError(f"{self.where} has nothing in column {names[place][:40]!r}; fill it, or leave the row out")
        return self.cells[place]

    def number(self, place: int, names: Sequence[str]) -> float:
        """Return the number in a cell."""
        if not _is_number(cell := self.cell(place, names)):
            raise DataError(
                f"{self.where} has {cell[:40]!r} in column {names[place][:40]!r}, which is no finite number; correct "
                "it, or leave the row out"
            )
        return float(cell)


@dataclass(frozen=True)
class Columns:
    """The columns of a table: their names, and the places of features and of labels."""

    names: tuple[str, ...]
    features: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass
class Rows:
    """The rows of a table as they are read: their numbers one after the other, and the words of their labels."""

    columns: Columns
    numbers: array[float] = field(default_factory=lambda: array("f"))
    words: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def has_classes(self) -> bool:
        """Return whether the labels are classes: words or integers in one column."""
        if len(self.columns.labels) != 1:
            return False
        labels = [words[0] for words in self.words]
        return all(map(_INTEGER.fullmatch, labels)) or not all(map(_is_number, labels))

    def samples(self) -> tuple[Array, ...]:
        return tuple(np.frombuffer(self.numbers, np.float32).reshape(len(self.words), -1))

    def with_vectors(self, file: SampleFile) -> Samples:
        """Return the rows with vectors as labels."""
        wrong = ((place, word) for place, words in enumerate(self.words, 1) for word in words if not _is_number(word))
        for place, word in wrong:
            raise DataError(
                f"sample {place:,} of {file.name} has the label {word[:40]!r} but others have numbers; give classes as "
                "words in one column, or numbers only"
            )
        targets = tuple(np.array([float(word) for word in words], np.float32) for words in self.words)
        return Samples(self.samples(), (0,) * len(targets), targets)


def read_table(parts: Sequence[SampleFile], budget: Budget, label: str | None = None) -> Given:
    """Read a table, or one to learn from and one to test with; `label` names the label columns, "none" for none."""
    tables = [_read_rows(file, budget, label) for file in parts]
    first, *others = tables
    for other, file in zip(others, parts[1:], strict=True):
        if other.columns != first.columns:
            raise DataError(f"{file.name} has other columns than {parts[0].name}; give both the same")
    if not first.columns.labels:
        return Given((), *(Samples(table.samples(), (0,) * len(table.words)) for table in tables))
    if not all(table.has_classes for table in tables):
        return Given((), *(table.with_vectors(file) for table, file in zip(tables, parts, strict=True)))
    classes = sorted_labels(words[0] for table in tables for words in table.words)
    if len(classes) > MAX_CLASSES:
        name = first.columns.names[first.columns.labels[0]]
        raise DataError(
            f"column {name[:40]!r} of {parts[0].name} holds {len(classes):,} labels, up to {MAX_CLASSES:,} can be "
            "learned; write 3.0 instead of 3 if they are numbers to be predicted"
        )
    number = {name: place for place, name in enumerate(classes)}
    return Given(classes, *(Samples(t.samples(), tuple(number[words[0]] for words in t.words)) for t in tables))


def read_recordings(files: Sequence[SampleFile], budget: Budget, side: int = 0) -> tuple[Array, ...]:
    """Read files of which each is one sample, float32 [rows, columns], all of one shape."""
    found: list[Array] = []
    for file in files:
        found.append(_read_recording(file, budget))
        if found[-1].shape != found[0].shape:
            here, first = (f"{len(one):,} rows of {one.shape[1]:,} numbers" for one in (found[-1], found[0]))
            raise DataError(f"{file.name} holds {here}, {files[0].name} {first}; cut recordings to one length")
    return tuple(found)


def _read_recording(file: SampleFile, budget: Budget) -> Array:
    """Return the numbers of a file, below a line of names or without one."""
    numbers, read, names, kept = array("f"), 0, tuple[str, ...](), tuple[int, ...]()
    budget.take(file.name, EACH)
    for row in _rows(file):
        if not names:
            head = not all(map(_is_number, row.cells))
            names = row.cells if head else tuple(str(place) for place in range(1, len(row.cells) + 1))
            kept = tuple(place for place, name in enumerate(names) if name.lower() not in TIMES)
            if head:
                continue
        row.check_width(len(names))
        budget.take(file.name, 4 * len(kept))
        numbers.extend([row.number(place, names) for place in kept])
        read += 1
    if not numbers:
        raise DataError(f"{file.name} holds no numbers; leave it out")
    return np.frombuffer(numbers, np.float32).reshape(read, -1)


def _read_rows(file: SampleFile, budget: Budget, label: str | None) -> Rows:
    rows = _rows(file)
    head = next(rows, None)
    if head is None:
        raise DataError(f"{file.name} is empty; give a line with the names of its columns and a row for each sample")
    table = Rows(_columns(head, label))
    names = table.columns.names
    size = EACH + 4 * len(table.columns.features) + EACH * len(table.columns.labels)
    for row in rows:
        row.check_width(len(names))
        budget.take(file.name, size)
        table.numbers.extend([row.number(place, names) for place in table.columns.features])
        table.words.append(tuple(row.cell(place, names) for place in table.columns.labels))
    if not table.words:
        raise DataError(f"{file.name} holds the names of {len(names)} columns and no rows; add some")
    return table


def _columns(head: Row, label: str | None) -> Columns:
    """Return the columns that the first line names."""
    names = head.cells
    numbers = [name for name in names if _is_number(name)]
    if len(numbers) == len(names) or not all(name.isdecimal() for name in numbers):  # columns may be numbered
        raise DataError(f"{head.where} holds numbers; name the columns in a line above the first row")
    if "" in names or (twice := repeated(names)):
        what = f"gives column {names.index('') + 1} no name" if "" in names else f"names two columns {twice[:40]!r}"
        raise DataError(f"{head.where} {what}; give each column another name")
    labels = _label_columns(head, label)
    left_out = set(labels)
    features = tuple(i for i, name in enumerate(names) if i not in left_out and name.lower() not in TIMES)
    if not features:
        raise DataError(
            f"{head.where} names {len(names)} columns, none of them a feature; choose other labels with --label"
        )
    return Columns(names, features, labels)


def _label_columns(head: Row, label: str | None) -> tuple[int, ...]:
    """Return the places of the label columns: those chosen, the one with a usual name, or the last."""
    names = head.cells
    if label is None:
        usual = [place for place, name in enumerate(names) if name.lower() in LABELS]
        if len(usual) > 1:
            both = " and ".join(repr(names[place]) for place in usual[:2])
            raise DataError(f"{head.where} names columns {both}; choose one with --label")
        return (usual[0] if usual else len(names) - 1,)
    if label == NONE and NONE not in names:
        return ()
    places = {name: place for place, name in enumerate(names)}
    for name in (chosen := label.split(",")):
        if name not in places:
            known = ", ".join(name[:40] for name in names[:8])
            raise DataError(f"{head.where} names no column {name[:40]!r}; --label takes some of {known}")
    return tuple(places[name] for name in dict.fromkeys(chosen))


def _rows(file: SampleFile) -> Iterator[Row]:
    """Yield the lines of a file that are not blank, cut into cells."""
    lines, separator = io.BytesIO(file.read()), ""
    for place in count(1):
        where = f"line {place:,} of {file.name}"
        data = lines.readline(LONGEST + 1)
        if not data:
            return
        if len(data) > LONGEST:
            raise DataError(f"{where} has more than {LONGEST:,} bytes; break it into rows")
        try:
            line = data.decode("utf-8-sig" if place == 1 else "utf-8").strip()
            separator = separator or max(SEPARATORS, key=line.count)
            (cells,) = csv.reader((line,), delimiter=separator, skipinitialspace=True, strict=True) if line else ((),)
        except UnicodeDecodeError:
            raise DataError(f"{where} is not text in UTF-8; save the file as such") from None
        except (csv.Error, ValueError) as error:
            raise DataError(f"{where} cannot be cut into cells: {error}") from None
        if cells:
            yield Row(where, tuple(cell.strip() for cell in cells))


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number that float32 holds."""
    try:
        return -LARGEST <= float(cell) <= LARGEST and "_" not in cell
    except ValueError:
        return False
