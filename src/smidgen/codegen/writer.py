"""The text of a program: every value named once, then its four files, one readable call per node."""

import math
import re
from collections.abc import Iterator

import numpy as np

from smidgen.codegen.constants import Copied, Filled, Gathered, Widened, initial, roots, shared_factors
from smidgen.codegen.entries import ARGUMENTS, PARAMETERS, audio_front_end, predicts, says_yes, step_comment
from smidgen.codegen.one_pass import joined, one_pass_facts, steps_only
from smidgen.codegen.runtime import render
from smidgen.codegen.spelling import (
    C_TYPES,
    comment,
    fingerprint_words,
    identifiers,
    literal,
    text_literal,
    whole,
    wrapped,
)
from smidgen.data.pixels import pixel_encoding, pixel_rule
from smidgen.errors import PlanError
from smidgen.ir import Array, Graph, Node, Roles, Value
from smidgen.ir.graph import OnePass
from smidgen.memory import Plan, state_bytes, state_offsets
from smidgen.memory.phases import Phases
from smidgen.memory.rows import Cut, Group, Schedule
from smidgen.memory.streaming import front
from smidgen.ops.one_pass import ON_SUMS


def is_call(node: Node) -> bool:
    """Return whether a node is a call in C."""
    return not (node.op.view or node.op.virtual)


def order_table(group: Group) -> Array:
    """Return a group's order as C reads it: numbers of nodes, in the least type with one more for rows of the image."""
    for dtype in (np.uint8, np.uint16):
        image = int(np.iinfo(dtype).max)
        if group.end - group.first <= image:
            return np.array([image if index < 0 else index for index in group.order], dtype)
    count = group.end - group.first
    raise PlanError(f"a group of {count:,} nodes runs row by row, the most is {image:,}; stream fewer of them")


