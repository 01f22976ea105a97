"""The verbs compile and profile."""

from __future__ import annotations

from dataclasses import replace

from smidgen.cli import verbs
from smidgen.cli.shared import check_file, choose_scheme, options_for, read_model, with_audio
from smidgen.cli.terminal import print_rich, show, spinner
from smidgen.codegen import PackageKind, check_project
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.results.memory import draw_memory
from smidgen.results.modules import ModuleProfile, profile_modules
from smidgen.results.profile import Profile, TimeProfile, profile, time_program
from smidgen.results.summaries import CompiledProject
from smidgen.targets import find, find_board
from smidgen.targets.device import Target
from smidgen.targets.host import Host
from smidgen.targets.wasm import Wasm


def compile_(asked: verbs.Compile) -> None:
    options, streamed = options_for(asked, asked.model, _scheme(asked), asked.budget), asked.image == "streamed"
    check_project(asked.output, asked.force)
    check_file(asked.picture, asked.force, asked.output)
    where = find_board(asked.target, aligned=True) if asked.aligned else find(asked.target)
    if isinstance(where, Host) and asked.export == PackageKind.npm:
        where = find("wasm")
    elif isinstance(where, Host) and asked.export:
        where = replace(where, frugal=True)  # C for any core, laid out for a small one
    graph = with_audio(asked, read_model(asked, asked.model, learns=options is not None))
    chosen = choose_scheme(graph, _scheme(asked), asked.budget, where, options, streamed)
    with spinner(f"compiling {asked.model} for {asked.target}"):
        program = compile(
            graph, chosen, where, options=options, streamed_input=streamed, budget=asked.budget, replay=asked.replay,
            one_pass=asked.one_pass, prefix=asked.prefix,
        )  # fmt: skip
        page = draw_memory(program).encode() if asked.picture else b""
        program.write(asked.output, asked.force, export=PackageKind(asked.export) if asked.export else None)
        if asked.picture:
            write_whole(asked.picture, page)
    show(CompiledProject(program, asked.output, asked.picture), asked.as_json)


def _scheme(asked: verbs.Compile) -> str | None:
    """Return the scheme asked for; the head alone where one pass is asked for without one."""
    return "head" if asked.one_pass and asked.scheme is None else asked.scheme


def profile_(asked: verbs.Profile) -> None:
    options, image = options_for(asked, asked.model, asked.scheme, asked.budget), asked.image
    here = asked.target in ("host", "wasm")  # not a board
    if here:
        given = {"--sram": asked.sram, "--flash": asked.flash, "--stack": asked.stack, "--aligned-only": asked.aligned}
        for option, value in given.items():
            if value:
                raise InputError(
                    f"{option} applies to boards, and {asked.target} is none; leave it out, or name a board"
                )
        where: Target = find(asked.target)
    else:
        where = find_board(asked.target, asked.sram, asked.flash, asked.stack, asked.compiler, asked.aligned)
    graph = read_model(asked, asked.model, learns=options is not None)
    streamed = image == "streamed"
    if image is None and not here:
        streamed = streams_input(graph, where.working)
    chosen = choose_scheme(graph, asked.scheme, asked.budget, where, options, streamed)
    with spinner(f"compiling {graph.name} for {where.name}"):
        program = compile(graph, chosen, where, options=options, streamed_input=streamed, budget=asked.budget)
    with spinner(f"measuring {program.graph.name} on {asked.target}"):
        result = _measured(program, asked)
    if asked.layers and not asked.as_json:
        print_rich(result.layers())
    show(result, asked.as_json)


def _measured(program: Program, asked: verbs.Profile) -> Profile | TimeProfile | ModuleProfile:
    """Measure a program where it runs: on a board, on this machine, or as WebAssembly."""
    measured = (program, asked.steps, asked.seed)
    if isinstance(program.target, Host):
        return time_program(*measured, asked.runs)
    return profile_modules(*measured, asked.runs) if isinstance(program.target, Wasm) else profile(*measured)
