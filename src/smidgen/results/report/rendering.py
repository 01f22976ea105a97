"""A report as one HTML file: its style and its script are inside, named by their digests, and it loads nothing."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from smidgen.results.choosing import FROZEN, GAINS, HARMS
from smidgen.results.drawing import COLOURS, CRIMSON, STREAMED
from smidgen.results.figures import BLACK
from smidgen.results.report.parts import Report
from smidgen.results.svg import FONT, GRID, INK, Paper, svg

WIDE, SLIM = Paper(960, 84, 12), Paper(400, 64, 8)  # units: what a figure is drawn on for a desk and for a phone
# The colours of figures by the name they have in the style, which knows each in a light and in a dark tone.
TONES = {
    **{colour: f"tone-{kind}" for kind, colour in COLOURS.items()},
    **{colour: f"gain-{place}" for place, colour in enumerate(GAINS)},
    **{colour: f"harm-{place}" for place, colour in enumerate(HARMS)},
    FROZEN: "frozen", STREAMED: "streamed", CRIMSON: "bad", BLACK: "ink", INK: "ink", GRID: "line",
}  # fmt: skip


def render(report: Report) -> str:
    """The page; the same report gives the same bytes."""
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
    """What a policy calls a style or a script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
