"""What a board at the end of a line did: how it learned, and what it counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from smidgen.learning import Epoch, Tested
from smidgen.link import Statistics

BARS = "▁▂▃▄▅▆▇█"
POINTS = 40  # of a curve


def curve(values: Sequence[float], points: int = POINTS) -> str:
    """Numbers as a line of bars: means of neighbours where there are more than points."""
    count = min(len(values), points)
    cuts = [len(values) * i // max(count, 1) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    return "".join(
        BARS[round((len(BARS) - 1) * (one - low) / (high - low))] if high > low else BARS[0] for one in means
    )


@dataclass(frozen=True)
class BoardTraining:
    """How a board learned."""

    model: str
    port: str
    train_images: int
    test_images: int
    learning_rate: float
    before: Tested
    epochs: tuple[Epoch, ...]
    losses: tuple[float, ...]  # along the way, means of as many steps each
    warnings: tuple[str, ...]
    restarts: int  # that were noticed, and lost nothing
    saved: bool  # on the board, where it outlives a reset
    file: str | None
    statistics: Statistics

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.port}: {self.train_images:,} samples to learn from, {self.test_images:,} to test",
            f"before     {self.before}",
            *map(str, self.epochs),
            f"loss       {curve(self.losses)}",
            f"board      {self.statistics}",
        ]
        if self.restarts:
            lines.append(f"restarts   {self.restarts}, each brought back to where it was")
        lines.append("saved on the board" if self.saved else "not saved on the board: it has nowhere to keep it")
        return "\n".join([*lines, *([f"written to {self.file}"] if self.file else [])])


@dataclass(frozen=True)
class BoardState:
    """What a board learned, moved: where to or from."""

    port: str
    fingerprint: str
    state_bytes: int
    what: str
    file: str | None

    def __str__(self) -> str:
        place = self.file or "the board's own memory"
        return f"{self.port}: {self.state_bytes:,} bytes that program {self.fingerprint} learned, {self.what} {place}"


@dataclass(frozen=True)
class BoardWatched:
    """What a board counted while it was watched."""

    port: str
    fingerprint: str
    restarts: int
    losses: tuple[float, ...]
    statistics: Statistics

    def __str__(self) -> str:
        drawn = f"\nmean loss  {curve(self.losses)}" if self.losses else ""
        return f"{self.port} runs program {self.fingerprint}, {self.restarts} restarts seen\n{self.statistics}{drawn}"


@dataclass(frozen=True)
class BoardReplayed:
    """What a board learned from examples that it had kept."""

    port: str
    fingerprint: str
    learning_rate: float
    losses: tuple[float, ...]
    saved: bool

    def __str__(self) -> str:
        mean = sum(self.losses) / len(self.losses)
        kept = "saved on the board" if self.saved else "not saved on the board"
        return (
            f"{self.port}: program {self.fingerprint} learned from {len(self.losses):,} examples that it had kept, "
            f"mean loss {mean:.4f}\nloss       {curve(self.losses)}\n{kept}"
        )
