"""Modules of the page's script as one script, small: what imports, exports, comments and spaces take is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

IMPORT = re.compile(r'^import .* from "\./(\w+\.js)";\n', re.MULTILINE)
QUOTES = "\"'`"
SPACED = re.compile(r" ?([=,;:{}()?&|<>]) ?| ([-+*]) (?![-+])")  # two of + or − in a row are another operator


def bundle(name: str) -> str:
    """Return a module and all that it imports as one script."""
    found: dict[str, str] = {}
    _gather(name, found)
    return "\n".join(found.values())


def _gather(name: str, found: dict[str, str]) -> None:
    """Add a module behind those that it imports."""
    if name in found:
        return
    text = (files("smidgen.play") / "templates" / name).read_text("utf-8")
    for other in IMPORT.findall(text):
        _gather(other, found)
    found[name] = _plain(text)


def _plain(text: str) -> str:
    """Return a module without what only its readers need."""
    text = IMPORT.sub("", text)
    text = re.sub(r"/\*\*.*?\*/ ?", "", text, flags=re.DOTALL)
    text = re.sub(r"(^| )// .*$", "", text, flags=re.MULTILINE)
    lines = (line.strip().removeprefix("export ") for line in text.splitlines())
    code = "\n".join(line for line in lines if line and line != "{};")
    return "".join(part if quoted else _tight(part) for part, quoted in _parts(code))


def _tight(code: str) -> str:
    """Return code that holds no strings without the spaces and line ends that it can do without."""
    code = SPACED.sub(r"\1\2", code)
    return re.sub(r"([{,;])\n", r"\1", code).replace(";}", "}")


def _parts(code: str) -> Iterator[tuple[str, bool]]:
    """Yield code and strings in turn; a template is a string with all that is computed in it."""
    begin = at = 0
    while at < len(code):
        if code[at] in QUOTES:
            yield code[begin:at], False
            begin, at = at, _end(code, at)
            yield code[begin:at], True
            begin = at
        else:
            at += 1
    yield code[begin:], False


def _end(code: str, at: int) -> int:
    """Return where the string that begins at `at` ends."""
    quote, at = code[at], at + 1
    while code[at] != quote:
        if code[at] == "\\":
            at += 2
        elif quote == "`" and code.startswith("${", at):
            at = _end_of_hole(code, at + 2)
        else:
            at += 1
    return at + 1


def _end_of_hole(code: str, at: int) -> int:
    """Return where what is computed in a template ends, behind its brace."""
    depth = 1
    while depth:
        if code[at] in QUOTES:
            at = _end(code, at)
            continue
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        at += 1
    return at
