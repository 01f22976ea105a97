"""The calls of a file as a module that makes them, for PyTorch to export anew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError
from smidgen.frontends.torch.program import Call, Named, Program

MAX_PIECES = 1 << 12  # tensors that one call may cut another into


class Replay(torch.nn.Module):
    """A program's calls, one after another; while it is exported, tensors have shapes and no elements."""

    def __init__(self, program: Program, budget: Budget) -> None:
        super().__init__()
        self.program, self.budget = program, budget
        for number, data in enumerate(program.held.values()):
            self.register_buffer(f"held_{number}", torch.from_numpy(data))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        program = self.program
        values: dict[str, torch.Tensor] = dict(zip(program.inputs, inputs, strict=True))
        for number, name in enumerate(program.held):
            values[name] = self.get_buffer(f"held_{number}")
        for place, call in enumerate(program.calls):
            self._make(call, values, f"call {place} ({call.operator})")
        return tuple(_found(values, name) for name in program.outputs)

    def _make(self, call: Call, values: dict[str, torch.Tensor], where: str) -> None:
        positional = [_given(values, item) for item in call.positional]
        keywords = {name: _given(values, item) for name, item in call.keywords.items()}
        _check_pieces(call, [*positional, *keywords.values()], where)
        made = call.operator(*positional, **keywords)
        several = isinstance(made, tuple) or (isinstance(made, list) and len(call.outputs) != 1)
        results: Sequence[object] = made if several else (made,)
        if len(results) != len(call.outputs):
            raise ImportModelError(f"{where} gives {len(results)} results, the file names {len(call.outputs)}")
        for output, result in zip(call.outputs, results, strict=True):
            names = output if isinstance(output, tuple) else (output,)
            parts = result if isinstance(result, list | tuple) else (result,)
            if len(names) != len(parts):
                raise ImportModelError(f"{where} gives {len(parts)} tensors, the file names {len(names)}")
            for name, part in zip(names, parts, strict=True):
                if name is not None and isinstance(part, torch.Tensor):
                    self.budget.check(where, part.element_size() * math.prod(part.shape))
                    values[name] = part


def examples(program: Program, budget: Budget) -> tuple[torch.Tensor, ...]:
    """Inputs of the shapes that the program takes, all zero."""
    for name, (shape, dtype) in program.inputs.items():
        budget.take(f"input {name[:80]!a}", math.prod(shape) * dtype.itemsize)
    return tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in program.inputs.values())


def _found(values: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in values:
        raise ImportModelError(f"{name[:80]!a} is read before anything writes it; save the model again")
    return values[name]


def _given(values: Mapping[str, torch.Tensor], item: object) -> object:
    if isinstance(item, Named):
        return _found(values, item.name)
    return [_given(values, part) for part in item] if isinstance(item, list) else item


def _check_pieces(call: Call, given: list[object], where: str) -> None:
    """Raise where a call would cut a tensor into more pieces than a file names: each takes memory."""
    if not any(str(result.type).startswith("List") for result in call.operator._schema.returns):
        return
    longest = max((max(x.shape, default=0) for x in given if isinstance(x, torch.Tensor)), default=0)
    number = next((x for x in given if isinstance(x, int)), 1)  # of pieces, or of elements in each
    name = call.operator._schema.name
    pieces = {"unbind": longest, "split": longest // max(number, 1)}.get(name.rpartition(":")[2], min(number, longest))
    if pieces > MAX_PIECES:
        raise ImportModelError(f"{where} cuts a tensor into {pieces:,} pieces; up to {MAX_PIECES:,} are read")
