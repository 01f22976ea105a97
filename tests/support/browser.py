"""Pages in a real browser: the installed Chromium, a page's requests and complaints, and checks of accessibility."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
DESK, PHONE = (1280, 900), (390, 844)


def chromium() -> str | None:
    """The browser that is installed; none is ever fetched."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


@contextmanager
def browsing() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page, and all that it asked for and complained of since."""

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def visiting(
    browser: Browser, path: Path, size: tuple[int, int] = DESK, dark: bool = False, **more: Any
) -> Iterator[Visit]:
    """The page of a file in a window of this size."""
    scheme: Any = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **more)
    visit = Visit(context.new_page())
    visit.page.on("request", lambda request: visit.asked.append(request.url))
    visit.page.on("console", lambda message: visit.complaints.append(f"{message.type}: {message.text}"))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.goto(path.as_uri())
    yield visit
    context.close()


# What stands against its ground with less than so much contrast, by WCAG's formula: text on the nearest colour behind.
FAINT = """(least) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const pixel = (...colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return Array.from(canvas.getImageData(0, 0, 1, 1).data).slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const grounds = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) found.unshift(getComputedStyle(at).backgroundColor);
    return found;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  let seen = 0;
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const element = text.parentElement;
    if (!text.textContent.trim() || element.closest("title, script, style, .aside, .skip")) continue;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element), behind = grounds(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [luminance(pixel(...behind, ink)), luminance(pixel(...behind))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (ratio < least) faint.push(`${text.textContent.trim().slice(0, 40)}: ${ink} at ${ratio.toFixed(2)}`);
  }
  return [seen, Array.from(new Set(faint))];
}"""

# What a screen reader would miss: pictures and controls without names, tables without heads, levels left out.
MISSED = """() => {
  const missed = [], all = (selector) => Array.from(document.querySelectorAll(selector));
  const name = (element) => (element.getAttribute("aria-label") || element.textContent).trim();
  for (const svg of all("svg")) {
    const named = svg.getAttribute("role") === "img" && svg.getAttribute("aria-label");
    if (!named && !svg.closest("[aria-hidden=true]")) missed.push("svg without a name");
  }
  for (const image of all("img")) if (!image.alt) missed.push("img without alt");
  for (const control of all("a, button, summary, [tabindex='0']")) if (!name(control)) missed.push(control.outerHTML);
  for (const table of all("table")) if (!table.querySelector("thead th[scope=col]")) missed.push("table without heads");
  for (const head of all("th")) if (!head.scope) missed.push("th without scope");
  for (const one of ["header", "nav", "main", "footer"]) if (all(one).length !== 1) missed.push(`not one ${one}`);
  const ids = all("[id]").map((element) => element.id);
  if (new Set(ids).size !== ids.length) missed.push("an id twice");
  for (const link of all("a[href^='#']")) if (!document.getElementById(link.hash.slice(1))) missed.push(link.hash);
  const levels = all("h1, h2, h3, h4, h5, h6").map((heading) => Number(heading.tagName[1]));
  if (levels[0] !== 1 || levels.filter((level) => level === 1).length !== 1) missed.push("not one h1 that comes first");
  levels.forEach((level, i) => { if (i && level > levels[i - 1] + 1) missed.push(`heading ${i} leaves out a level`); });
  if (!document.documentElement.lang || !document.title) missed.push("no language or title");
  return missed;
}"""

# What reaches beyond the window to the right, unless something around it scrolls.
WIDER = """() => Array.from(document.querySelectorAll("body *")).filter((element) => {
  const box = element.getBoundingClientRect();
  const beyond = box.width && box.right > document.documentElement.clientWidth + 0.5;
  return beyond && !element.closest(".scroll, nav, svg, .aside");
}).map((element) => element.outerHTML.slice(0, 80))"""

# Every column of every table, sorted by its button twice: the order it announces, its numbers, and all its rows.
SORTED = """() => Array.from(document.querySelectorAll("table.sortable"), (table) => {
  const rows = () => Array.from(table.tBodies[0].rows, (row) => row.textContent), before = rows().sort();
  return Array.from(table.tHead.rows[0].cells, (head, column) => [0, 1].map(() => {
    head.querySelector("button").click();
    const sorted = Array.from(table.querySelectorAll("[aria-sort]"), (one) => one.getAttribute("aria-sort"));
    const numbers = Array.from(table.tBodies[0].rows, (row) => row.cells[column].dataset.number);
    const known = numbers.filter((number) => number !== undefined).map(Number);
    return [sorted, known, JSON.stringify(rows().sort()) === JSON.stringify(before)];
  }));
}).flat()"""
