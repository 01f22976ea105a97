"""The search problem of a network: a lower bound of the SRAM of every choice, layer by layer, without planning it.

State is a sum over what learns. Of the arena a part is certain in whatever order a step runs: what the forward pass
keeps for the gradients of a layer stays until they are computed, and the gradient of a later layer's output comes
first. So each layer adds what it keeps to the least that the layers behind it need. While its own gradient is computed,
that gradient, its inputs and the kernel's working memory are in the arena too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from smidgen.ir import Array, Graph, Node, Type, Value, memory_read, virtual_sources
from smidgen.memory import state_bytes
from smidgen.memory.layout import ALIGNMENT, Working, padded
from smidgen.memory.planner import roots_of
from smidgen.ops.gradient import FromFloat, GradOp, RequantizeGrad
from smidgen.ops.update import initial_fraction
from smidgen.selection.contributions import Contributions
from smidgen.selection.methods import NOTHING, UNIT, Choice, Layer, Problem
from smidgen.training import Options, build_training, passes
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, Trained, layer_memory, resolve

NEVER = 1 << 20  # biases: more than any network has
EXPONENT = 4  # bytes of the step state for each gradient


def pose_analytic(graph: Graph, contributions: Contributions, bits: int) -> Problem:
    """Pose the problem with the paper's analytic sum as the cost."""
    learned = resolve(Scheme("biases", len(layers(graph))), graph)
    frozen = [Layer(kept=memory.masks + memory.biases) for memory in map(layer_memory, learned)]

    def cost(_: int, one: Trained) -> tuple[int, int]:
        return 0, layer_memory(one).saved + layer_memory(one).weights

    trained = _trained(graph, contributions, streamed_input=False)
    return Problem(bits, _with_choices(frozen, trained, contributions, bits, cost), _bias_gains(contributions))


def pose_planned(
    graph: Graph,
    contributions: Contributions,
    bits: tuple[int, ...],
    options: Options,
    working: Working,
    overhead: int,
    streamed_input: bool,
) -> tuple[Problem, ...]:
    """Pose the problem with the least SRAM of the compiled program as the cost, for each number of bits."""
    trained = _trained(graph, contributions, streamed_input)
    known = _measure_biases(graph, contributions.depths[-1].biases, options, working)

    def problem(bits: int) -> Problem:
        def cost(layer: int, one: Trained) -> tuple[int, int]:
            return _weight_state(one, bits, options), _saved_bytes(one, *known.inputs[layer])

        found = _with_choices(known.layers, trained, contributions, bits, cost)
        fixed = overhead + _head_state(graph, options, bits)
        return Problem(bits, found, _bias_gains(contributions), fixed, known.head_arena)

    return tuple(problem(one) for one in bits)


def _with_choices(
    frozen: Sequence[Layer],
    trained: Mapping[tuple[int, Fraction], Trained],
    contributions: Contributions,
    bits: int,
    cost: Callable[[int, Trained], tuple[int, int]],
) -> tuple[Layer, ...]:
    """Return layers with the choices for their weights; the cost of one is its state and what it keeps."""
    kept, choices = contributions.kept(bits), [[NOTHING] for _ in frozen]
    for (layer, share), one in trained.items():  # ascending by share, and so by cost
        gain = round(contributions.weights_gain(layer, share) * kept * UNIT)
        if gain > choices[layer][-1].gain:  # more than all cheaper ones
            choices[layer].append(Choice(share, gain, *cost(layer, one)))
    return tuple(replace(layer, choices=tuple(some)) for layer, some in zip(frozen, choices, strict=True))


def _trained(
    graph: Graph, contributions: Contributions, streamed_input: bool
) -> Mapping[tuple[int, Fraction], Trained]:
    """Return what learns with each measured share of a layer's weights.

    An image that arrives in rows is gone when gradients are computed, so a layer that reads it is frozen.
    """
    numbered, roots = layers(graph), roots_of(graph)
    found: dict[tuple[int, Fraction], Trained] = {}
    for share in sorted({one.share for one in contributions.shares}):
        with_it = tuple((one.layer, share) for one in contributions.shares if one.share == share)
        for one in resolve(Scheme("all", len(numbered), with_it), graph):
            on_image = roots.get(one.node.ins[0]) == graph.image
            if one.channels and not (streamed_input and on_image):
                found[one.layer, share] = one
    return found


def _bias_gains(contributions: Contributions) -> tuple[int, ...]:
    return tuple(round(contributions.biases_gain(n) * UNIT) for n in range(contributions.depths[-1].biases + 1))


@dataclass(frozen=True)
class _BiasBytes:
    """The bytes that learning biases takes, from the last layer to any."""

    layers: tuple[Layer, ...]  # first to last, without choices
    inputs: tuple[tuple[bool, int], ...]  # is its input kept for a bias's gradient, and how many layers read it
    head_arena: int  # bytes at least, all saved inputs on top


