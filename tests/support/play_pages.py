"""Pages of small programs, and what is in them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from smidgen.ir import Graph
from smidgen.pipeline import compile
from smidgen.play import draw_play, plan
from smidgen.play.facts import Asked
from smidgen.targets.device import Device
from smidgen.training import Options


@dataclass(frozen=True)
class Page:
    """A page, what was asked for, and the model that it learns with."""

    graph: Graph
    asked: Asked
    html: str

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._part("facts"))
        return found

    @property
    def program(self) -> str:
        """Both builds, packed and in base64."""
        return self._part("program")

    def device(self) -> Device:
        """This machine with the same program."""
        return compile(self.graph, self.asked.scheme, options=self.asked.options, one_pass=True).start()

    def _part(self, name: str) -> str:
        found = re.search(f'id="{name}">(.*?)</script>', self.html, re.DOTALL)
        assert found
        return found[1]


def page_of(graph: Graph, scheme: str | None = "last:2", classes: int | None = 4) -> Page:
    asked = plan(graph, f"{graph.name}.smg", scheme, Options(classes))
    return Page(graph, asked, draw_play(graph, asked, ()))
