"""C spelling of names, numbers, strings, shapes and structs."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from smidgen.errors import TargetError
from smidgen.ir import Graph, Node, Type, Value
from smidgen.ir.text import fingerprint

C_TYPES: Mapping[str, str] = {
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t", "int32": "int32_t",
    "uint32": "uint32_t", "float32": "float", "float64": "double",
}  # fmt: skip
_PLAIN = frozenset(map(chr, range(ord(" "), ord("~") + 1))) - {'"', "\\", "?"}


def identifiers(given: Iterable[Value], nodes: Iterable[Node]) -> dict[Value, str]:
    """Return a C name for each value, given or made: dots become '_', and what would then meet is numbered."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for value in (*given, *(v for node in nodes for v in node.outs)):
        stem = name = value.name.replace(".", "_")
        count = 0
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        taken.add(name)
        names[value] = name
    return names


def literal(x: float, dtype: str) -> str:
    """Return a number as C spells it: nine digits bring a float32 back exactly, seventeen a float64."""
    if not dtype.startswith("float"):
        return str(x)
    if not np.isfinite(x):
        raise TargetError(f"a constant holds {x}, which C has no literal for; replace it by a finite number")
    text = f"{x:.9g}" if dtype == "float32" else f"{x:.17g}"
    whole = text if "." in text or "e" in text else f"{text}.0"
    return f"{whole}f" if dtype == "float32" else whole


def whole(number: int) -> str:
    """Return a number of 32 bits; C knows the least of them only as a difference."""
    return str(number) if number > -(1 << 31) else f"{number + 1} - 1"


def text_literal(text: str) -> str:
    """Return a text as C spells its UTF-8: plain characters as they are, all others by their octal number.

    Three digits end an octal number whatever follows, and a question mark begins no trigraph where it is escaped.
    """
    octets = text.encode("utf-8", "replace")
    return '"' + "".join(chr(o) if chr(o) in _PLAIN else f"\\{o:03o}" for o in octets) + '"'


def fingerprint_words(graph: Graph) -> str:
    """Return the first 64 bits of a graph's fingerprint, as two words of C."""
    digits = fingerprint(graph)
    return f"0x{digits[:8]}u, 0x{digits[8:16]}u"


def wrapped(head: str, fields: list[str]) -> list[str]:
    """Break fields into lines of at most about a hundred columns."""
    lines = [head]
    for index, field in enumerate(fields, 1):
        if len(lines) == 1 or len(lines[-1]) + len(field) > 100:
            lines.append("")
        lines[-1] += f"{field}, " if index < len(fields) else field
    return [line.rstrip() for line in lines]


def comment(node: Node, constants: Collection[Value]) -> str:
    inputs = [v for v in node.ins if v not in constants]
    source = " and ".join(dict.fromkeys(_dimensions(v.type) for v in inputs))
    names = ", ".join(v.name for v in inputs)
    outs = ", ".join(v.name for v in node.outs)
    return f"/* {outs} = {type(node.op).__name__}({names}): {source} -> {_dimensions(node.outs[0].type)} */"


def _dimensions(type: Type) -> str:
    """Return the shape in words, without the batch of one."""
    shape = type.shape[1:] if len(type.shape) > 1 and type.shape[0] == 1 else type.shape
    return "x".join(map(str, shape)) or "1"
