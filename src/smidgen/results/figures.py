"""Pictures as data: panels of marks over two axes, which `svg` draws and tests read."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Literal

Unit = Literal["number", "bytes", "percent"]
Shape = Literal["straight", "steps", "none"]  # how the points of a line are joined
BLACK = "#000000"
COLOURS = {  # of memory, by what it holds
    "state": "#8c7fb8",
    "saved": "#e69f00",
    "activation": "#56a0d3",
    "gradient": "#009e73",
    "scratch": "#9a9a9a",
}
BIASES = "#c0548a"  # what learns beside weights, which are state
STREAMED, CRIMSON, FROZEN = "#f0e442", "#dc143c", "#ececec"
GAINS = ("#c6dbef", "#8ab8dd", "#4a90c4", "#174a7e")  # by share, pale for few channels
HARMS = ("#fcc5bf", "#f49a8f", "#dd5a4b", "#a31b12")


@dataclass(frozen=True)
class Axis:
    """An axis: its title and its ends, where None is as far as the marks reach."""

    title: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False
    unit: Unit = "number"
    ticks: tuple[float, ...] = ()  # where its numbers stand; round ones where empty
    labels: tuple[str, ...] = ()  # that stand there instead of numbers


@dataclass(frozen=True)
class Bars:
    """A bar for each x, from its base to y above that; `notes` are their tooltips."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    notes: tuple[str, ...]
    colours: tuple[str, ...]  # one for all of them, or one each
    width: float | tuple[float, ...] = 0.8
    offset: float | None = None  # from x to a bar's left side; None where x is its middle
    base: tuple[float, ...] = ()
    opacity: float = 1.0
    edges: bool = False  # neighbours are kept apart by a line
    legend: bool = True
    key: str = ""  # its colour in the legend, where the bars have several

    def boxes(self) -> Iterator[tuple[float, float, float, float]]:
        """Yield left and right, bottom and top of each bar."""
        widths = self.width if isinstance(self.width, tuple) else repeat(self.width, len(self.x))
        bases = self.base or repeat(0.0, len(self.x))
        for x, y, width, base in zip(self.x, self.y, widths, bases, strict=True):
            left = x - width / 2 if self.offset is None else x + self.offset
            yield left, left + width, min(base, base + y), max(base, base + y)


@dataclass(frozen=True)
class Polyline:
    """Points and how they are joined; `notes` are their tooltips, where not empty."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    notes: tuple[str, ...]
    colour: str
    shape: Shape = "straight"
    dashed: bool = False
    radius: float = 0.0  # of a dot at each point
    dots: tuple[str, ...] = ()  # the dots' colours, where they have others than the line
    legend: bool = True


@dataclass(frozen=True)
class Rule:
    """A line across the panel at x or at y, and words beside it: before and behind one at x, above one at y."""

    axis: Literal["x", "y"]
    at: float
    colour: str = BLACK
    dashed: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Band:
    """A stretch of x, drawn behind all else."""

    low: float
    high: float
    colour: str
    words: str = ""


@dataclass(frozen=True)
class Note:
    """Words at a point, to its right or its left."""

    x: float
    y: float
    words: str
    colour: str = BLACK
    right: bool = True


Trace = Bars | Polyline
Mark = Trace | Rule | Band | Note


@dataclass(frozen=True)
class Panel:
    """Marks over two axes; later ones lie over earlier ones."""

    title: str
    marks: tuple[Mark, ...]
    x: Axis = Axis()
    y: Axis = Axis()

    @property
    def traces(self) -> tuple[Trace, ...]:
        return tuple(mark for mark in self.marks if isinstance(mark, Bars | Polyline))


@dataclass(frozen=True)
class Figure:
    """Panels one below the other, or side by side."""

    title: str
    panels: tuple[Panel, ...]
    height: int
    widths: tuple[float, ...] = ()  # shares of panels side by side; one below the other where there are none

    @property
    def traces(self) -> tuple[Trace, ...]:
        """All that shows data, panel after panel."""
        return tuple(trace for panel in self.panels for trace in panel.traces)
