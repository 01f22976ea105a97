"""The kernels in C and assembly, and the working memory they need, asked of the C beside them.

`kernels/` is for any machine; a file of another folder replaces the portable one of its name on processors that can do
more, or less. `working*.c` beside the kernels returns how many bytes of working memory each of them needs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from smidgen.compiler import Cache, cache_folder, find_compiler
from smidgen.errors import TargetError
from smidgen.ir import Node, Params
from smidgen.ops.gradient import GradOp

RUNTIME = Path(__file__).parent
KINDS = {int: ctypes.c_int32, float: ctypes.c_float, np.ndarray: ctypes.c_void_p}


class Call(ctypes.Structure):
    """Facts about a call in addition to its kernel's parameters, as smidgen_working.h has them."""

    _fields_ = (("by_row", ctypes.c_int32), ("in_place", ctypes.c_int32), ("masked", ctypes.c_int32))


def working_memory(node: Node, by_row: bool, folders: tuple[str, ...]) -> int:
    """Return the bytes a node's kernel needs for a whole call, or where it computes one output row per call.

    A kernel in a later folder replaces the one of an earlier folder, and so does its working memory.
    """
    return _asked(node, by_row, folders) if node.op.working_memory else 0


@lru_cache(maxsize=8192)
def _asked(node: Node, by_row: bool, folders: tuple[str, ...]) -> int:
    symbol = node.op.symbol(node)
    ask = next((found for folder in reversed(folders) if symbol and (found := _function(folder, symbol))), None)
    if ask is None:
        return 0
    in_place = not by_row and node.op.donor(node) is not None
    masked = isinstance(node.op, GradOp) and node.op.masked
    params = node.op.params(node)  # kept until the call is over: the struct only points to its arrays
    return ask(ctypes.byref(struct(params)), ctypes.byref(Call(by_row, in_place, masked)))


def struct(params: Params) -> ctypes.Structure:
    """Return a kernel's parameters as its C struct; ops list them in the order of the struct's fields."""
    made = _struct_type(tuple((name, type(item)) for name, item in params.items()))
    values = (
        (item.ctypes.data if item.size else None) if isinstance(item, np.ndarray) else item for item in params.values()
    )  # an empty array has an address in numpy, and is NULL in C
    return made(*values)


@cache
def _struct_type(fields: tuple[tuple[str, type], ...]) -> type[ctypes.Structure]:
    return type("params", (ctypes.Structure,), {"_fields_": [(name, KINDS[kind]) for name, kind in fields]})


@cache
def _function(folder: str, symbol: str) -> Callable[..., int] | None:
    """Return the C function that knows a kernel's working memory; None where the folder does not replace the kernel."""
    found = getattr(_library(folder), f"{symbol}_working", None)
    if found is not None:
        found.restype = ctypes.c_int64
    return found


@cache
def _library(folder: str) -> ctypes.CDLL:
    """Build and load the functions of a folder of kernels; raises TargetError where this machine cannot."""
    places = ((RUNTIME, "smidgen*.h"), (RUNTIME / "kernels", "working.h"), (RUNTIME / folder, "working*.[ch]"))
    files = {path.name: path.read_text("utf-8") for place, pattern in places for path in sorted(place.glob(pattern))}
    sources = [name for name in files if name.endswith(".c")]
    built = Cache(cache_folder(), find_compiler()).build(".so", files, "-shared", "-I.", *sources)
    try:
        return ctypes.CDLL(str(built))
    except OSError as error:
        raise TargetError(f"the sizes of working memory built for this machine cannot be loaded: {error}") from None
