"""The files of the runtime: which kernels a program needs, and the templates its own files are rendered from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

RUNTIME = Path(__file__).parents[1] / "runtime"
PORTABLE = ("kernels",)  # folders of the runtime: C99 for any machine
SOURCES, HEADERS = (".c", ".S"), (".h", ".inc")  # what is compiled, and what that includes
_DEFINED = re.compile(r"^void (smg_\w+)\(|^ *\.global (smg_\w+)", re.MULTILINE)  # in C, in assembly
_INCLUDED = re.compile(r'^#include "([\w.]+)"', re.MULTILINE)
_SYMBOL = re.compile(r"\bsmg_\w+\b")
_INDENTED = re.compile(r"^[ \t].*$", re.MULTILINE)  # in a header: what its functions do, not what it declares


def runtime_files(symbols: Iterable[str], folders: tuple[str, ...] = PORTABLE) -> tuple[Path, ...]:
    """Return the kernel files that define the symbols, those these call in turn, and every header they include.

    A file of a later folder takes the place of the one of its name in an earlier.
    """
    places = (RUNTIME, *(RUNTIME / folder for folder in folders))
    chosen = {p.name: p for place in places for p in sorted(place.iterdir()) if p.suffix in (*SOURCES, *HEADERS)}
    texts = {path: path.read_text("utf-8") for path in chosen.values()}
    home = {symbol: path for path, text in texts.items() if is_source(path)
            for pair in _DEFINED.findall(text) for symbol in pair if symbol}  # fmt: skip
    needed: set[Path] = set()
    pending = [chosen["smidgen.h"], *(home[symbol] for symbol in symbols)]
    while pending:
        path = pending.pop()
        if path in needed:
            continue
        needed.add(path)
        pending += [chosen[name] for name in _INCLUDED.findall(texts[path])]
        text = texts[path] if is_source(path) else "\n".join(_INDENTED.findall(texts[path]))
        pending += [home[symbol] for symbol in _SYMBOL.findall(text) if symbol in home]
    return tuple(sorted(needed))


def is_source(path: Path | str) -> bool:
    """Return whether a file is compiled, as C or assembly, not included."""
    return Path(path).suffix in SOURCES


def render(template: str, **fields: object) -> str:
    """Fill in a template of project files; C has braces, so expressions stand in `@{…}`, statements in `<% … %>`."""
    return str(_templates().get_template(f"{template}.in").render(fields))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # here, for it takes a while to import

    return Environment(
        loader=FileSystemLoader(RUNTIME / "project"), undefined=StrictUndefined, keep_trailing_newline=True,
        trim_blocks=True, lstrip_blocks=True, variable_start_string="@{", variable_end_string="}",
        block_start_string="<%", block_end_string="%>", comment_start_string="<#", comment_end_string="#>",
    )  # fmt: skip
