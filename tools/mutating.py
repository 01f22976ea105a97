"""Small changes of Python and C that should make a test fail: mutants, told by the bytes of a file they replace."""

from __future__ import annotations

import ast
import copy
import hashlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
IN_C: dict[str, tuple[str, ...]] = {
    "<": ("<=",), "<=": ("<",), ">": (">=",), ">=": (">",), "==": ("!=",), "!=": ("==",), "&&": ("||",), "||": ("&&",),
    "+": ("-",), "-": ("+",), "*": ("+",), "/": ("*",), "%": ("*",), "<<": (">>",), ">>": ("<<",), "&": ("|",),
    "|": ("&",), "^": ("|",), "+=": ("-=",), "-=": ("+=",), "|=": ("=",),
}  # fmt: skip
SKIPPED_IN_C = re.compile(r'/\*.*?\*/|//[^\n]*|"[^"\n]*"|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
# Operators stand between blanks, which tells them from pointers and signs; numbers are whole tokens.
TOKEN_IN_C = re.compile(
    r"(?<= )(<<|>>|[<>=!]=|&&|\|\||[-+|]=|[-+*/%<>&|^])(?= )|(?<![\w.])(0x[0-9A-Fa-f]+|\d+)(?![\w.])u?"
)
CONDITION_IN_C = re.compile(r"\b(?:if|while) \(")


@dataclass(frozen=True)
class Change:
    """Bytes [start, end) of a file become `new`."""

    file: str
    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Mutant:
    """A wrong program: where, what, and the number it is known by, which changes with the file."""

    room: str
    name: str
    changes: tuple[Change, ...]
    number: str


def mutant(root: Path, room: str, name: str, *changes: Change) -> Mutant:
    hashed = hashlib.sha256(repr((room, changes)).encode())
    for change in changes:
        hashed.update((root / change.file).read_bytes())
    return Mutant(room, name, changes, hashed.hexdigest()[:16])


def named(root: Path, file: Path) -> Iterator[Mutant]:
    """The mutants that a file lists: each by the text it replaces, which occurs once."""
    for entry in tomllib.loads(file.read_text())["mutant"]:
        yield mutant(root, entry["room"], entry["name"], *(_found(root, **change) for change in entry["changes"]))


def _found(root: Path, file: str, old: str, new: str) -> Change:
    data, text = (root / file).read_bytes(), old.encode()
    if data.count(text) != 1:
        raise SystemExit(f"{old!r} occurs {data.count(text)} times in {file}, expected once; write the mutant anew")
    start = data.index(text)
    return Change(file, start, start + len(text), new)


def generated(root: Path, room: str, file: str) -> Iterator[Mutant]:
    """All simple mutants of a file."""
    source = (root / file).read_bytes()
    changes = _python(source.decode()) if file.endswith(".py") else _c(source.decode())
    for start, end, new in changes:
        line = source[:start].count(b"\n") + 1
        old = " ".join(source[start:end].decode().split())
        yield mutant(root, room, f"{file}:{line}: {old} → {new}", Change(file, start, end, new))


def _python(text: str) -> Iterator[tuple[int, int, str]]:
    lines = text.encode().splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    for node in _mutable(ast.parse(text)):
        for changed in _changed(node):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = begins[node.lineno - 1] + node.col_offset
            end = begins[node.end_lineno - 1] + node.end_col_offset
            yield start, end, changed


def _mutable(tree: ast.AST) -> Iterator[ast.expr | ast.Return]:
    """Expressions that compute: not annotations, decorators, docstrings, or what an error says."""
    for name, field in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.JoinedStr | ast.Import):
                continue
            if isinstance(child, ast.expr | ast.Return):
                yield child
            yield from _mutable(child)
            if name == "test" and isinstance(child, ast.expr):
                yield ast.copy_location(ast.UnaryOp(ast.Not(), child), child)


def _changed(node: ast.expr | ast.Return) -> Iterator[str]:
    """What could stand in a node's place."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.Constant) and isinstance(other.value, bool):
        yield str(not other.value)
    elif isinstance(other, ast.Constant) and isinstance(other.value, int):
        yield from (f"({other.value + by})" for by in (1, -1))
    elif isinstance(other, ast.Constant) and isinstance(other.value, float):
        yield f"({other.value * 2 if other.value else 1.0})"
    elif isinstance(other, ast.Compare) and len(other.ops) == 1:
        other.ops = [COMPARED[type(other.ops[0])]()]
        yield f"({ast.unparse(other)})"
    elif isinstance(other, ast.BinOp) and type(other.op) in COMPUTED:
        other.op = COMPUTED[type(other.op)]()
        yield f"({ast.unparse(other)})"
    elif isinstance(other, ast.BoolOp):
        other.op = ast.And() if isinstance(other.op, ast.Or) else ast.Or()
        yield f"({ast.unparse(other)})"
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        yield f"(not ({ast.unparse(other.operand)}))" if _added(node) else f"({ast.unparse(other.operand)})"
    elif isinstance(other, ast.Return) and not (other.value is None or ast.unparse(other.value) == "None"):
        yield "return None"
    elif isinstance(other, ast.Call) and (len(other.args) > 1 or other.keywords):
        (other.keywords or other.args).pop()
        yield ast.unparse(other)


def _added(node: ast.expr | ast.Return) -> bool:
    """Whether a negation stands in the place of its operand: it is not in the text."""
    return isinstance(node, ast.UnaryOp) and node.col_offset == node.operand.col_offset


def _c(text: str) -> Iterator[tuple[int, int, str]]:
    code = SKIPPED_IN_C.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    at = [0]
    for character in text:
        at.append(at[-1] + len(character.encode()))
    for found in TOKEN_IN_C.finditer(code):
        operator, number = found.groups()
        start, end = found.span()
        if operator:
            yield from ((at[start], at[end], new) for new in IN_C[operator])
        else:
            unsigned = "u" if found.group().endswith("u") else ""
            yield from ((at[start], at[end], f"{int(number, 0) + by}{unsigned}") for by in (1, -1))
    for found in CONDITION_IN_C.finditer(code):
        start = end = found.end()
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        yield at[start], at[end - 1], f"!({text[start : end - 1]})"
