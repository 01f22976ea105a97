"""Pages of pictures, read back: the figures on a page, and the notes of their marks."""

from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SVG = "{http://www.w3.org/2000/svg}"
LIMIT = 1_000_000  # bytes of a page


def pictures(page: str) -> list[Element]:
    """Return the figures of a page that is one small file, runs only the report's script and loads nothing."""
    assert len(page.encode()) < LIMIT
    assert "default-src 'none'" in unescape(page)
    assert page.count("<script") == 1
    assert not re.search(r"<(link|img|iframe|object)\b|\bon\w+=|url\(|@import", page)
    assert set(re.findall(r"https?:[^\"<\s]*", page)) <= {"http://www.w3.org/2000/svg"}
    return charts(page)


def charts(page: str) -> list[Element]:
    """Return the figures of a page as they are drawn for a wide screen."""
    drawn = re.findall(r'<div class="plot wide">(<svg .*?</svg>)</div>', page, re.DOTALL)
    return [ElementTree.fromstring(found) for found in drawn]


def traces(picture: Element) -> list[tuple[str, Element]]:
    """Return the groups that show data, by name and in order."""
    return [(str(group.get("data-name")), group) for group in picture.iter(f"{SVG}g")]


def notes(element: Element) -> list[str]:
    """Return the notes of the marks within."""
    return [str(title.text) for title in element.iter(f"{SVG}title")]
