"""Mutators that know graphs: the text form word by word, files of tensors around it, and the records of TFLite."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

import smidgen.ops  # noqa: F401  (fills the table of ops)
from fuzz_bytes import INTEGERS, REALS, WORDS, Mutator, raw, tree
from smidgen.frontends.native import HEADER as GRAPH
from smidgen.frontends.tflite.codec import decode, encode
from smidgen.frontends.tflite.flatbuffer import OPERATORS, TfliteModel, TfliteOperator, TfliteTensor
from smidgen.ir import ATTRIBUTES, DTYPES, OPS
from smidgen.learning.checkpoint import HEADER as RUN
from smidgen.learning.checkpoint import _digest

NAME = re.compile(r"%[A-Za-z_][\w.]*")
NUMBER = re.compile(r"(?<![\w.%])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
DECLARED = re.compile(r"%([A-Za-z_][\w.]*): ([a-z0-9]+)\[([0-9,]*)\]")
ATTRIBUTE = re.compile(r" [a-z_0-9]+=(?:\([^=]*\)|[^ =]+)")
CALLED = re.compile(r"(?<= = )[A-Za-z0-9]+(?=\()")
NUMBERS = (*map(str, INTEGERS), *map(str, REALS), "9" * 40, "9" * 5000, "1e999", "00", "True", "None", "1_0")
LITERALS = (
    "()", "(1,)", "(0, 0)", "(1, 1, 1, 1)", "(-1, -1)", "(0.5, 0.5)", "('a', 'b')", "'x'", "{}", "[]", "b'x'", "1j",
    "...", "((1, 1), (1, 1))", "Sgd()", "Momentum(momentum=2.0)", "Conv2D(stride=(0, 0))", "(3, 2, 1, 0)",
    "-" * 200 + "1", "(" * 300, "lambda: 0", "__import__('os')", "'none'", "'relu6'", *NUMBERS,
)  # fmt: skip
FIELDS = tuple(sorted({f.name for made in (*OPS.values(), *ATTRIBUTES.values()) for f in fields(made)}))
QUANTIZATIONS = (
    "", " q(0.1; 0)", " q(1e-45; 127)", " q(3e38; -128)", " q(0.1, 0.2; 0; axis 0)", " q(0.1; 0; axis 3)", " q()",
)  # fmt: skip
TENSOR_TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool", "string")
LARGE = (-(2**31), 2**31 - 1, 4096, 65536)
SAFE = {"int8": "I8", "uint8": "U8", "int16": "I16", "int32": "I32", "uint32": "U32", "float32": "F32"}
WIDTHS = {"I8": 1, "U8": 1, "BOOL": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "F64": 8}
LARGEST = 2**14  # elements of a tensor that is made to fit a declaration


def _one(pattern: re.Pattern[str], line: str, rng: Random, instead: Callable[[str], str]) -> str:
    """One match, chosen at random, replaced."""
    found = list(pattern.finditer(line))
    if not found:
        return line
    match = rng.choice(found)
    return line[: match.start()] + instead(match[0]) + line[match.end() :]


def graph_text(data: bytes, rng: Random) -> bytes:
    """A graph's text with another number, name, op, type, attribute or order of lines."""
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    if not rng.randrange(16):
        return raw(data, rng)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(12):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines[at] = _line(lines[at], NAME.findall(text) or ["%x"], rng)
    return "\n".join(lines).encode("utf-8", "replace")


def _line(line: str, names: Sequence[str], rng: Random) -> str:
    match rng.randrange(8):
        case 0 | 1:
            return _one(NUMBER, line, rng, lambda old: _near(old, rng))
        case 2:
            return _one(NAME, line, rng, lambda old: rng.choice((*names, "%new", f"{old}_1")))
        case 3:
            return _one(CALLED, line, rng, lambda old: rng.choice(sorted(OPS)))
        case 4:
            return _one(DECLARED, line, rng, lambda old: _declared(old, rng))
        case 5:
            return _one(ATTRIBUTE, line, rng, lambda old: f"{old.partition('=')[0]}={rng.choice(LITERALS)}")
        case 6:
            return f"{line} {rng.choice(FIELDS)}={rng.choice(LITERALS)}"
        case _:
            return _one(ATTRIBUTE, line, rng, lambda old: "")


