"""Many training graphs of one model as one: what two devices both compute is one node, with a lane for each device.

Graphs of other schemes differ in what learns, in the places of exponents and in the numbers of random streams. A node
is known by its op, without those, and by what it reads; equal nodes of all graphs become one. Tensors that learn on
some device have a lane for each: where a device keeps them frozen, its lane never moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Node, Op, Type, Value, refuse_variables, roles_of
from smidgen.ir.rewriting import producers
from smidgen.ops.elementwise import Compare
from smidgen.ops.gradient import AdvanceStepState, FromFloat, GradOp, Mask, ParameterGrad
from smidgen.ops.losses import check_softmax
from smidgen.ops.state import Gather, Overlay
from smidgen.ops.update import DenseStep, FusedStep, Step
from smidgen.simulation.one_pass import features_of

Channels = tuple[int, ...]
Slotted = GradOp | FromFloat
Key = tuple[str, Type]  # a tensor of the model, by its name


@dataclass(frozen=True)
class FleetValue:
    """A tensor of the fleet: an input, a constant, or what a node gives."""

    number: int
    type: Type


@dataclass(frozen=True, eq=False)
class Parameter:
    """A weight or bias, of the same layer on all devices; `held` gives the channels that learn, None where all do."""

    value: FleetValue
    whole: Mapping[int, Array]  # by graph: as it starts, frozen channels included
    held: Mapping[int, Channels | None]  # by graph


@dataclass(frozen=True, eq=False)
class FleetNode:
    """A node of at least one graph. `node` is how one of them has it; `ops` each one's own, with slots and stream."""

    node: Node
    ins: tuple[FleetValue, ...]
    outs: tuple[FleetValue, ...]
    ops: dict[int, Op]  # by graph


@dataclass(frozen=True, eq=False)
class FleetStep:
    """A step of tensors that learn. `gradient` sums up `sources`; the step of a float32 head has none."""

    node: Node
    parameters: tuple[Parameter, ...]
    gradient: Node | None
    sources: tuple[FleetValue, ...]
    rate: FleetValue
    ops: dict[int, Step | DenseStep]  # by graph
    states: dict[int, tuple[Value, ...]]  # by graph: what the step replaces there, the weight first


@dataclass(frozen=True, eq=False)
class Fleet:
    """The merged graphs. `masked` gives for each mask its node and the value whose limits it tells."""

    graphs: tuple[Graph, ...]
    image: FleetValue
    label: FleetValue
    rate: FleetValue
    logits: tuple[FleetValue, ...]  # by graph
    losses: tuple[FleetValue, ...]
    constants: Mapping[FleetValue, Array]
    parameters: Mapping[FleetValue, Parameter]
    nodes: tuple[FleetNode, ...]
    steps: tuple[FleetStep, ...]
    masked: Mapping[FleetValue, tuple[FleetValue, Node]]
    slots: tuple[Mapping[int, int], ...]  # by graph: the places of its exponents → the fleet's
    lanes: frozenset[FleetValue]  # of which each device has its own
    features: Mapping[int, FleetValue]  # by graph that learns in one pass: what its head reads


def merge(graphs: Sequence[Graph], own_samples: bool = False) -> Fleet:
    """The fleet of these training steps, which take the same image and label, or each its own."""
    merger = _Merger(own_samples)
    for graph in graphs:
        refuse_variables(graph, "a fleet")
        merger.add(graph)
    return merger.fleet()


