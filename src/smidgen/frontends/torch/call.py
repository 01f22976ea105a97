"""One call of a PyTorch operator, as rules read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.layout import Shape
from smidgen.frontends.sequences import Sequences


def name_of(target: object) -> str:
    """Return an operator's name without its overload."""
    return str(getattr(target, "__name__", target)).split(".")[0]


@dataclass(frozen=True, eq=False)
class TorchCall:
    """A call to translate; its arguments are given by place or by name."""

    c: Sequences
    node: Any  # of torch.fx
    values: Mapping[Any, object]  # the result of each node before it

    @property
    def name(self) -> str:
        return name_of(self.node.target)

    @property
    def shape(self) -> Shape:
        """Return the shape of the result, as PyTorch recorded it."""
        return tuple(int(n) for n in self.node.meta["val"].shape)

    def raw(self, place: int, default: object = None) -> Any:
        args = self.node.args
        if place < len(args):
            return args[place]
        schema = getattr(self.node.target, "_schema", None)
        if schema is not None and place < len(schema.arguments):
            argument = schema.arguments[place]
            given = self.node.kwargs.get(argument.name, argument.default_value)
            return default if given is None else given
        return default

    def operand(self, place: int) -> Operand:
        item = self.raw(place)
        if isinstance(item, int | float):
            return Constant(np.array(item, np.float32))
        value = self.values.get(item)
        if isinstance(value, FileTensor | Constant):
            return value
        raise ImportModelError(f"its argument {place} is neither a tensor nor a number")

    def tensor(self, place: int) -> FileTensor:
        x = self.operand(place)
        return x if isinstance(x, FileTensor) else self.c.real(x)

    def constant(self, place: int) -> Constant:
        x = self.operand(place)
        if isinstance(x, FileTensor):
            raise ImportModelError(f"its argument {place} is computed; it has to be a constant")
        return x

    def optional(self, place: int) -> Constant | None:
        return None if self.raw(place) is None else self.constant(place)

    def number(self, place: int, default: float) -> float:
        value = self.raw(place, default)
        refuse(not isinstance(value, int | float), f"its argument {place} should be a number")
        return float(value)

    def integers(self, place: int, default: Sequence[int] = ()) -> Shape:
        """Return one integer or several; sizes must be fixed."""
        value = self.raw(place, default)
        numbers = [value] if isinstance(value, int) else list(value)
        if not all(isinstance(n, int) for n in numbers):
            raise ImportModelError(f"its argument {place} depends on the input's size; export it with fixed sizes")
        return tuple(numbers)

    def axis(self, place: int, rank: int) -> int:
        """Return the argument that names a dimension, counted from 0."""
        return int(self.number(place, 0)) % rank

    def factors(self, *names: str) -> list[float]:
        """Return numbers given by name, each 1 by default."""
        return [float(self.node.kwargs.get(name, 1)) for name in names]

    def spread(self, place: int, count: int, default: Sequence[int]) -> Shape:
        """Return one number per dimension of a map, given once or for each."""
        numbers = self.integers(place, default) or tuple(default)
        return numbers * count if len(numbers) == 1 else numbers
