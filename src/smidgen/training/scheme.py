"""Sparse-update schemes: which biases, which weights and which of their input channels learn."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from smidgen.errors import SmidgenError
from smidgen.ir import Graph, Node
from smidgen.ops.weighted import weighted
from smidgen.records import RecordError, from_plain, parse_object
from smidgen.training.head import layers
from smidgen.training.published import LayerShape, published_for, why_not_published

Ranking = Literal["largest", "smallest", "random"]
RANKINGS: tuple[Ranking, ...] = ("largest", "smallest", "random")
WEIGHT_BITS = (8, 10, 12)  # that a weight can learn with
Part = Fraction | tuple[int, ...]  # of a layer's input channels: a share, or the very channels in ascending order
_BITS = tuple((int, bits) for bits in WEIGHT_BITS)
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_SHARE = re.compile(r"-?[0-9]{1,9}(?:/0*[1-9][0-9]{0,8}|\.[0-9]{1,18})?")


class SchemeError(SmidgenError):
    """A scheme does not fit the model, or cannot be read."""


@dataclass(frozen=True)
class MadeFor:
    """The network that a scheme was made for, known by its layers: a number of all their shapes."""

    network: str
    layers: str

    @staticmethod
    def of(graph: Graph) -> MadeFor:
        shapes = "\n".join(str(LayerShape.of(node)) for node in layers(graph))
        return MadeFor(graph.name, hashlib.sha256(shapes.encode()).hexdigest()[:16])


@dataclass(frozen=True)
class Scheme:
    """The last `biases` layers learn their biases; `weights` maps a layer to the part of its input channels.

    Layers are numbered from 0 over the convolutions and dense layers in execution order, the classifier not counted;
    a depthwise layer's share counts its channels, a dense layer learns whole. The classifier head always learns.
    A part is a share of the channels, which rank by `channels`, or the numbers of the very channels. A scheme that was
    searched for a budget holds the bits with which each weight learns; others leave that to `Options`. It also names
    the network it is made for, and is refused for one with other layers, which have other numbers.
    """

    name: str
    biases: int
    weights: tuple[tuple[int, Part], ...] = ()
    channels: Ranking = "largest"
    weight_bits: int | None = None
    made_for: MadeFor | None = None

    def to_json(self) -> str:
        """Return the text of a scheme's file (docs/internals/schemes.md)."""
        weights = {str(layer): str(p) if isinstance(p, Fraction) else list(p) for layer, p in self.weights}
        plain = {"name": self.name, "biases": self.biases, "weights": weights, "channels": self.channels}
        bits = {} if self.weight_bits is None else {"weight_bits": self.weight_bits}
        network = {} if self.made_for is None else {"made_for": asdict(self.made_for)}
        return json.dumps({**plain, **bits, **network}, indent=2)

    @staticmethod
    def from_json(text: str | bytes, source: str = "the scheme") -> Scheme:
        """Read a scheme from a file's text; SchemeError, naming the source, where it holds none."""
        try:
            plain = parse_object(text, "name", "biases", "weights", "channels")
            parts = from_plain(dict[str, Any], plain["weights"])
            weights = tuple((_integer(layer), _parse_part(part)) for layer, part in parts.items())
            biases, bits, network = _integer(plain["biases"]), plain.get("weight_bits"), plain.get("made_for")
            made_for = None if network is None else from_plain(MadeFor, network)
            name, ordered = from_plain(str, plain["name"]), tuple(sorted(weights, key=lambda one: one[0]))
            scheme = Scheme(name, biases, ordered, plain["channels"], bits, made_for)
        except RecordError as error:
            raise SchemeError(
                f"{source} is not a scheme: {error}; it needs name, biases, weights as "
                '{"layer": "share" or [channels]} and channels, as Scheme.to_json writes them'
            ) from None
        if scheme.channels not in RANKINGS:
            raise SchemeError(f"{source} ranks channels by '{scheme.channels}'; known are {', '.join(RANKINGS)}")
        if scheme.weight_bits is not None and (type(scheme.weight_bits), scheme.weight_bits) not in _BITS:
            raise SchemeError(f"{source} trains weights of {str(scheme.weight_bits)[:20]} bits; give 8, 10 or 12")
        return scheme


