"""The search for a scheme as a pure problem: the gain and the bytes of every choice, and no graph.

A candidate is a number of biases and, for each of their layers, one of its choices. Its gain is a sum. Its cost is the
fixed bytes, the state of what learns, and an arena: from the first layer that learns to the last, each adds what it
keeps, and the arena is the most that any of them needs beside what is kept by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from smidgen.errors import SmidgenError
from smidgen.training.scheme import Scheme

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
    state: int = 0  # its bias, and the exponents of the gradients on the way to it
    kept: int = 0  # in the arena, from the forward pass until its gradient is computed
    early: int = 0  # the least arena at some time before its saved input is done with, that input not counted
    late: int = 0  # the least arena at some time at which its saved input may be gone


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
