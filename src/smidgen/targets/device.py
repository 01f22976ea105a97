"""Targets and devices: what runs programs, the checks that all of them share, and samples shared out among several."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, Self, TypeVar

import numpy as np

from smidgen.codegen import Sources
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Node, Value
from smidgen.ir.graph import OnePass
from smidgen.ir.log_mel import LogMel
from smidgen.memory import Plan, state_bytes, state_offsets
from smidgen.numerics import one_pass
from smidgen.numerics.one_pass import Sums
from smidgen.ops.losses import loss_of
from smidgen.ops.rules import check_rate
from smidgen.runtime import working_memory
from smidgen.threads import in_order


class Device(Protocol):
    """A program running somewhere, with its own memory."""

    graph: Graph
    learns: bool

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """Run the graph once: inputs in, outputs out."""

    def predict(self, *arrays: Array) -> int:
        """Return the index of the largest element of output 0, or of the logits of a program that learns.

        Of a program that learns by sigmoid cross-entropy and has one output: 1 where that is above 0, else 0.
        """

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        """Take one step of a program that learns; the loss before it.

        The label is a class, a float32 vector, a uint8 map of classes, or None, as the program's loss asks for.
        """

    def latent(self, image: Array) -> bytes:
        """Return what the frozen front makes of an image, where the program was compiled to replay."""
        raise InputError(f"this device hands over no latents of {self.graph.name}; take host, or an emulated board")

    def replay(self, latent: bytes, label: int | Array | None, learning_rate: float) -> float:
        """Take one step on a latent, which learns what a step on its image would; the loss before it."""
        raise InputError(f"this device takes no latents of {self.graph.name}; take host, or an emulated board")

    def observe(self, image: Array, label: int) -> None:
        """Add a sample to the sums of a program that learns in one pass."""
        self.count(image, label, 1)

    def forget(self, image: Array, label: int) -> None:
        """Take a sample out of the sums again."""
        self.count(image, label, -1)

    def count(self, image: Array, label: int, sign: int) -> None:
        """Add a sample to the sums (1), or take it out (−1); InputError where that is refused."""
        raise InputError(f"this device does not observe samples of {self.graph.name}; take host, or an emulated board")

    def solve(self) -> None:
        """Make the head of the sums; InputError where there are none."""
        raise InputError(
            f"this device does not solve for the head of {self.graph.name}; take host, or an emulated board"
        )

    def distance(self) -> float:
        """Return how far the last image run lies from the nearest class: above 1 it is none of them, 0: not known."""
        raise InputError(f"this device measures no distances of {self.graph.name}; take host, or an emulated board")

    def collect(self) -> None:
        """Begin again with the frozen network and empty sums; the head stays."""
        first = {v.name: self.graph.state[v] for v in collected(self.graph)}
        self.restore({**first, **{v.name: self.state()[v.name] for v in one_pass_of(self.graph).lasting[:-1]}})

    def sums(self) -> Sums:
        """Return the sums; InputError where steps were made since, and they are gone."""
        return sums_in(self.graph, self.state())

    def merge(self, sums: Sums, sign: int = 1) -> None:
        """Add the sums of another device, or take them out (−1)."""
        check_sums(self.graph, sums)
        code, after = one_pass.merge(self.sums(), sums, sign)
        check_code(self.graph, code)
        self.restore(with_sums(self.graph, self.state(), after))

    def forget_class(self, label: int) -> None:
        """Take a class out of the sums by its number; its samples' spread stays in what all classes share."""
        code, after = one_pass.forget_class(self.sums(), label)
        check_code(self.graph, code)
        self.restore(with_sums(self.graph, self.state(), after))

    def audio_features(self, samples: Array) -> Array:
        """Return the input that the program's own front end makes of int16 audio samples that follow silence."""

    def outputs(self) -> tuple[Array, ...]:
        """Return the outputs of the last run or step."""

    def state(self) -> dict[str, Array]:
        """Return a copy of all that outlives a run, by name."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Put back what `state` gave."""

    def twin(self) -> Device | None:
        """Another device that runs the same program in the same state; None where this is the only one there is."""
        return None

    def close(self) -> None:
        """Give its memory back; the end of a `with` block does so."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Target(Protocol):
    """A place where programs run."""

    @property
    def name(self) -> str: ...

    @property
    def frugal(self) -> bool:
        """Return whether memory is scarce, so that early layers run row by row; whole maps are faster."""

    @property
    def overhead(self) -> int:
        """Return the most SRAM that a program takes in addition to arena and state: other static data and the stack."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the runtime folders with its kernels; a file replaces that of the same name in an earlier folder."""

    def working(self, node: Node, by_row: bool) -> int:
        """Return the bytes of working memory a node's kernel needs for a whole call, or for one output row per call."""
        return working_memory(node, by_row, self.folders)

    def project(self, graph: Graph, sources: Sources, fields: Mapping[str, object]) -> dict[str, str]:
        """Return the files of a project in addition to the program and its kernels, by path."""

    def built(self, graph: Graph, sources: Sources) -> Mapping[str, bytes]:
        """Return the files of a project that need no building by its user, by path."""
        return {}

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        """Raise TargetError where the program cannot fit."""

    def start(self, graph: Graph, sources: Sources) -> Device:
        """Build the program and start it."""