def _integer(written: object) -> int:
    """Read a number of layers, or the number of a layer."""
    if isinstance(written, bool) or not _WHOLE.fullmatch(str(written)):
        raise RecordError(f"{str(written)[:40]!r} is not a whole number")
    return int(str(written))


def _parse_part(written: object) -> Part:
    """Read a share of channels, 1/8, 0.125 or 1, or a list of their numbers."""
    if isinstance(written, list):
        return tuple(_integer(channel) for channel in written)
    if isinstance(written, bool) or not _SHARE.fullmatch(str(written)):
        raise RecordError(f"{str(written)[:40]!r} is not a share of channels such as 1/8")
    return Fraction(str(written))


@dataclass(frozen=True)
class Trained:
    """The part of a layer that learns: its place among the layers, its bias, and which input channels."""

    layer: int
    node: Node
    bias: bool
    channels: tuple[int, ...]  # empty: no weights; all of them: the whole tensor

    @property
    def partial(self) -> bool:
        return 0 < len(self.channels) < self.node.ins[1].type.shape[-1]


@dataclass(frozen=True)
class AnalyticMemory:
    """The paper's analytic extra memory of a scheme, in bytes, without the classifier."""

    saved: int
    masks: int
    weights: int
    biases: int

    @property
    def activations(self) -> int:
        return self.saved + self.masks

    @property
    def parameters(self) -> int:
        return self.weights + self.biases

    @property
    def total(self) -> int:
        return self.activations + self.parameters


def resolve(scheme: Scheme, graph: Graph, seed: int = 0) -> tuple[Trained, ...]:
    """Return what each layer learns, first to last; raises where the scheme does not fit the graph."""
    numbered = layers(graph)
    if (made := scheme.made_for) is not None and made.layers != MadeFor.of(graph).layers:
        raise SchemeError(
            f"{scheme.name} was made for {made.network[:80]}, whose layers are not those of {graph.name}; search one "
            "for it, or take made_for out of the scheme to go by its numbers"
        )
    if not 0 <= scheme.biases <= len(numbered):
        raise SchemeError(
            f"{scheme.name} trains {scheme.biases} biases, {graph.name} has {len(numbered)} layers; give 0 to "
            f"{len(numbered)}, or a scheme that was made for this network"
        )
    first = len(numbered) - scheme.biases
    parts = dict(scheme.weights)
    for layer, part in scheme.weights:
        if not 0 <= layer < len(numbered):
            raise SchemeError(
                f"{scheme.name} names layer {layer}; {graph.name} has 0 to {len(numbered) - 1}; give a scheme that was "
                "made for this network"
            )
        if layer < first:
            raise SchemeError(
                f"{scheme.name} trains weights of layer {layer} but only the last {scheme.biases} biases (from layer "
                f"{first}): the gradient's path to layer {layer} needs biases {len(numbered) - layer}"
            )
        _check_part(scheme.name, layer, part, numbered[layer])
    rng = np.random.default_rng(seed)
    return tuple(
        Trained(i, numbered[i], True, _channels(graph, numbered[i], parts.get(i, Fraction(0)), scheme.channels, rng))
        for i in range(first, len(numbered))
    )