class Writer:
    """Names every value once, then writes the four files."""

    def __init__(
        self, graph: Graph, plan: Plan, prefix: str, schedule: Schedule, phases: Phases | None = None,
        learned: bytes = b"",
    ) -> None:  # fmt: skip
        whole = joined(graph, plan, schedule, phases)
        self.graph, self.prefix, self.schedule, self.learned = graph, prefix, whole.schedule, learned
        self.nodes, self.constants, self.arena_bytes = whole.nodes, whole.constants, whole.arena_bytes
        self.forward, self.frozen = graph.prediction_end, whole.frozen
        self.offsets, self.scratch = whole.plan.values(), whole.plan.scratch()
        self.names = identifiers((*graph.inputs, *whole.constants, *graph.state, *whole.added), whole.nodes)
        self.roots = {**roots(graph), **whole.roots}
        self.layers = {node.out: node for node in graph.nodes if node.op.virtual}
        self.named: set[Value] = set()  # whose address the code asked for
        self.tables: dict[str, str] = {}  # in flash, by name: the structs that the code asked for
        self.audio = audio_front_end(graph, prefix)
        self.state, self.initial = state_offsets(graph), tuple(initial(graph, self.frozen))
        self.shared = shared_factors(graph)
        self.alike: dict[str, str] = {}  # arrays of parameters, by name: another that holds the same
        self.data = dict(self._data())
        self.constant_bytes = sum(array.nbytes for array in self.data.values())

    def files(self) -> dict[str, str]:
        """Return the program's files by name, all rendered from the same facts."""
        facts = {
            "prefix": self.prefix, "PREFIX": self.prefix.upper(),
            "name": re.sub(r"[^\w.-]", "_", self.graph.name), "fingerprint": fingerprint_words(self.graph),
            "learns": self.graph.roles is not None, "variables": len(self.graph.variables),
            "streamed": self.schedule.streamed_input,
            "audio": self.audio.fields(self.schedule.streamed_input) if self.audio else None,
            **(self._step(self.graph.roles) if self.graph.roles else {}),
            "latent": self._latent(self.schedule.cut) if self.schedule.cut else None,
            "on_sums": any(isinstance(node.op, ON_SUMS) for node in self.nodes),
            "one_pass": self._one_pass(self.graph.one_pass) if self.graph.one_pass else None,
            **self._header(), **self._body(),
            "data": self.data, "definitions": "\n\n".join(self._definitions()), "c_types": C_TYPES, "literal": literal,
        }  # fmt: skip
        files = {".h": "model.h", ".c": "model.c", "_weights.h": "weights.h", "_weights.c": "weights.c"}
        return {f"{self.prefix}{end}": render(template, **facts) for end, template in files.items()}

    def _latent(self, cut: Cut) -> dict[str, object]:
        """Return what a program that is cut for replay has in addition: its latent, and its run in two parts."""
        return {
            "parts": len(cut.latent), "sizes": ", ".join(str(v.type.bytes) for v in cut.latent), "bytes": cut.bytes,
            "fingerprint": fingerprint_words(front(self.graph, cut)),
            "places": ", ".join(self._place(v) for v in cut.latent),
            "front": "".join(self._calls(0, cut.at)), "rest": "".join(self._calls(cut.at, self.forward)),
        }  # fmt: skip

    def _one_pass(self, parts: OnePass) -> dict[str, object]:
        """Return what a program that learns in one pass has in addition: the frozen network's run, and its sums."""
        at, observe = len(self.graph.nodes), len(self.graph.nodes) + len(parts.collect.nodes) - 1
        return {
            **one_pass_facts(self.graph), "phase": self._place(parts.phase), "sample": self._place(parts.sample),
            "look": "".join(self._calls(at, observe - 1)), "far": "".join(self._calls(observe - 1, observe)),
            "distance": self._place(self.nodes[observe - 1].out), "observe": "".join(self._calls(observe, observe + 1)),
            "solve": "".join(self._calls(observe + 1, len(self.nodes))),
            "sums": [self._place(v) for v in parts.sums],
            "observed": self._place(self.nodes[observe].outs[-1]), "solved": self._place(self.nodes[-1].outs[-1]),
        }  # fmt: skip

    def _data(self) -> Iterator[tuple[str, Array]]:
        """Yield everything in flash by its C name: constants, initial state, and the arrays of parameter structs."""
        copied = {start.value for start in self.initial if isinstance(start, Copied)} - {*self.frozen}
        for value, array in (*self.constants.items(), *self.graph.state.items()):
            if value in self.constants or value in copied:
                yield self._constant(value), array
        for start in self.initial:
            if isinstance(start, Widened):
                yield self._constant(start.value), start.narrow
        known: dict[tuple[str, bytes], str] = {}
        for node in self.nodes:
            for field, item in self._parameters(node).items():
                if isinstance(item, np.ndarray) and item.size:
                    name = self._array(node, field)
                    self.alike[name] = known.setdefault((item.dtype.name, item.tobytes()), name)
                    if self.alike[name] == name:
                        yield name, item
        for group in self.schedule.groups:
            yield self._order(group), order_table(group)
        if self.learned:
            yield f"{self.prefix}_learned", np.frombuffer(self.learned, np.uint8)
        if self.audio is not None:
            yield from self.audio.tables.items()

    def _parameters(self, node: Node) -> dict[str, int | float | Array | str]:
        """Return the fields of a node's parameter struct: numbers, its own arrays, and by name those it shares."""
        own: dict[str, int | float | Array | str] = dict(node.op.params(node))
        shared = self.shared.get(node.outs[0])
        if shared is None:
            return own
        named = {field: self._array(shared.layer, field) for field in ("multiplier", "shift")}
        return own | named | {"correction": shared.packed, "scale": shared.scale, "exponent": shared.exponent}

    def _order(self, group: Group) -> str:
        return f"{self.prefix}_order_{group.first}"

    def _constant(self, value: Value) -> str:
        return f"{self.prefix}_const_{self.names[value]}"

    def _array(self, node: Node, field: str) -> str:
        name = f"{self.prefix}_{field}_{self.names[node.outs[0]]}"
        return self.alike.get(name, name)

    def _place(self, value: Value) -> str:
        """Return the C expression for a value's address."""
        root = self.roots.get(value, value)
        if root in self.constants:
            return self._constant(root)
        self.named.add(root)
        return f"at_{self.names[root]}"

    def _header(self) -> dict[str, object]:
        roles, prefix = {"INPUT": self.graph.inputs, "OUTPUT": self.graph.outputs}, self.prefix.upper()
        return {
            "arena_bytes": max(self.arena_bytes, 1), "constant_bytes": self.constant_bytes,
            "state_bytes": state_bytes(self.graph), "learned": bool(self.learned),
            "pixels": pixel_rule(pixel_encoding(self.graph)),
            "predicts": predicts(self.graph),
            "classes": self.graph.classes, "class_texts": ",\n    ".join(map(text_literal, self.graph.classes)),
            "inputs": len(self.graph.inputs), "outputs": len(self.graph.outputs),
            "tensors": [(f"{prefix}_{role}_{i}", v.type) for role, vs in roles.items() for i, v in enumerate(vs)],
        }  # fmt: skip

    def _body(self) -> dict[str, object]:
        scores = self.graph.scores
        inputs = ["0" if self.schedule.rows(v) else self._place(v) for v in self.graph.inputs]
        body: dict[str, object] = {
            **self._initial(), "says_yes": says_yes(self.graph), "score_count": scores.type.size,
            "params": "\n".join(self._params()),
            "calls": "" if self.schedule.cut else "".join(self._calls(0, self.forward)),
            "score_type": C_TYPES[scores.type.dtype], "scores": self._place(scores),
            "input_places": ", ".join(inputs) or "0",
            "output_places": ", ".join(self._place(v) for v in self.graph.outputs),
        }  # fmt: skip
        # Last: they declare what the rest named.
        return {**body, "places": "\n".join(self._places()), "tables": "\n".join(self.tables.values())}

    def _step(self, roles: Roles) -> dict[str, object]:
        at, loss, end = self.forward, self._place(roles.loss), len(self.graph.nodes)
        return {
            "parameter": PARAMETERS[roles.label_kind], "argument": ARGUMENTS[roles.label_kind],
            "label": roles.label, "label_place": self._place(roles.label) if roles.label else "",
            "given": ARGUMENTS[roles.label_kind].rstrip(", "), "skip_below": float(np.float32(roles.skip_below)),
            "rate": self._place(roles.rate), "loss": loss,
            "compare": "".join(self._calls(at, at + 1)), "backward": "".join(self._calls(at + 1, end)),
            "label_kind": roles.label_kind, "step": step_comment(roles),
        }  # fmt: skip

    def _places(self) -> Iterator[str]:
        for block, offsets in (("state", self.state), ("arena", self.offsets)):
            for value, offset in offsets.items():
                if value in self.named:
                    kind = C_TYPES[value.type.dtype]
                    yield f"static {kind} *const at_{self.names[value]} = ({kind} *)({block} + {offset});"

    def _initial(self) -> dict[str, object]:
        """Return the rows of the tables of what the state begins as."""
        plain, gathered, listed, variables = list[object](), list[object](), list[object](), self.graph.variables
        later, first = steps_only(self.graph), 0  # begun with the first step, where samples are observed before
        # Those to reset come first, what steps need last.
        for start in sorted(self.initial, key=lambda start: (start.value in later, start.value not in variables)):
            first += start.value not in later
            if isinstance(start, Gathered):
                *rows, channels = start.frozen.type.shape
                sizes = (start.offset, math.prod(rows), channels, start.value.type.shape[-1])
                gathered.append((self._place(start.frozen), self._array(start.overlay, "channel"), *sizes))
            else:
                source = "0" if isinstance(start, Filled) else self._constant(self.frozen.get(start.value, start.value))
                fill, narrow = start.byte if isinstance(start, Filled) else 0, int(isinstance(start, Widened))
                plain.append((source, start.offset, start.value.type.bytes, fill, narrow))
        for start in self.initial:
            if isinstance(start, Widened):
                listed += [(to, whole(number)) for to, number in start.listed]
        return {"plain": plain, "listed": listed, "gathered": gathered, "begun_first": first}

    def _params(self) -> Iterator[str]:
        for node in self.nodes:
            if not is_call(node):
                continue
            fields = [f".{field} = {self._field(node, field, item)}" for field, item in self._parameters(node).items()]
            head = f"static const {node.op.symbol(node)}_params p_{self.names[node.outs[0]]} = {{"
            yield "\n    ".join(wrapped(head, fields)) + "};"

    def _field(self, node: Node, field: str, item: int | float | Array | str) -> str:
        if isinstance(item, np.ndarray):
            return self._array(node, field) if item.size else "0"
        if isinstance(item, str):
            return item
        return literal(item, "float32" if isinstance(item, float) else "int32")

    def _calls(self, first: int, end: int) -> Iterator[str]:
        groups = {group.first: group for group in self.schedule.groups}
        index = first
        while index < end:
            if index in groups:
                yield from self._stream(groups[index])
                index = groups[index].end
                continue
            node = self.nodes[index]
            yield f"    {comment(node, self.constants)}\n"
            if is_call(node):
                yield f"    {node.op.symbol(node)}({', '.join(self._arguments(index, node))});\n"
            index += 1

    def _stream(self, group: Group) -> Iterator[str]:
        """Yield a loop over the group's order: each turn one node computes its next row."""
        order, row = self._order(group), f"row_{group.first}"
        yield "    /* Row by row: of each map only the rows still to be read are kept. */\n"
        yield f"    int32_t {row}[{group.end - group.first + 1}] = {{0}};\n"
        yield f"    for (int32_t i = 0; i < {len(group.order)}; i++) switch ({order}[i]) {{\n"
        if -1 in group.order:
            at = f"{row}[{group.end - group.first}]"
            parts = self.graph.one_pass if group.first >= len(self.graph.nodes) else None
            place = self._row(parts.collect.image if parts else self.graph.image, at)
            image = order_table(group).max()  # behind every node's number
            yield f"        case {image}: source(source_context, {place}, {at}); {at}++; break;\n"
        for i, node in enumerate(self.nodes[group.first : group.end]):
            at = f"{row}[{i}]"
            call = f"{node.op.symbol(node)}({', '.join(self._arguments(group.first + i, node, at))})"
            yield f"        case {i}: {comment(node, self.constants)}\n            {call}; {at}++; break;\n"
        yield "    }\n"

    def _row(self, value: Value, row: str) -> str:
        """Return the address of a row of a map, whole or ring."""
        rows, size = self.schedule.rows(value), value.type.size // value.type.shape[1]
        at = row if rows is None else f"({row} % {rows})"
        return f"{self._place(value)} + {at} * {size}"

    def _arguments(self, index: int, node: Node, row: str | None = None) -> Iterator[str]:
        """Yield a kernel's arguments; `row` is the one output row it is to compute, where it runs row by row."""
        op, shape = node.op, node.outs[0].type
        yield f"&p_{self.names[node.outs[0]]}"
        if op.variadic:
            yield self._parts(node)
        for value in op.arguments(node):
            if value is None:
                yield "0"
            elif op.overlay_input is not None and value is node.ins[op.overlay_input]:
                yield self._weights(value)
            elif op.spatial and value in (node.ins[0], node.outs[0]):
                yield self._map(value)
            elif row and value.type.shape == shape.shape:
                yield self._row(value, row)
            elif not (op.variadic and value in node.ins):
                yield self._place(value)
        if op.spatial:
            yield from (row, f"{row} + 1") if row else ("0", str(shape.shape[1]))
        if op.elementwise:
            yield str(shape.size // shape.shape[1] if row else shape.size)
        if op.working_memory:
            yield f"arena + {self.scratch[index]}" if index in self.scratch else "0"

    def _table(self, kind: str, name: str, items: list[str]) -> str:
        """Note a constant in flash, and return its name. On the stack, each call's would take its own slot."""
        head = f"static {kind} {name} = {{"
        fits = len(head) + sum(len(item) + 2 for item in items) <= 118
        self.tables[name] = head + ", ".join(items) + "};" if fits else "\n    ".join(wrapped(head, items)) + "};"
        return name

    def _address(self, value: Value) -> str:
        """Return a value's address as C takes it in a constant."""
        root = self.roots.get(value, value)
        if root in self.constants:
            return self._constant(root)
        block, offset = ("state", self.state[root]) if root in self.state else ("arena", self.offsets[root])
        return f"({C_TYPES[root.type.dtype]} *)({block} + {offset})"

    def _parts(self, node: Node) -> str:
        """Return the inputs of a kernel that takes any number of them."""
        name = f"parts_{self.names[node.outs[0]]}"
        kind = f"const {C_TYPES[node.op.takes]} *const"
        self._table(kind, f"{name}[{len(node.ins)}]", [self._address(v) for v in node.ins])
        return name

    def _weights(self, value: Value) -> str:
        """Return weights as a whole, or frozen ones with trained channels laid over them."""
        items = [self._address(value), "0", "0", "0"] if value not in self.layers else []
        if not items:
            node = self.layers[value]
            channel, count = self._array(node, "channel"), str(node.ins[1].type.shape[-1])
            items = [*(self._address(v) for v in node.ins), channel, count]
        return "&" + self._table("const smg_weights", f"w_{self.names[value]}", items)

    def _map(self, value: Value) -> str:
        """Return a map, whole or ring; kernels only read the one that is their input, constant or not."""
        address, rows = self._address(value), self.schedule.rows(value) or value.type.shape[1]
        place = f"(int8_t *){address}" if value not in self.offsets else address
        return "&" + self._table("const smg_map", f"map_{self.names[value]}", [place, str(rows)])

    def _definitions(self) -> Iterator[str]:
        for name, array in self.data.items():
            dtype, numbers = array.dtype.name, array.ravel().tolist()
            items = [literal(x, dtype) for x in numbers] if array.dtype.kind == "f" else list(map(str, numbers))
            rows = [",".join(items[i : i + 32]) for i in range(0, len(items), 32)]
            yield f"const {C_TYPES[dtype]} {name}[{array.size}] = {{\n" + ",\n".join(rows) + "};"
