"""A page of `smidgen play` in a browser whose camera shows what a test draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.support.browser import DESK, Visit

# A camera that shows a ball, a box, a tent (window.shown = 0, 1, 2), or stripes (3), never twice the same.
CAMERA = """(() => {
  const canvas = document.createElement("canvas"), c = canvas.getContext("2d");
  [canvas.width, canvas.height] = [640, 480];
  window.shown = 0;
  let t = 0;
  const draw = () => {
    t += 1;
    const x = 320 + 60 * Math.sin(t / 9), y = 230 + 40 * Math.cos(t / 7), r = 110 + 30 * Math.sin(t / 13);
    c.fillStyle = "#c9c2b4"; c.fillRect(0, 0, 640, 480); c.fillStyle = "#a89f8d"; c.fillRect(0, 330, 640, 150);
    c.beginPath();
    if (window.shown === 0) { c.fillStyle = "#c23b22"; c.arc(x, y, r, 0, 7); }
    if (window.shown === 1) { c.fillStyle = "#2a6fb0"; c.rect(x - r, y - r, 2 * r, 2 * r); }
    if (window.shown === 2) {
      c.fillStyle = "#2f8f4e"; c.moveTo(x, y - r); c.lineTo(x + r, y + r); c.lineTo(x - r, y + r);
    }
    c.fill();
    if (window.shown === 3) {
      c.lineWidth = 18;
      for (let i = 0; i < 12; i++) {
        c.strokeStyle = i % 2 ? "#111" : "#eee";
        c.strokeRect(x - 9 * i, y - 12 * i, 18 * i, 24 * i);
      }
    }
    setTimeout(draw, 33);
  };
  draw();
  navigator.mediaDevices.getUserMedia = async () => canvas.captureStream(30);
})()"""


@contextmanager
def playing(
    browser: Browser, url: str, size: tuple[int, int] = DESK, dark: bool = False, script: str = CAMERA, **more: Any
) -> Iterator[Visit]:
    """The page at an address, ready, with a script that runs before its own."""
    scheme: Any = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **more)
    context.add_init_script(script)
    visit = Visit(context.new_page())
    visit.page.on("request", lambda request: visit.asked.append(request.url))
    visit.page.on("console", lambda message: visit.complaints.append(f"{message.type}: {message.text}"))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.goto(url)
    visit.page.wait_for_selector("html[data-ready]", timeout=60_000)
    yield visit
    context.close()


def name_classes(page: Page, *names: str) -> None:
    while page.locator(".class").count() < len(names):
        page.click("#add")
    for place, name in enumerate(names):
        page.locator(".class input").nth(place).fill(name)


def hold(page: Page, label: int, shown: int, samples: int = 7) -> None:
    """Show something, and hold a class's button until it has so many samples more."""
    page.evaluate("(shown) => { window.shown = shown; }", shown)
    page.wait_for_timeout(200)  # until the camera shows it
    thumbs, button = page.locator(".class").nth(label).locator(".thumbs button"), page.locator(".hold").nth(label)
    wanted = thumbs.count() + samples
    button.scroll_into_view_if_needed()
    box = button.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    thumbs.nth(wanted - 1).wait_for()
    page.mouse.up()
    quiet(page)


def quiet(page: Page) -> None:
    """Wait until nothing is under way."""
    page.wait_for_function("() => document.documentElement.dataset.busy === ''")


def verdict(page: Page, file: Path) -> str:
    """What the page says of a picture."""
    if page.is_visible("#stop"):
        page.click("#stop")
    with page.expect_file_chooser() as chooser:
        page.click("#choose")
    chooser.value.set_files(file)
    page.wait_for_selector("#verdict", state="visible")
    return page.inner_text("#best")


def saved(page: Page, button: str, path: Path) -> Path:
    with page.expect_download() as download:
        page.click(button)
    download.value.save_as(path)
    return path
