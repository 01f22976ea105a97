"""Measured contributions of each depth of biases and each layer's weights: the file, and the mean of several."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from smidgen.data.files import write_whole
from smidgen.errors import SmidgenError
from smidgen.ir import Graph
from smidgen.records import RecordError, from_plain, parse_object
from smidgen.tables import Brief, bars
from smidgen.training.head import layers
from smidgen.training.published import LayerShape
from smidgen.training.scheme import Scheme

FORMAT = 1
MOST_BYTES = 1 << 24  # of a file of contributions


class ContributionsError(SmidgenError):
    """Contributions cannot be read, are incomplete, or belong to another model."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of all runs: their data, epochs and learning rate."""

    data: str
    digest: str  # of what was learned from and judged with, as `Data.digest`
    classes: int
    learned_from: int  # images
    judged_with: int  # images held back
    epochs: int
    learning_rate: float  # of one sample
    seeds: tuple[int, ...]
    weight_bits: int


@dataclass(frozen=True)
class BiasDepth:
    """Top-1 with the head and the last `biases` biases learned."""

    biases: int
    accuracy: float


@dataclass(frozen=True)
class LayerShare:
    """Top-1 with one layer's weights learned as well, a share of its input channels."""

    layer: int
    share: Fraction
    accuracy: float


@dataclass(frozen=True)
class BitsTried:
    """Top-1 of a fixed scheme with a number of bits per trained weight."""

    bits: int
    accuracy: float


@dataclass(frozen=True, repr=False)
class Contributions(Brief):
    """Accuracies are top-1 on images held back, from 0 to 1, averaged over seeds; gains are their differences.

    The weights of a layer were learned beside the last `base` biases, or beside as many as reach the layer where that
    is more; what they add is the difference from that depth without them.
    """

    model: str
    layers: tuple[str, ...]  # what each is, first to last, without the classifier
    conditions: Conditions
    depths: tuple[BiasDepth, ...]  # ascending, from 0: the head alone
    base: int
    shares: tuple[LayerShare, ...]  # ascending by layer and share
    bits: tuple[BitsTried, ...]  # ascending; empty where it was not tried
    left_out: tuple[str, ...] = ()  # what a quick analysis did not measure, in words
    averaged: tuple[Conditions, ...] = ()  # of further analyses whose accuracies went into the same means

    def __str__(self) -> str:
        how = f"measured on {self.conditions.data}" if self.measured else "by rule, not measured"
        return f"{self.model}: {len(self.depths)} depths of biases, {len(self.shares)} shares of weights, {how}"

    def picture(self) -> str:
        """Draw what the weights of each layer add at each share."""
        gains = [self.weights_gain(one.layer, one.share) for one in self.shares]
        names = (f"{one.share} of layer {one.layer}" for one in self.shares)
        notes = [f"{name}: {100 * gain:+.2f} points" for name, gain in zip(names, gains, strict=True)]
        return bars("what weights add, layer after layer", gains, notes)

    @property
    def measured(self) -> bool:
        """Return whether anything was trained; otherwise the gains are estimates."""
        return bool(self.conditions.seeds)

    def biases_gain(self, biases: int) -> float:
        """Return the gain of the last biases over the head alone, interpolated between measured depths."""
        return self._depth_accuracy(biases) - self.depths[0].accuracy

    def beside(self, layer: int) -> int:
        """Return the number of biases that learned where a layer's weights were measured."""
        return max(self.base, len(self.layers) - layer)

    def weights_gain(self, layer: int, share: Fraction) -> float:
        """Return the gain of a share of a layer's weights over biases alone; below zero where it harms."""
        for one in self.shares:
            if (one.layer, one.share) == (layer, share):
                return one.accuracy - self._depth_accuracy(self.beside(layer))
        raise ContributionsError(
            f"the contributions of {self.model} do not hold a share of {share} of layer {layer}; measured are "
            f"{', '.join(str(one.share) for one in self.shares if one.layer == layer) or 'none'}"
        )

    def kept(self, bits: int) -> float:
        """Return the share of the weights' gain that remains with these bits, from 0 to 1; 1 where not measured."""
        tried = {one.bits: one.accuracy for one in self.bits}
        without = self._depth_accuracy(self.base)
        most = max(tried.values(), default=without)
        if bits not in tried or most <= without:
            return 1.0
        return min(max((tried[bits] - without) / (most - without), 0.0), 1.0)

    def predict_gain(self, scheme: Scheme, bits: int | None = None) -> float:
        """Return the sum of the gains of a scheme's parts, as if they did not interact."""
        weights = 0.0
        for layer, part in scheme.weights:
            if not isinstance(part, Fraction):
                raise ContributionsError(f"{scheme.name} names the very channels of layer {layer}; give a share")
            weights += self.weights_gain(layer, part)
        return self.biases_gain(scheme.biases) + weights * (1.0 if bits is None else self.kept(bits))

    def check(self, graph: Graph) -> None:
        """Raise ContributionsError unless they were measured on a network of these layers."""
        found = layer_names(graph)
        for index, (ours, theirs) in enumerate(zip(found, self.layers, strict=False)):
            if ours != theirs:
                raise ContributionsError(
                    f"the contributions are of {self.model}, not of {graph.name}: its layer {index} is {ours}, theirs "
                    f"{theirs}; analyze {graph.name}"
                )
        if len(found) != len(self.layers):
            raise ContributionsError(
                f"the contributions are of {self.model} with {len(self.layers)} layers, {graph.name} has {len(found)}; "
                f"analyze {graph.name}"
            )

    def _depth_accuracy(self, biases: int) -> float:
        below = [one for one in self.depths if one.biases <= biases]
        above = [one for one in self.depths if one.biases >= biases]
        if not above:
            raise ContributionsError(
                f"the contributions of {self.model} reach {self.depths[-1].biases} biases, not {biases}"
            )
        low, high = below[-1], above[0]
        if low.biases == high.biases:
            return low.accuracy
        along = (biases - low.biases) / (high.biases - low.biases)
        return low.accuracy + along * (high.accuracy - low.accuracy)

    def to_json(self) -> str:
        """Return a file's text, with a digest that shows damage."""
        plain = _plain(self)
        return json.dumps({**plain, "sha256": _digest(plain)}, indent=1, allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes, source: str = "the file") -> Contributions:
        """Contributions from a file's text; ContributionsError, naming the source, where it holds none."""
        try:
            plain = parse_object(text, "format", "sha256")
            format, digest = plain["format"], plain.pop("sha256")
            if format != FORMAT:
                raise ContributionsError(
                    f"{source} has contributions of format {str(format)[:20]}, this version reads {FORMAT}; run "
                    "smidgen analyze again"
                )
            found = _parsed(plain)
            whole = digest == _digest(plain)
        except RecordError as error:
            raise ContributionsError(
                f"{source} does not hold contributions as smidgen analyze writes them: {error}; it may be cut short"
            ) from None
        if not whole:
            raise ContributionsError(f"{source} was changed since smidgen analyze wrote it; run the analysis again")
        return found


