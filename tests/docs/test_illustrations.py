"""The documents' own pictures: readable in light and dark, told in words, loading nothing, and true to the program."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from experiments import illustrations
from tests.support.house import TOP

PAGE = TOP / "docs" / "internals" / "how-it-works.md"
SVG = "{http://www.w3.org/2000/svg}"
FILES = sorted(path for path in (TOP / "docs" / "pictures").glob("*.svg") if path.stem in illustrations.PICTURES)


def test_every_picture_that_the_tool_draws_is_kept_and_shown() -> None:
    shown = re.findall(r"\]\(../pictures/(\w+)\.svg\)", PAGE.read_text())
    assert sorted(shown) == sorted(illustrations.PICTURES) == [path.stem for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_picture_is_told_in_words_has_a_dark_form_and_loads_nothing(path: Path) -> None:
    text = path.read_text()
    root = ElementTree.fromstring(text)
    assert all((root.findtext(SVG + name) or "").strip() for name in ("title", "desc"))
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"href|url\(|<script|@import", text)
    assert len(text) < 100_000


def test_the_pruned_picture_shows_the_gradients_that_the_program_computes_and_no_others() -> None:
    root = ElementTree.fromstring(illustrations.prune())
    boxes = {box.findtext(SVG + "title"): box.get("class") for box in root.iter(SVG + "rect")}
    there = {told for told, kind in boxes.items() if told and kind != "gone"}
    layers = ("b1.expand", "b1.depthwise", "b1.project", "head")
    weights = {f"gradient of {name}'s weights" for name in ("b1.expand", "head")}
    assert there == weights | {f"gradient of {name}'s {what}" for name in layers for what in ("map", "bias")}
    assert sum(bool(told) and kind == "gone" for told, kind in boxes.items()) == 3 * 3 + 2
