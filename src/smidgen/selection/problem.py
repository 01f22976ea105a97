"""The search for a scheme as a pure problem: the gain and the bytes of every choice, and no graph.

A candidate is a number of biases and, for each of their layers, one of its choices. Its gain is a sum. Its cost is the
fixed bytes, the state of what learns, and an arena: from the first layer that learns to the last, each adds what it
keeps, and the arena is the most that any of them needs beside what is kept by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from smidgen.errors import SmidgenError
from smidgen.ir import Graph
from smidgen.memory.layout import Working
from smidgen.memory.planner import roots_of
from smidgen.selection.bounds import head_state, measure_biases, saved_bytes, weight_state
from smidgen.selection.contributions import Contributions
from smidgen.training import Options
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, Trained, layer_memory, resolve

UNIT = 1 << 40  # gains are whole numbers of 1 / UNIT, so that a tie is a tie on every machine


class SearchError(SmidgenError):
    """There is no scheme to be found: the budget, the model or the contributions do not allow one."""


@dataclass(frozen=True)
class Choice:
    """One way in which a layer's weights can learn."""

    share: Fraction | None  # of its input channels; None: its weights are frozen
    gain: int
    state: int  # bytes
    saved: int  # bytes of its input, kept from the forward pass on


NOTHING = Choice(None, 0, 0, 0)


@dataclass(frozen=True)
class Layer:
    """A layer whose bias learns: the bytes that takes, and the choices for its weights, of which the first is none."""

    choices: tuple[Choice, ...] = (NOTHING,)
    state: int = 0
    kept: int = 0  # in the arena, from the forward pass on
    early: int = 0  # of the arena, at least, with its saved input on top
    late: int = 0  # of the arena, at least, its saved input not counted


@dataclass(frozen=True)
class Candidate:
    """A number of biases, and for each of their layers, first to last, the index of the choice taken."""

    bits: int
    biases: int
    choices: tuple[int, ...]
    gain: int
    cost: int  # bytes
    arena: int  # bytes, of the cost


@dataclass(frozen=True)
class Problem:
    """Everything to choose from, for one number of bits per weight."""

    bits: int
    layers: tuple[Layer, ...]  # by their numbers
    bias_gains: tuple[int, ...]  # by how many biases learn, from 0 to the most that can
    fixed: int = 0  # bytes that every candidate takes
    head_arena: int = 0  # of the arena, at least, all that is kept on top
    floors: tuple[int, ...] = ()  # of the arena, at least, by how many biases learn

    def candidate(self, biases: int, choices: tuple[int, ...]) -> Candidate:
        """Return a candidate with its gain and cost."""
        taken = self.taken(choices)
        gain = self.bias_gains[biases] + sum(choice.gain for _, choice in taken)
        state = sum(layer.state + choice.state for layer, choice in taken)
        kept, arena = 0, self.floor(biases)
        for layer, choice in taken:
            arena = max(arena, kept + layer.late, kept + choice.saved + layer.early)
            kept += layer.kept + choice.saved
        arena = max(arena, kept + self.head_arena)
        return Candidate(self.bits, biases, choices, gain, self.fixed + state + arena, arena)

    def taken(self, choices: tuple[int, ...]) -> list[tuple[Layer, Choice]]:
        """Return the last layers, each with the choice taken."""
        last = self.layers[len(self.layers) - len(choices) :]
        return [(layer, layer.choices[choice]) for layer, choice in zip(last, choices, strict=True)]

    def floor(self, biases: int) -> int:
        return self.floors[biases] if self.floors else 0

    def scheme(self, candidate: Candidate) -> Scheme:
        """Return the scheme of a candidate."""
        first = len(self.layers) - candidate.biases
        shares = (choice.share for _, choice in self.taken(candidate.choices))
        weights = tuple((first + i, share) for i, share in enumerate(shares) if share is not None)
        return Scheme("searched", candidate.biases, weights, weight_bits=candidate.bits)


def pose_analytic(graph: Graph, contributions: Contributions, bits: int) -> Problem:
    """The problem with the paper's analytic sum as the cost."""
    trained, deepest = _trained(graph, contributions, streamed_input=False), contributions.depths[-1].biases
    found = []
    for index, bias in enumerate(resolve(Scheme("biases", len(layers(graph))), graph)):
        bytes_ = layer_memory(bias)
        options = [(share, layer_memory(one)) for (layer, share), one in trained.items() if layer == index]
        choices = tuple(
            Choice(share, _weights_gain(contributions, index, share, bits), 0, memory.saved + memory.weights)
            for share, memory in options
        )
        found.append(Layer(_worthwhile(choices), kept=bytes_.masks + bytes_.biases))
    return Problem(bits, tuple(found), _bias_gains(contributions, deepest))


def pose_planned(
    graph: Graph,
    contributions: Contributions,
    bits: tuple[int, ...],
    options: Options,
    working: Working,
    besides: int,
    streamed_input: bool,
) -> tuple[Problem, ...]:
    """For each number of bits the problem with the least SRAM of the compiled program as the cost."""
    deepest = contributions.depths[-1].biases
    trained, known = _trained(graph, contributions, streamed_input), measure_biases(graph, deepest, options, working)

    def problem(bits: int) -> Problem:
        found = []
        for index, bytes_ in enumerate(known.layers):
            choices = tuple(
                Choice(
                    share,
                    _weights_gain(contributions, index, share, bits),
                    weight_state(one, bits, options),
                    saved_bytes(one, bytes_),
                )
                for (layer, share), one in trained.items()
                if layer == index
            )
            found.append(Layer(_worthwhile(choices), bytes_.state, bytes_.kept, bytes_.early, bytes_.late))
        gains = _bias_gains(contributions, deepest)
        return Problem(bits, tuple(found), gains, besides + head_state(graph, options, bits), known.head_arena)

    return tuple(problem(one) for one in bits)


def _trained(
    graph: Graph, contributions: Contributions, streamed_input: bool
) -> Mapping[tuple[int, Fraction], Trained]:
    """What learns where a share of a layer's weights does, for each that was measured.

    An image that arrives in rows is gone when gradients are computed: the weights of a layer that reads it stay.
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


def _weights_gain(contributions: Contributions, layer: int, share: Fraction, bits: int) -> int:
    return round(contributions.weights_gain(layer, share) * contributions.kept(bits) * UNIT)


def _bias_gains(contributions: Contributions, deepest: int) -> tuple[int, ...]:
    return tuple(round(contributions.biases_gain(biases) * UNIT) for biases in range(deepest + 1))


def _worthwhile(choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """None, and each choice that gains more than all which cost no more; `choices` ascend by cost."""
    kept = [NOTHING]
    for choice in choices:
        if choice.gain > kept[-1].gain:
            kept.append(choice)
    return tuple(kept)
