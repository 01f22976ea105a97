"""Plain English: words that a native engineer would not use here, and docstrings without a verb or a subject."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TOP = Path(__file__).parents[1]
# Each word with the reason it is not used; a short list, of words that crept in before.
BANNED = {
    r"\bwhence\b": "archaic; write where it comes from",
    r"\bunasked\b": "write by default, or automatically",
    r"\banew\b": "write again, or from the start",
    r"\bbesides\b": "write also, other than, or as well as",
    r"\b(hears?|heard)\b": "models take audio; they do not hear",
    r"\b(is|are|be|was|were) told\b": "data has labels, functions take arguments",
    r"\bof (its|their|our|your) own\b": "write its own X",
    r"\blies? there\b": "name what is stored, and where",
}
NAMES = re.compile(r"\b_?(told|said|heard)\b")  # of variables, attributes and functions
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/**/*.md")


def lines(*patterns: str) -> list[tuple[str, str]]:
    """Return the lines of files with their places."""
    paths = sorted(path for pattern in patterns for path in TOP.glob(pattern))
    return [
        (f"{path.relative_to(TOP)}:{number}", line)
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
    ]


def test_no_banned_word_is_in_the_package_or_the_documents() -> None:
    found = [
        f"{place}: {match[0]!r}: {reason}"
        for place, line in lines("src/**/*.py", *PAGES)
        for word, reason in BANNED.items()
        if (match := re.search(word, line, re.IGNORECASE))
    ]
    assert found == []


def test_names_are_the_words_of_the_field() -> None:
    assert [f"{place}: {match[0]}" for place, line in lines("src/**/*.py") if (match := NAMES.search(line))] == []


def test_docstrings_name_what_a_thing_is_or_does() -> None:
    headless = []
    for path in sorted((TOP / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "").split(" ")[0]
                if first in ("What", "Whether", "How", "Where"):
                    headless.append(f"{path.relative_to(TOP)}: {ast.get_docstring(node)}")
    assert headless == []
