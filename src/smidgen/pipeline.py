"""From a graph to a program: every stage in order, on one screen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from smidgen import codegen, ir, memory
from smidgen.codegen import Sources
from smidgen.errors import InputError, PlanError
from smidgen.ir import Array, Graph
from smidgen.ir.verifying import fits_scores
from smidgen.memory import Memory, Plan, ordering, streaming
from smidgen.memory.layout import Working
from smidgen.memory.phases import Phases, check_phases, lay_out_phases
from smidgen.memory.rows import Schedule
from smidgen.memory.streaming import PlannedSchedule
from smidgen.targets import find
from smidgen.targets.boards import BOARDS, Board, parse_size
from smidgen.targets.device import Device, Target
from smidgen.training import Options, Training, build_training, passes
from smidgen.training.one_pass import with_one_pass
from smidgen.training.scheme import Scheme, load_scheme


def compile(
    model: Graph,
    scheme: Scheme | str | None = None,
    target: str | Target = "host",
    *,
    options: Options | None = None,
    images: tuple[Array, ...] = (),
    streamed_input: bool = False,
    budget: int | str | None = None,
    replay: int | str | None = None,
    one_pass: bool = False,
    prefix: str = "model",
    class_names: tuple[str, ...] = (),
) -> Program:
    """Compile a model to C for a target: what infers, or with a scheme what learns.

    `options` set how it learns; `images`, where given, set its first exponents; with `streamed_input` the
    image is handed over row by row and never held whole; a `budget`, in bytes or as "128KB" (of 1,024 bytes each),
    is the most that arena and state may take. Early layers run row by row where the target's memory is scarce, the
    image is streamed or there is a budget; the bytes computed are the same. With `replay`, a size of flash, it can also
    learn from what its frozen layers made of earlier images (docs/internals/replay.md). With `one_pass` it can also
    make its head of sums over samples (docs/one-pass.md); without a scheme, steps then teach the head alone. `prefix`
    begins the names of files and functions; `class_names` are those of the classes that it learns, or scores. Without
    any a model's own stay, also where its head is kept and learns.
    """
    where = find(target) if isinstance(target, str) else target
    most = None if budget is None else parse_size(str(budget))
    room = None if replay is None else parse_size(str(replay))
    ir.verify(model)
    training = None
    if one_pass:
        scheme, options = scheme or "head", replace(options or Options(), head_dtype="float32")
    if scheme is None:
        graph = with_classes(model, class_names)
    else:
        training = _train(model, scheme, options, images, class_names)
        graph = passes.run(training.step)
    codegen.check_kernels(graph)
    frugal = where.frugal or streamed_input or most is not None
    best = _lay_out(graph, frugal, streamed_input, where.working, room is not None)
    memory.check(best.graph, best.plan, best.schedule, working=where.working)
    best, phases = _one_pass(model, training, best, frugal, where.working) if one_pass and training else (best, None)
    sources = codegen.generate(best.graph, best.plan, prefix, best.schedule, folders=where.folders, phases=phases)
    sources = replace(sources, replay_bytes=room or 0)
    if most is not None:
        _afford(best, sources, most, where.working)
    where.check(best.graph, best.plan, sources)
    kept = None if room is None else _replay(best, room)
    return Program(best.graph, where, best.schedule, best.plan, sources, training, kept)


def plan(
    model: Graph, scheme: Scheme, target: Target, *, options: Options, streamed_input: bool = False
) -> PlannedSchedule:
    """Return the memory plan that compile() would make where memory is scarce, without the C."""
    step = passes.run(build_training(model, scheme, options, images=None).step)
    return _lay_out(step, True, streamed_input, target.working)


def _lay_out(
    graph: Graph, frugal: bool, streamed_input: bool, working: Working, replays: bool = False
) -> PlannedSchedule:
    """Return the graph in its own order, or in another under which it takes less memory and can run as well."""
    layouts: list[PlannedSchedule] = []
    for one in ordering.candidates(graph, working=working):
        try:
            where = streaming.cut(one, streamed_input) if replays else None
            rows = frugal and streaming.stream_rows(one, streamed_input, working=working, where=where)
            layouts.append(rows or streaming.lay_out(one, Schedule(cut=where), working=working))
        except PlanError:  # an order that puts something before the first layer cannot stream the image
            if not layouts:
                raise
    return min(layouts, key=lambda layout: layout.peak)


def _one_pass(
    model: Graph, training: Training, step: PlannedSchedule, frugal: bool, working: Working
) -> tuple[PlannedSchedule, Phases]:
    """Return a step that also learns in one pass, and the memory of that beside the step's, checked."""
    graph = with_one_pass(model, training, step.graph)
    assert graph.one_pass is not None
    collect = graph.one_pass.collect  # in its own order: it ends in what observes a sample
    rows = frugal and streaming.stream_rows(collect, step.schedule.streamed_input, working=working)
    phases = lay_out_phases(graph, step, rows or streaming.lay_out(collect, working=working), working)
    check_phases(graph, phases, working)
    return replace(step, graph=graph), phases


def with_classes(graph: Graph, names: tuple[str, ...]) -> Graph:
    """Return the graph with these names of classes, or with its own where none are given."""
    if names and not fits_scores(names, graph.scores.type):
        shape = list(graph.scores.type.shape)
        raise InputError(
            f"{len(names)} names were given for the scores {shape} of {graph.name}; give each one name, not too long"
        )
    return replace(graph, classes=names) if names else graph


