"""A reader of pickles that hold arrays, numbers, text and containers, and nothing that runs.

The instructions are walked here one by one; Python's unpickler is never called. The few names a pickle of
numpy arrays refers to are markers with a fixed meaning, any other name is refused, and so is every
instruction that data does not need. The work and the memory are bounded by the size of the file.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.ir import MAX_RANK, Array

MAX_INSTRUCTIONS = 2**18  # the released networks take under 10,000
MAX_STACK = 2**16
TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # the first of the pickles torch.save wrote before it used archives
_DTYPES = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"))
_MEANINGS = {
    "numpy.ndarray": "ndarray",
    "numpy.dtype": "dtype",
    "_codecs.encode": "encode",
    "collections.OrderedDict": "dict",
    "numpy.core.multiarray._reconstruct": "array",
    "numpy._core.multiarray._reconstruct": "array",
    "numpy.core.multiarray.scalar": "scalar",
    "numpy._core.multiarray.scalar": "scalar",
}


@dataclass(frozen=True)
class Name:
    """A global name the pickle refers to, by what it stands for."""

    meaning: str


@dataclass(frozen=True)
class Dtype:
    """A type of elements, by numpy's code for it."""

    code: str


@dataclass
class Pending:
    """An array being rebuilt: it is empty until its state arrives."""

    array: Array | None = None


def read_pickle(data: bytes, where: str) -> object:
    """Return the one object a pickle (or an early torch.save file) holds, its arrays as `Pending`."""
    machine = _Machine(data, where)
    value = machine.load()
    if value == TORCH_MAGIC and type(value) is int:
        machine.load()  # torch's protocol number
        machine.load()  # the machine it was saved on
        value = machine.load()
    return value


