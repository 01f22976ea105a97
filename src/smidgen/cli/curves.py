"""A live curve: the loss of a run as it is learned, drawn on one line of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from smidgen.cli.terminal import progress_console
from smidgen.learning import LearningProgress
from smidgen.results.summaries import curve

LOSSES = 200  # points of a curve that are kept, an even number


@contextmanager
def curve_bar(losses: list[float]) -> Iterator[Callable[[LearningProgress], None]]:
    """A bar on stderr with the curve of the loss, where that is a terminal; a line there for each finished epoch."""
    console = progress_console()
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(20), TextColumn("{task.fields[drawn]}", markup=False),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task, shown, means = bar.add_task("starting", drawn=""), [0], _Means(losses)

        def on_progress(at: LearningProgress) -> None:
            if at.last is not None and at.last.number > shown[0]:
                shown[0] = at.last.number
                bar.console.print(str(at.last), highlight=False)
            means.take(at)
            drawn = "" if at.loss is None else f"loss {at.loss:.3f} {curve(losses)}"
            bar.update(task, description=f"{at.doing} {at.epoch}", completed=at.done, total=at.total, drawn=drawn)

        yield on_progress


class _Means:
    """The losses of steps, read off the means of an epoch under way, in no more points than a curve has."""

    def __init__(self, losses: list[float]) -> None:
        self.losses, self._sum, self._done, self._every, self._held = losses, 0.0, 0, 1, list[float]()

    def take(self, at: LearningProgress) -> None:
        if at.loss is None:
            self._sum, self._done = 0.0, 0
            return
        if at.done <= self._done:
            self._sum, self._done = 0.0, 0
        total = at.loss * at.done
        self._held.append(total - self._sum)
        self._sum, self._done = total, at.done
        if len(self._held) >= self._every:
            self.losses.append(sum(self._held) / len(self._held))
            self._held.clear()
        if len(self.losses) >= LOSSES:
            self.losses[:] = [(a + b) / 2 for a, b in zip(self.losses[::2], self.losses[1::2], strict=True)]
            self._every *= 2
