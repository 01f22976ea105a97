"""Pieces of SVG for the documents' pictures: a card that is readable in light and in dark, words, boxes and lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]
Tone = Literal["blue", "orange", "green", "purple", "gray"]
STYLE = """
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-size: 18px; font-weight: 600 }
.small { font-size: 12px }
.faint { fill: #6a737d }
.card { fill: #ffffff; stroke: #d0d7de }
.axis { stroke: #8c959f; fill: none }
.grid { stroke: #e4e7ea; fill: none }
.blue { fill: #2f7fc1; stroke: #2f7fc1 }
.orange { fill: #d07a00; stroke: #d07a00 }
.green { fill: #14876b; stroke: #14876b }
.purple { fill: #7d6bb3; stroke: #7d6bb3 }
.gray { fill: #8c959f; stroke: #8c959f }
.tint { fill-opacity: 0.22 }
.curve { fill: none; stroke-width: 2 }
.gone { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.faint { fill: #9da7b1 }
.card { fill: #161b22; stroke: #30363d }
.grid { stroke: #2a3038 }
.blue { fill: #58a6e6; stroke: #58a6e6 }
.orange { fill: #f0a13c; stroke: #f0a13c }
.green { fill: #3fc7a0; stroke: #3fc7a0 }
.purple { fill: #a999dd; stroke: #a999dd }
}
"""


def picture(title: str, told: str, size: tuple[int, int], parts: Iterable[str]) -> str:
    """A whole picture; `told` says in words what it shows, to who cannot see it."""
    width, height = size
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" aria-labelledby="t d">'
    card = f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    named = f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(told)}</desc>\n<style>{STYLE}</style>'
    return "\n".join((head, named, card, words(20, 32, title, kind="title"), *parts, "</svg>\n"))


def words(x: float, y: float, said: str, anchor: Anchor = "start", kind: str = "") -> str:
    """One line of text."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.5g}" y="{y:.5g}" text-anchor="{anchor}"{style}>{escape(said)}</text>'


def box(corner: tuple[float, float], size: tuple[float, float], kind: str, said: str = "") -> str:
    """A rectangle by its upper left corner; `said` is its tooltip."""
    told = f"<title>{escape(said)}</title>" if said else ""
    place = f'x="{corner[0]:.5g}" y="{corner[1]:.5g}" width="{size[0]:.5g}" height="{size[1]:.5g}"'
    return f'<rect class="{kind}" {place}>{told}</rect>'


def path(kind: str, *points: tuple[float, float]) -> str:
    """Straight lines from point to point."""
    return f'<path class="{kind}" d="M' + "L".join(f"{x:.5g} {y:.5g}" for x, y in points) + '"/>'


def arrow(start: tuple[float, float], end: tuple[float, float], kind: str = "axis") -> str:
    """A line with a head, across or down."""
    (x, y), (a, b) = start, end
    across = abs(a - x) > abs(b - y)
    back = 5 if (a > x if across else b > y) else -5
    head = ((a - back, b - 4), (a, b), (a - back, b + 4)) if across else ((a - 4, b - back), (a, b), (a + 4, b - back))
    return path(kind, start, end) + path(kind, *head)


def legend(x: float, y: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Kinds beside what they stand for, in a row."""
    parts = []
    for kind, said in entries:
        parts += [box((x, y - 10), (16, 11), kind), words(x + 22, y, said, kind="small")]
        x += 40 + 6.2 * len(said)
    return parts
