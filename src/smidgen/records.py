"""Dataclasses as JSON and back."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")
WORDS = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", Fraction: "a share"}
LARGEST = 2**63  # of whole numbers: no file of ours counts further
_SHARE = re.compile("[0-9]{1,9}(/[1-9][0-9]{0,8})?")


class RecordError(ValueError):
    """Text or JSON's values that are not the record expected: what is wrong, and where in it."""


def parse_object(text: str | bytes, *keys: str) -> dict[str, Any]:
    """Return a JSON text's object, which must have these keys; RecordError if it is none, or not JSON as defined."""
    try:
        plain = json.loads(text, parse_constant=_refuse_constant)
    except RecordError:
        raise
    except (ValueError, RecursionError):
        raise RecordError("it is not whole JSON") from None
    if not isinstance(plain, dict):
        raise RecordError("it is not a JSON object")
    for key in keys:
        if key not in plain:
            raise RecordError(f"it has no {key!r}")
    return plain


def to_plain(record: Any) -> dict[str, Any]:
    """Return a dataclass as JSON's values: tuples are lists, fractions text, and no number is infinite."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(record), allow_nan=False, default=str))
    return plain


def read_record(kind: type[Record], path: Path) -> Record:
    """Read a dataclass from a JSON file; OSError where it cannot be read, RecordError where it holds none."""
    return from_plain(kind, parse_object(path.read_bytes()))


def from_plain(kind: type[Record], plain: object) -> Record:
    """Return a dataclass made of JSON's values; RecordError if they are not of its fields' types.

    Every field without a default has to be given, one at least, and nothing else. Numbers have to be finite.
    """
    record: Record = _read(kind, plain, "it")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise RecordError(f"it holds {name}, which is not a number in JSON")


def _read(kind: Any, plain: Any, at: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    made: Any = origin or kind
    if isinstance(made, type) and is_dataclass(made):
        hints, bound = get_type_hints(made), dict(zip(getattr(made, "__parameters__", ()), args, strict=False))
        _check_names(made, plain, at)
        return made(**{name: _read(_bind(hints[name], bound), value, name) for name, value in plain.items()})
    if origin in (Union, UnionType):
        *others, last = (one for one in args if one is not NoneType)
        if plain is None and NoneType in args:
            return None
        for other in others:
            with suppress(RecordError):
                return _read(other, plain, at)
        return _read(last, plain, at)
    if origin is tuple:
        open_ended = args[-1] is ...
        if not isinstance(plain, list) or not (open_ended or len(plain) == len(args)):
            raise _wrong(at, plain, "a list" if open_ended else f"a list of {len(args)}")
        kinds = [args[0]] * len(plain) if open_ended else args
        return tuple(_read(one, value, f"an entry of {at}") for one, value in zip(kinds, plain, strict=True))
    if origin is dict:
        if not isinstance(plain, dict):
            raise _wrong(at, plain, "an object")
        return {_read(args[0], key, at): _read(args[1], value, f"{at} {key[:40]!r}") for key, value in plain.items()}
    if origin is Literal:
        if plain not in args:
            raise _wrong(at, plain, f"one of {', '.join(map(str, args))}")
    elif not _fits(kind, plain):
        raise _wrong(at, plain, WORDS.get(kind, str(kind)))
    return Fraction(plain) if kind is Fraction else plain


def _check_names(made: type, plain: Any, at: str) -> None:
    """Raise RecordError unless values are an object that has a dataclass's fields, and no others."""
    names = {one.name: one.default is MISSING and one.default_factory is MISSING for one in fields(made)}
    if not isinstance(plain, dict) or not plain:
        raise _wrong(at, plain, f"an object with {', '.join(names)}")
    for name, needed in names.items():
        if needed and name not in plain:
            raise RecordError(f"{at} has no {name!r}")
    for name in plain:
        if name not in names:
            raise RecordError(f"{at} has {name[:40]!r}, which is not known")


def _fits(kind: Any, plain: Any) -> bool:
    """Return whether a value is of a plain type."""
    if kind is Fraction:
        return isinstance(plain, str) and _SHARE.fullmatch(plain) is not None
    if kind is float:
        return type(plain) in (int, float) and abs(plain) <= sys.float_info.max
    if kind is int:
        return type(plain) is int and abs(plain) < LARGEST
    if kind is str:
        return isinstance(plain, str) and plain.encode(errors="replace").decode() == plain
    return kind is Any or type(plain) is kind


def _wrong(at: str, plain: Any, expected: str) -> RecordError:
    return RecordError(f"{at} is {repr(plain)[:40]}, not {expected}")


def _bind(kind: Any, bound: dict[Any, Any]) -> Any:
    """Return a generic dataclass's type of a field with its type variables replaced."""
    if kind in bound:
        return bound[kind]
    own = getattr(kind, "__parameters__", ())
    return kind[tuple(bound[one] for one in own)] if own else kind
