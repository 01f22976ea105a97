"""Boards whose programs watch themselves: random bytes lie around all that a kernel is given, and stay as they are.

A kernel that reads past its operands computes with numbers of both signs that differ from program to program, so that
its results differ from numpy's; one that writes past them is trapped behind its call.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from smidgen import codegen, memory
from smidgen.codegen import PORTABLE
from smidgen.codegen.constants import roots
from smidgen.ir import Array, Graph, Node, Type, Value, memory_read, virtual_sources
from smidgen.memory.layout import Buffer, Plan, state_offsets
from smidgen.memory.planner import overlapping
from smidgen.pipeline import Program
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.firmware import BoardDevice, BoardTarget
from tests.support.plans import greedy

GUARD, WORD = 64, 4  # bytes on each side; bytes at the end of working memory of which some have to be written
DECISIONS = 1000  # to place buffers that overlap
DECLARED = re.compile(r"^extern const (\w+) (\w+)\[(\d+)\];", re.MULTILINE)
DEFINED = re.compile(r"^const (\w+) (\w+)\[(\d+)\] = (\{[^;]*\});", re.MULTILINE)
CALL = re.compile(r"(?<=/\* )([^\s,]+)([^*]* = \w+\([^*]*\*/\s+)(smg_\w+\([^;]*\);)")
CLEARED = "arena[i] = 0;"
CHECKS = """
typedef struct {
    uint8_t *from;
    int32_t bytes;
} guarded;

volatile unsigned char touched[@TOUCHED];
static volatile uint32_t painted;

static uint8_t paint_of(const uint8_t *place) {
    uint32_t word = (uint32_t)(uintptr_t)place * 2654435761u + painted * 2246822519u;
    word = (word ^ (word >> 15)) * 2654435769u;
    return (uint8_t)(word >> 24);
}

static __attribute__((noinline)) void paint(const guarded *at, int32_t count) {
    painted++;
    for (; count > 0; count--, at++)
        for (int32_t i = 0; i < at->bytes; i++) at->from[i] = paint_of(at->from + i);
}