def _check_part(name: str, layer: int, part: Part, node: Node) -> None:
    """Raise SchemeError unless a layer has these channels, or such a share of them."""
    total = node.ins[1].type.shape[-1]
    if isinstance(part, Fraction):
        whole, text = part == 1, str(part)
        if not 0 < part <= 1:
            raise SchemeError(f"{name} trains {part} of layer {layer}'s channels; give above 0, at most 1")
    else:
        whole, text = len(part) == total, f"{len(part)} channels"
        if not part or list(part) != sorted(set(part)) or not 0 <= part[0] <= part[-1] < total:
            given = ", ".join(map(str, part[:4])) + ("…" if len(part) > 4 else "")
            raise SchemeError(
                f"{name} trains channels [{given}] of layer {layer}; give at least one of 0 to {total - 1}, "
                "each once, in ascending order"
            )
    if not whole and not weighted(node).learns_in_parts:
        raise SchemeError(f"{name} trains {text} of layer {layer}, which is dense and learns only as a whole; give 1")


def _channels(graph: Graph, node: Node, part: Part, ranking: Ranking, rng: np.random.Generator) -> tuple[int, ...]:
    """Return the channels that learn, in ascending order: those named, or the share that ranks first by weight norm."""
    w = node.ins[1]
    if not part or w not in graph.constants:
        return ()
    if not isinstance(part, Fraction):
        return part
    total = w.type.shape[-1]
    count = min(total, max(1, round(total * part)))
    data, q = graph.constants[w].astype(np.float64), w.type.q
    if q is not None:
        steps = np.array(q.scale)
        along = [-1 if i == q.axis else 1 for i in range(data.ndim)]
        data = data * (steps if q.axis is None else steps.reshape(along))
    norms = np.sqrt((data**2).sum(axis=tuple(range(data.ndim - 1))))
    order = {"largest": np.argsort(-norms, kind="stable"), "smallest": np.argsort(norms, kind="stable")}
    chosen = rng.permutation(total) if ranking == "random" else order[ranking]
    return tuple(sorted(int(c) for c in chosen[:count]))


def analytic_memory(scheme: Scheme, graph: Graph) -> AnalyticMemory:
    """Return the analytic memory of a scheme: the sum over the layers that learn."""
    layers = [layer_memory(trained) for trained in resolve(scheme, graph)]
    return AnalyticMemory(*(sum(getattr(layer, f.name) for layer in layers) for f in fields(AnalyticMemory)))


def layer_memory(trained: Trained) -> AnalyticMemory:
    """Return the bytes of saved channels, mask bits of outputs, updated weights (1 byte) and biases (4 bytes)."""
    x, w, b = (v.type for v in trained.node.ins)
    share = len(trained.channels)
    saved = math.prod(x.shape[:-1]) * share * weighted(trained.node).groups
    return AnalyticMemory(saved, (trained.node.out.type.size + 7) // 8, w.size // w.shape[-1] * share, 4 * b.size)


def load_scheme(text: str, graph: Graph) -> Scheme:
    """Load a scheme by a name published for this network, `full`, `last:K`, `bias:K`, `head`, or from a JSON file."""
    count = len(layers(graph))
    word, _, number = text.partition(":")
    if text == "head":
        scheme = Scheme(text, 0)
    elif text == "full":
        scheme = Scheme(text, count, tuple((i, Fraction(1)) for i in range(count)))
    elif word in ("last", "bias") and _WHOLE.fullmatch(number):
        k = int(number)
        weights = tuple((i, Fraction(1)) for i in range(max(0, count - k), count)) if word == "last" else ()
        scheme = Scheme(text, k, weights)
    elif text in (published := published_for(graph)):
        scheme = Scheme(text, *published[text])
    elif os.path.isfile(text):
        scheme = Scheme.from_json(_read(text), text)
    else:
        why = why_not_published(text, graph) or f"is neither a scheme for {graph.name} nor a file"
        names = ", ".join((*published, "full", "last:K", "bias:K", "head"))
        raise SchemeError(f"'{text[:80]}' {why}; give {names}, or a JSON file with a scheme")
    resolve(scheme, graph)
    return scheme


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise SchemeError(f"{file} cannot be read: {error.strerror}") from None
