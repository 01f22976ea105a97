"""Dataclasses as JSON and back."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def to_plain(record: Any) -> dict[str, Any]:
    """Return a dataclass as JSON's values: tuples are lists, fractions text, and no number is infinite."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(record), allow_nan=False, default=str))
    return plain


def read_record(kind: type[Record], path: Path) -> Record:
    """Read a dataclass from a JSON file; OSError, TypeError or ValueError where it holds none."""
    return from_plain(kind, json.loads(path.read_text(errors="replace")))


def from_plain(kind: type[Record], plain: object) -> Record:
    """Return a dataclass made of JSON's values; TypeError or ValueError if they are not of its fields' types.

    Every field without a default has to be given, one at least, and nothing else. Numbers have to be finite.
    """
    record: Record = _read(kind, plain)
    return record


def _read(kind: Any, plain: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    made: Any = origin or kind
    if isinstance(made, type) and is_dataclass(made):
        hints, bound = get_type_hints(made), dict(zip(getattr(made, "__parameters__", ()), args, strict=False))
        if not isinstance(plain, dict) or not plain or not plain.keys() <= hints.keys():
            raise TypeError(f"{str(plain)[:40]} is not {kind}")
        return made(**{name: _read(_bind(hints[name], bound), value) for name, value in plain.items()})
    if origin in (Union, UnionType):
        *others, last = (one for one in args if one is not NoneType)
        if plain is None and NoneType in args:
            return None
        for other in others:
            with suppress(TypeError, ValueError):
                return _read(other, plain)
        return _read(last, plain)
    if kind is Fraction:
        return Fraction(plain)
    if origin is tuple:
        if not isinstance(plain, list):
            raise TypeError(f"{str(plain)[:40]} is not a list")
        kinds = [args[0]] * len(plain) if args[-1] is ... else args
        return tuple(_read(one, value) for one, value in zip(kinds, plain, strict=True))
    if origin is dict:
        if not isinstance(plain, dict):
            raise TypeError(f"{str(plain)[:40]} is not an object")
        return {_read(args[0], key): _read(args[1], value) for key, value in plain.items()}
    if origin is Literal:
        fits = plain in args
    elif kind is float:
        fits = type(plain) in (int, float) and math.isfinite(plain)
    else:
        fits = kind is Any or type(plain) is kind
    if not fits:
        raise TypeError(f"{str(plain)[:40]} is not {kind}")
    return plain


def _bind(kind: Any, bound: dict[Any, Any]) -> Any:
    """Return a generic dataclass's type of a field with its type variables replaced."""
    if kind in bound:
        return bound[kind]
    own = getattr(kind, "__parameters__", ())
    return kind[tuple(bound[one] for one in own)] if own else kind
