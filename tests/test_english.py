"""Plain English: words that a native engineer would not use here, and docstrings without a verb or a subject."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

TOP = Path(__file__).parents[1]
# Each word with the reason it is not used; a short list, of words that crept in before.
BANNED = {
    r"\bwhence\b": "archaic; write where it comes from",
    r"\bunasked\b": "write by default, or automatically",
    r"\banew\b": "write again, or from the start",
    r"(?<![.\w])besides\b": "write also, other than, or as well as",
    r"\b(hears?|heard)\b": "models take audio; they do not hear",
    r"\b(is|are|be|was|were) told\b": "data has labels, functions take arguments",
    r"\bof (its|their|our|your) own\b": "write its own X",
    r"\blies? there\b": "name what is stored, and where",
}
NAMES = ("told", "said", "heard", "hear", "hearing")  # of variables, attributes and functions
# Keys of files and of `--json`, which programs read.
KEYS = {("src/smidgen/fitting/fitted.py", "said"), ("src/smidgen/fitting/report.py", "said")}
KEYS |= {("src/smidgen/inference/evaluation.py", "told")}
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/**/*.md")


def tokens(*kinds: int) -> list[tuple[Path, int, str]]:
    """Return the tokens of these kinds in the library, each with its file and line."""
    return [
        (path.relative_to(TOP), token.start[0], token.string)
        for path in sorted((TOP / "src").rglob("*.py"))
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type in kinds
    ]


def prose() -> list[tuple[Path, int, str]]:
    """Return the lines of the documents, and the comments and strings of the library."""
    pages = [path for pattern in PAGES for path in sorted(TOP.glob(pattern))]
    lines = [
        (path.relative_to(TOP), i, line) for path in pages for i, line in enumerate(path.read_text().split("\n"), 1)
    ]
    return lines + tokens(tokenize.COMMENT, tokenize.STRING)


def test_no_banned_word_is_in_the_package_or_the_documents() -> None:
    found = [
        f"{path}:{line}: {match[0]!r}: {reason}"
        for path, line, text in prose()
        for word, reason in BANNED.items()
        if (match := re.search(word, text, re.IGNORECASE))
    ]
    assert found == []


def test_names_are_the_words_of_the_field() -> None:
    found = [(str(path), line, name) for path, line, name in tokens(tokenize.NAME) if name.strip("_") in NAMES]
    assert [one for one in found if (one[0], one[2]) not in KEYS] == []


def test_docstrings_name_what_a_thing_is_or_does() -> None:
    headless = []
    for path in sorted((TOP / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "").split(" ")[0]
                if first in ("What", "Whether", "How", "Where"):
                    headless.append(f"{path.relative_to(TOP)}: {ast.get_docstring(node)}")
    assert headless == []
