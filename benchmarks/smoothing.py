"""How well measurements of an analysis say what one that is left out would be, with the fit that searches use.

Every measurement in turn is left out and predicted: by the fit to all others, and by the measurement of the same layer
whose share is nearest. The root of the mean square of what they miss, in points of top-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from shared import arguments_of, report, start
from smidgen.selection.contributions import Contributions, LayerShare, read_contributions
from smidgen.selection.smoothing import ContributionFit, Measurement, measurements

CONTRIBUTIONS = Path(__file__).parents[1] / "src" / "smidgen" / "zoo" / "contributions"


@dataclass(frozen=True)
class Row:
    """What is missed of shares of layers' weights and of depths of biases."""

    file: str
    measurements: int
    nearest: float
    fitted: float
    fitted_biases: float


def judge(found: Contributions, file: str) -> Row:
    """Every measurement beside what the others say of it."""
    fit, known = ContributionFit(found), measurements(found)
    missed = {one: _left_out(fit, known, one) for one in known}
    shares = [one for one in known if isinstance(one, LayerShare)]
    near = [one.accuracy - _nearest(one, shares).accuracy for one in shares if _nearest(one, shares) is not one]
    return Row(
        file, len(known), _points(near), _points([missed[one] for one in shares]),
        _points([missed[one] for one in known if not isinstance(one, LayerShare)]),
    )  # fmt: skip


def _left_out(fit: ContributionFit, known: Sequence[Measurement], one: Measurement) -> float:
    return fit.predict(one, fit.solve([other for other in known if other is not one])) - one.accuracy


def _nearest(one: LayerShare, shares: Sequence[LayerShare]) -> LayerShare:
    """The other measurement of the layer whose share is nearest; itself where there is none."""
    others = [other for other in shares if other.layer == one.layer and other is not one]
    return min(others, key=lambda other: abs(other.share - one.share), default=one)


def _points(missed: Sequence[float]) -> float:
    return 100 * float(np.sqrt(np.mean(np.square(missed))))


def show(rows: list[Row]) -> None:
    table = Table(title="Points of top-1 that are missed of a measurement that is left out")
    for name in ("file", "measurements", "by the nearest share", "by the fit", "biases, by the fit"):
        table.add_column(name, justify="left" if name == "file" else "right")
    for row in rows:
        table.add_row(
            row.file, str(row.measurements), f"{row.nearest:.2f}", f"{row.fitted:.2f}", f"{row.fitted_biases:.2f}"
        )
    Console().print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="contributions; those that ship unless given")
    given = parser.parse_args()
    files = given.files or sorted(CONTRIBUTIONS.glob("*.json"))
    report([judge(read_contributions(file), file.stem) for file in files], show, given.json)


if __name__ == "__main__":
    start(main)
