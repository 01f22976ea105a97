"""What a written project needs to keep what it learned in flash: the store, drivers of chips, and how to use them."""

from __future__ import annotations

from collections.abc import Mapping

from smidgen.codegen.runtime import RUNTIME, render

STORE = RUNTIME / "store"


def store_files() -> dict[str, str]:
    """The store in C and drivers for chips, by path in a project; the same for every program.

    A linker drops the store where nobody calls it. No project compiles a driver by itself: its user chooses one.
    """
    store = {f"smidgen/{path.name}": path for path in sorted(STORE.glob("*.[ch]"))}
    drivers = {f"flash/{path.name}": path for path in sorted((STORE / "flash").glob("*.c"))}
    return {name: path.read_text() for name, path in {**store, **drivers}.items()}


def store_usage(fields: Mapping[str, object]) -> str:
    """How a program's state is kept in flash, as its README says it."""
    return "\n\n" + render("store_usage.md", **fields).rstrip()
