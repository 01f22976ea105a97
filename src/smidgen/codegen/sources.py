"""Graph and plan → C: one readable call per node, its parameters, its constants.

Kernels are files of the runtime; what is written here only calls them.
"""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from smidgen.codegen.entries import SYMBOLS, audio_front_end, label_facts
from smidgen.codegen.runtime import HEADERS, PORTABLE, RUNTIME, SOURCES, is_source, render, runtime_files
from smidgen.codegen.writer import Writer, is_call
from smidgen.compiler import Cache
from smidgen.data.pixels import pixel_encoding, pixel_rule
from smidgen.errors import InputError, TargetError
from smidgen.ir import Graph
from smidgen.memory import Plan, state_bytes
from smidgen.memory.phases import Phases
from smidgen.memory.rows import WHOLE, Schedule


@dataclass(frozen=True)
class Sources:
    """A program in C: generated files by name, and the files of the runtime they need."""

    prefix: str
    files: Mapping[str, str]
    runtime: tuple[Path, ...]
    constant_bytes: int
    state_bytes: int
    learns: bool
    streamed_input: bool  # input 0 comes row by row from a source, not from memory
    calls: tuple[int, ...]  # the node behind each kernel call of a step, in order; a prediction makes the first ones
    latent: tuple[int, ...] = ()  # bytes of each part of the latent of a program that replays
    replay_bytes: int = 0  # of flash that it has for latents
    audio_bytes: int = 0  # SRAM of an audio front end, in addition to arena and state
    arena_bytes: int = 0

    @property
    def kernels(self) -> tuple[Path, ...]:
        """Return the files of the runtime that are compiled."""
        return tuple(path for path in self.runtime if is_source(path))

    @property
    def interface_headers(self) -> Mapping[str, str]:
        """Return the headers that the program's own files include, by name."""
        return {path.name: path.read_text("utf-8") for path in self.runtime if path.parent == RUNTIME}

    def objects(self, cache: Cache, *flags: str) -> list[Path]:
        """Compile the kernels, one by one: other programs have the same."""
        headers = {path.name: path.read_text("utf-8") for path in self.runtime if not is_source(path)}

        def compiled(path: Path) -> Path:
            return cache.build(".o", {**headers, path.name: path.read_text("utf-8")}, *flags, "-I.", "-c", path.name)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(compiled, self.kernels))


def generate(
    graph: Graph, plan: Plan, prefix: str = "model", schedule: Schedule = WHOLE, *,
    folders: tuple[str, ...] = PORTABLE, phases: Phases | None = None, learned: bytes = b"",
) -> Sources:  # fmt: skip
    """Return the C of a graph whose tensors lie where the plan says.

    A graph with roles is a training step: its nodes up to the first that reads the label are what a prediction
    runs. Kernels come from `folders` of the runtime. `phases` are the plans of one that also learns in one pass.
    `learned`, where given, is the block of state that the program begins with.
    """
    check_prefix(prefix)
    check_kernels(graph)
    writer = Writer(graph, plan, prefix, schedule, phases, learned)
    symbols = {node.op.symbol(node) for node in writer.nodes if is_call(node)}
    symbols |= {"smg_merge_sums", "smg_forget_class"} if graph.one_pass else set()
    symbols |= {"smg_begin_state"} if graph.state else set()
    return Sources(
        prefix=prefix, files=writer.files(),
        runtime=runtime_files(symbols | set(SYMBOLS if writer.audio else ()), folders),
        constant_bytes=writer.constant_bytes, state_bytes=state_bytes(graph), learns=graph.roles is not None,
        streamed_input=schedule.streamed_input, calls=tuple(_calls(graph, schedule)),
        latent=tuple(v.type.bytes for v in schedule.cut.latent) if schedule.cut else (),
        audio_bytes=writer.audio.bytes if writer.audio else 0, arena_bytes=writer.arena_bytes,
    )  # fmt: skip


def check_kernels(graph: Graph) -> None:
    """Raise TargetError unless there is a kernel for every node."""
    for node in graph.nodes:
        op, what = node.op, f"{type(node.op).__name__}, which gives %{node.outs[0].name},"
        if not is_call(node):
            continue
        if not op.symbol(node):
            found = node.ins[0].type.dtype
            raise TargetError(f"{what} has no C kernel for {found}; quantize the model first")


def _calls(graph: Graph, schedule: Schedule) -> Iterator[int]:
    """Yield the nodes whose kernels one step calls, call after call."""
    index = 0
    while index < len(graph.nodes):
        first, end = schedule.span(index)
        group = next((g for g in schedule.groups if g.first == first), None)
        if group is not None:
            yield from (first + i for i in group.order if i >= 0)
        elif is_call(graph.nodes[index]):
            yield index
        index = end


def interface(graph: Graph, sources: Sources) -> dict[str, object]:
    """Return the facts about a program that its main needs, as fields of templates."""
    image = graph.image.type if sources.streamed_input else None
    audio = audio_front_end(graph, sources.prefix)
    audio_rows, audio_row = audio.spec.rows(audio.type.shape) if audio else (1, 1)
    return {
        "prefix": sources.prefix, "PREFIX": sources.prefix.upper(), "learns": int(sources.learns),
        "replays": int(bool(sources.latent)),
        "streamed": int(sources.streamed_input), "row_bytes": image.bytes // image.shape[1] if image else 0,
        "hand_over": _hand_over(sources), "label": label_facts(graph, sources.prefix),
        "classes": graph.classes, "takes_audio": int(sources.audio_bytes > 0),
        "audio_rows": audio_rows, "audio_row": audio_row,
        "streams": bool(graph.variables), "pixels": pixel_rule(pixel_encoding(graph)),
        "one_pass": int(graph.one_pass is not None),
    }  # fmt: skip


def audio_usage(graph: Graph, sources: Sources) -> str:
    """Return how a program takes audio, for its README; nothing for one that does not."""
    audio = audio_front_end(graph, sources.prefix)
    return render("audio_usage.md", prefix=sources.prefix, audio=audio.fields(streamed=False)) if audio else ""


def _hand_over(sources: Sources) -> str:
    """Return how an image reaches a program, for its README."""
    if sources.audio_bytes:
        return f"push samples into `{sources.prefix}_audio_push`, show them by `{sources.prefix}_audio_show()`"
    if sources.streamed_input:
        return f"name the function that reads a row of the image with `{sources.prefix}_source(read, context)`"
    return f"write the input into `{sources.prefix}_input(0)`"


_PREFIX = re.compile(r"[a-z][a-z0-9_]*")


def check_prefix(prefix: str) -> None:
    """Raise InputError unless files and names that begin so can lie and be linked beside all others."""
    if not _PREFIX.fullmatch(prefix):
        raise InputError(
            f"the prefix {prefix!r} cannot begin C names; use lower-case letters, digits and '_' after one"
        )
    first = prefix.split("_")[0]
    kernels = {path.stem for path in RUNTIME.rglob("*") if path.suffix in (*SOURCES, *HEADERS)}
    files = {prefix, f"{prefix}_link", f"{prefix}_replay", f"{prefix}_weights"} & kernels
    taken = [f"the kernels' own file {min(files)}"] if files else []
    for line in reversed(render("reserved").splitlines()):
        owner, words = line.split(": ")
        if prefix in words.split() or (first in ("smg", "smidgen") and first in words.split()):
            taken.append(owner)
    if taken:
        raise InputError(f"the prefix {prefix!r} is taken by {taken[-1]}; use another, such as 'my_{prefix}'")
