"""A report says what stages found: their numbers, the first samples of each class, and the same bytes each time."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import asdict, replace
from fractions import Fraction
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import smidgen as sm
from smidgen.cli import app
from smidgen.data import Data, Samples
from smidgen.data.samples import SIDE, data_address
from smidgen.frontends.native import read_smg, write_smg
from smidgen.inference import ClassesTested
from smidgen.learning import Course, learn
from smidgen.records import from_plain
from smidgen.results.figures import Axis, Figure, Panel, Polyline
from smidgen.results.memory import life_cycle
from smidgen.results.profile import Profile, profile
from smidgen.results.report import Report, Section, render
from smidgen.results.report.learned import before_learning, quality_section, show_samples
from smidgen.results.report.page import Chart, Fact, Facts, Gallery, KeyNumber, Part, Stack
from smidgen.results.report.training import contributions_section, instructions_section, memory_section, network_section
from smidgen.selection.found import Found, LayerGain, Pareto
from smidgen.tables import Cell, Matrix, Table
from smidgen.targets.boards import BOARDS
from smidgen.training.scheme import Scheme, load_scheme
from tests.support.contributions import measured
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network

DATA = draw_shapes(8, 5)


@pytest.fixture(scope="module")
def program() -> sm.Program:
    return sm.compile(small_network(), "last:2", "cortex-m7", options=sm.Options(4), class_names=SHAPES)


@pytest.fixture(scope="module")
def found(program: sm.Program) -> sm.Profile:
    return profile(program, 1)


def test_a_profile_comes_back_from_its_json_as_it_was(found: sm.Profile) -> None:
    assert from_plain(Profile, json.loads(json.dumps(asdict(found)))) == found


def test_memory_and_instructions_are_the_profiles(program: sm.Program, found: sm.Profile) -> None:
    board = BOARDS["cortex-m7"]
    sram, flash, arena, _ = memory_section(life_cycle(program), found, board, 65536).blocks
    assert isinstance(sram, Stack)
    assert isinstance(flash, Stack)
    assert (sram.used, sram.whole, sram.limit) == (found.sram_bytes, board.sram.bytes, 65536)
    assert (flash.used, flash.whole) == (found.flash_bytes, board.flash.bytes)
    assert sum("else" in part.name for part in flash.parts) == 1
    assert len({part.tone for part in flash.parts}) == len(flash.parts)
    assert isinstance(arena, Chart)
    tensors, alive = arena.tables
    assert [row[2].number for row in tensors.rows] == [one.bytes for one in life_cycle(program).tensors]
    assert len(alive.rows) == len(program.graph.nodes)
    by_op, by_node = instructions_section(found).blocks
    assert isinstance(by_op, Table)
    assert isinstance(by_node, Table)
    assert sum(row[3].number or 0 for row in by_node.rows) == found.instructions.step
    assert [row[0].text for row in by_op.rows[:-1]] == [one.op for one in found.instructions.by_op]


def test_parts_of_a_stack_lie_side_by_side_and_an_overfull_one_stays_within() -> None:
    stack = Stack("flash", (Part("a", 30, "t"), Part("b", 50, "t")), 160, "of flash")
    assert [(at, width) for _, at, width in stack.places] == [(0.0, 18.75), (18.75, 31.25)]
    full = replace(stack, whole=40)
    assert [(at, width) for _, at, width in full.places] == [(0.0, 37.5), (37.5, 62.5)]


def test_the_table_of_layers_says_what_learns() -> None:
    graph = small_network()
    (chart,) = network_section(graph, load_scheme("last:2", graph), sm.Options(4)).blocks
    assert isinstance(chart, Chart)
    rows = chart.tables[0].rows
    assert len(rows) == len(graph.nodes)
    learns = {int(row[0].number): row[9].text for row in rows if row[0].number is not None and row[9].text}
    last = max(learns)
    assert learns.keys() == {last - 1, last}
    assert all(said.startswith("bias, ") and said.endswith(" channels") for said in learns.values())


def test_what_a_model_said_before_and_after_is_what_it_says() -> None:
    here = sm.compile(small_network(), "last:2", options=sm.Options(4), class_names=SHAPES)
    run = learn(here, DATA, Course(2, 0.02, augment=None))
    section = quality_section(before_learning(here), run.model, DATA)
    gallery, shares, matrix = section.blocks
    assert isinstance(gallery, Gallery)
    assert isinstance(matrix, Matrix)
    assert isinstance(shares, Table)
    assert [one.truth for one in gallery.samples] == [*SHAPES] * 3  # in turn: the first of each class, the second …
    for model, answers in (
        (before_learning(here), [one.before for one in gallery.samples]),
        (run.model, [one.after for one in gallery.samples]),
    ):
        places = [int(one.name.split()[-1]) for one in gallery.samples]
        said = sm.predict(model, [DATA.test.images[place] for place in places], top=1).predictions
        assert [answer.text for answer in answers] == [one.text for one in said]
        truth = [DATA.test.labels[place] for place in places]
        assert [answer.right for answer in answers] == [
            one.classes[0].index == label for one, label in zip(said, truth, strict=True)
        ]
    right = sum(row[place] for place, row in enumerate(matrix.counts))
    assert right / len(DATA.test) == run.accuracy
    untaught = sm.test(before_learning(here), DATA)
    assert isinstance(untaught, ClassesTested)
    assert untaught.accuracy == run.before


def test_deeper_shades_are_larger_shares_of_a_row() -> None:
    matrix = Matrix(("a", "b", "c"), ((0, 1, 99), (10, 0, 0), (0, 0, 0)))
    assert [[matrix.shade(row, column) for column in range(3)] for row in range(3)] == [
        [0, 1, 10],
        [10, 0, 0],
        [0, 0, 0],
    ]


def test_small_pictures_are_kept_and_large_ones_made_small() -> None:
    rng = np.random.default_rng(0)
    small, grey = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8), rng.integers(0, 256, (20, 30, 1), dtype=np.uint8)
    np.testing.assert_array_equal(decoded(data_address(small)), small)
    np.testing.assert_array_equal(decoded(data_address(grey)), grey[:, 5:25, 0])
    large = data_address(rng.integers(0, 256, (400, 900, 3), dtype=np.uint8))
    assert decoded(large).shape == (SIDE, SIDE, 3)
    assert data_address(np.zeros((32, 32, 3), np.float32)) == data_address(np.zeros(9, np.uint8)) == ""


def decoded(address: str) -> np.ndarray:
    head, _, text = address.partition(";base64,")
    assert head in ("data:image/png", "data:image/jpeg")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def test_samples_that_are_no_pictures_are_told_in_words() -> None:
    graph = small_network()
    shape = graph.image.type.shape[1:]
    tensors = Samples(tuple(np.full(shape, v, np.int8) for v in (-9, 7)), (0, 1))
    gallery = show_samples(graph, graph, Data("tensors", tuple("abcdefghij"), tensors, tensors))
    assert [(one.picture, one.truth) for one in gallery.samples] == [("", "a"), ("", "b")]
    assert all(one.before == one.after for one in gallery.samples)


def test_what_memory_buys_is_drawn_where_it_is_known() -> None:
    known = measured(small_network(), 1)
    points = tuple(
        Found(
            "net", "cortex-m7", "exact", cost, Scheme("searched", 3), 10, cost, None, gain, 0.0,
            (LayerGain(7, Fraction(1, 4), gain),), None, 5, 0, (),
        )
        for cost, gain in ((1000, 0.01), (2000, 0.03))
    )  # fmt: skip
    with_curve = contributions_section(known, Pareto("net", "cortex-m7", points)).blocks
    assert len(contributions_section(known).blocks) == 1
    assert isinstance(with_curve[1], Chart)
    assert [(row[0].number, row[1].text) for row in with_curve[1].tables[0].rows] == [(1000, "+1.00"), (2000, "+3.00")]


def test_every_block_is_on_the_page_and_no_name_can_break_it() -> None:
    name = "</script><b>&\"'"
    figure = Figure(name, (Panel(name, (Polyline(name, (0, 1), (0, 1), (name, name), "#000000"),), Axis(name)),), 300)
    table = Table(name, (name, "n"), ((Cell(name), Cell("5", 5, 0.5)),))
    blocks = (
        Chart(figure, name, (table,)), table, replace(table, folded=False),
        Stack(name, (Part(name, 1, "t"),), 2, name, 1), Matrix((name, "b"), ((1, 0), (2, 3))),
        Facts((Fact(name, name, name),)),
    )  # fmt: skip
    report = Report(
        name, name, name, (KeyNumber(name, name, name, 0.5),), (name,), (Section("key", name, name, blocks),)
    )
    page = render(report)
    assert page == render(report)
    assert "<b>&" not in page
    assert page.count("</script>") == 1
    assert unescape(page).count(name) > 25


def test_train_leaves_a_report_of_the_run_that_is_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    np.savez("shapes.npz", x_train=np.stack(DATA.train.images), y_train=np.array(DATA.train.labels),
             x_test=np.stack(DATA.test.images), y_test=np.array(DATA.test.labels))  # fmt: skip
    asked = "train small.smg --data shapes.npz --scheme last:1 --epochs 2 --lr 0.01 -o out --json"
    words = asked.split()
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    told = json.loads(shown.stdout)
    page = Path(told["report"]).read_text()
    assert f"<code>smidgen {asked}</code>" in unescape(page)
    assert f"{told['accuracy']:.1%}" in page
    assert [f"epoch {one['number']}: {one['loss']:.3f}" in page for one in told["epochs"]] == [True, True]
    assert CliRunner().invoke(app, [*words, "--force"], catch_exceptions=False).exit_code == 0
    assert Path(told["report"]).read_text() == page.replace("--json</code>", "--json --force</code>")
    assert read_smg(Path("out/small.smg")).name == "small"
