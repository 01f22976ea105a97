"""Figures as SVG text within a page: no script, nothing to load, and notes as tooltips."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from smidgen.results.figures import Axis, Band, Bars, Figure, Mark, Note, Panel, Polyline, Rule, Trace

WIDTH = 1200  # units; a page stretches them to its own width
LEFT, RIGHT, BELOW, ABOVE = 92, 16, 48, 30  # room around a panel: numbers, its title
NARROW = 600  # units of width, below which panels stand one below the other
HEADING, ROW = 34, 20  # heights of a figure's title and of a row of its legend
FONT, LETTER = 12, 6.4  # size of letters, and how wide they are on average
GRID, INK = "#e4e4e4", "#333333"
ROUND = (1, 2, 2.5, 5, 10)  # steps between numbers of an axis, times a power of ten


@dataclass(frozen=True)
class Paper:
    """The paper a figure is drawn on: its width in units, and the room for numbers on both sides of a panel."""

    width: int = WIDTH
    left: int = LEFT
    right: int = RIGHT

    def height(self, figure: Figure) -> int:
        """Return the height of a figure; where panels cannot stand side by side, each gets the height of all."""
        return figure.height * (len(figure.widths) if figure.widths and self.width < NARROW else 1)


PAGE = Paper()


def svg(figure: Figure, paper: Paper = PAGE, titled: bool = True) -> str:
    """Draw a figure, its title above it or for screen readers alone; the same figure gives the same bytes."""
    title = figure.title if titled else ""
    top = HEADING if title else 6
    legend = _Legend(figure.traces, paper)
    height = paper.height(figure)
    bottom = height - legend.height
    parts = [f'<text class="title" x="{paper.left}" y="22">{escape(title)}</text>'] if title else []
    for panel, frame in zip(figure.panels, _frames(figure, paper, top, bottom), strict=True):
        parts += _panel(panel, frame)
    parts += legend.drawn(bottom)
    box = f'viewBox="0 0 {paper.width} {height}"'
    name = escape(figure.title or "; ".join(panel.title for panel in figure.panels if panel.title) or "a picture")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" {box}>\n'
    return head + "\n".join(parts) + "\n</svg>"


@dataclass(frozen=True)
class _Frame:
    """The place of a panel's marks."""

    left: float
    right: float
    top: float
    bottom: float
    paper: Paper


def _frames(figure: Figure, paper: Paper, top: float, bottom: float) -> Iterator[_Frame]:
    if figure.widths and paper.width >= NARROW:
        at = 0.0
        for share in figure.widths:
            end = at + share / sum(figure.widths) * paper.width
            yield _Frame(at + paper.left, end - paper.right, top + ABOVE, bottom - BELOW, paper)
            at = end
        return
    height = (bottom - top) / max(len(figure.panels), 1)
    for index in range(len(figure.panels)):
        above = top + index * height
        yield _Frame(paper.left, paper.width - paper.right, above + ABOVE, above + height - BELOW, paper)


@dataclass(frozen=True)
class _Scale:
    """A map from values to places, no farther than the axis reaches."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(max(v, 1e-300)) if self.log else v for v in (self.low, self.high, value))
        share = min(max((at - low) / (high - low), 0.0), 1.0)
        return round(self.start + share * (self.end - self.start), 2) + 0.0

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def _panel(panel: Panel, frame: _Frame) -> Iterator[str]:
    x = _scale(panel.x, [v for m in panel.marks for v in _reach(m, "x")], frame.left, frame.right)
    y = _scale(panel.y, [v for m in panel.marks for v in _reach(m, "y")], frame.bottom, frame.top)
    middle = (frame.left + frame.right) / 2
    yield f'<text class="middle" x="{middle:g}" y="{frame.top - 10:g}">{escape(panel.title)}</text>'
    yield from _axes(panel, frame, x, y)
    drawn = sorted(panel.marks, key=lambda mark: not isinstance(mark, Band))
    for mark in drawn:
        if isinstance(mark, Bars):
            yield from _bars(mark, x, y)
        elif isinstance(mark, Polyline):
            yield from _line(mark, x, y)
        else:
            yield from _sign(mark, frame, x, y)


def _reach(mark: Mark, axis: str) -> Sequence[float]:
    """Return the values of a mark that an axis has to show."""
    if isinstance(mark, Bars):
        return [end for box in mark.boxes() for end in (box[:2] if axis == "x" else box[2:])]
    if isinstance(mark, Polyline):
        return mark.x if axis == "x" else mark.y
    return [mark.at] if isinstance(mark, Rule) and mark.axis == axis else []


def _scale(axis: Axis, values: Sequence[float], start: float, end: float) -> _Scale:
    """Return the scale of an axis: to its ends where it has them, or around the marks with a little room."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if axis.log:
        low, high = low / 1.2, high * 1.2
    else:
        room = 0.04 * (high - low) or 0.5
        low, high = (low if low == 0 else low - room), high + room
    low = low if axis.low is None else axis.low
    high = high if axis.high is None else axis.high
    return _Scale(low, high if high > low else low + 1, start, end, axis.log)


