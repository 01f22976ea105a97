"""A page as data (sections of charts, tables, bytes, samples and facts), and as one HTML file that loads nothing."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from smidgen.results.figures import BIASES, BLACK, COLOURS, CRIMSON, FROZEN, GAINS, HARMS, STREAMED, Figure
from smidgen.results.svg import FONT, GRID, INK, Paper, svg
from smidgen.tables import Matrix, Table

WIDE, SLIM = Paper(960, 84, 12), Paper(400, 64, 8)  # units: what a figure is drawn on for a desk and for a phone
# The colours of figures by the name they have in the style, which has each in a light and in a dark tone.
TONES = {
    **{colour: f"tone-{kind}" for kind, colour in COLOURS.items()},
    **{colour: f"gain-{place}" for place, colour in enumerate(GAINS)},
    **{colour: f"harm-{place}" for place, colour in enumerate(HARMS)},
    BIASES: "bias", FROZEN: "frozen", STREAMED: "streamed", CRIMSON: "bad", BLACK: "ink", INK: "ink", GRID: "line",
}  # fmt: skip


@dataclass(frozen=True)
class KeyNumber:
    """One of the few numbers that matter, and what to compare it with."""

    name: str
    value: str
    context: str
    share: float | None = None  # of a limit, drawn as a bar; None without one


@dataclass(frozen=True)
class Chart:
    """A figure, its caption, and its numbers as tables."""

    figure: Figure
    caption: str = ""
    tables: tuple[Table, ...] = ()
    kind: ClassVar[str] = "chart"


@dataclass(frozen=True)
class Part:
    """Some bytes of a stack, and the name of their colour."""

    name: str
    bytes: int
    tone: str


@dataclass(frozen=True)
class Stack:
    """Bytes in use beside those available, and a limit between."""

    name: str
    parts: tuple[Part, ...]
    whole: int
    whole_name: str
    limit: int | None = None  # a budget, marked where it is less than the whole
    kind: ClassVar[str] = "stack"

    @property
    def used(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def places(self) -> tuple[tuple[Part, float, float], ...]:
        """Each part, where it begins and how wide it is, in percent of the whole bar."""
        most, at, placed = max(self.whole, self.used, 1), 0, list[tuple[Part, float, float]]()
        for part in self.parts:
            placed.append((part, round(100 * at / most, 3), round(100 * part.bytes / most, 3)))
            at += part.bytes
        return tuple(placed)


@dataclass(frozen=True)
class Answer:
    """A model's answer for a sample; `right` is None where the true answer is not known."""

    text: str
    right: bool | None


@dataclass(frozen=True)
class ShownSample:
    """A sample, its true label, and the model's answers before and after learning."""

    name: str
    picture: str  # a data address; empty for samples that are no pictures
    truth: str
    before: Answer
    after: Answer


@dataclass(frozen=True)
class Gallery:
    """Samples of the test, before and after."""

    samples: tuple[ShownSample, ...]
    caption: str
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Fact:
    """A name, its text, and code to copy."""

    name: str
    text: str
    code: str = ""


@dataclass(frozen=True)
class Facts:
    """Facts in a list."""

    facts: tuple[Fact, ...]
    kind: ClassVar[str] = "facts"


Block = Chart | Table | Stack | Gallery | Matrix | Facts


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and the blocks below."""

    key: str  # that links lead to
    title: str
    intro: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Report:
    """A page: its subject, the numbers that matter, and the sections."""

    title: str
    kicker: str  # the kind of page, above the title
    summary: str
    numbers: tuple[KeyNumber, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]


def page_of(title: str, summary: str, figures: Sequence[Figure]) -> str:
    """Return a page of pictures, in the style of the report; the same input gives the same bytes."""
    section = Section("pictures", "Pictures", "", tuple(Chart(figure) for figure in figures))
    return render(Report(title, "Smidgen", summary, (), (), (section,)))


def render(report: Report) -> str:
    """Return the page; the same report gives the same bytes."""
    environment = _environment()
    style = environment.get_template("report.css").render(tones=TONES, font=FONT).strip()
    script = environment.get_template("report.js").render().strip()
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = environment.get_template("report.html").render(report=report, style=style, script=script, policy=policy)
    return page + "\n"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("smidgen.results.report"), autoescape=lambda name: name is not None and ".html" in name,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters["wide"] = lambda figure: svg(figure, WIDE, titled=False)
    made.filters["slim"] = lambda figure: svg(figure, SLIM, titled=False)
    return made


def _digest(text: str) -> str:
    """Return the digest by which a policy names a style or a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
