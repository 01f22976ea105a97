"""The options of the verbs that learn: declared once, and made into `Options` in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.ops.loss import Loss
from smidgen.ops.rules import Momentum, Sgd, UpdateRule
from smidgen.training import HeadDtype, HeadStart, Options
from smidgen.training.options import choose_loss, outputs_for


class HeadDtypeOption(StrEnum):
    """What the head computes in."""

    float32 = "float32"
    int8 = "int8"


class HeadOption(StrEnum):
    """What the head starts from."""

    keep = "keep"
    new = "new"
    extend = "extend"


class LossOption(StrEnum):
    """What learning makes small."""

    auto = "auto"
    softmax = "softmax"
    sigmoid = "sigmoid"
    mse = "mse"
    reconstruction = "reconstruction"
    cells = "cells"


@dataclass(frozen=True)
class Learning:
    """How a program is to learn, each field an option of the command line."""

    classes: Annotated[
        int | None, typer.Option(help="Classes to learn. By default the data's, or those the model has.")
    ] = None
    weight_bits: Annotated[
        int | None, typer.Option(help="Bits kept of a weight that learns: 8, 10 or 12. By default the scheme's, or 12.")
    ] = None
    bias_bits: Annotated[
        int,
        typer.Option(help="Bits of SRAM for a convolution's bias that learns: 32, or the 16 of a difference to it."),
    ] = 32
    head: Annotated[
        HeadOption | None,
        typer.Option(
            help="The model's last layer: keep it, begin with a new one, or extend it by classes it lacks. By default "
            "it is kept where it scores as many classes.",
        ),
    ] = None
    head_dtype: Annotated[
        HeadDtypeOption | None,
        typer.Option(help="What the head computes in. By default what the model's computes in, a new one float32."),
    ] = None
    momentum: Annotated[float, typer.Option(help="Momentum, from 0 up to 1.")] = 0.0
    accumulate: Annotated[int, typer.Option(help="Samples whose gradients make one step.")] = 1
    qas: Annotated[bool, typer.Option("--qas/--no-qas", help="Quantization-aware scaling of gradients.")] = True
    skip_below: Annotated[
        float, typer.Option(help="Learn nothing from a step whose loss is below this: its backward pass is not run.")
    ] = 0.0
    loss: Annotated[
        LossOption, typer.Option(help="What learning makes small; auto: what fits the data, without data softmax.")
    ] = LossOption.auto
    seed: Annotated[int, typer.Option(help="Fixes the head's first weights, the order and the crops.")] = 0

    def options_on(self, graph: Graph, data: Data) -> Options:
        """The same as `Options` for data, which says what is left to it: the loss and the number of outputs."""
        loss = self._loss() or choose_loss(graph, data)
        return replace(self.options(self.classes or outputs_for(graph, data, loss)), loss=loss)

    def options(self, classes: int | None) -> Options:
        """The same as `Options`, for as many outputs; an extended head is kept once it has been extended."""
        head: HeadStart | None = None if self.head is None else "new" if self.head is HeadOption.new else "keep"
        dtype: HeadDtype | None = self.head_dtype.value if self.head_dtype else None
        loss = self._loss() or "softmax"
        return Options(
            classes, self.weight_bits, self.qas, self._rule(), dtype, self.seed, head, loss, self.bias_bits,
            self.skip_below,
        )  # fmt: skip

    def options_for(self, model: str, scheme: str | None, budget: str | None) -> Options | None:
        """The same where a scheme, or classes and a budget to choose one for, decide whether the program learns.

        None for one that only infers.
        """
        if self.head is HeadOption.extend:
            raise InputError(
                f"the head of {model} is extended by examples of new classes; do so with `smidgen train --head "
                "extend`, and give what was learned"
            )
        if scheme is None:
            if self.classes is None:
                return None
            if budget is None:
                raise InputError(
                    f"{self.classes} classes can only be learned with a scheme; give --scheme, or --budget to have one "
                    "chosen"
                )
            return self.options(self.classes)
        return self.options(self.classes)

    def _loss(self) -> Loss | None:
        return next((loss for loss in get_args(Loss) if loss == self.loss.value), None)

    def _rule(self) -> UpdateRule:
        if self.momentum == 0:
            return Sgd(accumulate=self.accumulate)
        return Momentum(self.momentum, accumulate=self.accumulate)


def with_learning(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the fields of `Learning` as options where its parameter `learning` stands."""
    names = [field.name for field in fields(Learning)]
    kinds = get_type_hints(Learning, include_extras=True)

    @wraps(verb)
    def run(**given: Any) -> None:
        verb(learning=Learning(**{name: given.pop(name) for name in names}), **given)

    declared = inspect.signature(verb, eval_str=True).parameters
    parameters: list[inspect.Parameter] = []
    for name, parameter in declared.items():
        if name == "learning":
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters += [
                inspect.Parameter(f.name, kind, default=f.default, annotation=kinds[f.name]) for f in fields(Learning)
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