class _Machine:
    def __init__(self, data: bytes, where: str) -> None:
        self.size = len(data)
        self.stream = io.BytesIO(data)
        self.where = where
        self.instructions = 0
        self.encoded = 0  # bytes made from text: a sound pickle makes each once
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def refuse(self, why: str) -> ImportModelError:
        return ImportModelError(f"{self.where} is refused: {why}")

    def load(self) -> object:
        """Run one pickle to its end."""
        self.stack, self.marks, self.memo = [], [], {}
        while (name := self.next()) != "STOP":
            _ACTIONS[name](self, self.argument(name))
        if len(self.stack) != 1 or self.marks:
            raise self.refuse(f"its pickle leaves {len(self.stack)} values on the stack instead of one")
        return self.stack.pop()

    def next(self) -> str:
        """Return the name of the next instruction, which must be one that data needs."""
        self.instructions += 1
        if self.instructions > MAX_INSTRUCTIONS or len(self.stack) > MAX_STACK:
            raise self.refuse(
                f"its pickle takes over {MAX_INSTRUCTIONS:,} instructions or {MAX_STACK:,} values at once"
            )
        code = self.stream.read(1)
        if not code:
            raise self.refuse("its pickle breaks off")
        name = _NAMES.get(code, f"the byte {code.hex()}")
        if name not in _ACTIONS and name != "STOP":
            raise self.refuse(f"its pickle uses {name}, which arrays and numbers do not need")
        return name

    def argument(self, name: str) -> Any:
        """Return the argument that follows an instruction; None if it takes none."""
        try:
            return _READERS[name](self.stream) if name in _READERS else None
        except ValueError:
            raise self.refuse(f"its pickle breaks off inside {name}") from None

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self.refuse("its pickle takes a value from an empty stack")
        return self.stack.pop()

    def top(self) -> object:
        value = self.pop()
        self.stack.append(value)
        return value

    def pop_mark(self) -> list[object]:
        if not self.marks:
            raise self.refuse("its pickle ends a list it never began")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def put(self, index: int) -> None:
        self.memo[index] = self.top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise self.refuse(f"its pickle recalls entry {index}, which it never stored")
        self.push(self.memo[index])

    def make_tuple(self, count: int) -> None:
        self.push(tuple([self.pop() for _ in range(count)][::-1]))

    def append(self, items: list[object]) -> None:
        target = self.top()
        if not isinstance(target, list):
            raise self.refuse(f"its pickle appends to a {type(target).__name__}")
        target.extend(items)

    def set_items(self, items: list[object]) -> None:
        target = self.top()
        if not isinstance(target, dict) or len(items) % 2:
            raise self.refuse(f"its pickle sets items of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):  # hashing what a file nests could take forever
                raise self.refuse(f"its pickle uses a {type(key).__name__} as a key")
            target[key] = value

    def line_name(self) -> None:
        module, name = self.stream.readline(256), self.stream.readline(256)
        self.name(f"{module.decode('latin1').strip()}.{name.decode('latin1').strip()}")

    def stack_name(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self.refuse("its pickle names something by values that are not text")
        self.name(f"{module}.{name}")

    def name(self, name: str) -> None:
        if name not in _MEANINGS:
            shown = ascii(name[:120])[1:-1]
            raise self.refuse(f"its pickle tries to use {shown}; only arrays and numbers are admitted")
        self.push(Name(_MEANINGS[name]))

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise self.refuse(f"its pickle calls a {type(function).__name__}")
        match function.meaning, arguments:
            case "array", (Name("ndarray"), (0,), bytes() | str()):
                made: object = Pending()
            case "dtype", (str(code), *_) if code in _DTYPES:
                made = Dtype(code)
            case "encode", (str(text), "latin1"):
                made = self.encode(text)
            case "scalar", (Dtype() as dtype, bytes(raw)):
                made = self.array((), dtype, False, raw).item()
            case "dict", ():
                made = {}
            case _:
                raise self.refuse(f"its pickle calls {function.meaning} in a way arrays and numbers do not need")
        self.push(made)

    def encode(self, text: str) -> bytes:
        self.encoded += len(text)
        if self.encoded > self.size:
            raise self.refuse(f"its pickle would unpack to more than the {self.size:,} bytes of the file")
        try:
            return text.encode("latin1")
        except UnicodeEncodeError:
            raise self.refuse("its pickle holds text where bytes belong") from None

    def build(self) -> None:
        state, target = self.pop(), self.top()
        match target, state:
            case Dtype(), (3, str(order), None, None, None, -1, -1, 0) if order in ("<", "|", "="):
                pass  # in the order of this machine's bytes, as all that is read
            case Pending(), (1, tuple(shape), Dtype() as dtype, bool(fortran), bytes() | str() as raw):
                target.array = self.array(shape, dtype, fortran, self.encode(raw) if isinstance(raw, str) else raw)
            case _:
                raise self.refuse(f"its pickle gives a {type(target).__name__} a state it does not take")

    def array(self, shape: tuple[object, ...], dtype: Dtype, fortran: bool, raw: bytes) -> Array:
        dims = [d for d in shape if type(d) is int and 0 <= d < 2**31]
        kind = np.dtype(dtype.code)
        if len(dims) != len(shape) or len(dims) > MAX_RANK or math.prod(dims) * kind.itemsize != len(raw):
            raise self.refuse(f"an array of {kind}{dims} does not fit its {len(raw):,} bytes")
        return np.frombuffer(raw, kind).reshape(dims, order="F" if fortran else "C")


_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "BINSTRING", "SHORT_BINSTRING",  # of Python 2, which had no bytes: read as text, a character for each byte
)  # fmt: skip
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {  # of each instruction, given its argument
    **dict.fromkeys(_LITERALS, _Machine.push),
    **dict.fromkeys(("PROTO", "FRAME"), lambda _m, _: None),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Machine.get),
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    "NONE": lambda m, _: m.push(None), "NEWTRUE": lambda m, _: m.push(True), "NEWFALSE": lambda m, _: m.push(False),
    "EMPTY_DICT": lambda m, _: m.push({}), "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_TUPLE": lambda m, _: m.make_tuple(0), "TUPLE1": lambda m, _: m.make_tuple(1),
    "TUPLE2": lambda m, _: m.make_tuple(2), "TUPLE3": lambda m, _: m.make_tuple(3),
    "MARK": lambda m, _: m.marks.append(len(m.stack)), "TUPLE": lambda m, _: m.push(tuple(m.pop_mark())),
    "APPEND": lambda m, _: m.append([m.pop()]), "APPENDS": lambda m, _: m.append(m.pop_mark()),
    "SETITEM": lambda m, _: m.set_items([m.pop(), m.pop()][::-1]), "SETITEMS": lambda m, _: m.set_items(m.pop_mark()),
    "GLOBAL": lambda m, _: m.line_name(), "STACK_GLOBAL": lambda m, _: m.stack_name(),
    "REDUCE": lambda m, _: m.call(), "BUILD": lambda m, _: m.build(),
}  # fmt: skip
_NAMES = {opcode.code.encode("latin1"): opcode.name for opcode in pickletools.opcodes}
_READERS = {  # of arguments; those of GLOBAL are lines, which `line_name` reads up to a length
    code.name: code.arg.reader for code in pickletools.opcodes if code.arg is not None and code.name != "GLOBAL"
}