def _train(
    model: Graph, scheme: Scheme | str, options: Options | None, images: tuple[Array, ...], names: tuple[str, ...]
) -> Training:
    chosen = load_scheme(scheme, model) if isinstance(scheme, str) else scheme
    training = build_training(model, chosen, options or Options(), images)
    names = names or (model.classes if training.head.start == "keep" else ())
    return replace(training, step=with_classes(training.step, names), forward=with_classes(training.forward, names))


def _afford(best: PlannedSchedule, sources: Sources, budget: int, working: Working) -> None:
    """Raise PlanError where arena and state exceed the budget."""
    graph, layout, arena, state = best.graph, best.plan, sources.arena_bytes, sources.state_bytes
    needed = state + arena
    if needed <= budget:
        return
    streamed = needed if best.schedule.streamed_input else _streamed(graph, needed, working)
    least = f"{streamed:,}, with the image streamed" if streamed < needed else f"{needed:,}"
    less = "Let less learn" if graph.updates else "Take a smaller model"
    raise PlanError(
        f"{graph.name} needs {needed:,} bytes of SRAM (arena {arena:,}, state {state:,}), the budget is "
        f"{budget:,}; the least that can be reached is {least}. At the peak stand {memory.peak_parts(layout)}. "
        + ("Stream the image." if streamed <= budget else f"{less}, or raise the budget.")
    )


def _replay(layout: PlannedSchedule, flash: int) -> Replay:
    """Return what flash keeps to replay; PlanError where that is nothing."""
    cut = layout.schedule.cut
    assert cut is not None
    size = codegen.kept_bytes(layout.graph, cut.bytes)
    if not (examples := codegen.kept_examples(flash, size)):
        raise PlanError(
            f"{flash:,} bytes of flash keep no example of {layout.graph.name} to replay, of {size:,} bytes each; give "
            f"{codegen.least_flash(size):,} or more, or freeze more layers"
        )
    return Replay(flash, cut.bytes, cut.at, examples)


def _streamed(graph: Graph, otherwise: int, working: Working) -> int:
    """Return the bytes of arena and state with the image streamed, or `otherwise` where it has to be held whole."""
    try:
        return memory.state_bytes(graph) + _lay_out(graph, True, True, working).peak
    except PlanError:
        return otherwise


@dataclass(frozen=True)
class Replay:
    """Examples that a program keeps in flash to learn from again: what its frozen front made of images."""

    flash_bytes: int
    latent_bytes: int  # of one
    front_nodes: int  # that a step on it skips
    examples: int  # kept at most, in sectors of 4 KB that are programmed by 256 bytes

    def __str__(self) -> str:
        return (
            f"replay     {self.flash_bytes:>11,} bytes of flash keep {self.examples:,} examples of "
            f"{self.latent_bytes:,} bytes; a step on one skips {self.front_nodes} nodes\n"
            "           bounded by whole pages of 256 bytes for an example and for its head, by sectors that stay "
            "free to be erased, and by 256 places"
        )


@dataclass(frozen=True)
class Program:
    """A graph compiled: its C, its memory, and a way to run it."""

    graph: Graph
    target: Target
    schedule: Schedule
    plan: Plan
    sources: Sources
    training: Training | None = None
    replay: Replay | None = None

    @property
    def memory(self) -> Memory:
        """Return its bytes of SRAM and of flash."""
        found = memory.planned_memory(self.plan, self.sources.state_bytes, self.sources.constant_bytes)
        return replace(found, peak=self.sources.arena_bytes)

    def start(self) -> Device:
        """Build the program and start it on its target."""
        return self.target.start(self.graph, self.sources)

    def files(self) -> dict[str, str]:
        """Return a project that builds by `make` or CMake, by path: model, kernels it uses, what its board needs."""
        fields = codegen.project_fields(self.graph, self.sources, self.sources.arena_bytes)
        board = self.target.project(self.graph, self.sources, fields)
        return codegen.project_files(self.graph, self.sources, board)

    def package(self, kind: str) -> dict[str, str | bytes]:
        """Return a package by path, as arduino, zephyr, platformio, esp-idf, cmsis-pack, cmake or npm take it."""
        if kind not in list(codegen.PackageKind):
            raise InputError(f"there is no package of kind {kind!r}; known are {', '.join(codegen.PackageKind)}")
        board = BOARDS.get(self.target.name)
        if kind == codegen.PackageKind.npm:
            return self._modules(board)
        core = (board.core.title, board.core.isa) if board else None
        return codegen.package_files(
            codegen.PackageKind(kind), self.graph, self.sources, self.sources.arena_bytes, core
        )

    def write(self, folder: str | Path, force: bool = False, *, export: str | None = None) -> None:
        """Write the project into a new or empty folder, whole or not at all; `force` replaces a project there.

        With `export` it is a package for another ecosystem's own tools: see `package`.
        """
        codegen.write_project(self.package(export) if export else self._project(), Path(folder), force)

    def _modules(self, board: Board | None) -> dict[str, str | bytes]:
        """Return a package of WebAssembly modules."""
        from smidgen.targets.wasm import Wasm

        if board is not None:
            raise InputError(
                f"npm takes WebAssembly, and this program was compiled for {board.name}; compile it for wasm"
            )
        where = self.target if isinstance(self.target, Wasm) else Wasm()
        return codegen.npm_files(self.graph, self.sources, where.built(self.graph, self.sources))

    def _project(self) -> dict[str, str | bytes]:
        """Return the project, and what of it is built already."""
        files: dict[str, str | bytes] = dict(self.files())
        return codegen.listed(files | dict(self.target.built(self.graph, self.sources)))
