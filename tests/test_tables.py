"""Tables as text and HTML, and all that is public as a prompt and a notebook show it: briefly, nothing unescaped."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import smidgen as sm
from smidgen.callbacks import ignore
from smidgen.fitting.ledger import digest_of
from smidgen.ir.preprocessing import Preprocessing
from smidgen.selection.contributions import Contributions
from smidgen.tables import BELOW, SHOWN_ROWS, Brief, Cell, Matrix, Table, bars, counted, percent, rows_of
from tests.support.float_graphs import dequantized
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network

LONGEST = 2000  # characters of anything public at a prompt
NAME = "<b>&\"'</b>"


def test_columns_of_numbers_stand_to_the_right_in_text() -> None:
    table = Table(
        "", ("name", "count"), rows_of((("a", counted(5)), ("long", counted(1_000)))), totals=("all", "1,005")
    )
    assert str(table).splitlines() == ["name  count", "a         5", "long  1,000", "all   1,005"]


def test_a_notebook_shows_the_first_rows_and_how_many_follow() -> None:
    html = Table("t", ("n",), rows_of((counted(i),) for i in range(SHOWN_ROWS + 3)))._repr_html_()
    assert html.count("<tr>") == 1 + SHOWN_ROWS
    assert "and 3 more rows" in html


def test_no_name_breaks_the_html_of_a_table_or_a_matrix() -> None:
    table = Table(NAME, (NAME,), ((Cell(NAME),),))
    for html in (table._repr_html_(), Matrix((NAME, "b"), ((1, 2), (0, 3)))._repr_html_()):
        assert "<b>" not in html
        assert "&lt;b&gt;" in html


def test_a_bar_below_zero_is_red_and_no_name_breaks_the_picture() -> None:
    svg = bars(NAME, (2.0, -1.0), ("gain", NAME))
    assert "<b>" not in svg
    assert [BELOW in rect for rect in svg.split("<rect")[1:]] == [False, True]


def test_mistakes_are_listed_by_how_often_they_happen() -> None:
    matrix = Matrix(("a", "b", "c"), ((5, 1, 4), (0, 9, 0), (2, 0, 8)))
    assert [(row[0].text, row[1].text, row[2].text) for row in matrix.mistakes().rows] == [
        ("a", "c", "4"),
        ("c", "a", "2"),
        ("a", "b", "1"),
    ]
    assert matrix.caption.startswith("Mistaken most: a for c, 4 of 10;")
    assert percent(None).text == ""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the public functions return, by the function's name."""
    model, data = small_network(), draw_shapes(8, 4)
    program = sm.compile(model, "last:2", options=sm.Options(4), class_names=SHAPES)
    course = sm.Course(2, 0.02, augment=None)
    learned, known = sm.learn(program, data, course), sm.estimate(model)
    floating = dequantized(small_network(), Preprocessing())
    network, options = sm.load("mcunet-5fps"), sm.Options(4)
    return {
        "load": network, "compile": sm.compile(network, "49kb", options=sm.Options(10)),
        "load_data": data, "learn": learned, "predict": sm.predict(learned.model, list(data.test.images)),
        "test": sm.test(learned.model, data), "estimate": known, "average_contributions": known,
        "search": sm.search(model, known, "128KB", options=options), "import_model": model, "from_torch": model,
        "pareto": sm.pareto(model, known, "128KB", options=options, points=3), "learned_graph": learned.model,
        "quantize": sm.quantize(floating, data.train.images), "load_scheme": sm.load_scheme("full", network),
        "choose_rate": sm.choose_rate(program, data, course), "make_course": course,
        "play_page": sm.PlayPage("small", "<p>" * 1000),
        "analyze": known, "evaluate": None, "connect": None, "simulate": (learned,),
        "fit": sm.fit(model, data, tmp_path_factory.mktemp("fit"), budget="64KB", epochs=1, effort="quick"),
    }  # fmt: skip


def test_the_repr_of_every_public_result_is_short(results: dict[str, object]) -> None:
    assert {name for name in sm.__all__ if inspect.isfunction(getattr(sm, name))} == results.keys()
    found = {name: len(repr(one)) for name, one in results.items()}
    assert {name: size for name, size in found.items() if size >= LONGEST} == {}


def test_results_show_words_a_picture_or_a_table_in_a_notebook(results: dict[str, object]) -> None:
    shown = {name: one for name, one in results.items() if isinstance(one, Brief)}
    assert {
        "load",
        "compile",
        "load_data",
        "learn",
        "predict",
        "test",
        "estimate",
        "search",
        "quantize",
        "fit",
    } <= shown.keys()
    for name, one in shown.items():
        html = one._repr_html_()
        assert str(one).splitlines()[0].split(":")[0][:20] in html, name
        assert any(tag in html for tag in ("<svg", "<img", "<table")), name
    for name in ("load", "compile", "learn", "estimate"):
        assert "<svg" in shown[name]._repr_html_(), name
    assert "data:image/png" in shown["load_data"]._repr_html_()
    assert "Precision and recall" in shown["test"]._repr_html_()
    with_words = Contributions.__str__(results["estimate"])  # type: ignore[arg-type]
    assert "by rule, not measured" in with_words


@dataclass
class Kernel:
    """As much of a notebook's kernel as progress needs."""

    execution_count: int = 1


def test_progress_is_shown_in_a_notebook_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ignore(SimpleNamespace(done=1, total=2))
    shown: list[tuple[str, bool]] = []
    kernel = Kernel()

    def display(html: str, display_id: str, update: bool) -> None:
        shown.append((html, update))

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    ignore(SimpleNamespace(done=2, total=2, doing="learning"))
    ignore(3, 3)
    ignore()
    ignore("no counts")
    kernel.execution_count = 2
    ignore(SimpleNamespace(done=4, total=4, doing="testing"))
    assert [("learning: 2 of 2" in shown[0][0], shown[0][1]), *(update for _, update in shown[1:])] == [
        (True, False), True, False,
    ]  # fmt: skip
    assert capsys.readouterr() == ("", "")


def test_nothing_is_left_out_where_a_fit_knows_its_inputs_by_their_digest() -> None:
    known = sm.estimate(small_network())
    other = Contributions(
        known.model, known.layers, known.conditions, known.depths, known.base, known.shares[:-1], known.bits
    )
    assert digest_of((known,)) != digest_of((other,))
