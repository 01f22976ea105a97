"""Pictures of what is chosen: every figure drawn is that of the result it shows, and a page is whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner, Result

import smidgen as sm
from smidgen.cli import app
from smidgen.data import Data
from smidgen.errors import InputError, SmidgenError
from smidgen.frontends.native import write_smg
from smidgen.results.choices import (
    contributions_page,
    draw_contributions,
    draw_pareto,
    draw_scheme,
    draw_search,
)
from smidgen.results.figures import HARMS, Bars, Polyline
from smidgen.results.memory import draw_arena, life_cycle
from smidgen.results.report.page import WIDE, page_of
from smidgen.results.svg import svg
from smidgen.selection.contributions import read_contributions
from smidgen.selection.found import Found, Improvement, LayerGain, Method, Pareto
from smidgen.training import build_training
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, analytic_memory, load_scheme, resolve
from tests.support.contributions import measured
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.svg_pages import charts, notes, pictures, traces
from tests.support.tiers import examples


@given(st.integers(0, 99))
@settings(max_examples=examples(10))
def test_contributions_are_drawn_as_differences_of_what_was_measured(seed: int) -> None:
    real = measured(small_network(), seed)
    biases, *shares = draw_contributions(real).traces
    depths, accuracies = [one.biases for one in real.depths], [one.accuracy for one in real.depths]
    np.testing.assert_allclose(biases.x, depths)
    np.testing.assert_allclose(biases.y, 100 * (np.array(accuracies) - accuracies[0]), atol=1e-5)
    drawn = {}
    for trace in shares:
        named = Fraction(1) if trace.name == "all channels" else Fraction(trace.name.split()[0])
        drawn.update({(layer, named): y for layer, y in zip(trace.x, trace.y, strict=True)})
        assert isinstance(trace, Bars)
        for y, colour in zip(trace.y, trace.colours, strict=True):
            assert (colour in HARMS) == (y < 0)
    assert len(drawn) == len(real.shares)
    for one in real.shares:
        beside = max(real.base, len(real.layers) - one.layer)
        without = np.interp(beside, depths, accuracies)
        assert drawn[one.layer, one.share] == pytest.approx(100 * (one.accuracy - without), abs=1e-5)


def found(method: Method, gain: float, went: tuple[tuple[int, float], ...] = (), cost: int = 1000) -> Found:
    improvements = tuple(Improvement(*one) for one in went)
    layers = (LayerGain(7, Fraction(1, 4), gain),)
    return Found(
        "net", "cortex-m7", method, 131072, Scheme("searched", 3), 10, cost, None, gain, 0.0, layers, None, 500, 0,
        improvements,
    )  # fmt: skip


def test_an_exact_search_is_a_line_and_the_others_are_drawn_as_they_went() -> None:
    went = ((1, 0.1), (7, 0.2), (400, 0.25))
    longer = ((1, 0.2), (500, 0.28))
    searches = [found("exact", 0.3), found("random", 0.25, went), found("evolutionary", 0.28, longer)]
    figure = draw_search(searches)
    exact, random, evolutionary = figure.traces
    assert (list(exact.x), list(exact.y)) == ([1, 500], [30.0, 30.0])
    assert (list(random.x), list(random.y)) == ([1, 7, 400, 500], [10.0, 20.0, 25.0, 25.0])
    assert list(evolutionary.y)[-1] == 28.0
    assert [trace.name for trace in figure.traces] == ["exact: +30.00", "random: +25.00", "evolutionary: +28.00"]
    assert len({trace.colour for trace in figure.traces if isinstance(trace, Polyline)}) == 3
    assert "131,072 bytes" in figure.title


def test_the_pareto_curve_has_every_budget_and_the_scheme_that_was_chosen() -> None:
    points = tuple(found("exact", kb / 1000, cost=1024 * kb) for kb in (40, 64, 100))
    curve, chosen = draw_pareto(Pareto("net", "cortex-m7", points), points[1]).traces
    assert (list(curve.x), list(curve.y)) == ([40.0, 64.0, 100.0], [4.0, 6.4, 10.0])
    assert [note.split("\n")[0] for note in curve.notes] == ["the last 3 biases, 10-bit weights, 7:1/4" for _ in points]
    assert (list(chosen.x), list(chosen.y)) == ([64.0], [6.4])
    assert "65,536 bytes" in chosen.name


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_a_scheme_is_drawn_with_what_learns_and_the_bytes_it_takes(bits: int) -> None:
    graph, options = small_network(), sm.Options(4, weight_bits=bits)
    last = len(layers(graph)) - 1
    scheme = Scheme("mine", 4, ((last - 3, Fraction(1)), (last - 1, Fraction(1, 4)), (last, Fraction(1, 2))))
    figure = draw_scheme(graph, scheme, options)
    _, shares, biases, weights, bias_bytes, saved = figure.traces
    trained = resolve(scheme, graph)
    assert list(biases.x) == [one.layer for one in trained]
    for one in trained:
        assert shares.y[one.layer] == pytest.approx(len(one.channels) / one.node.ins[1].type.shape[-1], abs=1e-6)
    assert sum(share > 0 for share in shares.y) == 3
    held = {v.name: array.nbytes for v, array in build_training(graph, scheme, options).step.state.items()}
    names = {one.node.ins[1].name: one.layer for one in trained}
    of_weights = dict.fromkeys(range(last + 1), 0)
    for name, size in held.items():
        stem = name.removesuffix(".fraction").removesuffix(".trained")
        if stem in names:
            of_weights[names[stem]] += size
    assert list(weights.y) == list(of_weights.values())
    memory = analytic_memory(scheme, graph)
    assert (sum(bias_bytes.y), sum(saved.y)) == (memory.biases, memory.saved + memory.masks)
    assert isinstance(saved, Bars)
    assert list(saved.base) == [a + b for a, b in zip(weights.y, bias_bytes.y, strict=True)]
    assert f"{bits} bits" in figure.title


def test_a_page_of_pictures_is_whole_and_no_name_can_break_it() -> None:
    name = "<script>alert(1)</script>"
    graph = small_network(name)
    figures = [draw_contributions(measured(graph, 0)), draw_scheme(graph, Scheme(name, 0), sm.Options(4))]
    page = page_of(name, name, figures)
    assert len(pictures(page)) == 2
    assert all(svg(figure, WIDE, titled=False) in page for figure in figures)
    assert page == page_of(name, name, figures)
    assert page.count("&lt;script&gt;alert(1)") >= 4


@pytest.mark.slow
def test_analyze_draws_what_it_measured_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    write_shapes(Path("shapes"), draw_shapes(9, 1))
    options = ["--epochs", "1", "--reach", "2", "--workers", "1", "-o", "c.json", "--picture", "c.html", "--json"]
    run = CliRunner().invoke(app, ["analyze", "small.smg", "--data", "shapes", *options])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["picture"] == "c.html"
    assert Path("c.html").read_text() == contributions_page(read_contributions(Path("c.json")))
    refused = CliRunner().invoke(app, ["analyze", "small.smg", "--data", "shapes", "-o", "d.json", "--picture", "no/c"])
    assert isinstance(refused.exception, InputError)
    assert not Path("d.json").exists()


@pytest.fixture
def searching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`smidgen search` on a small network, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    return lambda *arguments: CliRunner().invoke(app, ["search", "small.smg", "--budget", "64KB", *arguments])


def test_search_by_estimate_draws_the_scheme_it_writes_and_how_all_methods_went(
    searching: Callable[..., Result],
) -> None:
    few = ("--evaluations", "200")
    run = searching("--estimate", "--classes", "4", "-o", "s.json", "--picture", "s.html", "--json", *few)
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    scheme = Scheme.from_json(Path("s.json").read_text())
    assert (scheme.biases, scheme.weight_bits) == (told["scheme"]["biases"], told["weight_bits"])
    page = Path("s.html").read_text()
    assert svg(draw_scheme(small_network(), scheme, sm.Options(4)), WIDE, titled=False) in page
    names = [name.split(":")[0] for name, _ in traces(charts(page)[1])]
    assert names == ["exact", "evolutionary", "random"]
    again = searching("--estimate", "--classes", "4", "--picture", "t.html", *few)
    assert again.exit_code == 0, again.output
    assert Path("t.html").read_bytes() == Path("s.html").read_bytes()


def test_a_pareto_curve_is_drawn_with_every_point(searching: Callable[..., Result]) -> None:
    run = searching("--estimate", "--classes", "4", "--pareto", "--points", "4", "--picture", "p.html", "--json")
    assert run.exit_code == 0, run.output
    page = Path("p.html").read_text()
    points = json.loads(run.stdout)["points"]
    drawn = re.findall(r"([\d.]+) KB: ([+-][\d.]+) points$", "\n".join(notes(charts(page)[0])), re.MULTILINE)
    assert drawn == [(f"{point['cost'] / 1024:.1f}", f"{100 * point['gain']:+.2f}") for point in points]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--estimate",), "an estimate does not say how many classes small is to learn; give --classes"),
        (("--estimate", "--classes", "4", "--contributions", "c.json"), "leave one of them out"),
        (("--estimate", "--classes", "4", "--picture", "no/p.html"), "there is no folder no"),
    ],
)
def test_a_search_by_estimate_that_cannot_be_made_is_told(
    arguments: tuple[str, ...], message: str, searching: Callable[..., Result]
) -> None:
    refused = searching(*arguments, "-o", "s.json")
    assert isinstance(refused.exception, SmidgenError)
    assert message in str(refused.exception)
    assert not Path("s.json").exists()


def write_shapes(folder: Path, data: Data) -> None:
    """A folder of pictures by class."""
    for number, (image, label) in enumerate(zip(data.train.images, data.train.labels, strict=True)):
        place = folder / data.classes[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")


def test_a_colour_has_one_name_in_each_legend() -> None:
    graph = small_network()
    figures = (
        draw_scheme(graph, load_scheme("last:3", graph), sm.Options(4)),
        draw_arena(life_cycle(sm.compile(graph, "last:3", options=sm.Options(4)))),
    )
    for figure in figures:
        colours: dict[str, set[str]] = {}
        for trace in figure.traces:
            if trace.legend:
                colour = trace.colour if isinstance(trace, Polyline) else trace.key or trace.colours[0]
                colours.setdefault(colour, set()).add(trace.name)
        assert [names for names in colours.values() if len(names) > 1] == []
