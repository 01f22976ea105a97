"""Tables as data, shown as text in a terminal and as HTML in a report or a notebook, and objects as these show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

SHOWN_CLASSES, COLUMNS = 20, 80  # of a confusion matrix in the terminal; wider ones have numbers above
SHOWN_ROWS, SHOWN_LINES = 10, 12  # of a table and of words in a notebook
LONGEST = 400  # characters at a prompt
WIDE, HIGH = 480, 60  # pixels of a picture in a notebook
ABOVE, BELOW = "#4a90c4", "#dd5a4b"  # zero


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
    folded: bool = True  # on a page behind a line that opens it
    totals: tuple[str, ...] = ()  # below the columns
    kind: ClassVar[str] = "table"

    def is_number(self, column: int) -> bool:
        """Return whether a column holds numbers, which are aligned to the right."""
        cells = [row[column] for row in self.rows if row[column].text]
        return bool(cells) and all(cell.number is not None for cell in cells)

    def __str__(self) -> str:
        totals = [self.totals] if self.totals else []
        lines = [self.columns, *(tuple(cell.text for cell in row) for row in self.rows), *totals]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        right = [self.is_number(place) for place in range(len(self.columns))]
        padded = (
            (text.rjust(wide) if end else text.ljust(wide) for text, wide, end in zip(line, widths, right, strict=True))
            for line in lines
        )
        return "\n".join("  ".join(line).rstrip() for line in padded)

    def __rich__(self) -> RichTable:
        from rich.table import Table as RichTable  # here, because a graph has no need of it
        from rich.text import Text

        title = Text(self.caption) if self.caption else None
        shown = RichTable(title=title, title_justify="left", show_footer=bool(self.totals), box=None, pad_edge=False)
        for place, name in enumerate(self.columns):
            total = self.totals[place] if self.totals else ""
            shown.add_column(name, total, justify="right" if self.is_number(place) else "left", overflow="fold")
        for row in self.rows:
            shown.add_row(*(cell.text for cell in row))
        return shown

    def _repr_html_(self) -> str:
        """Return the first rows as HTML."""
        left = len(self.rows) - SHOWN_ROWS
        more = f"<p>and {left:,} more rows</p>" if left > 0 else ""
        lines = [(cell.text for cell in row) for row in self.rows[:SHOWN_ROWS]]
        body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in line)}</tr>" for line in lines)
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        return f"<table><caption>{escape(self.caption)}</caption><tr>{head}</tr>{body}</table>{more}"


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix: a row for each true class, a column for each predicted class."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    kind: ClassVar[str] = "matrix"

    @property
    def caption(self) -> str:
        """The three most frequent mistakes."""
        worst = (f"{true} for {taken}, {n:,} of {of:,}" for true, taken, n, of in self._mistakes()[:3])
        return f"Mistaken most: {'; '.join(worst)}." if self._mistakes() else "Nothing is mistaken."

    def shade(self, row: int, column: int) -> int:
        """Return the share of a row's samples in tenths, from 0 to 10, rounded up."""
        count, whole = self.counts[row][column], max(sum(self.counts[row]), 1)
        return -(-10 * count // whole)

    def _repr_html_(self) -> str:
        """Return the matrix as HTML, darker where more of a class is; of many classes the mistakes alone."""
        if len(self.names) > SHOWN_CLASSES:
            return self.mistakes()._repr_html_()
        head = "".join(f"<th>{escape(name)}</th>" for name in ("true class", *self.names))
        rows = (
            f"<tr><th>{escape(name)}</th>"
            + "".join(f'<td style="background: rgb(74 144 196 / {10 * self.shade(i, j)}%)">{n}</td>' for j, n in row)
            for i, (name, row) in enumerate(zip(self.names, map(enumerate, self.counts), strict=True))
        )
        return f"<table><caption>{escape(self.caption)}</caption><tr>{head}</tr>{''.join(rows)}</table>"

    def mistakes(self) -> Table:
        """Return every mistake in a row, the most frequent first, for a matrix that is too large to show."""
        rows = rows_of((true, taken, counted(n), percent(n / of)) for true, taken, n, of in self._mistakes())
        return Table("Every mistake", ("True class", "Predicted", "Samples", "Share of the class"), rows)

    def _mistakes(self) -> list[tuple[str, str, int, int]]:
        """Return the true class, the predicted one, how often, and how many samples are of the true class."""
        wrong = [(n, i, j) for i, row in enumerate(self.counts) for j, n in enumerate(row) if i != j and n]
        wrong.sort(key=lambda one: (-one[0], one[1:]))
        return [(self.names[i], self.names[j], n, sum(self.counts[i])) for n, i, j in wrong]

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table as RichTable

        if len(self.names) > SHOWN_CLASSES:
            return f"the confusion matrix of {len(self.names)} classes is in --json and in the page that -o writes"
        widths = [2 + max(len(name), len(f"{sum(row):,}")) for name, row in zip(self.names, self.counts, strict=True)]
        numbered = len(self.names) > SHOWN_CLASSES // 2 or max(widths) + sum(widths) > COLUMNS
        table = RichTable("true", box=None, pad_edge=False)
        for place, name in enumerate(self.names):
            table.add_column(str(place) if numbered else name, justify="right")
        for place, (name, row) in enumerate(zip(self.names, self.counts, strict=True)):
            shown = (f"{count:,}" if count else "·" for count in row)
            table.add_row(f"{place} {name}" if numbered else name, *shown)
        return Group("confusion: true class down, predicted across", table)


class Brief:
    """An object as a prompt and a notebook show it: briefly, in words, with a picture and its tables."""

    def picture(self) -> str:
        """Return a picture as HTML; empty where there is none."""
        return ""

    def tables(self) -> tuple[Table | Matrix, ...]:
        """Return the tables below the picture."""
        return ()

    def __repr__(self) -> str:
        words = " ".join(str(self).split())
        return f"<{type(self).__name__} {words if len(words) <= LONGEST else words[: LONGEST - 1] + '…'}>"

    def _repr_html_(self) -> str:
        words = escape("\n".join(str(self).splitlines()[:SHOWN_LINES]))
        return f"<pre>{words}</pre>{self.picture()}{''.join(table._repr_html_() for table in self.tables())}"


def bars(title: str, values: Sequence[float], names: Sequence[str]) -> str:
    """Return a bar for each value as SVG, with its name as tooltip; red for one below zero."""
    most, width = max((abs(value) for value in values), default=0) or 1, WIDE / max(len(values), 1)
    heights = [HIGH * abs(value) / most for value in values]
    places = [(place * width, HIGH - high, 0.9 * width, high) for place, high in enumerate(heights)]
    return boxes(title, places, names, [BELOW if value < 0 else ABOVE for value in values])


def boxes(
    title: str, places: Sequence[tuple[float, float, float, float]], names: Sequence[str], colours: Sequence[str] = ()
) -> str:
    """Return rectangles as SVG: left, top, width and height of each, its name as tooltip, and its colour."""
    drawn = "".join(
        f'<rect x="{x:.4g}" y="{y:.4g}" width="{w:.4g}" height="{h:.4g}" fill="{colour}">'
        f"<title>{escape(name)}</title></rect>"
        for (x, y, w, h), name, colour in zip(places, names, colours or [ABOVE] * len(places), strict=True)
    )
    size = f'viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" stroke="white" stroke-width="0.5"'
    return f"<figure><figcaption>{escape(title)}</figcaption><svg {size}>{drawn}</svg></figure>"


def counted(count: int | None, bar: float | None = None) -> Cell:
    """Return a cell with a whole number, empty where there is none."""
    return Cell("") if count is None else Cell(f"{count:,}", count, bar)


def measured(number: float | None, form: str = ".6g") -> Cell:
    """Return a cell with a number in this format, empty where it is not known."""
    return Cell("") if number is None else Cell(f"{number:{form}}", number)


def percent(share: float | None, digits: int = 1) -> Cell:
    """Return a cell with a share of 1, empty where it is not known."""
    return Cell("") if share is None else Cell(f"{share:.{digits}%}", share, share)


def rows_of(rows: Iterable[Iterable[Cell | str]]) -> tuple[tuple[Cell, ...], ...]:
    """Return rows of cells; strings become cells of plain text."""
    return tuple(tuple(Cell(one) if isinstance(one, str) else one for one in row) for row in rows)