def layer_names(graph: Graph) -> tuple[str, ...]:
    """Return the names that identify a network's layers."""
    return tuple(str(LayerShape.of(node)) for node in layers(graph))


def read_contributions(path: Path) -> Contributions:
    """Read contributions from a file, or raise ContributionsError."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ContributionsError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise ContributionsError(f"{path} has over {MOST_BYTES:,} bytes, more than contributions can have")
    return Contributions.from_json(data, str(path))


def write_contributions(contributions: Contributions, path: Path) -> None:
    """Write the whole file, or none."""
    write_whole(path, contributions.to_json().encode() + b"\n")


def _plain(contributions: Contributions) -> dict[str, Any]:
    return json.loads(json.dumps({"format": FORMAT, **asdict(contributions)}, default=str))  # type: ignore[no-any-return]


def _digest(plain: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _parsed(plain: dict[str, Any]) -> Contributions:
    """Parse contributions; RecordError where something is missing or impossible."""
    found = from_plain(Contributions, {key: value for key, value in plain.items() if key != "format"})
    measured: tuple[BiasDepth | LayerShare | BitsTried, ...] = (*found.depths, *found.shares, *found.bits)
    for one in measured:
        if not 0 <= one.accuracy <= 1:
            raise RecordError(f"an accuracy of {one.accuracy}")
    count, order = len(found.layers), [one.biases for one in found.depths]
    if not order or order != sorted(set(order)) or order[0] != 0 or not 0 <= found.base <= order[-1] <= count:
        raise RecordError(f"biases {order[:8]}, base {found.base} and {count} layers do not fit together")
    keys = [(one.layer, one.share) for one in found.shares]
    if keys != sorted(set(keys)) or any(not 0 <= layer < count or not 0 < share <= 1 for layer, share in keys):
        raise RecordError("the layers and shares do not fit together")
    if any(found.beside(layer) > order[-1] for layer, _ in keys):
        raise RecordError(f"a layer is deeper than {order[-1]} biases")
    return found


Measured = TypeVar("Measured", BiasDepth, LayerShare, BitsTried)


def average_contributions(contributions: Sequence[Contributions]) -> Contributions:
    """Average every accuracy; a run that diverged in one of the analyses counts as diverged.

    Gains depend on the images and on how long the runs learn, so a scheme for many tasks is better chosen with several
    analyses. They must have tried the same parts of the same layers.
    """
    if not contributions:
        raise ContributionsError("there are no contributions to average; give one at least")
    first, *others = contributions
    for other in others:
        _check_alike(first, other)
    if not others:
        return first
    conditions = [given for one in contributions for given in (one.conditions, *one.averaged)]
    left_out = dict.fromkeys(line for one in contributions for line in one.left_out)
    return replace(
        first,
        conditions=conditions[0],
        depths=tuple(_means([one.depths for one in contributions])),
        shares=tuple(_means([one.shares for one in contributions])),
        bits=tuple(_means([one.bits for one in contributions])),
        left_out=tuple(left_out),
        averaged=tuple(conditions[1:]),
    )


def read_several(paths: Sequence[Path]) -> Contributions:
    """Read contributions from a file, or the mean of several files."""
    return average_contributions([read_contributions(path) for path in paths])


def _check_alike(one: Contributions, other: Contributions) -> None:
    """Raise ContributionsError unless both tried the same parts."""
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
