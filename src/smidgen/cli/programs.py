"""Verbs that make programs: compile and profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smidgen.cli.shared import (
    MEMORY_TEXT,
    Accumulate,
    Classes,
    HeadKind,
    HeadType,
    Image,
    Input,
    Json,
    Memory,
    Model,
    Momentum,
    OneScheme,
    Qas,
    Seed,
    Target,
    WeightBits,
    app,
    memory_bytes,
    print_rich,
    show,
    spinner,
)
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.pipeline import Program, compile
from smidgen.results.profiling import profile
from smidgen.results.verbs import Compiled, Use
from smidgen.targets.finding import find_board
from smidgen.training import Head, Options
from smidgen.zoo.loading import load


@app.command("compile")
def compile_(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder that is new or empty.")],
    scheme: OneScheme = None,
    target: Target = "host",
    image: Input = Image.buffered,
    budget: Annotated[
        str | None, typer.Option(help="The most SRAM that arena and state may take, as 128KB (of 1,024 bytes each).")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="An HTML file to draw its memory in.")] = None,
    classes: Classes = None,
    weight_bits: WeightBits = 12,
    head: HeadType = HeadKind.float32,
    momentum: Momentum = 0.0,
    accumulate: Accumulate = 1,
    qas: Qas = True,
    seed: Seed = 0,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """C sources, header, example main, and how to build them."""
    options = _options(model, scheme, classes, (weight_bits, qas, momentum, accumulate, head.value, seed))
    with spinner(f"compiling {model} for {target}"):
        streamed = image is Image.streamed
        program = compile(
            load(model, memory_bytes(memory)), scheme, target, options=options, streamed_input=streamed, budget=budget
        )
        page = _drawn(program) if picture else b""
        program.write(output)
        if picture:
            write_whole(picture, page)
    show(_compiled(program, output, picture), as_json)


def _drawn(program: Program) -> bytes:
    from smidgen.results.drawing import draw_memory  # here, because plotly takes a while to import

    return draw_memory(program).encode()


def _options(
    model: str, scheme: str | None, classes: int | None, how: tuple[int, bool, float, int, Head, int]
) -> Options | None:
    """How a program learns; None for one that only infers."""
    if scheme is None:
        if classes is not None:
            raise InputError(f"{classes} classes can only be learned with a scheme; give --scheme")
        return None
    if classes is None:
        raise InputError(f"how many classes {model} shall learn with {scheme} is not said; give --classes")
    return Options(classes, *how)


def _compiled(program: Program, folder: Path, picture: Path | None) -> Compiled:
    memory = program.memory
    return Compiled(
        model=program.graph.name,
        target=program.target.name,
        folder=str(folder),
        files=tuple(sorted(path.name for path in folder.iterdir())),
        peak_bytes=memory.peak,
        lower_bound_bytes=memory.lower_bound,
        state_bytes=memory.state,
        constant_bytes=memory.constants,
        at_peak=tuple(Use(buffer.name, buffer.bytes) for buffer in memory.at_peak),
        picture=str(picture) if picture else None,
    )


@app.command("profile")
def profile_(
    model: Model,
    scheme: OneScheme = None,
    target: Target = "cortex-m7",
    image: Input = Image.streamed,
    steps: Annotated[int, typer.Option(help="Steps to compare with the reference.")] = 3,
    sram: Annotated[str | None, typer.Option(help="SRAM of the board, as 128KB, instead of its own.")] = None,
    flash: Annotated[str | None, typer.Option(help="Flash of the board, as 1MB, instead of its own.")] = None,
    stack: Annotated[str | None, typer.Option(help="SRAM set aside for the stack, as 4KB.")] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show every node, too.")] = False,
    classes: Classes = None,
    weight_bits: WeightBits = 12,
    head: HeadType = HeadKind.float32,
    momentum: Momentum = 0.0,
    accumulate: Accumulate = 1,
    qas: Qas = True,
    seed: Seed = 0,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """SRAM, flash, instructions and exactness, measured on an emulated board."""
    options = _options(model, scheme, classes, (weight_bits, qas, momentum, accumulate, head.value, seed))
    where = find_board(target, sram, flash, stack)
    with spinner(f"compiling {model} for {target}"):
        program = compile(
            load(model, memory_bytes(memory)), scheme, where, options=options, streamed_input=image is Image.streamed
        )
    with spinner(f"measuring {program.graph.name} on {target}"):
        result = profile(program, steps, seed)
    if layers and not as_json:
        print_rich(result.layers())
    show(result, as_json)
