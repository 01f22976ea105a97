"""The section on what was tried on the user's own samples."""

from smidgen.results.report.page import Section, Table, TableCell, counted, rows_of
from smidgen.selection.choice import Choice, Row, shown
from smidgen.selection.rates import of_batch

COLUMNS = ("What learns", "On samples held back", "SRAM in bytes", "Instructions per sample", "Rate", "Judged with")


def candidates_section(choice: Choice) -> Section:
    """Show every candidate with its score on samples held back, what it costs, and why one was kept."""
    intro = f"Kept: {choice}. "
    if choice.rows:
        intro += (
            f"Each candidate learned from some of {choice.samples:,} training samples and was judged on the rest. The "
            "test samples decided nothing."
        )
    rows = rows_of(_cells(choice, row, place == choice.chosen) for place, row in enumerate(choice.rows))
    table = Table("Candidates, the best first", COLUMNS, rows, folded=False)
    return Section("candidates", "What was tried on your samples", intro, (table,) if choice.rows else ())


def _cells(choice: Choice, row: Row, kept: bool) -> tuple[TableCell | str, ...]:
    steps = f"{row.judged_with:,} samples" + ("" if row.finalist else ", a shorter trial")
    return (
        f"{row.name}, kept" if kept else row.name,
        TableCell(shown(row, choice.chance), row.score, row.score if choice.chance is not None else None),
        counted(row.sram_bytes), "" if row.instructions is None else counted(row.instructions),
        "" if row.learning_rate is None else of_batch(row.learning_rate), steps,
    )  # fmt: skip
