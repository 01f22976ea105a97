"""The verb play."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from smidgen.cli import verbs
from smidgen.cli.shared import check_file, check_int8, load_model, with_audio
from smidgen.cli.terminal import say, show, spinner
from smidgen.data.files import write_whole
from smidgen.play import begin, draw_play, measure, plan, serve
from smidgen.play.facts import BoardFacts
from smidgen.training import Options

NONE = "none"


@dataclass(frozen=True)
class Played:
    """A page that was made, and where it is."""

    model: str
    scheme: str
    classes: int | None  # of a new head
    where: str  # a file, or an address on this machine
    bytes: int
    boards: tuple[str, ...]  # whose costs it shows

    def __str__(self) -> str:
        return f"{self.model}, scheme {self.scheme}: a page of {self.bytes:,} bytes at {self.where}"


def play_(asked: verbs.Play) -> None:
    check_file(asked.output, asked.force)
    model, scheme = begin(asked.model, asked.scheme)
    with spinner(f"reading {model}"):
        graph = with_audio(asked, load_model(asked, model))
    check_int8(graph, model)
    wanted = plan(graph, model, scheme, Options(asked.classes), asked.audio)
    boards: tuple[BoardFacts, ...] = ()
    with spinner(f"compiling {graph.name}") as now:
        if asked.boards != NONE:
            names = [name.strip() for name in asked.boards.split(",")]
            boards = measure(graph, wanted, names, lambda name: now(f"measuring on the emulated {name}"))
        now(f"compiling {graph.name} for the browser")
        page = draw_play(graph, wanted, boards).encode()
    if asked.output is not None:
        write_whole(asked.output, page)
        show(_played(graph.name, wanted.scheme, wanted.options.classes, asked.output, len(page), boards), asked.as_json)
        return
    with serve(page, asked.port) as server:
        where = f"http://localhost:{server.server_port}/"
        show(_played(graph.name, wanted.scheme, wanted.options.classes, where, len(page), boards), asked.as_json)
        say("open it in a browser; Ctrl-C ends", err=True)
        with suppress(KeyboardInterrupt):  # which is how one stops serving
            server.serve_forever()


def _played(
    model: str, scheme: str, classes: int | None, where: Path | str, size: int, boards: tuple[BoardFacts, ...]
) -> Played:
    return Played(model, scheme, classes, str(where), size, tuple(one.name for one in boards))