class _Merger:
    """Adds graphs one after another; `known` finds the value of a key."""

    def __init__(self, own_samples: bool) -> None:
        self.own_samples = own_samples
        self.graphs: list[Graph] = []
        self.known: dict[object, FleetValue] = {}
        self.nodes: dict[object, FleetNode] = {}
        self.steps: dict[object, FleetStep] = {}
        self.wholes: dict[Key, dict[int, Array]] = {}
        self.held: dict[Key, dict[int, Channels | None]] = {}
        self.masked: dict[FleetValue, tuple[FleetValue, Node]] = {}
        self.slots: list[dict[int, int]] = []
        self.ends: list[tuple[FleetValue, FleetValue]] = []  # logits and loss of each graph
        self.features: dict[int, FleetValue] = {}

    def value(self, key: object, type: Type) -> FleetValue:
        return self.known.setdefault(key, FleetValue(len(self.known), type))

    def add(self, graph: Graph) -> None:
        check_softmax(graph, "a fleet")
        roles, number = roles_of(graph), len(self.graphs)
        assert roles.label is not None
        self.graphs.append(graph)
        self.slots.append({})
        values = {
            role: self.value(what, role.type)
            for what, role in (("image", roles.image), ("label", roles.label), ("rate", roles.rate))
        }
        if values[roles.image].type != roles.image.type:
            raise InputError(
                f"{graph.name} takes {roles.image.type.dtype}{list(roles.image.type.shape)}, another device of the "
                f"fleet {list(values[roles.image].type.shape)}; a fleet learns from one image at a time"
            )
        values[roles.step_state] = self.value("step state", Type((1,), "int32"))
        one = _OneGraph(graph, number, values, producers(graph))
        self._tensors(one)
        for node in graph.nodes:
            self._node(one, node)
        self.ends.append((values[roles.logits], values[roles.loss]))
        if graph.one_pass is not None:
            self.features[number] = values[features_of(graph)]

    def _tensors(self, one: _OneGraph) -> None:
        """Constants and what learns."""
        overlays = {n.ins[1]: n for n in one.graph.nodes if isinstance(n.op, Overlay)}
        steps = [n for n in one.graph.nodes if isinstance(n.op, Step | DenseStep)]
        learns = {v for n in steps for v in n.ins[: 2 if isinstance(n.op, DenseStep) else 1]}
        for value, data in one.graph.constants.items():
            self._tensor(one, value, data)
        for value in learns - overlays.keys():
            self._tensor(one, value, one.graph.state[value])
            one.keys[value] = (value.name, value.type)
            self.held.setdefault((value.name, value.type), {})[one.number] = None
        for value, node in overlays.items():
            assert isinstance(node.op, Overlay)
            one.keys[value] = (node.ins[0].name, node.ins[0].type)
            self.held.setdefault(one.keys[value], {})[one.number] = node.op.channels

    def _tensor(self, one: _OneGraph, value: Value, data: Array) -> None:
        key = (value.name, value.type)
        self.wholes.setdefault(key, {})[one.number] = data
        one.values[value] = self.value(key, value.type)

    def _node(self, one: _OneGraph, node: Node) -> None:
        op, values = node.op, one.values
        if isinstance(op, Overlay):
            values[node.out] = values[node.ins[0]]
        elif isinstance(op, Mask):
            mask = values[node.out] = self.value(("mask", op, values[node.ins[0]]), node.out.type)
            self.masked[mask] = (values[node.ins[0]], node)
        elif isinstance(op, Step | DenseStep):
            self._step(one, node, op)
        elif not isinstance(op, ParameterGrad | AdvanceStepState):  # sums are made by the steps that read them
            self._plain(one, node)
            if isinstance(op, Compare):
                self.masked[values[node.out]] = (values[node.out], node)

    def _plain(self, one: _OneGraph, node: Node) -> None:
        op = node.op
        alike = replace(op, slots=(), stream=0) if isinstance(op, Slotted) else op
        ins = tuple(one.values[v] for v in node.ins)
        key: tuple[object, ...] = (alike, ins, tuple(v.type for v in node.outs))
        one.times[key] += 1  # two nodes that read the same round with other random bits: they stay two
        key = (*key, one.times[key])
        merged = self.nodes.get(key)
        if merged is None:
            outs = tuple(self.value((key, i), v.type) for i, v in enumerate(node.outs))
            merged = self.nodes[key] = FleetNode(node, ins, outs, {})
        one.values.update(zip(node.outs, merged.outs, strict=True))
        if isinstance(op, Slotted) and op.slots:
            self.slots[one.number][op.slots[-1]] = self._slot(merged)
        merged.ops[one.number] = op

    def _slot(self, merged: FleetNode) -> int:
        """The fleet's place for the exponent of what a node gives."""
        for graph, op in merged.ops.items():
            assert isinstance(op, Slotted)
            return self.slots[graph][op.slots[-1]]
        return len({place for places in self.slots for place in places.values()})

    def _step(self, one: _OneGraph, node: Node, op: Step | DenseStep) -> None:
        """Of sources of which a device keeps some channels, the fleet has all; each device steps its own."""
        parts = op.parts(node.ins)
        learns = parts.states[: 2 if isinstance(op, DenseStep) else 1]
        keys = tuple(one.keys[v] for v in learns)
        gradient, read = _sums(node, op, parts.sources, one.produced)
        if self.held[keys[0]][one.number] is not None:
            read = tuple(_ungathered(v, one.produced) for v in read)
        sources = tuple(one.values[v] for v in read)
        alike = op if isinstance(op, DenseStep) else replace(op, slot=0, stream=0, factors=(1.0,))
        rate = one.values[parts.rate]
        key = (alike, keys, sources, rate)
        if key not in self.steps:
            kept = tuple(Parameter(self.known[k], self.wholes[k], self.held[k]) for k in keys)
            self.steps[key] = FleetStep(node, kept, gradient, sources, rate, {}, {})
        self.steps[key].ops[one.number] = op
        self.steps[key].states[one.number] = parts.states

    def fleet(self) -> Fleet:
        lanes = self._lanes()
        parameters: dict[FleetValue, Parameter] = {}
        constants: dict[FleetValue, Array] = {}
        for key, whole in self.wholes.items():
            if (value := self.known[key]) in lanes:
                parameters[value] = Parameter(value, whole, self.held.get(key, {}))
            else:
                constants[value] = next(iter(whole.values()))
        image, label, rate = (self.known[what] for what in ("image", "label", "rate"))
        logits, losses = zip(*self.ends, strict=True)
        return Fleet(
            tuple(self.graphs), image, label, rate, logits, losses, constants, parameters, self._needed(),
            tuple(self.steps.values()), self.masked, tuple(self.slots), lanes,
            self.features,
        )  # fmt: skip

    def _lanes(self) -> frozenset[FleetValue]:
        """Return the values that differ from device to device: what depends on something that does."""
        own = ("step state", "rate", *(("image", "label") if self.own_samples else ()))
        lanes = {self.known[key] for key in (*own, *self.held)}
        for key, whole in self.wholes.items():
            first, *rest = whole.values()
            if any(other is not first and not np.array_equal(other, first) for other in rest):
                lanes.add(self.known[key])
        for node in self.nodes.values():
            if not lanes.isdisjoint(node.ins):
                lanes |= set(node.outs)
        return frozenset(lanes)

    def _needed(self) -> tuple[FleetNode, ...]:
        """Without what only gathered the channels that one device keeps."""
        wanted = {v for ends in self.ends for v in ends}
        wanted |= {v for s in self.steps.values() for v in (*s.sources, s.rate)}
        kept: list[FleetNode] = []
        for node in reversed(self.nodes.values()):
            op = node.node.op
            if wanted & set(node.outs) or (isinstance(op, Slotted) and op.slots):
                kept.append(node)
                wanted |= {self.masked[v][0] if v in self.masked else v for v in node.ins}
        return tuple(reversed(kept))


@dataclass(frozen=True, eq=False)
class _OneGraph:
    """A graph that is being merged: the fleet's value for each of its values, and the tensors that hold its states."""

    graph: Graph
    number: int
    values: dict[Value, FleetValue]
    produced: Mapping[Value, Node]
    keys: dict[Value, Key] = field(default_factory=dict)
    times: Counter[object] = field(default_factory=Counter)


def _sums(
    node: Node, op: Step | DenseStep, sources: tuple[Value, ...], produced: Mapping[Value, Node]
) -> tuple[Node | None, tuple[Value, ...]]:
    """The gradient that a step follows, as a node, and what it reads."""
    if isinstance(op, DenseStep):
        return None, sources
    if isinstance(op, FusedStep):
        return op.sums_node(node), sources
    made = produced[sources[0]]
    return made, made.ins


def _ungathered(value: Value, produced: Mapping[Value, Node]) -> Value:
    node = produced.get(value)
    return node.ins[0] if node is not None and isinstance(node.op, Gather) else value
