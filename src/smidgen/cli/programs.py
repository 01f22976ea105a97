"""Verbs that make programs: compile and profile."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from smidgen.cli.options import Learning, with_learning
from smidgen.cli.searching import choose_scheme
from smidgen.cli.shared import (
    MEMORY_TEXT,
    Audio,
    Budget,
    Force,
    ImageInput,
    Input,
    Json,
    Memory,
    Model,
    OneScheme,
    Target,
    app,
    check_file,
    check_int8,
    memory_bytes,
    path_option,
    show,
)
from smidgen.cli.terminal import print_rich, spinner, warn
from smidgen.codegen import Kind, check_project
from smidgen.data.audio import with_audio_front_end
from smidgen.data.files import write_whole
from smidgen.errors import InputError, StreamError
from smidgen.ir import Graph
from smidgen.pipeline import Program, compile
from smidgen.results.memory import draw_memory
from smidgen.results.profile import profile, time_program
from smidgen.results.summaries import CompiledProject
from smidgen.targets import device as targets
from smidgen.targets import find, find_board
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.zoo.loading import load

AlignedOnly = Annotated[
    bool, typer.Option("--aligned-only", help="For a board: read and write aligned words only. Slower.")
]


MaybeInput = Annotated[
    ImageInput | None,
    typer.Option("--input", help="As for compile; where left out, in rows if the model can take them, else whole."),
]


class CompilerName(StrEnum):
    """Compilers for boards."""

    zig = "zig"
    gcc = "gcc"


@app.command("compile")
@with_learning
def compile_(
    model: Model,
    output: Annotated[
        Path, path_option("--output", "-o", help="The folder to write: new or empty, or with --force an old project.")
    ],
    scheme: OneScheme = None,
    target: Target = "host",
    image: Input = ImageInput.buffered,
    budget: Budget = None,
    replay: Annotated[
        str | None, typer.Option(help="Flash for what frozen layers made of images, to learn from again, as in 256KB.")
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="Begins the names of files and functions, so that two models can be in one program.")
    ] = "model",
    audio: Audio = None,
    aligned: AlignedOnly = False,
    export: Annotated[
        Kind | None, typer.Option(help="Write a package that this ecosystem's own tools take, with an example.")
    ] = None,
    picture: Annotated[Path | None, path_option(help="Also draw the memory in this HTML file.")] = None,
    *,
    learning: Learning,
    force: Force = False,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Write C sources, a header, an example main, and how to build them."""
    options, streamed = learning.options_for(model, scheme, budget), image is ImageInput.streamed
    check_project(output, force)
    if picture:
        check_file(picture, force, output)
    where = find_board(target, aligned=True) if aligned else find(target)
    if export and isinstance(where, Host):
        where = replace(where, frugal=True)  # C for any core, laid out for a small one
    with spinner(f"reading {model}"):
        graph = load(model, memory_bytes(memory))
        graph = graph if audio is None else with_audio_front_end(graph, audio)
    if options is not None:
        check_int8(graph, model)
    chosen = choose_scheme(graph, scheme, budget, where, options, streamed)
    with spinner(f"compiling {model} for {target}"):
        program = compile(
            graph, chosen, where, options=options, streamed_input=streamed, budget=budget, replay=replay, prefix=prefix
        )
        page = draw_memory(program).encode() if picture else b""
        program.write(output, force, export=export)
        if picture:
            write_whole(picture, page)
    show(_summary(program, output, picture), as_json)


def _summary(program: Program, folder: Path, picture: Path | None) -> CompiledProject:
    memory = program.memory
    return CompiledProject(
        model=program.graph.name,
        target=program.target.name,
        folder=str(folder),
        files=tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())),
        peak_bytes=memory.peak,
        lower_bound_bytes=memory.lower_bound,
        state_bytes=memory.state,
        constant_bytes=memory.constants,
        at_peak=memory.at_peak,
        picture=str(picture) if picture else None,
        replay=program.replay,
    )


def _compile_as_asked(
    graph: Graph,
    scheme: str | None,
    budget: str | None,
    where: targets.Target,
    options: Options | None,
    image: ImageInput | None,
) -> Program:
    """With the image as asked for; unasked in rows, or whole where the model cannot take rows."""

    def compiled(streamed: bool) -> Program:
        chosen = choose_scheme(graph, scheme, budget, where, options, streamed)
        with spinner(f"compiling {graph.name} for {where.name}"):
            return compile(graph, chosen, where, options=options, streamed_input=streamed, budget=budget)

    try:
        return compiled(image is not ImageInput.buffered)
    except StreamError as error:
        if image is not None:
            raise
        warn(f"{error}, and so it lies whole in SRAM")
    return compiled(streamed=False)


@app.command("profile")
@with_learning
def profile_(
    model: Model,
    scheme: OneScheme = None,
    target: Target = "cortex-m7",
    image: MaybeInput = None,
    budget: Budget = None,
    steps: Annotated[int, typer.Option(help="Steps to compare with the reference.")] = 3,
    sram: Annotated[str | None, typer.Option(help="Pretend the board has this much SRAM, such as 128KB.")] = None,
    flash: Annotated[str | None, typer.Option(help="Pretend the board has this much flash, such as 1MB.")] = None,
    stack: Annotated[str | None, typer.Option(help="SRAM reserved for the stack, such as 4KB.")] = None,
    compiler: Annotated[
        CompilerName, typer.Option(help="Builds the firmware: zig's, or gcc for the board's core.")
    ] = CompilerName.zig,
    aligned: AlignedOnly = False,
    layers: Annotated[bool, typer.Option("--layers", help="Also show every node.")] = False,
    runs: Annotated[int, typer.Option(help="Timed runs on host, of which medians are shown.")] = 50,
    *,
    learning: Learning,
    memory: Memory = MEMORY_TEXT,
    as_json: Json = False,
) -> None:
    """Measure SRAM, flash, instructions and exactness on an emulated board, or time and exactness on host."""
    options = learning.options_for(model, scheme, budget)
    if target == "host":
        _check_host_options({"--sram": sram, "--flash": flash, "--stack": stack, "--aligned-only": aligned})
        where: targets.Target = find(target)
        image = image or ImageInput.buffered
    else:
        where = find_board(target, sram, flash, stack, compiler.value, aligned)
    with spinner(f"reading {model}"):
        graph = load(model, memory_bytes(memory))
    if options is not None:
        check_int8(graph, model)
    program = _compile_as_asked(graph, scheme, budget, where, options, image)
    with spinner(f"measuring {program.graph.name} on {target}"):
        result = (
            time_program(program, steps, learning.seed, runs)
            if target == "host"
            else profile(program, steps, learning.seed)
        )
    if layers and not as_json:
        print_rich(result.layers())
    show(result, as_json)


def _check_host_options(given: dict[str, object]) -> None:
    """Raise InputError where an option is given that only boards have."""
    for option, value in given.items():
        if value:
            raise InputError(f"{option} is of boards, and host is this machine; leave it out, or name a board")