def _measure_biases(graph: Graph, deepest: int, options: Options, working: Working) -> _BiasBytes:
    """Measure what the last `deepest` biases take, layer by layer."""
    numbered, roots = layers(graph), roots_of(graph)
    step = passes.run(build_training(graph, Scheme("biases", deepest), options, images=None).step)
    found = _Step(step, {node.ins[2].name: len(numbered) - i for i, node in enumerate(numbered)}, working)
    sources = [roots.get(node.ins[0]) for node in numbered]
    inputs = tuple(
        (node.ins[0].name in found.crossing, sources.count(source))
        for node, source in zip(numbered, sources, strict=True)
    )
    rows = []
    for biases, node in zip(range(len(numbered), 0, -1), numbered, strict=True):
        if biases > deepest:
            rows.append(Layer())
            continue
        bias = node.ins[2].type
        buffer = padded(options.rule.buffer(bias).bytes) if options.rule.buffered else 0
        exponents = EXPONENT * (found.gradients(biases) - found.gradients(biases - 1))
        kept, early, late = found.layer(biases)
        rows.append(Layer(state=padded(bias.bytes) + buffer + exponents, kept=kept, early=early, late=late))
    return _BiasBytes(tuple(rows), inputs, found.least_of_head())


def _head_state(graph: Graph, options: Options, bits: int) -> int:
    """Return the bytes of state of the head alone; those of an int8 head depend on the bits per weight."""
    scheme = Scheme("head", 0, weight_bits=bits)
    return state_bytes(passes.run(build_training(graph, scheme, options, images=None).step))


def _weight_state(trained: Trained, bits: int, options: Options) -> int:
    """Return the bytes of state of a layer's trained weights, with their fractions."""
    size = layer_memory(trained).weights
    fraction = initial_fraction(size, bits - 8).nbytes if bits > 8 else 0
    buffer = options.rule.buffer(Type((size,), "int8")).bytes if options.rule.buffered else 0
    return padded(size) + padded(fraction) + padded(buffer)


def _saved_bytes(trained: Trained, kept: bool, readers: int) -> int:
    """Return the least bytes of a layer's input that its weights' gradient adds to the arena.

    Layers that read the same map may keep it together: each counts its part.
    """
    if not trained.partial and kept:
        return 0
    return padded(layer_memory(trained).saved) // readers // ALIGNMENT * ALIGNMENT