def _axes(panel: Panel, frame: _Frame, x: _Scale, y: _Scale) -> Iterator[str]:
    """Draw grid, numbers and titles."""
    for at, text in _numbers(panel.y, y, 6):
        yield f'<path class="grid" d="M{frame.left:g} {y(at):g}H{frame.right:g}"/>'
        yield f'<text class="end" x="{frame.left - 6:g}" y="{y(at) + 4:g}">{escape(text)}</text>'
    for at, text in _numbers(panel.x, x, 12):
        yield f'<path class="grid" d="M{x(at):g} {frame.top:g}V{frame.bottom:g}"/>'
        yield f'<text class="middle" x="{x(at):g}" y="{frame.bottom + 16:g}">{escape(text)}</text>'
    yield f'<path class="axis" d="M{frame.left:g} {frame.top:g}V{frame.bottom:g}H{frame.right:g}"/>'
    middle, height = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    yield f'<text class="middle" x="{middle:g}" y="{frame.bottom + 34:g}">{escape(panel.x.title)}</text>'
    at = frame.left - frame.paper.left + 14
    turned = f'x="{at:g}" y="{height:g}" transform="rotate(-90 {at:g} {height:g})"'
    yield f'<text class="middle" {turned}>{escape(panel.y.title)}</text>'


def _numbers(axis: Axis, scale: _Scale, most: int) -> Iterator[tuple[float, str]]:
    """Yield the numbers of an axis and their texts, so few that none overlaps another."""
    if axis.labels:
        yield from zip(axis.ticks, axis.labels, strict=True)
        return
    places = [tick for tick in axis.ticks if scale.shows(tick)] or list(_round(scale, most))
    texts = [_written(place, axis) for place in places]
    widest = max((LETTER * len(text) + 8 for text in texts), default=1.0)
    every = max(1, math.ceil(len(places) * widest / max(abs(scale.end - scale.start), 1)))
    yield from list(zip(places, texts, strict=True))[::every]


