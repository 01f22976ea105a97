"""`smidgen play`: a page of a model or of a fit, written or served, and sentences for what cannot be played with."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from smidgen.data import as_input, pixel_encoding
from smidgen.errors import InputError, TargetError
from smidgen.frontends.native import read_smg, write_smg
from smidgen.pipeline import compile
from smidgen.play import begin, measure, plan, play_page, serve
from smidgen.targets.boards import BOARDS
from smidgen.training import Options
from smidgen.zoo import load
from tests.cli.test_cli import fail, invoke
from tests.results.test_report_page import write_report
from tests.support.float_graphs import dequantized
from tests.support.node import coded, decoded, needs_node, run_script
from tests.support.once import Once
from tests.support.play_pages import Page
from tests.support.shapes import SHAPES, draw_shape
from tests.support.small_network import small_network


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), tmp_path / "small.smg")
    return "small.smg"


def facts_in(page: Path) -> dict[str, object]:
    found = re.search(r'id="facts">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    facts: dict[str, object] = json.loads(found[1])
    return facts


def test_a_page_is_written_whole_and_the_same_input_gives_the_same_bytes(small: str, tmp_path: Path) -> None:
    told = json.loads(invoke("play", small, "-o", "one.html", "--boards", "none", "--json"))
    assert told["where"] == "one.html"
    assert told["bytes"] == (tmp_path / "one.html").stat().st_size
    assert (told["scheme"], told["classes"]) == ("last:2", 8)
    invoke("play", small, "-o", "two.html", "--boards", "none")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_python_makes_the_same_page_and_a_notebook_shows_it(small: str, tmp_path: Path) -> None:
    invoke("play", small, "-o", "command.html", "--boards", "none", "--classes", "3")
    page = play_page(small, classes=3)
    page.write(tmp_path / "python.html")
    assert (tmp_path / "python.html").read_bytes() == (tmp_path / "command.html").read_bytes()
    (shown,) = re.findall(r'<iframe srcdoc="([^"]*)" allow="camera', page._repr_html_())
    assert unescape(shown) == page.html


def test_costs_are_measured_on_a_board_and_told_for_all_with_its_core() -> None:
    graph, said = small_network(), list[str]()
    asked = plan(graph, "small.smg", None, Options(3))
    found = measure(graph, asked, ["cortex-m7"], said.append)
    assert said == ["cortex-m7"]
    core = BOARDS["cortex-m7"].core
    assert {one.name for one in found} == {name for name, board in BOARDS.items() if board.core == core}
    assert found[0].name == "cortex-m7"
    assert len({(one.sram, one.flash, one.forward, one.step) for one in found}) == 1
    assert 0 < found[0].forward < found[0].step
    assert found[0].sram < found[0].sram_room


def test_a_network_of_the_zoo_gets_its_smallest_published_scheme_and_room_for_eight_classes() -> None:
    asked = plan(load("mcunet-5fps"), "mcunet-5fps", None, Options())
    assert (asked.scheme, asked.options.classes, asked.kept) == ("49kb", 8, False)
    assert asked.learning == "--one-pass --scheme 49kb --classes 8"


@needs_node
@pytest.mark.slow
def test_the_page_of_a_fit_predicts_what_the_fitted_model_does(once: Once, tmp_path: Path) -> None:
    folder = once("report", write_report).parent
    page = tmp_path / "page.html"
    told = json.loads(invoke("play", str(folder), "-o", str(page), "--boards", "none", "--json"))
    assert told["scheme"] == str(folder / "scheme.json")
    facts, learned = facts_in(page), read_smg(folder / "learned.smg")
    assert facts["kept"] is True
    assert facts["classes"] == list(learned.classes) == list(SHAPES)
    rng = np.random.default_rng(3)
    inputs = [as_input(draw_shape(SHAPES[i % 4], rng), pixel_encoding(learned)) for i in range(8)]
    shown = Page(learned, plan(learned, "", "last:2", Options()), page.read_text())
    script = """
    const made = await engine.Engine.start(bytes(given.program), given.facts);
    tell(given.inputs.map((one) => text(made.predict(new Int8Array(bytes(one).buffer)).scores)));
    """
    given = {"program": shown.program, "facts": shown.facts, "inputs": [coded(one.tobytes()) for one in inputs]}
    found = run_script(script, given, "engine")
    with compile(learned).start() as device:
        for one, scores in zip(inputs, found, strict=True):
            assert device.run(one)[0].astype(np.float32).tobytes() == decoded(scores)


def test_the_report_of_a_fit_says_how_to_play_with_it(once: Once) -> None:
    report = once("report", write_report)
    assert "smidgen play ." in report.read_text()


def test_what_cannot_be_played_with_ends_in_a_sentence(
    small: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def said(*words: str) -> str:
        return fail(capsys, monkeypatch, "play", *words)

    (tmp_path / "empty").mkdir()
    (tmp_path / "there.html").write_text("mine")
    assert "is not the folder of a fit" in said("empty")
    assert "--force" in said(small, "-o", "there.html")
    assert (tmp_path / "there.html").read_text() == "mine"
    assert "room for 2 to 64, not 65" in said(small, "--classes", "65", "--boards", "none")
    assert said(small, "--classes", "1", "--boards", "none").endswith("room for 2 to 64, not 1")
    assert "there is no board 'toaster'" in said(small, "--boards", "toaster", "-o", "page.html")
    write_smg(dequantized(small_network()), tmp_path / "float.smg")
    assert "quantize it" in said("float.smg")
    assert not (tmp_path / "page.html").exists()


def test_a_folder_of_a_fit_is_its_learned_model_and_its_scheme(tmp_path: Path) -> None:
    for name in ("learned.smg", "scheme.json"):
        (tmp_path / name).write_text("")
    assert begin(str(tmp_path), None) == (str(tmp_path / "learned.smg"), str(tmp_path / "scheme.json"))
    assert begin(str(tmp_path), "head") == (str(tmp_path / "learned.smg"), "head")
    assert begin("mcunet-5fps", None) == ("mcunet-5fps", None)


def test_a_server_has_one_page_for_this_machine_alone() -> None:
    with serve(b"<!doctype html>hello", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert server.server_address[0] == "127.0.0.1"
        root = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{root}/?x=1") as answer:
            assert answer.read() == b"<!doctype html>hello"
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"{root}/../etc/passwd")
        refused.value.close()
        server.shutdown()


def test_a_port_that_another_program_has_or_that_does_not_exist_is_refused() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InputError, match="cannot be had"):
            serve(b"", other.getsockname()[1])
    with pytest.raises(InputError, match="does not exist"):
        serve(b"", 70_000)


def test_a_program_that_no_board_has_room_for_is_refused_by_that_board() -> None:
    graph = load("mcunet-5fps")
    with pytest.raises(TargetError, match="stm32g0b1"):
        measure(graph, plan(graph, "mcunet-5fps", None, Options()), ["stm32g0b1"], lambda name: None)
