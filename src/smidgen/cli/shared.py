"""What the verbs share: the app, the words of their options, and how a result is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console, RichCast
from rich.table import Table

from smidgen.cli.demonstration import Demonstration
from smidgen.errors import InputError
from smidgen.results.inspection import Summary
from smidgen.results.profiling import Profile
from smidgen.results.verbs import Compiled, QuantizedFile, Run, Taught, Written
from smidgen.targets.boards import parse_size

MEMORY_TEXT = "1GB"  # what the verbs leave to a file, as `smidgen.data.budget.MEMORY`
WIDTH = 120  # columns, where the output is no terminal

app = typer.Typer(
    help="Train int8 neural networks on microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Image(StrEnum):
    """How a program gets its image."""

    streamed = "streamed"
    buffered = "buffered"


class HeadKind(StrEnum):
    """What a new classifier computes in."""

    float32 = "float32"
    int8 = "int8"


Model = Annotated[str, typer.Argument(metavar="MODEL", help="A network of the zoo, or a model file.")]
Target = Annotated[str, typer.Option(help="This machine, or a board: host, cortex-m7, cortex-m4, stm32f746, …")]
Input = Annotated[Image, typer.Option("--input", help="The image row by row while it is used, or whole in SRAM.")]
OneScheme = Annotated[str | None, typer.Option(help="What learns; without it the program only infers.")]
Classes = Annotated[int | None, typer.Option(help="Classes to learn.")]
WeightBits = Annotated[int, typer.Option(help="Bits kept of a weight that learns: 8, 10 or 12.")]
HeadType = Annotated[HeadKind, typer.Option("--head", help="Arithmetic of the classifier.")]
Momentum = Annotated[float, typer.Option(help="Momentum, from 0 up to 1.")]
Accumulate = Annotated[int, typer.Option(help="Samples whose gradients make one step.")]
Qas = Annotated[bool, typer.Option("--qas/--no-qas", help="Quantization-aware scaling of gradients.")]
Seed = Annotated[int, typer.Option(help="Fixes the head's first weights, the order and the crops.")]
Memory = Annotated[str, typer.Option(help="Most memory that the contents of one file may take, as 4GB.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

Result = Summary | Run | Written | QuantizedFile | Compiled | Profile | Taught | Demonstration


def show(result: Result, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(result), allow_nan=False))
    elif isinstance(result, Summary | Profile):
        print_rich(result)
    else:
        typer.echo(str(result))


def print_rich(shown: RichCast | Table) -> None:
    Console(width=None if sys.stdout.isatty() else WIDTH).print(shown)


def memory_bytes(text: str) -> int:
    """The option --memory in bytes."""
    if (size := parse_size(text)) < 1:
        raise InputError(f"--memory {text} leaves nothing to read a file with; give a size as 1GB")
    return size


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """A spinner on stderr; nothing where that is no terminal."""
    with Console(stderr=True).status(text):
        yield