def check_step(device: Device, label: int | Array | None, learning_rate: float) -> Array | None:
    """Return the label as the program takes it; InputError unless the device can take this step."""
    graph = device.graph
    if graph.roles is None or not device.learns:
        raise InputError(f"{graph.name} was compiled without a scheme and does not learn; name one to compile()")
    check_rate(learning_rate)
    return loss_of(graph).label(label, graph)


def check_latent(graph: Graph, sizes: tuple[int, ...], latent: bytes | None = None) -> None:
    """Raise InputError unless a program replays, and this is as large as its latents are."""
    if not sizes:
        raise InputError(f"{graph.name} was compiled without replay; give compile() a size of flash for it")
    if latent is not None and len(latent) != sum(sizes):
        raise InputError(f"a latent of {graph.name} has {sum(sizes):,} bytes, given were {len(latent):,}")


CODES = {
    one_pass.NO_CLASS: "the label is none of the classes that there is room for",
    one_pass.FULL: f"with it there would be more than {one_pass.MOST_SAMPLES:,} samples, and sums might overflow",
    one_pass.FEWER: "what is to be forgotten is not in the sums",
    one_pass.EMPTY: "no sample was observed yet",
    one_pass.UNSOUND: "no samples give such sums: they are damaged",
    one_pass.GONE: "steps were made since, and the sums are gone; begin again with collect()",
}


def check_code(graph: Graph, code: int) -> None:
    """Raise InputError with the reason for which an operation on sums was refused."""
    if code:
        raise InputError(f"{graph.name}: {CODES.get(code, f'code {code}')}; nothing has changed")


def one_pass_of(graph: Graph) -> OnePass:
    """Return what a program has to learn in one pass; InputError where it has nothing."""
    if graph.one_pass is None:
        raise InputError(f"{graph.name} was compiled without one pass; give compile() one_pass=True, or --one-pass")
    return graph.one_pass


def collected(graph: Graph) -> tuple[Value, ...]:
    """Return the state of a program while samples are observed: the sums, and what lasts."""
    parts = one_pass_of(graph)
    return (*parts.sums, *parts.lasting)


def sums_in(graph: Graph, state: Mapping[str, Array]) -> Sums:
    """Return the sums in a program's state; InputError where steps took their place."""
    parts = one_pass_of(graph)
    if parts.sums[0].name not in state:
        check_code(graph, one_pass.GONE)
    return Sums(*(held(state, v, graph.name) for v in parts.sums))


def with_sums(graph: Graph, state: Mapping[str, Array], sums: Sums) -> dict[str, Array]:
    """Return a state with other sums."""
    arrays = zip(one_pass_of(graph).sums, (sums.n, sums.m, sums.g), strict=True)
    return {**state, **{v.name: array for v, array in arrays}}


def check_sums(graph: Graph, sums: Sums) -> None:
    """Raise InputError unless sums have as many classes and features as a program."""
    if sums.m.shape != (wanted := one_pass_of(graph).sums[1].type.shape):
        raise InputError(
            f"{graph.name} has sums of {wanted[0]} classes by {wanted[1]} features, given are {sums.m.shape[0]} by "
            f"{sums.m.shape[1]}"
        )


