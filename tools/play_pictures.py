"""Pictures of a page that learns, for docs/play.md: `python tools/play_pictures.py page.html docs/pictures`.

The page is one of `smidgen play mcunet-5fps -o page.html`. It is taught drawn pictures in the Chromium that is
installed, and shown on a desk and on a phone, light and dark.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from playwright.sync_api import Browser, Locator, Page, sync_playwright

WINDOWS = {"desk": (1280, 1010, 1), "phone": (390, 844, 2)}  # width, height, pixels for each
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLOURS = 256  # kept of a picture, so that it stays below 250 KB
THINGS = ("ball", "box", "tent")
EACH = 9  # pictures of each
SIZE = (480, 480)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        drawn = draw_all(Path(folder))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for window in WINDOWS:
            for theme in THEMES:
                taken = take(browser, given.page, window, theme, drawn)
                taken.save(given.folder / f"play-{window}-{theme}.png", optimize=True)
        browser.close()


def draw_all(folder: Path) -> list[list[Path]]:
    """Pictures of each thing, the last of which is not taught."""
    rng, drawn = np.random.default_rng(5), list[list[Path]]()
    for kind in THINGS:
        drawn.append([folder / f"{kind}-{i}.png" for i in range(EACH + 1)])
        for path in drawn[-1]:
            draw(kind, rng).save(path)
    return drawn


def draw(kind: str, rng: np.random.Generator) -> Image.Image:
    """One thing on a table, somewhere near the middle, with its shadow."""
    shade = np.linspace(236, 205, SIZE[1])[:, None, None] * np.array([1.0, 0.97, 0.92])
    shade[330:] *= 0.82
    picture = Image.fromarray(np.broadcast_to(shade, (SIZE[1], SIZE[0], 3)).astype(np.uint8))
    x, y, r = (int(v) for v in (rng.uniform(200, 280), rng.uniform(220, 270), rng.uniform(85, 125)))
    shadow = Image.new("L", SIZE, 0)
    ImageDraw.Draw(shadow).ellipse((x - r, y + r - 22, x + r + 30, y + r + 22), fill=110)
    picture.paste((70, 60, 50), mask=shadow.filter(ImageFilter.GaussianBlur(12)))
    pen = ImageDraw.Draw(picture)
    if kind == "ball":
        for k in range(24):
            part, light = r * (1 - k / 30), k * 4
            edges = (x - part - k, y - part - k, x + part - k, y + part - k)
            pen.ellipse(edges, fill=(176 + light // 2, 44 + light, 34 + light))
    elif kind == "box":
        top, right = (y - r, y - r + 30), x + r + 34
        pen.polygon([(x - r, top[1]), (x - r + 34, top[0]), (right, top[0]), (x + r, top[1])], fill=(104, 160, 214))
        pen.polygon([(x + r, top[1]), (right, top[0]), (right, y + r - 30), (x + r, y + r)], fill=(36, 84, 132))
        pen.rectangle((x - r, top[1], x + r, y + r), fill=(52, 114, 176))
    else:
        pen.polygon([(x, y - r), (x + r + 40, y + r), (x - r, y + r)], fill=(38, 112, 70))
        pen.polygon([(x, y - r), (x + r - 30, y + r), (x - r, y + r)], fill=(62, 150, 98))
        pen.polygon([(x, y - r + 50), (x + 24, y + r), (x - 40, y + r)], fill=(24, 66, 44))
    return picture.filter(ImageFilter.GaussianBlur(0.8))


def take(
    browser: Browser, path: Path, window: str, theme: Literal["light", "dark"], drawn: list[list[Path]]
) -> Image.Image:
    """What a window shows of the page once it was taught, in few colours."""
    width, height, scale = WINDOWS[window]
    size = {"width": width, "height": height}
    page = browser.new_page(viewport=size, device_scale_factor=scale, color_scheme=theme)  # type: ignore[arg-type]
    page.goto(path.absolute().as_uri())
    page.wait_for_selector("html[data-ready]")
    page.click("#add")
    for label, name in enumerate(THINGS):
        page.locator(".class input").nth(label).fill(name)
        hand_over(page, page.locator(".class .quiet").nth(label), drawn[label][:-1])
    hand_over(page, page.locator("#choose"), [drawn[0][-1]])
    page.wait_for_selector("#verdict", state="visible")
    page.evaluate("() => { document.activeElement.blur(); scrollTo({ top: 0, behavior: 'instant' }); }")
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    return taken.quantize(COLOURS, dither=Image.Dither.NONE)


def hand_over(page: Page, button: Locator, files: Sequence[Path]) -> None:
    """Choose files behind a button, and wait until the page has taken them."""
    with page.expect_file_chooser() as chooser:
        button.click()
    chooser.value.set_files(files)
    page.wait_for_timeout(200)
    page.wait_for_function("() => document.documentElement.dataset.busy === ''")


if __name__ == "__main__":
    main()
