"""Several analyses of one network as one: of different data, courses or seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from smidgen.selection.contributions import (
    BiasDepth,
    BitsTried,
    Contributions,
    ContributionsError,
    LayerShare,
    read_contributions,
)

Measured = TypeVar("Measured", BiasDepth, LayerShare, BitsTried)


def average_contributions(contributions: Sequence[Contributions]) -> Contributions:
    """The mean of every accuracy; a run that diverged in one of the analyses counts as diverged.

    What a part adds depends on the images and on how long they are learned from, so that a scheme for many tasks is
    better chosen by several analyses. They must have tried the same parts of the same layers.
    """
    if not contributions:
        raise ContributionsError("there are no contributions to average; give one at least")
    first, *others = contributions
    for other in others:
        _check_alike(first, other)
    if not others:
        return first
    conditions = [given for one in contributions for given in (one.conditions, *one.averaged)]
    said = dict.fromkeys(line for one in contributions for line in one.left_out)
    return replace(
        first,
        conditions=conditions[0],
        depths=tuple(_means([one.depths for one in contributions])),
        shares=tuple(_means([one.shares for one in contributions])),
        bits=tuple(_means([one.bits for one in contributions])),
        left_out=tuple(said),
        averaged=tuple(conditions[1:]),
    )


def read_several(paths: Sequence[Path]) -> Contributions:
    """The contributions in a file, or the mean of those in several."""
    return average_contributions([read_contributions(path) for path in paths])


def _check_alike(one: Contributions, other: Contributions) -> None:
    """Raise ContributionsError unless both tried the same."""
    if one.layers != other.layers:
        raise ContributionsError(
            f"contributions of {one.model} and of {other.model} cannot be averaged: their layers differ; give those "
            "of one network"
        )
    if not (one.measured and other.measured):
        raise ContributionsError(f"an estimate of {one.model} cannot be averaged with others; give measured ones")
    pair = _tried(one), _tried(other)
    for what, ours, theirs in zip(("depths of biases", "shares of layers", "bits"), *pair, strict=True):
        if ours != theirs:
            raise ContributionsError(
                f"two analyses of {one.model} tried other {what}, {len(ours)} and {len(theirs)} of them; analyze with "
                "the same --most, --reach and --quick"
            )


def _tried(one: Contributions) -> Iterator[Sequence[object]]:
    yield (one.base, *(depth.biases for depth in one.depths))
    yield [(share.layer, share.share) for share in one.shares]
    yield (one.conditions.weight_bits, *(tried.bits for tried in one.bits))


def _means(measured: Sequence[Sequence[Measured]]) -> Iterator[Measured]:
    for same in zip(*measured, strict=True):
        accuracies = [one.accuracy for one in same]
        yield replace(same[0], accuracy=sum(accuracies) / len(accuracies) if min(accuracies) > 0 else 0.0)
