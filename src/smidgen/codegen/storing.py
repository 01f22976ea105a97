"""What a written project needs to keep what it learned in flash: the store, drivers of chips, and how to use them."""

from __future__ import annotations

from collections.abc import Mapping

from smidgen.codegen.generating import Sources
from smidgen.codegen.runtime import RUNTIME, render

STORE = RUNTIME / "store"
SECTOR_BYTES = 4096  # of the flash of an emulated board, which takes words
HEAD, SAVE = 64, 96  # bytes, no less than the store takes at the head of a sector, and of a save beside the state
# Where the linker puts what is kept.
KEPT = """
    /* What was learned: the last sectors of flash. The linker leaves them out where nothing is kept. */
    .kept ORIGIN(FLASH) + LENGTH(FLASH) - {} (NOLOAD) : {{ *(.kept) }}
"""
SPARE = 2  # sectors beyond those of two states: so many may wear out


def store_files() -> dict[str, str]:
    """The store in C and drivers for chips, by path in a project; the same for every program.

    A linker drops the store where nobody calls it. No project compiles a driver by itself: its user chooses one.
    """
    store = {f"smidgen/{path.name}": path for path in sorted(STORE.glob("*.[ch]"))}
    drivers = {f"flash/{path.name}": path for path in sorted((STORE / "flash").glob("*.c"))}
    return {name: path.read_text() for name, path in {**store, **drivers}.items()}


def kept_sectors(state_bytes: int) -> int:
    """The sectors of an emulated board's flash in which a state is kept: room for two, and some to wear out."""
    return 2 * -(-(state_bytes + SAVE) // (SECTOR_BYTES - HEAD)) + SPARE


def kept_fields(sources: Sources) -> dict[str, object]:
    """Where in a board's flash a program's state is kept, as fields of templates; empty where nothing is learned."""
    if not sources.learns:
        return {"kept": "", "kept_words": "", "kept_usage": ""}
    count = kept_sectors(sources.state_bytes)
    ring = sources.replay_bytes // SECTOR_BYTES
    size = (count + ring) * SECTOR_BYTES
    fields = {
        "sector_bytes": SECTOR_BYTES, "kept_sectors": count, "ring_sectors": ring, "flash_sectors": count + ring,
        "kept_text": f"{size // 1024} KB",
    }  # fmt: skip
    words = "; `keep.h` and `flash.c` are where what was learned is kept"
    usage = render("board/kept_usage.md", **fields)
    return {**fields, "kept": KEPT.format(size), "kept_words": words, "kept_usage": usage}


def store_usage(fields: Mapping[str, object]) -> str:
    """How a program's state is kept in flash, as its README says it."""
    return "\n\n" + render("store_usage.md", **fields).rstrip()