def restart(device: Device) -> None:
    """Put the variables of a streaming network back to what they begin with; what was learned stays."""
    first = {v.name: device.graph.state[v] for v in device.graph.variables}
    if first:
        device.restore({**device.state(), **first})


def check_audio(graph: Graph, samples: Array) -> tuple[int, int]:
    """Return the rows of a program's input and bytes of a row; InputError unless it takes audio samples like these."""
    spec = graph.preprocessing
    if not isinstance(spec, LogMel) or graph.image.type.dtype != "int8":
        raise InputError(f"{graph.name} has no front end for sound; give its graph a LogMel as preprocessing")
    if samples.dtype != np.int16 or samples.ndim != 1:
        raise InputError(f"sound is int16[samples], not {samples.dtype}{list(samples.shape)}")
    return spec.rows(graph.image.type.shape)


def held(state: Mapping[str, Array], value: Value, program: str) -> Array:
    """Return a value from a state; InputError where the state belongs to another program than the one named."""
    found, type_ = state.get(value.name), value.type
    if found is None or found.shape != type_.shape or found.dtype.name != type_.dtype:
        what = "nothing" if found is None else f"{found.dtype.name}{list(found.shape)}"
        raise InputError(
            f"%{value.name} of {program} is {type_.dtype}{list(type_.shape)}, the given state holds {what}: "
            "it belongs to another program"
        )
    return found


def tensor(value: Value, data: bytes, at: int = 0) -> Array:
    """Return a copy of the value that lies at `at` in some bytes."""
    return np.frombuffer(data, value.type.dtype, value.type.size, at).reshape(value.type.shape).copy()


def read_state(graph: Graph, block: bytes) -> dict[str, Array]:
    """Return the state in a program's block, by name; of one that learns in one pass, that of its phase."""
    places = state_offsets(graph)
    phase = graph.one_pass and int(tensor(graph.one_pass.phase, block, places[graph.one_pass.phase])[0])
    return {v.name: tensor(v, block, at) for v, at in places.items() if v in phase_state(graph, bool(phase))}


def phase_state(graph: Graph, collecting: bool) -> tuple[Value, ...]:
    """Return the state that there is in a phase, which is all of it where there is but one."""
    if graph.one_pass is None:
        return tuple(graph.state)
    return collected(graph) if collecting else tuple(v for v in graph.state if v not in graph.one_pass.sums)


def state_block(graph: Graph, state: Mapping[str, Array]) -> bytes:
    """Return a state as a program's block; InputError unless it is one of the graph."""
    check_state(graph, state)
    block: Array = np.zeros(state_bytes(graph), np.uint8)
    for v, at in ((v, at) for v, at in state_offsets(graph).items() if v.name in state):
        block[at : at + v.type.bytes] = np.ascontiguousarray(state[v.name]).reshape(-1).view(np.uint8)
    return block.tobytes()


def check_state(graph: Graph, state: Mapping[str, Array]) -> None:
    """Raise InputError unless this is a state of the graph, or of one of its phases."""
    phase = state.get(graph.one_pass.phase.name) if graph.one_pass else None
    values = phase_state(graph, phase is not None and bool(phase.any()))
    for v in values:
        held(state, v, graph.name)
    if extra := set(state) - {v.name for v in values}:
        raise InputError(
            f"the given state holds %{min(extra)}, which {graph.name} does not have: it belongs to another program"
        )


Item = TypeVar("Item")
Result = TypeVar("Result")
FEWEST = 32  # samples for each device: to start another takes as long as some of them


def share_out(
    device: Device, function: Callable[[Device, Item], Result], items: Iterable[Item], threads: int
) -> Generator[Result]:
    """function(device, item) of every item in turn, by the device and by others like it.

    The device does it alone where it is the only one there can be, or carries variables from sample to sample. Who
    stops early closes this before the device.
    """
    free: SimpleQueue[Device] = SimpleQueue()
    free.put(device)

    def run(item: Item) -> Result:
        one = free.get()
        try:
            return function(one, item)
        finally:
            free.put(one)

    with ExitStack() as opened:
        for _ in range(1, 1 if device.graph.variables else threads):
            twin = device.twin()
            if twin is None:
                break
            free.put(opened.enter_context(twin))
        yield from in_order(run, items, free.qsize())
