"""ONNX operators about to be translated: the tensors they read, and their attributes checked by kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.layout import Shape, axis_of
from smidgen.frontends.onnx.read.decode import OnnxModel, OnnxOperator
from smidgen.frontends.sequences import Sequences
from smidgen.ir import Array, QParams

MAX_INTEGERS = 64  # elements of a constant shape, of axes, pads, …


class OnnxImport(Sequences):
    """The graph under construction and the file's tensors by name."""

    def __init__(self, model: OnnxModel, name: str, plan: Mapping[str, QParams], budget: Budget) -> None:
        super().__init__(name, plan, budget)
        self.model = model
        self.withheld: set[str] = set()  # results that are not computed
        self.chosen: dict[str, FileTensor] = {}  # classes that ArgMax chose, by the scores it chose from
        self.values: dict[str, Operand] = {n: Constant(data) for n, data in model.constants.items()}

    def operand(self, name: str) -> Operand:
        refuse(name in self.withheld, f"'{name}' is the last cell state of an LSTM; only its hidden states are read")
        if name in self.chosen:
            raise ImportModelError(
                f"'{name}' is the class that ArgMax chose, and more is computed from it; end the model at ArgMax"
            )
        refuse(name not in self.values, f"'{name}' is read before anything writes it; export the model again")
        return self.values[name]


@dataclass(frozen=True, eq=False)
class OnnxCall:
    """One operator about to be translated: its inputs and attributes, each asked for by kind."""

    c: OnnxImport
    operator: OnnxOperator

    def __len__(self) -> int:
        return len(self.operator.inputs)

    def has_input(self, place: int) -> bool:
        """Return whether an optional input is present."""
        return place < len(self) and self.operator.inputs[place] != ""

    def operand(self, place: int) -> Operand:
        refuse(not self.has_input(place), f"its input {place} is missing; export the model again")
        return self.c.operand(self.operator.inputs[place])

    def tensor(self, place: int) -> FileTensor:
        """Return an input as a value of the graph."""
        x = self.operand(place)
        return x if isinstance(x, FileTensor) else self.c.real(x)

    def constant(self, place: int) -> Constant:
        x = self.operand(place)
        if not isinstance(x, Constant):
            raise ImportModelError(f"its input {place}, '{self.operator.inputs[place]}', is computed, not a constant")
        return x

    def optional(self, place: int) -> Constant | None:
        return self.constant(place) if self.has_input(place) else None

    def number(self, place: int, default: float) -> float:
        """Return a constant input of one element."""
        constant = self.optional(place)
        if constant is None:
            return default
        refuse(constant.data.size != 1, f"its input {place} should be one number, is {list(constant.shape)}")
        return float(constant.data.reshape(-1)[0])

    def numbers(self, place: int) -> tuple[int, ...]:
        """Return a constant input of a few integers."""
        data: Array = self.constant(place).data
        if data.dtype.kind not in "iu" or data.size > MAX_INTEGERS:
            raise ImportModelError(f"its input {place} should be a few integers, is {data.dtype}{list(data.shape)}")
        return tuple(int(n) for n in data.ravel())

    def attribute(self, name: str, default: object, kind: Any, what: str) -> Any:
        """Return an attribute of a kind, which errors call `what`."""
        value = self.operator.attributes.get(name, default)
        if not isinstance(value, kind):
            raise ImportModelError(f"its attribute {name} should be {what}, is {value!r:.40}")
        return value

    def integer(self, name: str, default: int) -> int:
        return int(self.attribute(name, default, int, "an integer"))

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value: tuple[int, ...] = self.attribute(name, default, tuple, "integers")
        if not all(isinstance(n, int) for n in value):
            raise ImportModelError(f"its attribute {name} should be integers, is {value!r:.40}")
        return value

    def real(self, name: str, default: float) -> float:
        value = float(self.attribute(name, default, int | float, "a finite number"))
        refuse(not np.isfinite(value), f"its attribute {name} should be a finite number, is {value}")
        return value

    def text(self, name: str, default: str) -> str:
        return str(self.attribute(name, default, str, "text"))

    def forbid(self, name: str, allowed: object) -> None:
        """Raise unless an attribute is left out or has the one value that is supported."""
        value = self.operator.attributes.get(name, allowed)
        if value != allowed:
            raise ImportModelError(f"{name} = {value!r:.40} is not supported; use {allowed!r}")

    def axis(self, shape: Shape, default: int) -> int:
        """Return the attribute `axis` as a dimension of a shape; negative ones count from the end."""
        return axis_of(self.integer("axis", default), shape)

    def axes(self, place: int, rank: int) -> Shape:
        """Return axes from an input or, in early opsets, an attribute; none where both are left out."""
        axes = self.numbers(place) if self.has_input(place) else self.integers("axes", ())
        if any(not -rank <= axis < rank for axis in axes) or len({a % rank for a in axes}) != len(axes):
            raise ImportModelError(f"axes {list(axes)} do not fit {rank} dimensions")
        return tuple(axis % rank for axis in axes)
