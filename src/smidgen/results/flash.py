"""What fills the flash of a linked program: its symbols by what they hold, largest first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from smidgen.codegen.spelling import identifiers
from smidgen.pipeline import Program
from smidgen.targets.image import Image, Symbol

REST = "vectors and padding"
TABLES = {  # by how their names begin behind the program's prefix
    "multiplier": "multipliers", "shift": "shifts", "correction": "corrections of factors", "order": "orders of rows",
    "channel": "numbers of channels",
}  # fmt: skip


@dataclass(frozen=True)
class FlashPart:
    """Symbols of one kind."""

    what: str
    symbols: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.what} {self.bytes:,}"


def flash_parts(program: Program, image: Image) -> tuple[FlashPart, ...]:
    """Every byte of flash by what it holds; what no symbol claims comes last."""
    weights = _weights(program)
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    first = min(at for at, _ in image.loads)
    for symbol in image.symbols:
        if symbol.bytes and (symbol.is_code or first <= symbol.address < first + image.flash_bytes):
            what = _what(symbol, program.sources.prefix, weights)
            sizes[what] += symbol.bytes
            counts[what] += 1
    parts = tuple(FlashPart(what, counts[what], size) for what, size in sizes.most_common())
    return (*parts, FlashPart(REST, 0, image.flash_bytes - sum(sizes.values())))


def _weights(program: Program) -> set[str]:
    """The symbols that hold constants of int8."""
    graph, prefix = program.graph, program.sources.prefix
    names = identifiers(graph)
    values = (*graph.constants, *graph.state)
    return {f"{prefix}_const_{names[v]}" for v in values if v.type.dtype == "int8" and len(v.type.shape) > 1}


def _what(symbol: Symbol, prefix: str, weights: set[str]) -> str:
    name = symbol.name
    if symbol.is_code:
        return "code of the model" if name.startswith(f"{prefix}_") else "code of kernels and all else"
    if name in weights:
        return "weights"
    if name.startswith(f"{prefix}_const_"):
        return "biases and other constants"
    kinds = (what for begin, what in TABLES.items() if name.startswith(f"{prefix}_{begin}_"))
    return next(kinds, "parameters and places")
