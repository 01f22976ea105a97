"""Measured contributions as a table: what each depth of biases and each layer's weights add, and what harms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from smidgen.ir import Graph
from smidgen.selection.contributions import Conditions, Contributions
from smidgen.selection.trials import kind_of
from smidgen.training.head import layers


@dataclass(frozen=True)
class ShareGain:
    """What a share of a layer's weights adds to biases alone, in top-1 from -1 to 1."""

    share: str
    gain: float


@dataclass(frozen=True)
class LayerGains:
    """A layer, what it is for, what its weights add at each share, and whether that is more than noise."""

    layer: int
    kind: str
    gains: tuple[ShareGain, ...]
    verdict: str  # adds, harms, or nothing


@dataclass(frozen=True)
class DepthGain:
    """What the last so many biases add to the head alone."""

    biases: int
    gain: float


@dataclass(frozen=True)
class BitsAccuracy:
    """Top-1 of one scheme with so many bits of a weight."""

    bits: int
    accuracy: float


@dataclass(frozen=True)
class AnalysisSummary:
    """An analysis and the file it was written to."""

    model: str
    file: str
    conditions: Conditions
    head: float  # top-1 of the head alone
    base: int
    noise: float  # the standard deviation of a top-1 that is judged with so many images
    depths: tuple[DepthGain, ...]
    layers: tuple[LayerGains, ...]  # the last first
    bits: tuple[BitsAccuracy, ...]
    left_out: tuple[str, ...]
    picture: str | None = None  # the file it is drawn in

    def __str__(self) -> str:
        given = self.conditions
        seeds = _counted(len(given.seeds), "seed")
        lines = [
            f"{self.model} on {given.data}: learned from {given.learned_from:,} training images and judged with "
            f"{given.judged_with:,} others",
            f"{_counted(given.epochs, 'epoch')} at a rate of {given.learning_rate:.4g} a sample, {seeds}; gains within "
            f"±{self.noise:.1%} may be chance",
            f"head alone: top-1 {self.head:.1%}; the last k biases add",
            *(f"  {one.biases:>4}  {one.gain:+7.1%}" for one in self.depths if one.biases),
            f"weights of one layer beside the last {self.base} biases, or as many as reach it, add",
            *self._table(),
        ]
        if self.bits:
            shown = ", ".join(f"{one.bits} bits {one.accuracy:.1%}" for one in self.bits)
            lines.append(f"bits of a weight, the same scheme: top-1 {shown}")
        harmful = [one for one in self.layers if one.verdict == "harms"]
        if harmful:
            shown = ", ".join(f"{one.layer} ({one.kind})" for one in reversed(harmful))
            lines.append(f"training these layers harms: {shown}")
        lines += [f"left out: {line}" for line in self.left_out]
        drawn = [f"drawn in {self.picture}"] if self.picture else []
        return "\n".join([*lines, f"written to {self.file}", *drawn])

    def _table(self) -> list[str]:
        shares = sorted({one.share for layer in self.layers for one in layer.gains}, key=_value)
        rows = [f"  layer  kind       {''.join(f'{share:>9}' for share in shares)}"]
        for layer in self.layers:
            known = {one.share: f"{one.gain:+.1%}" for one in layer.gains}
            cells = "".join(f"{known.get(share, ''):>9}" for share in shares)
            rows.append(f"  {layer.layer:>5}  {layer.kind:<9}  {cells}  {layer.verdict}".rstrip())
        return rows


def summarize(contributions: Contributions, graph: Graph, file: str, picture: str | None = None) -> AnalysisSummary:
    """The contributions as the command line shows them."""
    given, nodes = contributions.conditions, layers(graph)
    base = contributions.depths[0].accuracy + contributions.biases_gain(contributions.base)
    noise = math.sqrt(base * (1 - base) / given.judged_with / len(given.seeds))
    measured = sorted({one.layer for one in contributions.shares}, reverse=True)
    return AnalysisSummary(
        contributions.model,
        file,
        given,
        contributions.depths[0].accuracy,
        contributions.base,
        noise,
        tuple(DepthGain(one.biases, contributions.biases_gain(one.biases)) for one in contributions.depths),
        tuple(_gains(contributions, layer, str(kind_of(nodes[layer])), noise) for layer in measured),
        tuple(BitsAccuracy(one.bits, one.accuracy) for one in contributions.bits),
        contributions.left_out,
        picture,
    )


def _gains(contributions: Contributions, layer: int, kind: str, noise: float) -> LayerGains:
    shares = [one.share for one in contributions.shares if one.layer == layer]
    gains = [contributions.weights_gain(layer, share) for share in shares]
    verdict = "harms" if min(gains) < -noise else "adds" if max(gains) > noise else ""
    return LayerGains(layer, kind, tuple(ShareGain(str(s), g) for s, g in zip(shares, gains, strict=True)), verdict)


def _value(share: str) -> float:
    above, _, below = share.partition("/")
    return int(above) / int(below or 1)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
