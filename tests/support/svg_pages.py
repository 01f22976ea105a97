"""Pages of pictures, read back: the figures on a page, and the titles of their marks."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SVG = "{http://www.w3.org/2000/svg}"
LIMIT = 1_000_000  # bytes of a page


def pictures(page: str) -> list[Element]:
    """The figures of a page that is one small file, runs nothing and loads nothing."""
    assert len(page.encode()) < LIMIT
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|img|iframe|object)\b|\bon\w+=|url\(|@import", page)
    assert set(re.findall(r"https?:[^\"<\s]*", page)) <= {"http://www.w3.org/2000/svg"}
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]


def charts(page: str) -> list[Element]:
    """The figures of a report as they are drawn for a wide screen."""
    drawn = re.findall(r'<div class="plot wide">(<svg .*?</svg>)</div>', page, re.DOTALL)
    return [ElementTree.fromstring(found) for found in drawn]


def traces(picture: Element) -> list[tuple[str, Element]]:
    """Return the elements that show data, by name and in order."""
    return [(str(group.get("data-name")), group) for group in picture.iter(f"{SVG}g")]


def titles(element: Element) -> list[str]:
    """Return the titles of the marks within."""
    return [str(title.text) for title in element.iter(f"{SVG}title")]
