"""A reader of pickles that hold arrays, numbers, text and containers, and nothing that runs.

It is Python's unpickler as written in Python, left with the instructions that data needs. The few names a pickle of
numpy arrays refers to have a fixed meaning here, nothing is imported, and any other name is refused. The work and the
memory are bounded by the size of the file.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.ir import MAX_RANK, Array

TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # the first of the pickles torch.save wrote before it used archives
NEEDED = (
    "PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE "
    "BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BINSTRING SHORT_BINSTRING BINPUT LONG_BINPUT MEMOIZE BINGET "
    "LONG_BINGET EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 MARK TUPLE APPEND APPENDS SETITEM SETITEMS "
    "GLOBAL STACK_GLOBAL REDUCE BUILD"
)
_DTYPES = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"))
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_NDARRAY = "the class of arrays"


@dataclass(frozen=True)
class Dtype:
    """A type of elements, by numpy's code for it."""

    code: str


@dataclass
class Pending:
    """An array being rebuilt: it is empty until its state arrives."""

    array: Array | None = None


class _RefusedError(Exception):
    """The reason for which a pickle is refused."""


def read_pickle(data: bytes, where: str) -> object:
    """Return the one object a pickle (or an early torch.save file) holds, its arrays as `Pending`."""
    stream = io.BytesIO(data)
    try:
        value = _Reader(stream).load()
        if value == TORCH_MAGIC and type(value) is int:
            _Reader(stream).load()  # torch's protocol number
            _Reader(stream).load()  # the machine it was saved on
            value = _Reader(stream).load()
        return value
    except _RefusedError as error:
        raise ImportModelError(f"{where} is refused: its pickle {error}") from None
    except Exception:  # whatever an instruction without its operands leads to
        raise ImportModelError(f"{where} is refused: its pickle breaks off or is damaged") from None


class _Instructions(dict[int, Any]):
    """The rule of each instruction that data needs; any other is refused by name."""

    def __missing__(self, code: int) -> NoReturn:
        name = _NAMES.get(code, f"the byte {code:02x}")
        raise _RefusedError(f"uses {name}, which arrays and numbers do not need")


class _Reader(pickle._Unpickler):
    """An unpickler that calls only the functions below."""

    stack: list[Any]
    metastack: list[list[Any]]

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, encoding="latin1")  # of Python 2, which had no bytes: a character for each
        self.left = len(stream.getbuffer())  # bytes that may be made from text: a sound pickle makes each once

    def find_class(self, module: str, name: str) -> object:
        """Return what a name means; anything but arrays and what they are made of is refused."""
        match f"{module}.{name}":
            case "numpy.ndarray":
                return _NDARRAY
            case "numpy.dtype":
                return self.dtype
            case "_codecs.encode":
                return self.encode
            case "collections.OrderedDict":
                return self.empty
            case "numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct":
                return self.pending
            case "numpy.core.multiarray.scalar" | "numpy._core.multiarray.scalar":
                return self.scalar
            case unknown:
                shown = ascii(unknown[:120])[1:-1]
                raise _RefusedError(f"tries to use {shown}; only arrays and numbers are admitted")

    def pending(self, kind: object, shape: object, code: object) -> Pending:
        if kind is not _NDARRAY or shape != (0,):
            raise _RefusedError("makes an array in a way that arrays do not need")
        return Pending()

    def empty(self) -> dict[object, object]:
        return {}

    def dtype(self, code: object, *_: object) -> Dtype:
        if not isinstance(code, str) or code not in _DTYPES:
            raise _RefusedError("holds elements that are no numbers")
        return Dtype(code)

    def encode(self, text: str, encoding: str = "latin1") -> bytes:
        """Return text as the bytes it stands for."""
        self.left -= len(text)
        if self.left < 0 or encoding != "latin1":
            raise _RefusedError("would unpack to more than the bytes of the file")
        return text.encode("latin1")

    def scalar(self, dtype: Dtype, raw: bytes) -> object:
        return self.array((), dtype, False, raw).item()

    def array(self, shape: tuple[Any, ...], dtype: Dtype, fortran: bool, raw: bytes) -> Array:
        dims = [d for d in shape if type(d) is int and 0 <= d < 2**31]
        kind = np.dtype(dtype.code)
        if len(dims) != len(shape) or len(dims) > MAX_RANK or math.prod(dims) * kind.itemsize != len(raw):
            raise _RefusedError(f"has an array of {kind}{dims} that does not fit its {len(raw):,} bytes")
        return np.frombuffer(raw, kind).reshape(dims, order="F" if fortran else "C")

    def build(self) -> None:
        """Give an array or a type of elements its state."""
        state = self.stack.pop()
        match self.stack[-1], state:
            case Dtype(), (3, str(order), None, None, None, -1, -1, 0) if order in ("<", "|", "="):
                pass  # in the order of this machine's bytes, as all that is read
            case Pending() as target, (1, tuple(shape), Dtype() as dtype, bool(fortran), bytes() | str() as raw):
                target.array = self.array(shape, dtype, fortran, self.encode(raw) if isinstance(raw, str) else raw)
            case target, _:
                raise _RefusedError(f"gives a {type(target).__name__} a state it does not take")

    def set_items(self, items: list[object]) -> None:
        """Put keys and values into a dictionary; hashing what a file nests could take forever."""
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int) or not isinstance(self.stack[-1], dict):
                raise _RefusedError(f"uses a {type(key).__name__} as a key of a {type(self.stack[-1]).__name__}")
            self.stack[-1][key] = value

    def stop(self) -> None:
        """End with the one value that is left."""
        if len(self.stack) != 1 or self.metastack:
            raise _RefusedError(f"leaves {len(self.stack)} values on the stack instead of one")
        pickle._Unpickler.dispatch[pickle.STOP[0]](self)  # type: ignore[arg-type]

    dispatch = _Instructions(
        {code: pickle._Unpickler.dispatch[code] for name in NEEDED.split() for code in getattr(pickle, name)}
        | {
            pickle.BUILD[0]: build,
            pickle.STOP[0]: stop,
            pickle.SETITEM[0]: lambda self: self.set_items([self.stack.pop(), self.stack.pop()][::-1]),
            pickle.SETITEMS[0]: lambda self: self.set_items(self.pop_mark()),
        }
    )
