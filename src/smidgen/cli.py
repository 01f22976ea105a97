"""The command line: each verb calls one stage and shows the result object it returns."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
import typer
from rich.console import Console

from smidgen import __version__
from smidgen.demo import Demonstration, demonstrate
from smidgen.errors import InputError, SmidgenError
from smidgen.frontends.files import parse_npy, read_whole, write_whole
from smidgen.frontends.native import write_smg
from smidgen.frontends.tflite import write_tflite
from smidgen.inspection import Summary, describe
from smidgen.ir import Array, Graph, Value, check_inputs, evaluate
from smidgen.loading import load
from smidgen.pipeline import Program, compile

TOP = 5  # classes shown
WIDTH = 120  # columns, where the output is no terminal

app = typer.Typer(
    help="Train int8 neural networks on microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A network of the zoo, or a model file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class RunTarget(StrEnum):
    """Where `run` computes: the numpy reference, or C on this machine."""

    reference = "reference"
    host = "host"


class CompileTarget(StrEnum):
    """What `compile` writes C for."""

    host = "host"


@dataclass(frozen=True)
class Ranked:
    """An element and its value, as the network holds it and as the number that stands for."""

    index: int
    value: float | None  # None where it is no finite number
    real: float | None


@dataclass(frozen=True)
class Output:
    """One output tensor of a run."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str | None
    top: tuple[Ranked, ...]

    def __str__(self) -> str:
        written = f" → {self.file}" if self.file else ""
        lines = [f"{self.name} {self.dtype}{list(self.shape)}{written}"]
        lines += [f"  {rank.index:>6}  {rank.value:>6}  {rank.real}" for rank in self.top]
        return "\n".join(lines)


@dataclass(frozen=True)
class Run:
    """A run of a model on some target."""

    model: str
    target: str
    outputs: tuple[Output, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.outputs))


@dataclass(frozen=True)
class Written:
    """A model written to a file."""

    model: str
    file: str
    bytes: int
    layers: int
    macs: int
    parameters: int

    def __str__(self) -> str:
        size = f"{self.layers} layers, {self.macs:,} MACs, {self.parameters:,} parameters"
        return f"{self.model}: {size} → {self.file} ({self.bytes:,} bytes)"


