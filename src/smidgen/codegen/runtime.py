"""The files of the runtime: which kernels a program needs, and the templates its own files are rendered from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from string import Template

RUNTIME = Path(__file__).parents[1] / "runtime"
PORTABLE = ("kernels",)  # folders of the runtime: C99 for any machine
_DEFINED = re.compile(r"^void (smg_\w+)\(", re.MULTILINE)
_INCLUDED = re.compile(r'^#include "([\w.]+)"', re.MULTILINE)
_SYMBOL = re.compile(r"\bsmg_\w+\b")


def runtime_files(symbols: Iterable[str], folders: tuple[str, ...] = PORTABLE) -> tuple[Path, ...]:
    """The kernel files that define the symbols, those these call in turn, and every header they include.

    A file of a later folder takes the place of the one of its name in an earlier.
    """
    places = (RUNTIME, *(RUNTIME / folder for folder in folders))
    chosen = {path.name: path for place in places for path in sorted(place.glob("*.[ch]"))}
    texts = {path: path.read_text() for path in chosen.values()}
    home = {symbol: path for path, text in texts.items() if path.suffix == ".c" for symbol in _DEFINED.findall(text)}
    headers = {path.name: path for path in texts if path.suffix == ".h"}
    needed: set[Path] = set()
    pending = [headers["smidgen.h"], *(home[symbol] for symbol in symbols)]
    while pending:
        path = pending.pop()
        if path in needed:
            continue
        needed.add(path)
        pending += [headers[name] for name in _INCLUDED.findall(texts[path])]
        if path.suffix == ".c":
            pending += [home[symbol] for symbol in _SYMBOL.findall(texts[path]) if symbol in home]
    return tuple(sorted(needed))


def render(template: str, **fields: object) -> str:
    """A file of the project templates with its fields filled in."""
    text = (RUNTIME / "project" / f"{template}.in").read_text()
    return Template(text).substitute({name: str(value) for name, value in fields.items()})