class _Step:
    """The step that trains biases: the order its nodes must have, and the depth of biases from which each runs."""

    def __init__(self, step: Graph, depths: dict[str, int], working: Working) -> None:
        self.step, self.working = step, working
        self.nodes = step.nodes
        self.loss = step.prediction_end
        self.roots = roots_of(step)
        self.outputs = {self.roots[v] for v in step.outputs if v in self.roots}
        self.maker = {v: i for i, node in enumerate(self.nodes) for v in node.outs}
        self.reads = _ancestors(step, self.maker)
        self.before = self._before()
        self.depth_of = self._depths(depths)
        self.needed = self._needed()
        self.spine = self._spine()
        self.alive = self._alive()

    def _before(self) -> Array:
        """Return [i, j]: whether node j must run before node i. The forward pass precedes the loss."""
        before = self.reads.copy()
        before[self.loss, : self.loss] = True
        before[self.loss + 1 :, : self.loss + 1] = True
        return before

    def _depths(self, depths: dict[str, int]) -> dict[int, int]:
        """Return the number of biases from which each node updates state; 0 for what is no bias."""
        found: dict[int, int] = {}
        for old, new in self.step.updates.items():
            found[self.maker[new]] = max(found.get(self.maker[new], 0), depths.get(old.name, 0))
        return found

    def _needed(self) -> Array:
        """Return the least number of biases with which each node is part of the step."""
        needed: Array = np.full(len(self.nodes), NEVER)
        assert self.step.roles is not None
        advance = self.step.updates.get(self.step.roles.step_state)  # it reads whatever gradients there are
        ends = {i: depth for i, depth in self.depth_of.items() if advance not in self.nodes[i].outs}
        ends |= {self.maker[v]: 0 for v in self.step.outputs if v in self.maker}
        for i, depth in ends.items():
            for j in (i, *np.flatnonzero(self.reads[i])):
                needed[j] = min(needed[j], depth)
        needed[[i for i, node in enumerate(self.nodes) if advance in node.outs]] = 0
        return needed

    def _spine(self) -> list[int]:
        """Return the nodes from the loss on that the deepest bias's gradient depends on.

        Requantizations are not among them: where their input has one reader they become a part of the node before.
        """
        deepest = max(self.depth_of.values(), default=0)
        if deepest == 0:
            return [self.loss]
        last = next(i for i, depth in self.depth_of.items() if depth == deepest)
        gradient = max(self.maker[v] for v in self.nodes[last].ins if v in self.maker and v.type.dtype == "int8")
        there = [i for i in range(self.loss, len(self.nodes)) if i == gradient or self.before[gradient, i]]
        return [i for i in there if not isinstance(self.nodes[i].op, RequantizeGrad)]

    def _alive(self) -> Array:
        """Return [biases, place in the spine]: the least bytes alive there with that many biases."""
        spine, deepest = np.array(self.spine), max(self.depth_of.values(), default=0)
        grown: Array = np.zeros((deepest + 1, len(spine)), np.int64)
        for root, readers in self._readers().items():
            made = self.maker.get(root)
            there = np.ones(len(spine), bool) if made is None else self.before[spine, made] | (spine == made)
            first = 0 if root in self.outputs else NEVER
            after = [np.where((spine == r) | self.before[r, spine], self.needed[r], NEVER) for r in readers]
            since = np.maximum(np.min([*after, np.full(len(spine), first)], axis=0), self._since(made))
            for place in np.flatnonzero(there & (since <= deepest)):
                grown[since[place], place] += padded(root.type.bytes)
        own = np.array([self._own(self.nodes[i]) for i in self.spine])
        alive: Array = np.cumsum(grown, axis=0) + own
        return alive

    def _since(self, made: int | None) -> int:
        """Return the least number of biases with which a node's output, or an input, exists."""
        if made is None:
            return 0
        node, needed = self.nodes[made], int(self.needed[made])
        before = self.nodes[self.maker[node.ins[0]]] if isinstance(node.op, RequantizeGrad) else None
        if before is None or not isinstance(before.op, GradOp) or before.op.masked:
            return needed
        # As long as nobody else reads its input, a requantization is a part of the node that makes it.
        others = (int(self.needed[i]) for i in self._uses[node.ins[0]] if i != made)
        return max(needed, min(others, default=NEVER))

    @cached_property
    def _uses(self) -> dict[Value, list[int]]:
        uses: dict[Value, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for value in node.ins:
                uses.setdefault(value, []).append(i)
        return uses

    def _readers(self) -> dict[Value, list[int]]:
        """Return the nodes that read each tensor of the arena in any form."""
        sources = virtual_sources(self.step)
        readers: dict[Value, list[int]] = {root: [] for root in self.outputs}
        for i, node in enumerate(self.nodes):
            for root in dict.fromkeys(self.roots[v] for v in memory_read(node, sources) if v in self.roots):
                readers.setdefault(root, []).append(i)
        return readers

    def _own(self, node: Node) -> int:
        """Return a node's working memory, less the bytes of its input that its output may reuse."""
        donor = node.op.donor(node)
        shared = 0 if donor is None else min(padded(v.type.bytes) for v in (node.ins[donor], node.outs[0]))
        return padded(self.working(node, False)) - shared

    @cached_property
    def crossing(self) -> frozenset[str]:
        """All names of the tensors that stay in the arena from before the loss to after it."""
        kept = {
            root
            for root, readers in self._readers().items()
            if self.maker.get(root, 0) < self.loss < max(readers, default=0)
        }
        return frozenset(value.name for value, root in self.roots.items() if root in kept)

    def gradients(self, biases: int) -> int:
        """Return the least number of gradients that have an exponent; those in float32 have none."""
        made = ((i, node) for i, node in enumerate(self.nodes) if isinstance(node.op, FromFloat | GradOp))
        return sum(self._since(i) <= biases for i, node in made if node.outs[0].type.dtype == "int8")

    def least_of_head(self) -> int:
        """Return the least arena of the head alone."""
        return max(int(self.alive[0, place]) for place in self._places(0))

    def layer(self, biases: int) -> tuple[int, int, int]:
        """Return what the deepest bias keeps, and the least arena while its saved input exists, and after."""
        known = [place for fewer in range(biases) for place in self._places(fewer)]
        kept = min(int(self.alive[biases, place] - self.alive[biases - 1, place]) for place in known)
        early = [place for place in self._places(biases) if self._precedes(place, biases)]
        late = [place for place in self._places(biases) if place not in early]
        least_early, least_late = (
            max((int(self.alive[biases, place]) for place in places), default=0) for places in (early, late)
        )
        return kept, least_early, least_late

    def _places(self, biases: int) -> list[int]:
        """Return the spine's places that begin at this depth and certainly precede the gradients of deeper biases."""
        new = (place for place, i in enumerate(self.spine) if self.needed[i] == biases)
        return [place for place in new if self._precedes(place, biases + 1)]

    def _precedes(self, place: int, biases: int) -> bool:
        """Return whether a node of the spine runs before the updates of all biases from this depth on."""
        deeper = (i for i, depth in self.depth_of.items() if depth >= biases)
        return all(self.before[i, self.spine[place]] for i in deeper)


def _ancestors(graph: Graph, maker: Mapping[Value, int]) -> Array:
    """Return [i, j]: whether node i depends on what node j computes."""
    found: Array = np.zeros((len(graph.nodes), len(graph.nodes)), bool)
    for i, node in enumerate(graph.nodes):
        for j in {maker[v] for v in node.ins if v in maker}:
            found[i] |= found[j]
            found[i, j] = True
    return found
