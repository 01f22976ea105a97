"""A board as a target, with a Cortex-M or a RISC-V core: firmware for it, run on an emulated one."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from smidgen import codegen
from smidgen.codegen import Sources
from smidgen.compiler import Cache, cache_folder
from smidgen.errors import TargetError
from smidgen.ir import Array, Graph, Value, check_inputs
from smidgen.memory import Plan, Sram, state_bytes
from smidgen.targets import device, toolchain
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.boards import BOARDS, KIB, Board
from smidgen.targets.counter import ENTRY, GENERATED, KERNEL, Counter
from smidgen.targets.image import Image, bound_stack, read_image
from smidgen.targets.qemu import QemuBoard
from smidgen.targets.toolchain import TOOLCHAINS, Toolchain, render_board, start_files

BLOCKS = ("arena", "state")  # the program's blocks of SRAM, by their names in C
PROJECT = ("Makefile", "CMakeLists.txt", "README.md")
SWITCHES = "#define LINK 1\n#define KEEPS {:d}\n"  # before a project's main.c
# Static data other than arena and state (36 bytes), and the stack, whose bound was at most 2,200 bytes in every program
# of the three networks that was built: by zig for each core, and by gcc for the Cortex-M7 (docs/internals/chip.md).
OVERHEAD = 2304
ENTRIES = (  # that a host calls
    "run", "predict", "train", "learn", "error", "audio_push", "front", "replay", "observe", "forget", "solve",
    "distance",
)  # fmt: skip
AUDIO_CHUNK = 160  # samples that a request hands over at most, as serve.c has room for
STATIC = 64  # of these at most static data; the rest is stack
LIMIT = 20_000_000_000  # instructions a request may take: minutes of emulation, far above any step


@dataclass(frozen=True)
class BoardTarget(device.Target):
    """Builds firmware for a board with the ziglang wheel, or with gcc for its core, and keeps what it built."""

    board: Board = BOARDS["cortex-m7"]
    toolchain: Toolchain = "zig"
    cache: Path = field(default_factory=cache_folder)
    limit: int = LIMIT
    frugal: bool = True
    overhead: int = OVERHEAD

    @property
    def name(self) -> str:
        return self.board.name

    @property
    def folders(self) -> tuple[str, ...]:
        """Faster kernels take the place of portable ones: those in packed arithmetic where words may lie anywhere."""
        packed = self.board.core.dsp and self.board.core.unaligned
        faster = {"scalar": not packed, "cortex_m": packed, "helium": self.board.core.helium and packed}
        return (*codegen.PORTABLE, *(folder for folder, fits in faster.items() if fits))

    @property
    def largest_budget(self) -> int:
        """Return the most bytes of arena, state and `overhead`: the board reserves more stack than is used."""
        return self.board.sram.bytes - self.board.stack - STATIC + self.overhead

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        """Refuse what the board has no room for, as far as that is known before linking."""
        board, at_peak = self.board, layout.at_peak()
        largest = f" ({at_peak[0].name}, {at_peak[0].bytes:,}, is the largest at its peak)" if at_peak else ""
        parts = f"arena {layout.peak:,}{largest}, state {sources.state_bytes:,}, stack {board.stack:,}"
        parts += f", sound {sources.audio_bytes:,}" if sources.audio_bytes else ""
        needed = max(layout.peak, sources.arena_bytes) + sources.state_bytes + board.stack + sources.audio_bytes
        _fit(graph, sources, board, "SRAM", needed, parts)
        _fit(graph, sources, board, "flash", sources.constant_bytes, f"constants {sources.constant_bytes:,}")

    def build(self, graph: Graph, sources: Sources, main: Mapping[str, str] | None = None) -> Path:
        """Build the firmware of a program, with a main that codegen.serves the host; its stack fits what is reserved.

        `main` are the files of another one.
        """
        try:
            linked = self._link(graph, sources, main)
            bound, board = bound_stack(linked), self.board
            if bound.bytes > board.stack:
                calls = ", ".join(f"{name} {frame:,}" for name, frame in bound.path if frame)
                raise TargetError(
                    f"the stack of {graph.name} can grow to {bound.bytes:,} bytes, {board.name} reserves "
                    f"{board.stack:,}: {calls}. Reserve more with Board(stack=…), for smidgen profile with --stack "
                    f"{-(-bound.bytes // KIB)}KB."
                )
            return linked
        except TargetError as error:
            if not re.search(r"will not fit in region|overflowed by|overlaps", str(error)):
                raise
        # Linked for a board with room for anything, the program shows what it needs.
        board, origin = self.board, self.board.sram.origin
        roomy = board.roomy()
        image = read_image(replace(self, board=roomy)._link(graph, sources, main))
        stack, end = board.stack, max(s.address + s.bytes for s in image.sections if s.address in roomy.sram)
        static = end - origin - stack
        _fit(graph, sources, board, "SRAM", static + stack, f"static data {static:,}, stack {stack:,}")
        code, kept = image.flash_bytes - image.constant_bytes, image.section(".kept").bytes
        parts = f"code {code:,}, constants {image.constant_bytes:,}" + (f", what is kept {kept:,}" if kept else "")
        _fit(graph, sources, board, "flash", image.flash_bytes + kept, parts)
        raise TargetError(f"the linker found no room for {graph.name} on {board.name}")

    def _link(self, graph: Graph, sources: Sources, main: Mapping[str, str] | None) -> Path:
        cache = Cache(self.cache, toolchain.find(self.toolchain, self.board.core))
        serving = main or {"serve.c": self.server(graph, sources)}
        link = toolchain.link_flags(self.toolchain, self.board.core)
        kept = codegen.kept_fields(sources) if "flash.c" in serving else {}
        files = {**sources.interface_headers, **sources.files, **start_files(self.board, kept), **serving}
        own = [name for name in files if name.endswith(".c")]
        return cache.build(".elf", files, "-I.", "-T", "board.ld", *link, *own, *sources.objects(cache))

    def server(self, graph: Graph, sources: Sources) -> str:
        """Return the main that codegen.serves the host."""
        inputs, outputs = (", ".join(str(v.type.bytes) for v in vs) or "0" for vs in (graph.inputs, graph.outputs))
        sizes = {"input_bytes": inputs, "output_bytes": outputs, "piped": int(self.board.core.helium)}
        return render_board(self.board, "serve.c", {**codegen.interface(graph, sources), **sizes})

    def linked(self, graph: Graph, sources: Sources, keeps: bool = True) -> Path:
        """Return the firmware of a program that codegen.serves a host over a link, as its project's example does.

        It keeps what it learned in the board's flash, or nothing.
        """
        main = {**self._example(graph, sources), **codegen.link_header(graph, sources), **codegen.link_files()}
        main |= codegen.ring_header(graph, sources.latent, sources.prefix)
        store = codegen.store_files() if sources.learns else {}
        main |= {Path(name).name: text for name, text in store.items() if name.startswith("smidgen/")}
        return self.build(graph, sources, {**main, "main.c": SWITCHES.format(keeps) + main["main.c"]})

    def _example(self, graph: Graph, sources: Sources) -> dict[str, str]:
        """Return the example of a project, what it includes, and a driver for the flash of an emulated board."""
        names = (
            "main.c",
            *(("port.h",) if codegen.serves(graph) else ()),
            *(("keep.h", "flash.c") if sources.learns else ()),
        )
        fields = {**codegen.interface(graph, sources), **codegen.kept_fields(sources)}
        return {name: render_board(self.board, name, fields) for name in names}

    def start(self, graph: Graph, sources: Sources) -> BoardDevice:
        return BoardDevice(graph, sources, self, self.build(graph, sources))

    def project(self, graph: Graph, sources: Sources, fields: Mapping[str, object]) -> dict[str, str]:
        """Start-up, linker script, an example, two ways to build it, and how to use it."""
        core = self.board.core
        flags = {f"{kind}_flags": " ".join(toolchain.core_flags(kind, core)) for kind in TOOLCHAINS}
        link = {f"{kind}_link": " ".join(toolchain.link_flags(kind, core)) for kind in TOOLCHAINS}
        optional = [flag for flag in toolchain.FLAGS if flag != "-Werror"]
        kept = codegen.kept_fields(sources)
        every = {**fields, **flags, **link, **kept, "flags": " ".join(optional)}
        board = {**start_files(self.board, kept), **self._example(graph, sources)}
        files = {f"board/{name}": text for name, text in board.items()}
        return files | {name: render_board(self.board, name, every) for name in PROJECT}


def _fit(graph: Graph, sources: Sources, board: Board, what: str, needed: int, parts: str) -> None:
    """Raise TargetError unless the board has that much flash or SRAM."""
    there = (board.flash if what == "flash" else board.sram).bytes
    if needed > there:
        ways = {
            "let fewer layers or channels learn": what == "SRAM" and sources.learns,
            "stream the image": what == "SRAM" and not sources.streamed_input,
            "take a smaller network or a board with more": True,
        }
        way = ", ".join(way for way, helps in ways.items() if helps)
        figures = f"{graph.name} needs {needed:,} bytes of {what}, {board.name} has {there:,}: {parts}"
        raise TargetError(f"{figures}. {way[0].upper()}{way[1:]}.")


@dataclass(frozen=True)
class Counts:
    """Instructions from a call into the program to its return."""

    total: int
    by_function: Mapping[str, int]  # most first
    by_node: tuple[int, ...]  # of the graph, in its order
    between: int  # outside the kernels: the calls themselves


class BoardDevice(device.Device):
    """A program on an emulated board, from reset on."""

    def __init__(self, graph: Graph, sources: Sources, target: BoardTarget, firmware: Path) -> None:
        image = read_image(firmware)
        self.graph, self.learns, self.image = graph, sources.learns, image
        self._stack_bound = bound_stack(firmware).bytes
        self.compiler, self.clock = target.toolchain, target.board.clock
        self.front_end_instructions, self._latent = 0, sources.latent
        self._streamed, self._limit = sources.streamed_input, target.limit
        self._counter = Counter(image, _roles(graph, sources, image), sources.calls, len(graph.nodes))
        emulator = QemuBoard if target.board.core.helium else EmulatedBoard
        self._board: EmulatedBoard | QemuBoard | None = emulator(target.board, image, self._counter, target.cache)
        self._ask(b"")  # from reset to where it waits for a request

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        return self._outputs(self._ask(b"r" + self._bytes(self.graph.inputs, arrays)))

    def predict(self, *arrays: Array) -> int:
        (best,) = struct.unpack("<i", self._ask(b"p" + self._bytes(self.graph.prediction_inputs, arrays)))
        return int(best)

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        asked = self._step(b"t", label, learning_rate)
        return _loss(self._ask(asked + self._bytes(self.graph.prediction_inputs, (image,))))

    def latent(self, image: Array) -> bytes:
        device.check_latent(self.graph, self._latent)
        return self._ask(b"k" + self._bytes(self.graph.prediction_inputs, (image,)))

    def replay(self, latent: bytes, label: int | Array | None, learning_rate: float) -> float:
        device.check_latent(self.graph, self._latent, latent)
        return _loss(self._ask(self._step(b"y", label, learning_rate) + latent))

    def count(self, image: Array, label: int, sign: int) -> None:
        device.one_pass_of(self.graph)
        asked = b"w" + struct.pack("<ii", label, sign) + self._bytes(self.graph.prediction_inputs, (image,))
        device.check_code(self.graph, struct.unpack("<i", self._ask(asked))[0])

    def solve(self) -> None:
        device.one_pass_of(self.graph)
        device.check_code(self.graph, struct.unpack("<i", self._ask(b"z"))[0])

    def distance(self) -> float:
        device.one_pass_of(self.graph)
        return _loss(self._ask(b"d"))

    def audio_features(self, samples: Array) -> Array:
        """As every device does; `front_end_instructions` then holds the instructions that it took."""
        device.check_audio(self.graph, samples)
        self._ask(b"h")
        self.front_end_instructions = 0
        for at in range(0, samples.size, AUDIO_CHUNK):
            part = samples[at : at + AUDIO_CHUNK]
            self._ask(b"a" + struct.pack("<i", part.size) + part.astype("<i2").tobytes())
            self.front_end_instructions += self.counts().total
        return device.tensor(self.graph.image, self._ask(b"f"), 0)

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs(self._ask(b"o"))

    def state(self) -> dict[str, Array]:
        return device.read_state(self.graph, self._ask(b"s") if self.graph.state else b"")

    def restore(self, state: Mapping[str, Array]) -> None:
        self._ask(b"l" + device.state_block(self.graph, state))

    def counts(self) -> Counts:
        """Return the instructions of the last run, prediction or step."""
        *nodes, between = (int(count) for count in self._counter.nodes)
        return Counts(sum(nodes) + between, self._counter.by_function(self.image), tuple(nodes), between)

    def memory(self) -> Sram:
        """Return the bytes in use, the stack at its deepest since reset."""
        image = self.image
        arena, state = (sum(s.bytes for s in image.symbols if s.name == name and not s.is_code) for name in BLOCKS)
        if self.graph.one_pass is not None:  # its state lies behind its arena, as one block
            arena, state = arena - state_bytes(self.graph), state_bytes(self.graph)
        other, stack = image.static_bytes - arena - state, self._running().peak_stack() or self._stack_bound
        return Sram(arena, state, other, stack, self._stack_bound)

    def finish(self) -> int:
        """Let the program end, as it does where no request follows; the instructions since reset."""
        return self._running().finish(self._limit)

    def close(self) -> None:
        """Switch the board off; its memory is gone with it."""
        if self._board is not None:
            self._board.close()
        self._board = None

    def _running(self) -> EmulatedBoard | QemuBoard:
        if self._board is None:
            raise TargetError(f"the device running {self.graph.name} is closed; start another")
        return self._board

    def _ask(self, request: bytes) -> bytes:
        return self._running().exchange(request, self._limit)

    def _step(self, command: bytes, label: int | Array | None, learning_rate: float) -> bytes:
        """Return the request for a step, up to its image or latent."""
        given = device.check_step(self, label, learning_rate)
        return command + struct.pack("<f", learning_rate) + (b"" if given is None else given.tobytes())

    def _bytes(self, inputs: tuple[Value, ...], arrays: tuple[Array, ...]) -> bytes:
        """Return inputs as the firmware takes them: in order, but a streamed image last: it is read while in use."""
        self._running()
        check_inputs(self.graph, arrays, inputs)
        parts = [np.ascontiguousarray(array).tobytes() for array in arrays]
        return b"".join((*parts[1:], parts[0]) if self._streamed else parts)

    def _outputs(self, answer: bytes) -> tuple[Array, ...]:
        values = self.graph.outputs
        starts = accumulate((v.type.bytes for v in values), initial=0)
        return tuple(device.tensor(v, answer, at) for v, at in zip(values, starts, strict=False))


def _loss(answer: bytes) -> float:
    return float(struct.unpack("<f", answer)[0])


def _roles(graph: Graph, sources: Sources, image: Image) -> dict[int, int]:
    """Return which addresses begin kernels, which lie between them in the program, and where calls into it enter."""
    kernels = {node.op.symbol(node) for node in (graph.nodes[i] for i in sources.calls)}
    entries = {f"{sources.prefix}_{name}" for name in ENTRIES}
    roles: dict[int, int] = {}
    for symbol in (s for s in image.symbols if s.is_code):
        if symbol.name in kernels:
            roles[symbol.address] = KERNEL
        elif symbol.name in entries or symbol.file == f"{sources.prefix}.c":
            roles |= dict.fromkeys(range(symbol.address, symbol.address + symbol.bytes, 2), GENERATED)
        if symbol.name in entries:
            roles[symbol.address] = GENERATED | ENTRY
    return roles