def _near(old: str, rng: Random) -> str:
    try:
        number = float(old) if "." in old or "e" in old else int(old)
    except ValueError:  # more digits than Python turns into a number
        return rng.choice(NUMBERS)
    return rng.choice((str(number + 1), str(number - 1), str(number * 2), str(rng.randrange(12)), rng.choice(NUMBERS)))


def _declared(old: str, rng: Random) -> str:
    found = DECLARED.fullmatch(old)
    assert found is not None
    shape = found[3].split(",") if found[3] else []
    dtype, q = found[2], ""
    match rng.randrange(5):
        case 0:
            dtype = rng.choice((*DTYPES, "int64", "float64", "object"))
        case 1 if shape:
            shape[rng.randrange(len(shape))] = rng.choice(("0", "1", "2", "9", "4096", "999999999", "9" * 30))
        case 2:
            shape.insert(rng.randrange(len(shape) + 1), str(rng.randrange(4)))
        case 3 if shape:
            shape.pop(rng.randrange(len(shape)))
        case _:
            q = rng.choice(QUANTIZATIONS)
    return f"%{found[1]}: {dtype}[{','.join(shape)}]{q}"


def declared_tensors(text: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of the constants and state that a text declares, where they are small."""
    found = {}
    for line in text.splitlines():
        match = DECLARED.search(line) if line.startswith(("const ", "state ")) else None
        if match is None or match[2] not in DTYPES or len(match[3]) > 40:
            continue
        shape = tuple(int(n) for n in match[3].split(",") if n)
        if max((*shape, math.prod(shape))) <= LARGEST:
            found[match[1]] = match[2], shape
    return found


Described = dict[str, Any]


def tensor_file(metadata: Callable[[Described, bytes, Random], tuple[Described, bytes]]) -> Mutator:
    """A safetensors file whose header is changed, by `metadata` or in a field, and whose length fits."""

    def mutate(data: bytes, rng: Random) -> bytes:
        end = 8 + int.from_bytes(data[:8], "little")
        try:
            header = json.loads(data[8:end])
        except (ValueError, RecursionError):
            return raw(data, rng)
        if not isinstance(header, dict) or not rng.randrange(12):
            return raw(data, rng)
        body = data[end:]
        if rng.randrange(5):
            header, body = metadata(header, body, rng)
        elif rng.randrange(4):
            metadata_alone = {"__metadata__": header.pop("__metadata__", {})}
            header = metadata_alone | tree(header, rng) if header else metadata_alone
        else:
            body = raw(body, rng)
        return joined(header, body)

    return mutate


def joined(header: object, body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def graph_in_metadata(header: Described, body: bytes, rng: Random) -> tuple[Described, bytes]:
    """The graph's text changed; mostly the tensors are made anew as it declares them."""
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(GRAPH), str) or not rng.randrange(16):
        return tree(header, rng), body
    first, _, text = metadata[GRAPH].partition("\n")
    text = graph_text(text.encode("utf-8", "replace"), rng).decode("utf-8", "replace")
    kept: Described = {"__metadata__": {**metadata, GRAPH: f"{first}\n{text}"}}
    if not rng.randrange(4):
        return header | kept, body
    whole = b""
    for name, (dtype, shape) in declared_tensors(text).items():
        size = WIDTHS[SAFE[dtype]] * math.prod(shape)
        end = len(whole) + size
        kept[name] = {"dtype": SAFE[dtype], "shape": list(shape), "data_offsets": [len(whole), end]}
        whole += ((body or b"\1") * (size // max(len(body), 1) + 1))[:size]
    return kept, whole


def run_in_metadata(header: Described, body: bytes, rng: Random) -> tuple[Described, bytes]:
    """A checkpoint's description changed, and its digest made to fit."""
    try:
        outer = json.loads(header["__metadata__"][RUN])
        run = json.loads(outer["run"])
        state = {name: _array(entry, body) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return tree(header, rng), body
    if not rng.randrange(8):
        outer = tree(outer, rng)
    else:
        text = json.dumps(tree(run, rng))
        with suppress(UnicodeError):  # names of state that are no text
            outer = {"digest": _digest(text, state), "run": text}
    return {**header, "__metadata__": {RUN: json.dumps(outer)}}, body


def _array(entry: Described, body: bytes) -> np.ndarray[Any, np.dtype[Any]]:
    dtype = {safe: name for name, safe in SAFE.items()}[entry["dtype"]]
    start, end = entry["data_offsets"]
    return np.frombuffer(body[start:end], dtype).reshape(entry["shape"])


_decoded = lru_cache(256)(decode)  # fuzzers return to the same files


def tflite(data: bytes, rng: Random) -> bytes:
    """A TFLite model with one record changed and written anew, or with raw bytes changed."""
    if not rng.randrange(4):
        return raw(data, rng)
    try:
        return encode(_record(_decoded(data), rng))
    except Exception:  # neither every file nor every record can be written
        return raw(data, rng)


def _record(model: TfliteModel, rng: Random) -> TfliteModel:
    kind = rng.randrange(8)
    if kind < 3 and model.tensors:
        at = rng.randrange(len(model.tensors))
        changed = _tensor(model.tensors[at], rng)
        return replace(model, tensors=(*model.tensors[:at], changed, *model.tensors[at + 1 :]))
    if kind < 6 and model.operators:
        at = rng.randrange(len(model.operators))
        operator = _operator(model.operators[at], len(model.tensors), rng)
        return replace(model, operators=(*model.operators[:at], operator, *model.operators[at + 1 :]))
    if kind == 6 and model.operators:
        operators = list(model.operators)
        operators.insert(rng.randrange(len(operators) + 1), rng.choice(operators))
        return replace(model, operators=tuple(operators if rng.randrange(2) else operators[1:]))
    if rng.randrange(2):
        return replace(model, inputs=_integers(model.inputs, rng, len(model.tensors) + 1))
    return replace(model, outputs=_integers(model.outputs, rng, len(model.tensors) + 1))


def _integers(numbers: tuple[int, ...], rng: Random, below: int = 12) -> tuple[int, ...]:
    """One number more or fewer, or another in a place."""
    changed = list(numbers)
    at = rng.randrange(len(changed) + 1)
    other = rng.randrange(-1, below) if rng.randrange(3) else rng.choice(LARGE)
    if at == len(changed) or not rng.randrange(4):
        changed.insert(at, other)
    elif not rng.randrange(3):
        changed.pop(at)
    else:
        changed[at] = other
    return tuple(changed)


def _tensor(tensor: TfliteTensor, rng: Random) -> TfliteTensor:
    match rng.randrange(9):
        case 0:
            return replace(tensor, shape=_integers(tensor.shape, rng))
        case 1:
            return replace(tensor, dtype=rng.choice(TENSOR_TYPES))
        case 2:
            return replace(tensor, scales=_reals(tensor.scales, rng))
        case 3:
            return replace(tensor, zeros=_integers(tensor.zeros, rng, 130))
        case 4:
            return replace(tensor, axis=rng.choice((-1, 0, 1, 3, 4, 2**31 - 1)))
        case 5:
            return replace(tensor, data=None if rng.randrange(2) else bytes(rng.randrange(1, 64)))
        case 6 if tensor.data:
            return replace(tensor, data=raw(tensor.data, rng))
        case 7:
            return replace(tensor, name=rng.choice(WORDS).encode("utf-8", "replace").decode())
        case _:
            return replace(tensor, signature=_integers(tensor.signature or tensor.shape, rng))


def _reals(numbers: tuple[float, ...], rng: Random) -> tuple[float, ...]:
    other = rng.choice((*(r for r in REALS if r != 1e300), 0.01, 0.1))
    at = rng.randrange(len(numbers) + 1)
    return (*numbers[:at], other, *numbers[at + rng.randrange(2) :])


def _operator(operator: TfliteOperator, tensors: int, rng: Random) -> TfliteOperator:
    match rng.randrange(5):
        case 0:
            return replace(operator, code=rng.choice(sorted(OPERATORS)))
        case 1:
            return replace(operator, inputs=_integers(operator.inputs, rng, tensors + 1))
        case 2:
            return replace(operator, outputs=_integers(operator.outputs, rng, tensors + 1))
        case _:
            values: Mapping[str, Any] = vars(operator.options)
            name = rng.choice(sorted(values) or ["axis"])
            other: Any = rng.choice((0, 1, 2, 3, 5, 100, -1))
            if isinstance(values.get(name), bool):
                other = not values[name]
            elif isinstance(values.get(name), float):
                other = rng.choice((0.0, -1.0, 2.0, 1e-38, float("nan")))
            elif "stride" in name or "dilation" in name or "filter" in name:
                other = rng.choice((0, -1, 2, 3, 100, 2**31 - 1))
            return replace(operator, options=operator.options.but(**{name: other}))