def _round(scale: _Scale, most: int) -> Iterator[float]:
    """Yield round numbers that an axis shows."""
    if scale.log:
        first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
        yield from (10.0**p * f for p in range(first, last + 1) for f in (1, 2, 5) if scale.shows(10.0**p * f))
        return
    rough = (scale.high - scale.low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(f for f in ROUND if f * power >= rough * 0.999)
    first = math.ceil(scale.low / step)
    yield from (step * n for n in range(first, math.floor(scale.high / step) + 1))


def _written(value: float, axis: Axis) -> str:
    if axis.unit == "percent":
        return f"{value:.0%}"
    return f"{value:,.0f}" if axis.unit == "bytes" else f"{value + 0.0:.6g}"


def _bars(bars: Bars, x: _Scale, y: _Scale) -> Iterator[str]:
    style = ' class="apart"' if bars.edges else ""
    fill = f' fill="{bars.colours[0]}"' if len(bars.colours) == 1 else ""
    fade = f' fill-opacity="{bars.opacity:g}"' if bars.opacity < 1 else ""
    yield f'<g data-name="{escape(bars.name)}"{style}{fill}{fade}>'
    for index, (box, note) in enumerate(zip(bars.boxes(), bars.notes, strict=True)):
        left, right, top, bottom = x(box[0]), x(box[1]), y(box[3]), y(box[2])
        if bottom - top <= 0 or right - left <= 0:
            continue
        own = f' fill="{bars.colours[index]}"' if len(bars.colours) > 1 else ""
        place = f'x="{left:g}" y="{top:g}" width="{right - left:.5g}" height="{bottom - top:.5g}"'
        yield f"<rect {place}{own}>{_tooltip(note)}</rect>"
    yield "</g>"


def _line(line: Polyline, x: _Scale, y: _Scale) -> Iterator[str]:
    yield f'<g data-name="{escape(line.name)}" stroke="{line.colour}" fill="{line.colour}">'
    points = [(x(a), y(b)) for a, b in zip(line.x, line.y, strict=True)]
    if points and line.shape != "none":
        joined = "".join(f"H{a:g}V{b:g}" if line.shape == "steps" else f"L{a:g} {b:g}" for a, b in points[1:])
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        yield f'<path class="line" fill="none"{dash} d="M{points[0][0]:g} {points[0][1]:g}{joined}"/>'
    for index, ((a, b), note) in enumerate(zip(points, line.notes, strict=True)):
        own = f' fill="{line.dots[index]}" stroke="{line.dots[index]}"' if line.dots else ""
        hidden = "" if line.radius else ' fill-opacity="0" stroke-opacity="0"'
        if note or line.radius:
            yield f'<circle cx="{a:g}" cy="{b:g}" r="{line.radius or 6:g}"{own}{hidden}>{_tooltip(note)}</circle>'
    yield "</g>"


def _tooltip(note: str) -> str:
    return f"<title>{escape(note)}</title>" if note else ""


def _sign(mark: Rule | Band | Note, frame: _Frame, x: _Scale, y: _Scale) -> Iterator[str]:
    """Draw a line across, a stretch, or words at a place."""
    if isinstance(mark, Band):
        place = f'x="{x(mark.low):g}" y="{frame.top:g}" height="{frame.bottom - frame.top:g}"'
        yield f'<rect {place} width="{x(mark.high) - x(mark.low):.5g}" fill="{mark.colour}" fill-opacity="0.3"/>'
        if mark.words:
            yield _words(frame, x(mark.low) + 2, frame.top + 12, mark.words, INK, "start")
    elif isinstance(mark, Note):
        aside = 6 if mark.right else -6
        anchor = "start" if mark.right else "end"
        yield _words(frame, x(mark.x) + aside, y(mark.y) - 6, mark.words, mark.colour, anchor)
    else:
        across = f"M{x(mark.at):g} {frame.top:g}V{frame.bottom:g}"
        if mark.axis == "y":
            across = f"M{frame.left:g} {y(mark.at):g}H{frame.right:g}"
        dash = ' stroke-dasharray="4 3"' if mark.dashed else ""
        yield f'<path class="rule" stroke="{mark.colour}"{dash} d="{across}"/>'
        if mark.axis == "y":
            for words in mark.words:
                yield _words(frame, frame.right - 4, y(mark.at) - 4, words, mark.colour, "end")
        else:
            for words, aside, anchor in zip(mark.words, (-4, 4), ("end", "start"), strict=False):
                yield _words(frame, x(mark.at) + aside, frame.bottom - 6, words, mark.colour, anchor)


def _words(frame: _Frame, x: float, y: float, words: str, colour: str, anchor: str) -> str:
    """Write words beside a place, moved where they would leave the paper."""
    wide = LETTER * len(words)
    x = max(min(x, frame.paper.width - 4 - wide), 4) if anchor == "start" else max(x, min(4 + wide, frame.paper.width))
    return f'<text class="sign {anchor}" x="{x:g}" y="{y:g}" fill="{colour}">{escape(words)}</text>'


class _Legend:
    """Names beside their colours, in as many rows as they need."""

    def __init__(self, traces: Sequence[Trace], paper: Paper) -> None:
        named = {trace.name: trace for trace in traces if trace.legend and trace.name}
        self.places: list[tuple[float, int, Trace]] = []
        left = paper.left if paper.width >= NARROW else 4
        at, row = float(left), 0
        for trace in named.values():
            width = 26 + LETTER * len(trace.name) + 14
            if at + width > paper.width - paper.right and at > left:
                at, row = float(left), row + 1
            self.places.append((at, row, trace))
            at += width
        self.height = (row + 1) * ROW + 4 if self.places else 0

    def drawn(self, top: float) -> Iterator[str]:
        for at, row, trace in self.places:
            y = top + row * ROW + 4
            colour = trace.key or trace.colours[0] if isinstance(trace, Bars) else trace.colour
            fade = f' fill-opacity="{trace.opacity:g}"' if isinstance(trace, Bars) else ""
            yield f'<rect x="{at:g}" y="{y:g}" width="18" height="10" fill="{colour}"{fade}/>'
            yield f'<text x="{at + 24:g}" y="{y + 10:g}">{escape(trace.name)}</text>'
