"""The result of a ladder: every candidate as judged on the user's samples, the one to keep, and why."""

from __future__ import annotations

from dataclasses import dataclass

from smidgen.selection.judging import Recipe
from smidgen.selection.rates import of_batch
from smidgen.tables import Cell, Table, counted, rows_of

COLUMNS = ("What learns", "Held back", "Gain", "SRAM", "Instructions", "Rate", "Judged with")
SURE = 2.0  # standard errors above chance from which something was learned


@dataclass(frozen=True)
class Row:
    """A candidate as judged: its best rate, its mean score on samples held back with its error, and its cost."""

    name: str
    learning_rate: float | None  # of one sample, in its trial; None where no step is taken
    score: float | None  # top-1 from 0 to 1, or minus the mean loss; None where it diverged
    error: float  # standard error of the score
    judged_with: int  # samples
    steps: int  # of each trial behind the score
    sram_bytes: int
    finalist: bool  # judged on every fold
    instructions: int | None = None  # per training sample on the board, where measured
    expected: float | None = None  # gain over the head, by the samples held back and by other data


@dataclass(frozen=True)
class Choice:
    """Candidates tried on the user's samples, the one that is kept, and why."""

    rows: tuple[Row, ...]
    candidate: Recipe
    chosen: int  # row
    learning_rate: float  # of one sample, for the course; 0 where no step is taken
    reason: str
    samples: int  # that trials learned from or were judged with
    folds: int
    chance: float | None  # top-1 of always giving the most frequent class; None where a loss judges
    notes: tuple[str, ...] = ()
    predicted: float | None = None  # the gain over the head that contributions promised for the largest scheme

    @property
    def learned(self) -> bool:
        """Return whether the choice is better than chance by more than its error; True where that is not known."""
        row = self.rows[self.chosen] if self.rows else None
        if row is None or row.score is None or self.chance is None:
            return True
        return row.score > self.chance + SURE * max(row.error, 1 / max(row.judged_with, 1))

    def __str__(self) -> str:
        gain = f"; contributions had predicted {100 * self.predicted:+.1f} points" if self.predicted else ""
        return f"{self.candidate.name}: {self.reason}{gain}"

    def table(self) -> Table:
        """Return a row for each candidate, the best first: its score on samples held back, and what it costs."""
        has_gains = any(row.expected is not None for row in self.rows)
        columns = tuple(name for name in COLUMNS if has_gains or name != "Gain")
        rows = rows_of(
            (
                f"{row.name}, kept" if place == self.chosen else row.name,
                Cell(shown(row, self.chance), row.score, row.score if self.chance is not None else None),
                *([_gain(row)] if has_gains else []),
                counted(row.sram_bytes), counted(row.instructions),
                "" if row.learning_rate is None else of_batch(row.learning_rate),
                f"{row.judged_with:,} samples" + ("" if row.finalist else ", a shorter trial"),
            )
            for place, row in enumerate(self.rows)
        )  # fmt: skip
        return Table("Candidates, the best first", columns, rows, folded=False)


def _gain(row: Row) -> Cell:
    return Cell("") if row.expected is None else Cell(f"{100 * row.expected:+.1f}", row.expected)


def shown(row: Row, chance: float | None) -> str:
    """Return a row's score in words."""
    if row.score is None:
        return "diverged"
    if chance is None:
        return f"{-row.score:.4g} ± {row.error:.2g}"
    return f"{100 * row.score:.1f} ± {100 * row.error:.1f} %"
