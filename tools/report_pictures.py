"""Pictures of a report for docs/predicting.md: `python tools/report_pictures.py out/demo/report.html docs/pictures`.

Taken by the Chromium that is installed, on a desk and on a phone, light and dark.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

WINDOWS = {"desk": (1280, 1500, 1), "phone": (390, 1300, 2)}  # pixels wide and high, and how many a screen has for each
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLOURS = 256  # kept of a picture, so that it stays below 250 KB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for window in WINDOWS:
            for theme in THEMES:
                taken = take(browser, given.report, window, theme)
                taken.save(given.folder / f"report-{window}-{theme}.png", optimize=True)
        browser.close()


def take(browser: Browser, report: Path, window: str, theme: Literal["light", "dark"]) -> Image.Image:
    """What a window shows of the report, in few colours."""
    width, height, scale = WINDOWS[window]
    size = {"width": width, "height": height}
    page = browser.new_page(viewport=size, device_scale_factor=scale, color_scheme=theme)  # type: ignore[arg-type]
    page.goto(report.absolute().as_uri())
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    return taken.quantize(COLOURS, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main()
