"""One HTML file with a program, its facts and its script: it loads nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html import escape
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from smidgen.callbacks import ignore
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.play.bundle import bundle
from smidgen.play.facts import Asked, BoardFacts, Facts, begin, compiled, facts_of, measure, plan
from smidgen.play.pieces import pieces_of
from smidgen.play.tflite import model_file
from smidgen.targets.wasm import Wasm
from smidgen.training import Options
from smidgen.zoo import load

HIGH = 900  # pixels, in a notebook

LEADS = {
    "picture": "Show it things, name them, and it learns at once from a few pictures of each",
    "audio": "Make sounds, name them, and it learns at once from a few of each",
    "tensor": "Record movements, name them, and it learns at once from a few of each",
}
INVITES = {
    "picture": "Show it something",
    "audio": "Let it listen",
    "tensor": "Move it, or give recordings",
}
STARTS = {"picture": "Start the camera", "audio": "Start the microphone", "tensor": "Start the sensors"}
CHOICES = {"picture": "Choose a picture", "audio": "Choose a recording", "tensor": "Choose a recording"}
KEPT_AS = {
    "picture": "As the model saw them, a folder for each class",
    "audio": "Recordings, a folder for each class",
    "tensor": "Tables, a folder for each class",
}


@dataclass(frozen=True, eq=False)
class PlayPage:
    """A page that learns in a browser; in a notebook it shows itself below the cell."""

    model: str
    html: str

    def write(self, path: str | Path) -> None:
        """Write the page as one file."""
        write_whole(Path(path), self.html.encode())

    def __repr__(self) -> str:
        return f"<PlayPage of {self.model}, {len(self.html):,} characters; write(path) makes it a file>"

    def _repr_html_(self) -> str:
        allowed = "camera; microphone; serial; accelerometer; gyroscope"
        return f'<iframe srcdoc="{escape(self.html)}" allow="{allowed}" width="100%" height="{HIGH}"></iframe>'


def play_page(
    model: str | Path,
    scheme: str | None = None,
    *,
    classes: int | None = None,
    boards: Sequence[str] = (),
    on_board: Callable[[str], None] = ignore,
) -> PlayPage:
    """Make a page that sees and learns in a browser, with the bytes of a board.

    `model` is a network of the zoo, a model file, or the folder of a fit. What learns by steps is `scheme`, otherwise
    the smallest one that was published for the network or the last two layers. `boards` are measured in emulation, so
    that the page shows what the program takes there; `on_board` gets the name of each before.
    """
    name, chosen = begin(str(model), scheme)
    graph = load(name)
    asked = plan(graph, name, chosen, Options(classes))
    return PlayPage(graph.name, draw_play(graph, asked, measure(graph, asked, boards, on_board)))


def draw_play(graph: Graph, asked: Asked, boards: tuple[BoardFacts, ...]) -> str:
    """Return a model's page; the same input gives the same bytes."""
    program = compiled(graph, asked)
    assert isinstance(program.target, Wasm)
    portable, simd = program.target.built(program.graph, program.sources).values()
    pieces, own = pieces_of(simd, portable)
    facts, model = facts_of(program, asked, boards), model_file(program)
    described = asdict(facts) | {"build": {"bytes": len(simd), "own": len(own), "pieces": pieces}, "file": None}
    if model is not None:
        parts, rest = pieces_of(simd, model.file)
        described["file"] = {"pieces": parts, "patches": [asdict(patch) for patch in model.patches]}
        own += rest
    packed = base64.b64encode(gzip.compress(simd + own, 9, mtime=0)).decode()
    return _render(facts, described, packed)


def _render(facts: Facts, described: dict[str, object], packed: str) -> str:
    environment = _environment()
    style, script = environment.get_template("play.css").render().strip(), bundle("app.js")
    worker = bundle("worker.js")
    if "</script" in script + worker:
        raise InputError("a script of the page holds the end of a script; write it in two parts")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}' 'wasm-unsafe-eval'; worker-src blob:; "
        f"style-src '{_digest(style)}'; img-src blob: data:; media-src blob:; base-uri 'none'; form-action 'none'"
    )
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    how = (
        "It knows its classes already. Steps teach it from your samples; in one pass it begins again with them."
        if facts.kept
        else "One pass makes the last layer at once. Steps then change layers, too, one sample at a time."
    )
    return environment.get_template("page.html").render(
        facts=facts, has_file=described["file"] is not None,
        facts_json=text, policy=policy, style=style, script=script, worker=worker, program=packed,
        lead=f"{LEADS[facts.kind]}, with the arithmetic of a microcontroller: the same bytes as on the chip.",
        invite=INVITES[facts.kind], start=STARTS[facts.kind], choose=CHOICES[facts.kind], how=how,
        samples_note=f"{KEPT_AS[facts.kind]}: a zip that smidgen fit reads.",
    )  # fmt: skip


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("smidgen.play"), autoescape=lambda name: name is not None and ".html" in name,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _digest(text: str) -> str:
    """Return the digest by which a policy names a style or a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
