"""The page of `smidgen play` in Chromium: its size, how soon it predicts, and what a prediction and a step take there.

    python benchmarks/play.py

Eight drawn pictures of each of two classes are taught, then steps are taken. Medians of the page's own figures.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import smidgen as sm
from shared import NETWORKS, arguments_of, report, start
from smidgen.play import draw_play, plan
from smidgen.play.bundle import bundle

EACH = 8  # pictures of a class
LOOKS = 15
UNITS = {"ms": 1.0, "s": 1000.0}


@dataclass(frozen=True)
class Played:
    """What a network's page takes."""

    network: str
    scheme: str
    page_bytes: int
    script_bytes: int
    first_ms: float  # from opening the page to its first prediction
    prediction_ms: float
    step_ms: float


def measure(browser: Browser, name: str, folder: Path) -> Played:
    """Teach the page of a network, and read what it says of itself."""
    graph = sm.load(name)
    asked = plan(graph, name, None, sm.Options())
    path = folder / f"{name}.html"
    path.write_text(draw_play(graph, asked, ()), "utf-8")
    page = browser.new_page()
    begun = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    pictures = draw(folder)
    choose(page, "#choose", pictures[0][:1])
    page.wait_for_function("() => document.querySelector('#took').textContent.includes('here')")
    first = 1000 * (time.perf_counter() - begun)
    for label in range(2):
        choose(page, f".class:nth-of-type({label + 1}) .quiet", pictures[label])
    taken = []
    for _ in range(LOOKS):
        choose(page, "#choose", pictures[0][:1], stopped=True)
        taken.append(milliseconds(page.inner_text("#took")))
    page.click("#step")
    page.wait_for_function("() => document.querySelector('#how').textContent.includes(' each ')")
    step = milliseconds(page.inner_text("#how").partition(",")[2])
    page.close()
    scripts = sum(len(bundle(one).encode()) for one in ("app.js", "worker.js"))
    return Played(name, asked.scheme, path.stat().st_size, scripts, round(first), median(taken), step)


def draw(folder: Path) -> list[list[Path]]:
    """Pictures of two classes, of noise in different colours."""
    rng, found = np.random.default_rng(0), list[list[Path]]()
    for label in range(2):
        found.append([folder / f"{label}-{i}.png" for i in range(EACH)])
        for path in found[-1]:
            pixels = rng.integers(0, 256, (480, 640, 3), np.uint8)
            pixels[..., label] //= 4
            Image.fromarray(pixels).save(path)
    return found


def choose(page: Page, button: str, files: list[Path], stopped: bool = False) -> None:
    """Choose files behind a button, and wait until the page has taken them."""
    if stopped:
        page.click("#stop")
    with page.expect_file_chooser() as chooser:
        page.click(button)
    chooser.value.set_files(files)
    page.wait_for_timeout(150)
    page.wait_for_function("() => document.documentElement.dataset.busy === ''")


def milliseconds(text: str) -> float:
    """The first time that a sentence names."""
    words = text.replace(",", " ").split()
    place = next(i for i, word in enumerate(words) if word.rstrip(".") in UNITS)
    return float(words[place - 1]) * UNITS[words[place].rstrip(".")]


def show(found: list[Played]) -> None:
    print("| network | scheme | page | script | first prediction | prediction | step |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for one in found:
        sizes = f"{one.page_bytes / 1e6:.2f} MB | {one.script_bytes / 1000:.1f} kB"
        times = f"{one.first_ms:.0f} ms | {one.prediction_ms:.1f} ms | {one.step_ms:.1f} ms"
        print(f"| {one.network} | {one.scheme} | {sizes} | {times} |")


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        found = [measure(browser, name, Path(folder)) for name in NETWORKS]
        browser.close()
    report(found, show, given.json)


if __name__ == "__main__":
    start(main)