@dataclass(frozen=True)
class Use:
    """A tensor alive at the peak, and its bytes."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Compiled:
    """A project written for a target."""

    model: str
    target: str
    folder: str
    files: tuple[str, ...]
    peak_bytes: int
    lower_bound_bytes: int
    constant_bytes: int
    at_peak: tuple[Use, ...]

    def __str__(self) -> str:
        largest = ", ".join(f"{use.name} {use.bytes:,}" for use in self.at_peak[:3])
        return (
            f"{self.model} for {self.target}: {len(self.files)} files → {self.folder}\n"
            f"arena {self.peak_bytes:,} bytes of SRAM (at least {self.lower_bound_bytes:,}), "
            f"constants {self.constant_bytes:,} bytes of flash\n"
            f"at the peak: {largest}"
        )


Result = Summary | Run | Written | Compiled | Demonstration


def _show(result: Result, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(result), allow_nan=False))
    elif isinstance(result, Summary):
        Console(width=None if sys.stdout.isatty() else WIDTH).print(result)
    else:
        typer.echo(str(result))


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """A spinner on stderr; nothing where that is no terminal."""
    with Console(stderr=True).status(text):
        yield


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"smidgen {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    pass


@app.command()
def info(model: Model, as_json: Json = False) -> None:
    """Layers, shapes, MACs, parameters, quantization."""
    with _progress(f"reading {model}"):
        summary = describe(load(model))
    _show(summary, as_json)


@app.command()
def run(
    model: Model,
    inputs: Annotated[list[Path], typer.Option("--input", "-i", help="A .npy file for each input, in order.")],
    outputs: Annotated[list[Path] | None, typer.Option("--output", "-o", help="A .npy file for each output.")] = None,
    target: Annotated[RunTarget, typer.Option(help="Where to compute.")] = RunTarget.reference,
    as_json: Json = False,
) -> None:
    """Raw tensors through a model."""
    with _progress(f"reading {model}"):
        graph = load(model)
    files: list[Path] | list[None] = outputs or [None] * len(graph.outputs)
    arrays = tuple(parse_npy(read_whole(path), str(path)) for path in inputs)
    check_inputs(graph, arrays)
    if len(files) != len(graph.outputs):
        raise InputError(f"{graph.name} has {len(graph.outputs)} outputs, {len(files)} files were named for them")
    with _progress(f"running {graph.name} on {target}"):
        results = _compute(graph, arrays, target)
    for file, array in zip(files, results, strict=True):
        if file:
            _write_npy(file, array)
    shown = [
        _output(value, array, str(file) if file else None)
        for value, array, file in zip(graph.outputs, results, files, strict=True)
    ]
    _show(Run(graph.name, str(target), tuple(shown)), as_json)


def _compute(graph: Graph, arrays: tuple[Array, ...], target: RunTarget) -> tuple[Array, ...]:
    if target is RunTarget.reference:
        return evaluate(graph, *arrays)
    with compile(graph, target=str(target)).start() as device:
        return device.run(*arrays)


def _output(value: Value, array: Array, file: str | None) -> Output:
    flat, q = array.reshape(-1), value.type.q
    best = np.argsort(-flat.astype(np.float64), kind="stable")[:TOP]
    scale, zero = (q.one, q.zero) if q is not None and q.axis is None else (1.0, 0)
    top = tuple(_ranked(int(index), flat[index].item(), scale, zero) for index in best)
    return Output(value.name, value.type.dtype, value.type.shape, file, top)


def _ranked(index: int, value: float, scale: float, zero: int) -> Ranked:
    if not math.isfinite(value):
        return Ranked(index, None, None)
    return Ranked(index, value, scale * (value - zero))


def _write_npy(path: Path, array: Array) -> None:
    data = BytesIO()
    np.save(data, array, allow_pickle=False)
    write_whole(path, data.getvalue())


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A model file, or a network of the zoo.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="model.smg, or model.tflite to export.")],
    as_json: Json = False,
) -> None:
    """Read a model of another format and write it as .smg or .tflite."""
    if output.suffix not in (".smg", ".tflite"):
        raise InputError(f"{output} should end in .smg or .tflite: those are the files that are written")
    with _progress(f"importing {source}"):
        graph = load(source)
        if output.suffix == ".smg":
            write_smg(graph, output)
        else:
            write_whole(output, write_tflite(graph))
    size, summary = output.stat().st_size, describe(graph)
    result = Written(graph.name, str(output), size, len(summary.layers), summary.macs, summary.parameters)
    _show(result, as_json)


@app.command("compile")
def compile_(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder that is new or empty.")],
    target: Annotated[CompileTarget, typer.Option(help="What to write C for.")] = CompileTarget.host,
    as_json: Json = False,
) -> None:
    """C sources, header, example main, and how to build them."""
    with _progress(f"compiling {model} for {target}"):
        program = compile(load(model), target=str(target))
        program.write(output)
    _show(_compiled(program, output), as_json)


def _compiled(program: Program, folder: Path) -> Compiled:
    memory = program.memory
    return Compiled(
        model=program.graph.name,
        target=program.target.name,
        folder=str(folder),
        files=tuple(sorted(path.name for path in folder.iterdir())),
        peak_bytes=memory.peak,
        lower_bound_bytes=memory.lower_bound,
        constant_bytes=memory.constants,
        at_peak=tuple(Use(buffer.name, buffer.bytes) for buffer in memory.at_peak),
    )


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where its files go.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """A network from file to C, checked byte for byte against the reference."""
    with Console(stderr=True).status("starting") as status:
        result = demonstrate(output, status.update)
    _show(result, as_json)


def main() -> None:
    """Run a command; what the user can mend is said in one sentence, without a traceback."""
    try:
        app()
    except SmidgenError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(message: str) -> NoReturn:
    printable = "".join(c if c.isprintable() else "?" for c in message)  # names in files may hold anything
    typer.echo(f"smidgen: {printable}", err=True)
    sys.exit(2)
