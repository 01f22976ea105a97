"""Reading nested mappings that came out of a file: each entry is asked for by name and kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from smidgen.data.pickles import Pending
from smidgen.errors import ImportModelError
from smidgen.ir import Array, QParams

SCALES = (1e-12, 1e12)  # far beyond any network's, within float32


@dataclass(frozen=True, eq=False)
class Record:
    """A mapping and where it stands in the file."""

    values: Mapping[object, object]
    where: str

    @staticmethod
    def of(value: object, where: str) -> Record:
        if not isinstance(value, dict):
            raise ImportModelError(f"{where} should be a mapping, found {type(value).__name__}")
        return Record(value, where)

    def entry(self, key: str) -> object:
        if key not in self.values:
            raise ImportModelError(f"{self.where} has no entry '{key}'")
        return self.values[key]

    def record(self, key: str) -> Record:
        return Record.of(self.entry(key), f"{self.where}, {key}")

    def optional(self, key: str) -> Record | None:
        """The mapping under the key, or None where the file says None or nothing."""
        return None if self.values.get(key) is None else self.record(key)

    def records(self, key: str) -> tuple[Record, ...]:
        items = self.entry(key)
        if not isinstance(items, list):
            raise ImportModelError(f"{self.where}, {key} should be a list, found {type(items).__name__}")
        return tuple(Record.of(item, f"{self.where}, {key} {i}") for i, item in enumerate(items))

    def integers(self, key: str) -> tuple[int, ...]:
        items = self.entry(key)
        if not isinstance(items, list | tuple):
            raise ImportModelError(f"{self.where}, {key} should be a list, found {type(items).__name__}")
        return tuple(_integer(item, f"{self.where}, {key}") for item in items)

    def integer(self, key: str) -> int:
        return _integer(self.entry(key), f"{self.where}, {key}")

    def array(self, key: str, dtype: str) -> Array:
        value = self.entry(key)
        if not isinstance(value, Pending) or value.array is None or value.array.dtype.name != dtype:
            raise ImportModelError(f"{self.where}, {key} should be an array of {dtype}")
        return value.array

    def qparams(self, scale: str, zero: str) -> QParams:
        """A per-tensor quantization from two entries."""
        value = self.entry(scale)
        if not isinstance(value, int | float) or not SCALES[0] < value < SCALES[1]:
            raise ImportModelError(f"{self.where}, {scale} should be a positive number")
        return QParams.per_tensor(value, self.integer(zero))


def _integer(value: object, where: str) -> int:
    if not isinstance(value, int | float) or not -(2**31) <= value < 2**31 or value != int(value):
        raise ImportModelError(f"{where} should be a whole number of 32 bits")
    return int(value)
