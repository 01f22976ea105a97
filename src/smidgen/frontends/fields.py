"""Nested mappings that came out of a file: each entry is asked for by name and kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from smidgen.data.files import Budget
from smidgen.data.pickles import Pending
from smidgen.errors import ImportModelError, refuse
from smidgen.ir import Array, QParams

SCALES = (1e-12, 1e12)  # far beyond any network's, within float32
JSON_GROWTH = 32  # bytes of Python objects for one byte of text, at most


@dataclass(frozen=True, eq=False)
class Record:
    """A mapping and its place in the file."""

    values: Mapping[object, object]
    where: str

    @staticmethod
    def of(value: object, where: str) -> Record:
        if not isinstance(value, dict):
            raise ImportModelError(f"{where} should be a mapping, found {type(value).__name__}")
        return Record(value, where)

    @staticmethod
    def from_json(data: bytes, where: str, budget: Budget) -> Record:
        """Parse JSON, as far as the budget allows."""
        budget.check(f"the description in {where}", JSON_GROWTH * len(data))
        try:
            return Record.of(json.loads(data), where)
        except (ValueError, RecursionError):
            raise ImportModelError(f"{where} is damaged: its description cannot be read; save it again") from None

    def entry(self, key: str) -> object:
        refuse(key not in self.values, f"{self.where} has no entry '{key}'")
        return self.values[key]

    def record(self, key: str) -> Record:
        return Record.of(self.entry(key), f"{self.where}, {key}")

    def optional(self, key: str) -> Record | None:
        """Return the mapping under the key, or None if the file has None or nothing there."""
        return None if self.values.get(key) is None else self.record(key)

    def items(self, key: str) -> list[object] | tuple[object, ...]:
        items = self.entry(key)
        if not isinstance(items, list | tuple):
            raise ImportModelError(f"{self.where}, {key} should be a list, found {type(items).__name__}")
        return items

    def records(self, key: str) -> tuple[Record, ...]:
        return tuple(Record.of(item, f"{self.where}, {key} {i}") for i, item in enumerate(self.items(key)))

    def text(self, key: str) -> str:
        value = self.entry(key)
        if not isinstance(value, str):
            raise ImportModelError(f"{self.where}, {key} should be text, is {type(value).__name__}; save it again")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        return tuple(_integer(item, f"{self.where}, {key}") for item in self.items(key))

    def integer(self, key: str) -> int:
        return _integer(self.entry(key), f"{self.where}, {key}")

    def array(self, key: str, dtype: str) -> Array:
        value = self.entry(key)
        if not isinstance(value, Pending) or value.array is None or value.array.dtype.name != dtype:
            raise ImportModelError(f"{self.where}, {key} should be an array of {dtype}")
        return value.array

    def qparams(self, scale: str, zero: str) -> QParams:
        """Return a per-tensor quantization from two entries."""
        value = self.entry(scale)
        if not isinstance(value, int | float) or not SCALES[0] < value < SCALES[1]:
            raise ImportModelError(f"{self.where}, {scale} should be a positive number")
        return QParams.per_tensor(value, self.integer(zero))


def _integer(value: object, where: str) -> int:
    if not isinstance(value, int | float) or not -(2**31) <= value < 2**31 or value != int(value):
        raise ImportModelError(f"{where} should be a whole number of 32 bits")
    return int(value)
