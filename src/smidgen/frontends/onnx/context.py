"""The import of one ONNX model under way: what stands for each of its tensors, and an operator's attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.onnx.protobuf import OnnxModel, OnnxOperator
from smidgen.frontends.sequences import Sequences
from smidgen.ir import Array, QParams

MAX_INTEGERS = 64  # elements of a constant shape, of axes, pads, …


class OnnxImport(Sequences):
    """The graph in the making and the file's tensors by name."""

    def __init__(self, model: OnnxModel, name: str, plan: Mapping[str, QParams], budget: Budget) -> None:
        super().__init__(name, plan, budget)
        self.model = model
        self.withheld: set[str] = set()  # results that are not computed
        self.values: dict[str, Operand] = {n: Constant(data) for n, data in model.constants.items()}

    def operand(self, name: str) -> Operand:
        if name in self.withheld:
            raise ImportModelError(f"'{name}' is the last cell state of an LSTM; only its hidden states are read")
        if name not in self.values:
            raise ImportModelError(f"'{name}' is read before anything writes it; export the model again")
        return self.values[name]


@dataclass(frozen=True, eq=False)
class OnnxCall:
    """One operator about to be translated: its inputs and attributes, each asked for by kind."""

    c: OnnxImport
    operator: OnnxOperator

    def __len__(self) -> int:
        return len(self.operator.inputs)

    def has_input(self, place: int) -> bool:
        """Whether an optional input is there."""
        return place < len(self) and self.operator.inputs[place] != ""

    def operand(self, place: int) -> Operand:
        if not self.has_input(place):
            raise ImportModelError(f"its input {place} is missing; export the model again")
        return self.c.operand(self.operator.inputs[place])

    def tensor(self, place: int) -> FileTensor:
        """An input that is computed."""
        x = self.operand(place)
        return x if isinstance(x, FileTensor) else self.c.real(x)

    def constant(self, place: int) -> Constant:
        x = self.operand(place)
        if not isinstance(x, Constant):
            raise ImportModelError(
                f"its input {place}, '{self.operator.inputs[place]}', is computed; it has to be a constant"
            )
        return x

    def optional(self, place: int) -> Constant | None:
        return self.constant(place) if self.has_input(place) else None

    def number(self, place: int, default: float) -> float:
        """A constant input of one element."""
        constant = self.optional(place)
        if constant is None:
            return default
        if constant.data.size != 1:
            raise ImportModelError(f"its input {place} should be one number, is {list(constant.shape)}")
        return float(constant.data.reshape(-1)[0])

    def numbers(self, place: int) -> tuple[int, ...]:
        """A constant input of a few integers."""
        data: Array = self.constant(place).data
        if data.dtype.kind not in "iu" or data.size > MAX_INTEGERS:
            raise ImportModelError(f"its input {place} should be a few integers, is {data.dtype}{list(data.shape)}")
        return tuple(int(n) for n in data.ravel())

    def integer(self, name: str, default: int) -> int:
        value = self.operator.attributes.get(name, default)
        if not isinstance(value, int):
            raise ImportModelError(f"its attribute {name} should be an integer, is {value!r:.40}")
        return value

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self.operator.attributes.get(name, default)
        if not isinstance(value, tuple | list) or not all(isinstance(n, int) for n in value):
            raise ImportModelError(f"its attribute {name} should be integers, is {value!r:.40}")
        return tuple(value)

    def real(self, name: str, default: float) -> float:
        value = self.operator.attributes.get(name, default)
        if not isinstance(value, int | float) or not np.isfinite(value):
            raise ImportModelError(f"its attribute {name} should be a finite number, is {value!r:.40}")
        return float(value)

    def text(self, name: str, default: str) -> str:
        value = self.operator.attributes.get(name, default)
        if not isinstance(value, str):
            raise ImportModelError(f"its attribute {name} should be text, is {value!r:.40}")
        return value

    def listed(self, name: str) -> tuple[object, ...]:
        """A list of anything; none where it is left out."""
        value = self.operator.attributes.get(name, ())
        if not isinstance(value, tuple):
            raise ImportModelError(f"its attribute {name} should be a list, is {value!r:.40}")
        return value

    def forbid(self, name: str, allowed: object) -> None:
        """Raise unless an attribute is left out or has the one value that is supported."""
        value = self.operator.attributes.get(name, allowed)
        if value != allowed:
            raise ImportModelError(f"{name} = {value!r:.40} is not supported; use {allowed!r}")
