"""The page in a real Chromium: it sees, learns, undoes and hands over, from a file and from a server, for everyone."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser
from playwright.sync_api import Page as Tab

from smidgen.data import as_input, load_data, pixel_encoding
from smidgen.data.files import read_whole
from smidgen.link import Line, LinkedDevice
from smidgen.link.line import load_file
from smidgen.pipeline import compile
from smidgen.play import serve
from smidgen.targets.boards import BOARDS
from smidgen.targets.device import read_state
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.lines import emulated_line
from smidgen.targets.saved import HEAD
from tests.support.browser import DESK, FAINT, MISSED, PHONE, WIDER, browsing, chromium
from tests.support.once import Once
from tests.support.play_browser import CAMERA, hold, name_classes, playing, quiet, saved, verdict
from tests.support.play_pages import Page, page_of
from tests.support.shapes import SHAPES, draw_shape
from tests.support.small_network import small_network
from tests.support.tiers import first

pytestmark = pytest.mark.skipif(chromium() is None, reason="NO CHROMIUM HERE: apt install chromium to try the page")
LEAST_CONTRAST = 4.5  # of text, by WCAG's level AA
SIZES = {"desk": DESK, "phone": PHONE, "small phone": (320, 640)}
NAMES = ("ball", "box", "tent")


@pytest.fixture(scope="module")
def page(once: Once) -> Page:
    return once("play", lambda folder: page_of(small_network("small"), "last:2", 4))


@pytest.fixture
def file(page: Page, tmp_path: Path) -> str:
    path = tmp_path / "page.html"
    path.write_text(page.html)
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture
def served(page: Page) -> Iterator[str]:
    with serve(page.html.encode(), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("source", first("file", "served"))
def test_it_learns_three_classes_from_a_camera_and_asks_nobody_for_anything(
    source: str, request: pytest.FixtureRequest, browser: Browser
) -> None:
    url = request.getfixturevalue(source)
    with playing(browser, url) as visit:
        shown = visit.page
        shown.context.set_offline(True)
        shown.click("#start")
        name_classes(shown, *NAMES)
        for label in range(3):
            hold(shown, label, label)
        samples, held = (shown.locator(f".thumbs button{kind}").count() for kind in ("", ".held"))
        assert held >= 3
        assert shown.inner_text("#tally-learned") == f"{samples - held} samples"
        right, _, of = shown.inner_text("#tally-held").partition(" of ")
        assert (int(of), int(right) >= held - 1) == (held, True)
        for label, name in enumerate(NAMES):
            shown.evaluate("(shown) => { window.shown = shown; }", label)
            shown.wait_for_function("(name) => document.querySelector('#best').textContent === name", arg=name)
        shown.select_option("#rounds", "1")
        shown.click("#step")
        quiet(shown)
        assert shown.inner_text("#tally-steps") == str(samples - held)
        assert shown.locator("#moved li").count() == len(page_tensors(shown.inner_text("#moved")))
        shown.click("#undo")
        quiet(shown)
        assert shown.inner_text("#tally-steps") == "0"
        assert [one for one in visit.asked if not one.startswith("blob:")] == [url]
        assert visit.complaints == []


def page_tensors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.endswith(("weights", "biases"))]


def test_a_board_takes_what_was_learned_and_predicts_the_same(
    page: Page, file: str, browser: Browser, cache: Path, tmp_path: Path
) -> None:
    """The state is saved, loaded into an emulated board, and both are shown the same pictures."""
    rng = np.random.default_rng(8)
    shapes = [draw_shape(SHAPES[i % 3], rng) for i in range(4)]
    for i, one in enumerate(shapes):
        Image.fromarray(one).save(tmp_path / f"{i}.png")
    with playing(browser, file) as visit:
        shown = visit.page
        shown.click("#start")
        name_classes(shown, *NAMES)
        for label in range(3):
            hold(shown, label, label, 3)
        shown.select_option("#rounds", "1")
        shown.click("#step")
        quiet(shown)
        said = [verdict(shown, tmp_path / f"{i}.png") for i in range(len(shapes))]
        state = saved(shown, "#save-state", tmp_path / "learned.state")
        samples = saved(shown, "#save-samples", tmp_path / "samples.zip")
    inputs = [as_input(one, pixel_encoding(page.graph)) for one in shapes]
    target = BoardTarget(BOARDS["cortex-m7"], cache=cache)
    program = compile(page.graph, page.asked.scheme, target, options=page.asked.options, one_pass=True)
    line = Line(emulated_line("board", target, target.linked(program.graph, program.sources)))
    with page.device() as device, LinkedDevice(program.graph, line) as board:
        scores = device.graph.outputs.index(device.graph.scores)
        device.restore(read_state(device.graph, read_whole(state)[HEAD.size :]))
        load_file(line, state)
        for one, word in zip(inputs, said, strict=True):
            label = device.predict(one)
            assert board.predict(one) == label
            assert NAMES[label] == word
            assert board.output(scores).tobytes() == device.outputs()[scores].tobytes()
    data = load_data(str(samples))
    assert data.classes == NAMES
    assert len(data.train) + len(data.test) >= 9
    with zipfile.ZipFile(samples) as archive:
        assert archive.testzip() is None


def test_a_state_comes_back_into_the_page_and_another_programs_does_not(
    file: str, browser: Browser, tmp_path: Path
) -> None:
    with playing(browser, file) as visit:
        shown = visit.page
        shown.click("#start")
        hold(shown, 0, 0, 2)
        state = saved(shown, "#save-state", tmp_path / "one.state")
        hold(shown, 1, 1, 2)
        for path in (state, other := tmp_path / "other.state", empty := tmp_path / "empty"):
            if path == other:
                path.write_bytes(bytes([read_whole(state)[0] ^ 1]) + read_whole(state)[1:])
            if path == empty:
                path.write_bytes(b"")
            with shown.expect_file_chooser() as chooser:
                shown.click("#load-state")
            chooser.value.set_files(path)
            quiet(shown)
            shown.wait_for_timeout(300)
            said = shown.inner_text("#note") if shown.is_visible("#note") else ""
            assert ("" if path == state else "another program" if path == other else "0 bytes") in said
            assert bool(said) == (path != state)
            assert saved(shown, "#save-state", tmp_path / "again").read_bytes() == state.read_bytes()
        assert visit.complaints == []


REFUSED = "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NAME'); }"


@pytest.mark.parametrize(
    ("name", "words"), [("NotAllowedError", "Allow it"), ("NotFoundError", "no camera"), ("NotReadableError", "Close")]
)
def test_without_a_camera_it_says_so_and_takes_files(
    name: str, words: str, file: str, browser: Browser, tmp_path: Path
) -> None:
    Image.fromarray(draw_shape("disc", np.random.default_rng(0))).save(tmp_path / "disc.png")
    with playing(browser, file, script=REFUSED.replace("NAME", name)) as visit:
        visit.page.click("#start")
        visit.page.wait_for_selector("#note.bad")
        assert words in visit.page.inner_text("#note")
        with visit.page.expect_file_chooser() as chooser:
            visit.page.locator(".class").nth(0).get_by_text("Files…").click()
        chooser.value.set_files([tmp_path / "disc.png"])
        quiet(visit.page)
        visit.page.locator(".thumbs button").first.wait_for()
        assert visit.page.inner_text("#tally-learned") == "1 sample"
        assert visit.complaints == []


def test_what_is_no_picture_is_refused_in_a_sentence(file: str, browser: Browser, tmp_path: Path) -> None:
    files = {
        "a.txt": (b"just words", "no picture that this browser reads"),
        "b.heic": (b"\0\0\0\x18ftypheic\0\0\0\0heic", "HEIC"),
        "c.png": (b"\x89PNG\r\n\x1a\n broken", "no picture that this browser reads"),
    }
    with playing(browser, file) as visit:
        for name, (content, words) in files.items():
            (tmp_path / name).write_bytes(content)
            with visit.page.expect_file_chooser() as chooser:
                visit.page.click("#choose")
            chooser.value.set_files(tmp_path / name)
            visit.page.wait_for_function(
                "(name) => document.querySelector('#note').textContent.includes(name)", arg=name
            )
            assert words in visit.page.inner_text("#note")
        assert visit.complaints == []


def test_a_photograph_of_forty_megapixels_is_seen(file: str, browser: Browser, tmp_path: Path) -> None:
    Image.new("RGB", (8000, 5000), (200, 40, 40)).save(tmp_path / "large.jpg")
    with playing(browser, file) as visit:
        visit.page.click("#start")
        hold(visit.page, 0, 0, 1)
        verdict(visit.page, tmp_path / "large.jpg")
        assert visit.complaints == []


def test_a_browser_without_vectors_or_webserial_says_so_and_works(file: str, browser: Browser) -> None:
    without = "delete Navigator.prototype.serial;"
    with playing(browser, file, script=without) as visit:
        assert "no WebSerial" in visit.page.inner_text("#serial-note")
        assert visit.page.is_disabled("#connect")
        assert visit.complaints == []


@pytest.mark.parametrize("size", first(*SIZES))
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everyone_can_read_it(file: str, browser: Browser, size: str, dark: bool) -> None:
    with playing(browser, file, SIZES[size], dark) as visit:
        visit.page.click("#start")
        hold(visit.page, 0, 0, 6)
        hold(visit.page, 1, 1, 2)
        root = "document.documentElement"
        assert visit.page.evaluate(f"() => {root}.scrollWidth <= {root}.clientWidth")
        assert visit.page.evaluate(WIDER) == []
        seen, faint = visit.page.evaluate(FAINT, LEAST_CONTRAST)
        assert seen > 40
        assert faint == []
        assert visit.page.evaluate(MISSED) == []


def test_the_keyboard_alone_teaches(file: str, browser: Browser) -> None:
    with playing(browser, file) as visit:
        shown = visit.page
        shown.focus("#start")
        shown.keyboard.press("Enter")
        shown.wait_for_selector("#stop", state="visible")
        shown.focus(".hold")
        shown.keyboard.down(" ")
        shown.locator(".thumbs button").nth(2).wait_for()
        shown.keyboard.up(" ")
        quiet(shown)
        count = shown.locator(".thumbs button").count()
        shown.locator(".thumbs button").first.focus()
        shown.keyboard.press("Enter")
        shown.wait_for_function(
            "(count) => document.querySelectorAll('.thumbs button').length === count", arg=count - 1
        )
        assert visit.complaints == []


def test_what_was_taught_is_there_on_the_next_visit_and_one_tab_keeps_it(file: str, browser: Browser) -> None:
    with playing(browser, file) as visit:
        visit.page.click("#start")
        name_classes(visit.page, "ball", "box")
        hold(visit.page, 0, 0, 2)
        hold(visit.page, 1, 1, 2)
        samples, state = visit.page.inner_text("#tally-learned"), state_of(visit.page)
        visit.page.wait_for_timeout(1500)  # until it is calm, and kept
        other = visit.page.context.new_page()
        other.goto(file)
        other.wait_for_selector("html[data-ready]")
        assert "another tab" in other.inner_text("#standing")
        other.close()
        visit.page.reload()
        visit.page.wait_for_selector("html[data-ready]")
        assert visit.page.inner_text("#tally-learned") == samples
        assert visit.page.locator(".class input").nth(1).input_value() == "box"
        assert state_of(visit.page) == state
        visit.page.click("#clear")
        quiet(visit.page)
        assert visit.page.inner_text("#tally-learned") == "no samples"
        visit.page.click("#undo")
        quiet(visit.page)
        assert state_of(visit.page) == state
        assert visit.complaints == []


def state_of(page: Tab) -> bytes:
    """The state that the page saves."""
    with page.expect_download() as download:
        page.click("#save-state")
    return Path(download.value.path()).read_bytes()


FULL = "IDBObjectStore.prototype.put = () => { throw new DOMException('', 'QuotaExceededError'); };"


@pytest.mark.parametrize(
    ("script", "words"),
    [(FULL, "no room"), ("Object.defineProperty(window, 'indexedDB', { value: undefined });", "keeps nothing")],
)
def test_a_browser_that_keeps_nothing_is_said_to(script: str, words: str, file: str, browser: Browser) -> None:
    with playing(browser, file, script=CAMERA + ";" + script) as visit:
        if words == "no room":
            visit.page.click("#start")
            hold(visit.page, 0, 0, 1)
        visit.page.wait_for_function(
            "(words) => document.querySelector('#standing').textContent.includes(words)", arg=words
        )
        assert visit.complaints == []