static __attribute__((noinline)) int is_painted(const guarded *at, int32_t count) {
    for (; count > 0; count--, at++)
        for (int32_t i = 0; i < at->bytes; i++)
            if (at->from[i] != paint_of(at->from + i)) return 0;
    return 1;
}
"""
# A function for each call, so that a fault is told with the node's name.
TRAP = "static __attribute__((noinline)) void outside_of_{}(void) {{ painted = {}; __builtin_trap(); }}\n"


@dataclass(frozen=True)
class PortableBoard(BoardTarget):
    """A board that runs the portable kernels, whatever its core could do."""

    @property
    def folders(self) -> tuple[str, ...]:
        return PORTABLE


@dataclass(frozen=True)
class Use:
    """A node that has working memory, whether it computes one row per call, and the bytes."""

    node: Node
    by_row: bool
    bytes: int

    @property
    def kernel(self) -> tuple[str, bool]:
        return self.node.op.symbol(self.node), self.by_row


def uses(program: Program) -> list[Use]:
    """Every use of working memory, in the order of the nodes."""
    modes = [(node, program.schedule.streams(index)) for index, node in enumerate(program.graph.nodes)]
    sizes = [(node, by_row, program.target.working(node, by_row)) for node, by_row in modes]
    return [Use(node, by_row, size) for node, by_row, size in sizes if size]


def touched(device: BoardDevice, count: int) -> list[bool]:
    """Return which uses of working memory have written its last word so far, in the order of `uses`."""
    emulator = device._running()
    assert isinstance(emulator, EmulatedBoard)
    symbol = next(symbol for symbol in device.image.symbols if symbol.name == "touched")
    return [bool(byte) for byte in emulator._uc.mem_read(symbol.address, count)]


def watched(program: Program) -> Program:
    """Return the program with guards around every buffer, state, constant and parameter array.

    A trap stands behind each call that wrote to a guard; `touched` tells which calls used all their working memory.
    """
    graph, plan = _guarded_state(program.graph), _spread(program.plan)
    memory.check(graph, plan, program.schedule, working=program.target.working)
    sources = codegen.generate(graph, plan, schedule=program.schedule, folders=program.target.folders)
    found = replace(program, graph=graph, plan=plan, sources=sources)
    files = {name: _guarded_constants(text) for name, text in sources.files.items()}
    files["model.c"] = _guarded_calls(found, files["model.c"])
    return replace(found, sources=replace(sources, files=files))


def _guarded_state(graph: Graph) -> Graph:
    """Return the graph with more state, which nobody reads, before and behind each state."""
    state: dict[Value, Array] = {}
    for index, (value, data) in enumerate(graph.state.items()):
        state |= {_guard(index): _random(f"state {index}", GUARD, np.int8), value: data}
    last = len(graph.state)
    return replace(graph, state=state | {_guard(last): _random("state", GUARD, np.int8)} if state else state)


def _guard(index: int) -> Value:
    return Value(f"guard{index}", Type((GUARD,), "int8"))


def _random(name: str, count: int, dtype: type[np.generic]) -> Array:
    """Return numbers of all sizes and both signs, the same for a name each time."""
    size = np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(zlib.crc32(name.encode())).bytes(count * size), dtype)


def _spread(plan: Plan) -> Plan:
    """Return a plan of the same buffers with GUARD bytes around each."""
    wider = tuple(replace(buffer, bytes=buffer.padded + 2 * GUARD) for buffer in plan.buffers)
    placed = overlapping(wider, DECISIONS) if any(buffer.overlap for buffer in wider) else greedy(wider)
    return Plan(plan.buffers, tuple(offset + GUARD for offset in placed.offsets))


def _guarded_constants(text: str) -> str:
    """Return a file whose constant arrays each lie in a struct, between random elements."""

    def declared(array: re.Match[str]) -> str:
        kind, name, count = array.groups()
        guards = -(-GUARD // _element(kind).itemsize)
        struct = f"struct guarded_{name} {{ {kind} before[{guards}], it[{count}], behind[{guards}]; }}"
        return f"extern const {struct} guarded_{name};\n#define {name} guarded_{name}.it"

    def defined(array: re.Match[str]) -> str:
        kind, name, _, data = array.groups()
        dtype = _element(kind)
        drawn = _random(name, 2 * -(-GUARD // dtype.itemsize), np.int8 if dtype.kind == "f" else dtype.type)
        before, behind = (",".join(map(_literal, half.tolist())) for half in np.split(drawn, 2))
        return f"const struct guarded_{name} guarded_{name} = {{{{{before}}}, {data}, {{{behind}}}}};"

    return DEFINED.sub(defined, DECLARED.sub(declared, text))


def _element(kind: str) -> np.dtype[np.generic]:
    return np.dtype(np.float32 if kind == "float" else kind.removesuffix("_t"))


def _literal(number: int) -> str:
    return "(-2147483647 - 1)" if number == -(2**31) else str(number)


def _guarded_calls(program: Program, text: str) -> str:
    """Return model.c with guards painted before each kernel call, and looked at behind it."""
    nodes = {node.outs[0].name: index for index, node in enumerate(program.graph.nodes)}
    calls = set(program.sources.calls)
    every = uses(program)
    places = {use.node.outs[0].name: (place, use) for place, use in enumerate(every)}
    regions, scratch, traps = _Regions(program), program.plan.scratch(), list[str]()

    def surrounded(call: re.Match[str]) -> str:
        index = nodes[call[1]]
        calls.discard(index)
        guards, note = regions.around(index), ""
        if call[1] in places:
            place, use = places[call[1]]
            end = scratch[index] + use.bytes
            guards = [*guards, f"{{arena + {scratch[index] - GUARD}, {GUARD}}}", f"{{arena + {end}, {GUARD}}}"]
            guards = [f"{{arena + {end - WORD}, {WORD}}}", *guards]
            note = f"if (!is_painted(around, 1)) touched[{place}] = 1; "
        skipped, count = int(bool(note)), len(guards)
        traps.append(TRAP.format(call[1].replace(".", "_"), index))
        check = f"if (!is_painted(around + {skipped}, {count - skipped})) outside_of_{call[1].replace('.', '_')}();"
        around = f"static const guarded around[] = {{{', '.join(guards)}}};"
        return f"{call[1]}{call[2]}{{ {around} paint(around, {count});\n{call[3]}\n{note}{check} }}"

    text = CALL.sub(surrounded, text)
    assert not calls, f"calls not found: {sorted(calls)}"
    assert CLEARED in text
    text = text.replace(CLEARED, "arena[i] = paint_of(arena + i);")
    text = text.replace("arena[MODEL_ARENA_BYTES];", f"arena[MODEL_ARENA_BYTES + {GUARD}];", 1)
    head, include, rest = text.partition('#include "smidgen')
    line, _, rest = rest.partition("\n")
    checks = CHECKS.replace("@TOUCHED", str(len(every) + 1))
    return f"{head}{include}{line}\n{checks}{''.join(traps)}{rest}"


class _Regions:
    """Guards of what a node reads and writes."""

    def __init__(self, program: Program) -> None:
        self.program, self.roots = program, roots(program.graph)
        self.sources = virtual_sources(program.graph)
        self.state = state_offsets(program.graph)
        self.homes = {v: (buffer, at) for buffer, at in program.plan.placed for v in buffer.values}

    def around(self, index: int) -> list[str]:
        node = self.program.graph.nodes[index]
        values = {*memory_read(node, self.sources), *node.outs}
        return sorted({region for value in values for region in self._of(value, index)})

    def _of(self, value: Value, index: int) -> Iterator[str]:
        root = self.roots.get(value, value)
        if value in self.homes:
            buffer, at = self.homes[value]
            for start in (at - GUARD, at + buffer.bytes):
                if self._is_free(start, buffer, index):
                    yield f"{{arena + {start}, {GUARD}}}"
        elif root in self.state:
            at = self.state[root]
            yield from (f"{{state + {start}, {GUARD}}}" for start in (at - GUARD, at + root.type.bytes))

    def _is_free(self, start: int, beside: Buffer, index: int) -> bool:
        """Return whether no other buffer lies there: some are meant to grow into each other."""
        return not any(
            at < start + GUARD and start < at + buffer.bytes
            for buffer, at in self.program.plan.placed
            if buffer is not beside and buffer.start <= index < buffer.end
        )
