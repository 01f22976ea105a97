"""Pictures are drawn where the numbers say: places on the page are read back by the axes' own numbers."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen.fitting import fit
from smidgen.results.figures import Axis, Band, Bars, Figure, Mark, Note, Panel, Polyline, Rule
from smidgen.results.memory import draw_memory
from smidgen.results.report.page import page_of
from smidgen.results.svg import HEADING, WIDTH, svg
from smidgen.zoo import load
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.svg_pages import LIMIT, SVG, charts, notes, pictures, traces
from tests.support.tiers import examples

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))
points = st.lists(st.tuples(st.integers(0, 99), numbers), min_size=2, max_size=20, unique_by=lambda point: point[0])


def drawn(*marks: Mark, x: Axis | None = None, y: Axis | None = None, title: str = "") -> Element:
    return ElementTree.fromstring(svg(Figure(title, (Panel("", marks, x or Axis(), y or Axis()),), 400)))


def scale(picture: Element, axis: str) -> tuple[float, float]:
    """Units of the page per unit of an axis, and where its 0 lies, by two numbers that stand at it."""
    kind, key, shift = {"x": ("middle", "x", 0.0), "y": ("end", "y", 4.0)}[axis]
    texts = [
        text for text in picture.iter(f"{SVG}text") if text.get("class") == kind and "transform" not in text.attrib
    ]
    numbered = [text for text in texts if re.fullmatch(r"-?[\d.,]+(e[+-]?\d+)?", text.text or "")]
    found = [(float(str(text.text).replace(",", "")), float(str(text.get(key))) - shift) for text in numbered]
    (a, at_a), (b, at_b) = found[0], found[-1]
    per_unit = (at_b - at_a) / (b - a)
    return per_unit, at_a - a * per_unit


@given(points)
@settings(max_examples=examples(40))
def test_points_lie_where_the_axes_say(pairs: list[tuple[int, float]]) -> None:
    xs, ys = zip(*pairs, strict=True)
    picture = drawn(Polyline("line", xs, ys, tuple(map(str, ys)), "#123456", radius=3), y=Axis(low=-1.1e6, high=1.1e6))
    (per_x, zero_x), (per_y, zero_y) = scale(picture, "x"), scale(picture, "y")
    circles = list(picture.iter(f"{SVG}circle"))
    assert notes(picture) == [str(y) for y in ys]
    for circle, x, y in zip(circles, xs, ys, strict=True):
        assert float(str(circle.get("cx"))) == pytest.approx(zero_x + per_x * x, abs=0.6)
        assert float(str(circle.get("cy"))) == pytest.approx(zero_y + per_y * y, abs=0.6)


@given(points, st.integers(0, 50))
@settings(max_examples=examples(40))
def test_bars_reach_from_their_base_as_far_as_the_axes_say(pairs: list[tuple[int, float]], base: int) -> None:
    xs, ys = zip(*pairs, strict=True)
    bars = Bars("bars", xs, ys, tuple(map(str, ys)), ("#123456",), 1, 0, (base,) * len(xs))
    picture = drawn(bars, y=Axis(low=-1.1e6, high=1.1e6))
    (per_x, zero_x), (per_y, zero_y) = scale(picture, "x"), scale(picture, "y")
    ((_, group),) = traces(picture)
    found = {str(notes(rect)[0]): rect for rect in group.iter(f"{SVG}rect")}
    for x, y in pairs:
        if str(y) not in found:
            assert abs(per_y * y) < 0.05  # too flat to be seen
        elif ys.count(y) == 1:
            rect = found[str(y)]
            left, top, width, height = (float(str(rect.get(key))) for key in ("x", "y", "width", "height"))
            assert left == pytest.approx(zero_x + per_x * x, abs=0.6)
            assert width == pytest.approx(per_x, abs=0.6)
            assert top == pytest.approx(zero_y + per_y * max(base, base + y), abs=0.6)
            assert height == pytest.approx(abs(per_y * y), abs=0.6)


@given(numbers, numbers)
@settings(max_examples=examples(60))
def test_an_axis_has_round_numbers_that_do_not_meet(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b) + 1
    picture = drawn(x=Axis(low=low, high=high), y=Axis(low=low, high=high))
    for kind, key, room in (("middle", "x", 7.0), ("end", "y", 0.0)):
        places = [
            (float(str(t.get(key))), len(str(t.text)))
            for t in picture.iter(f"{SVG}text")
            if t.get("class") == kind and t.text and "transform" not in t.attrib
        ]
        assert len(places) >= 2
        for (first, letters), (second, _) in pairwise(places):
            assert abs(second - first) >= room * letters * 0.8


def test_a_logarithmic_axis_is_one() -> None:
    xs = (1, 10, 100, 1000)
    picture = drawn(Polyline("line", xs, (0, 1, 2, 3), ("",) * 4, "#000000", radius=2), x=Axis(log=True))
    at = [float(str(circle.get("cx"))) for circle in picture.iter(f"{SVG}circle")]
    steps = [b - a for a, b in pairwise(at)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.1)


def test_nothing_is_drawn_outside_its_panel_and_names_are_only_text() -> None:
    name = '"><script>alert(1)</script>'
    far = Bars(name, (0, 5, 10), (1, 1e9, -1e9), (name,) * 3, ("#123456",))
    marks = (far, Rule("x", 1e9, words=(name, name)), Band(-5, 1e9, "#ffff00", name), Note(1, 1, name))
    text = svg(Figure(name, (Panel(name, marks, Axis(name, 0, 9), Axis(name, 0, 100)),), 400))
    assert "<script" not in text
    picture = ElementTree.fromstring(text)
    for rect in picture.iter(f"{SVG}rect"):
        left, top, width, height = (float(str(rect.get(key))) for key in ("x", "y", "width", "height"))
        assert 0 <= left <= left + width <= WIDTH
        assert HEADING <= top <= top + height <= 400
    assert notes(picture) == [name] * 2  # the third has no height within the panel


def test_the_legend_has_every_name_once_and_panels_side_by_side_do_not_meet() -> None:
    names = [f"a rather long name of trace number {n}" for n in range(12)]
    lines = tuple(Polyline(name, (0, 1), (0, 1), ("", ""), "#000000") for name in names)
    figure = Figure("", (Panel("one", lines), Panel("two", lines)), 500, (1, 3))
    text = svg(figure)
    assert [text.count(f">{name}</text>") for name in names] == [1] * len(names)
    ends = [
        tuple(map(float, found)) for found in re.findall(r'class="axis" d="M([\d.]+) [\d.]+V[\d.]+H([\d.]+)"', text)
    ]
    assert len(ends) == 2
    assert ends[0][0] < ends[0][1] < ends[1][0] < ends[1][1] <= WIDTH


def test_a_page_is_small_even_of_a_large_network() -> None:
    graph = load("mcunet-5fps")
    program = sm.compile(graph, "49kb", "cortex-m7", options=sm.Options(10), streamed_input=True)
    page = draw_memory(program)
    over_time, by_layer = pictures(page)
    assert len(page) < 600_000
    assert len(notes(over_time)) > len(program.plan.buffers) + len(program.graph.nodes)
    assert len(traces(by_layer)) == 4


def test_the_report_of_a_fit_is_small_and_tells_what_was_found(tmp_path: Path) -> None:
    found = fit(small_network(), draw_shapes(12, 6), tmp_path / "out", budget="48KB", epochs=2)
    page = (tmp_path / "out" / "report.html").read_text()
    assert len(page.encode()) < LIMIT
    scheme, learning, arena, _, contributions = charts(page)
    assert [name for name, _ in traces(learning)] == ["course", "tests"]
    assert all(row.name in unescape(page) for row in found.choice.rows)
    assert unescape(found.choice.reason) in unescape(page)
    assert [f"epoch {one.number}: {one.loss:.3f}" for one in found.learned.record] == notes(learning)[:2]
    assert any(name == "biases" for name, _ in traces(scheme))
    assert [one.accuracy is None for one in found.learned.record] == [True, False]  # tested once, at the end
    before, after = found.learned.first.accuracy, found.learned.record[-1].accuracy
    assert notes(learning)[2:4] == [f"before: {before:.1%}", f"epoch 2: {after:.1%}"]
    assert notes(contributions)
    assert notes(arena)
    for one in found.stages[:-1]:
        assert one.said in unescape(page)
    assert f"{found.board.time.mhz} MHz if it retires {found.board.time.instructions_per_cycle:g} instructions" in page


def test_a_page_without_pictures_is_a_page() -> None:
    assert pictures(page_of("nothing", "to see", ())) == []
