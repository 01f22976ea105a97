"""What the commands share: the app, their common options, and how a result is printed."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from smidgen.cli.demonstration import Demonstration
from smidgen.cli.terminal import print_rich, say, warn
from smidgen.errors import InputError
from smidgen.fitting import Fitted
from smidgen.fitting.stages import is_float
from smidgen.inference import CellsTested, ClassesTested, LabelsTested, NumbersTested, Predictions, ReconstructionTested
from smidgen.ir import Graph
from smidgen.results.choices import AnalysisSummary
from smidgen.results.inspection import Summary
from smidgen.results.profile import Profile, TimeProfile
from smidgen.results.summaries import (
    BoardReplayed,
    BoardState,
    BoardTraining,
    BoardWatched,
    CompiledProject,
    QuantizedFile,
    RunSummary,
    TrainingSummary,
    WrittenModel,
)
from smidgen.selection import Found, Pareto
from smidgen.targets.boards import parse_size

MEMORY_TEXT = "1GB"  # what the verbs leave to a file, as `smidgen.data.files.MEMORY`


WORDS = "words"  # under which a command finds those it was called with
INTERRUPTED = 130  # the exit code of what Ctrl-C ends, as shells have it


class Verbs(TyperGroup):
    """The verbs, whose flags are shown as flags: an option that takes no value has no type in the help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta.setdefault(WORDS, tuple(args))  # a verb of a verb leaves those of the whole command
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            warn(f"interrupted; begin anew with {shlex.join(('smidgen', *ctx.meta[WORDS]))}")
            raise typer.Exit(INTERRUPTED) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        verb = super().get_command(ctx, cmd_name)
        if verb is not None:
            _show_flags(verb.get_params(ctx))
        return verb

    def get_params(self, ctx: Any) -> list[Any]:
        return _show_flags(super().get_params(ctx))


def _show_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


app = typer.Typer(
    cls=Verbs,
    help="Train int8 neural networks on microcontrollers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class ImageInput(StrEnum):
    """How an image reaches a program."""

    streamed = "streamed"
    buffered = "buffered"


Model = Annotated[str, typer.Argument(metavar="MODEL", help="A network of the zoo, or a model file.")]
Target = Annotated[str, typer.Option(help="host (this machine) or a board: cortex-m7, stm32f746, esp32-c3, …")]
TrainingTarget = Annotated[
    str, typer.Option(help="host (this machine), cuda (the same bytes on a GPU), or a board: cortex-m7, …")
]
Input = Annotated[ImageInput, typer.Option("--input", help="Whether the image arrives in rows or lies whole in SRAM.")]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Limit for SRAM, such as 128KB (1 KB is 1,024 bytes); without --scheme the best known scheme for it learns"
    ),
]
OneScheme = Annotated[
    str | None,
    typer.Option(help="What learns; without it the program only infers, or learns what --budget leaves room for."),
]
Audio = Annotated[
    str | None,
    typer.Option(help="How sound becomes the input: mfcc or yamnet, and what differs, as in mfcc,window=640,hop=320."),
]
Memory = Annotated[str, typer.Option(help="Most memory that the contents of one file may take, such as 4GB.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Sizes of an input that an .onnx file leaves open, as in input=1,3,96,96."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there already.")]
LabelColumns = Annotated[
    str | None,
    typer.Option(
        "--label", help="Of a .csv table: the column, or columns as in a,b, to learn; none for none. Else the last one."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

Result = (
    Summary
    | RunSummary
    | WrittenModel
    | QuantizedFile
    | CompiledProject
    | Profile
    | TimeProfile
    | TrainingSummary
    | AnalysisSummary
    | Found
    | Pareto
    | Fitted
    | Demonstration
    | Predictions
    | ClassesTested
    | CellsTested
    | LabelsTested
    | NumbersTested
    | ReconstructionTested
    | BoardTraining
    | BoardReplayed
    | BoardState
    | BoardWatched
)


TABLES = (
    Summary,
    Profile,
    TimeProfile,
    Predictions,
    ClassesTested,
    CellsTested,
    LabelsTested,
    NumbersTested,
    ReconstructionTested,
)


def show(result: Result, as_json: bool) -> None:
    if as_json:
        say(as_text(result))
    elif isinstance(result, TABLES):
        print_rich(result)
    else:
        say(str(result))


def as_text(result: Result) -> str:
    """A result as one JSON object; shares of channels are written as 1/8."""
    return json.dumps(asdict(result), allow_nan=False, default=str)


def memory_bytes(text: str) -> int:
    """The option --memory in bytes."""
    if (size := parse_size(text)) < 1:
        raise InputError(f"--memory {text} leaves nothing to read a file with; give a size as 1GB")
    return size


def input_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """The options --shape as sizes by the names of inputs."""
    shapes = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        if not re.fullmatch(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8}){0,7}", sizes) or not name:
            raise InputError(f"--shape {text[:60]} is not an input's name and its sizes; write it like x=1,3,96,96")
        shapes[name] = tuple(int(size) for size in sizes.split(","))
    return shapes


def path_option(*names: str, help: str) -> Any:
    """An option that is a path; an empty one, often a variable of the shell that is not set, is refused."""

    def parse(text: str | Path) -> Path:
        if not str(text):
            raise InputError("a path in the command is empty; name a file or folder, '.' for the working folder")
        return Path(text)

    return typer.Option(*names, parser=parse, metavar="<path>", help=help)


def check_int8(graph: Graph, model: str, source: str = "DATA", otherwise: str = "") -> None:
    """Raise where a model that is to learn is float32, with the command that quantizes it."""
    if is_float(graph):
        to = f"{Path(model).stem or graph.name}-int8.smg"
        command = shlex.join(("smidgen", "quantize", model, "--data", source, "-o", to))
        raise InputError(f"{model} is float32, and what learns computes in int8; quantize it: {command}{otherwise}")


def check_file(path: Path, force: bool, coming: Path = Path()) -> None:
    """Raise unless this file may be written: its folder is there or is `coming`, and what lies there may go."""
    if path.is_dir() or not path.name:
        raise InputError(f"{path} is a folder; name a file to write")
    if path.parent.absolute() != coming.absolute() and not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if not force and path.exists():
        raise InputError(f"{path} is there already; give --force to overwrite it, or name another file")
