"""Pages of audio and motion models in Chromium: they know their classes, and learn others of what they get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from smidgen.data import load_data
from smidgen.play import draw_play, plan
from smidgen.training import Options
from smidgen.zoo import load
from tests.support.browser import browsing, chromium
from tests.support.play_browser import hold, playing, quiet, saved

pytestmark = pytest.mark.skipif(chromium() is None, reason="NO CHROMIUM HERE: apt install chromium to try the page")
EXAMPLES = Path(__file__).parents[2] / "examples"
# A microphone with a tone for each class, and sensors that swing along another axis for each.
TONES = """
  window.shown = 0;
  navigator.mediaDevices.getUserMedia = async () => {
    const context = new AudioContext(), tone = context.createOscillator(), end = context.createMediaStreamDestination();
    setInterval(() => { tone.frequency.value = [300, 1200, 2500][window.shown] * (1 + 0.1 * Math.random()); }, 30);
    tone.connect(end);
    tone.start();
    return end.stream;
  };
"""
MOTION = """
  window.shown = 0;
  let t = 0;
  setInterval(() => {
    const event = new Event("devicemotion"), swing = 9 * Math.sin((t += 1) / 4) + Math.random();
    const [x, y, z] = [0, 1, 2].map((axis) => (axis === window.shown ? swing : 0.2));
    Object.assign(event, { accelerationIncludingGravity: { x, y, z }, rotationRate: null });
    dispatchEvent(event);
  }, 25);
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.mark.parametrize(
    ("name", "script"), [("spoken_words", TONES), pytest.param("gesture", MOTION, marks=pytest.mark.slow)]
)
def test_it_knows_its_classes_and_learns_others(name: str, script: str, browser: Browser, tmp_path: Path) -> None:
    graph = load(str(EXAMPLES / name / "model.smg"))
    page = tmp_path / "page.html"
    page.write_text(draw_play(graph, plan(graph, f"{name}.smg", None, Options()), ()))
    with playing(browser, page.as_uri(), script=script) as visit:
        shown = visit.page
        shown.click("#start")
        shown.wait_for_selector("#verdict", state="visible")
        assert shown.locator(".class").count() == len(graph.classes)
        assert shown.locator(".class input").nth(0).input_value() == graph.classes[0]
        assert shown.inner_text("#best") in graph.classes
        for label in range(2):
            shown.evaluate("(shown) => { window.shown = shown; }", label)
            shown.wait_for_timeout(2000)  # until the last moments hold nothing else
            hold(shown, label, label, 6)
        right, _, of = shown.inner_text("#tally-held").partition(" of ")
        assert int(right) == int(of) >= 2
        shown.click("#step")
        quiet(shown)
        assert int(shown.inner_text("#tally-steps").replace(",", "")) > 0
        samples = saved(shown, "#save-samples", tmp_path / "samples.zip")
        assert visit.complaints == []
        assert [one for one in visit.asked if not one.startswith("blob:")] == [page.as_uri()]
    assert set(load_data(str(samples)).classes) == set(graph.classes[:2])
