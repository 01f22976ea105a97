"""Cheap estimates of what layers are worth, held against measured contributions; what was measured is never looked at.

Scores are per input channel of each layer, in real units, so that a share of a layer scores what its channels do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

import smidgen as sm
from experiments.predictions import rank_correlation
from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.ir import Array, Graph, Type, Value, evaluate_all
from smidgen.ops.update import unpack
from smidgen.selection.contributions import Contributions, LayerShare
from smidgen.selection.estimates import estimate, widening
from smidgen.selection.trials import SHARES
from smidgen.training import Training, build_training
from smidgen.training.autodiff import differentiate
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, resolve
from smidgen.training.weights import with_drawn_head

IMAGES = 48
JOINT_RATE = 0.1 / 256  # of the short run in which all layers learn
WHOLE = Fraction(1)
Scores = Mapping[int, Array]  # by layer, of each input channel


@dataclass(frozen=True)
class Judged:
    """An estimate, and how it ranks layers beside measured contributions (Spearman's correlation)."""

    name: str
    every: float  # over every layer that was measured, its whole weights
    widening: float  # over those that do not narrow
    contributions: Contributions


@dataclass(frozen=True)
class Evidence:
    """What a few images tell of each layer: gradients, activations, and how far a short run moved its weights."""

    squared: Scores  # gradients, each image's squared
    fisher: Scores  # as TinyTrain: of each output channel, Σ (Σ activation · gradient)², spread over input channels
    movement: Scores  # squared change of weights in the short run, relative to the weights
    attributed: Scores  # gradient at the start · change: the decrease of the loss, to first order


def gather(graph: Graph, data: Data, first: int) -> Evidence:
    """From the layer numbered `first` on; some seconds for each hundred million MACs."""
    count = len(layers(graph))
    scheme = Scheme("all", count - first, tuple((layer, WHOLE) for layer in range(first, count)))
    training = build_training(graph, scheme, sm.Options(len(data.classes)))
    squared, fisher, mean = _gradients(training, data.train.spread(IMAGES), graph)
    change = _short_run(graph, scheme, training, data)
    weights = {t.layer: _real(graph.constants[t.node.ins[1]], t.node.ins[1].type) for t in training.trained}
    movement = {layer: _by_channel(d**2) / np.sum(weights[layer] ** 2) for layer, d in change.items()}
    return Evidence(squared, fisher, movement, {layer: _by_channel(-mean[layer] * d) for layer, d in change.items()})


def _gradients(training: Training, images: Samples, graph: Graph) -> tuple[Scores, Scores, Scores]:
    """Squared gradients, activation Fisher, and the gradients' mean, from the float32 reference of the step."""
    loss_graph, loss = with_drawn_head(training.reference.loss_graph(), 0), training.reference.loss
    named = {v.name: v for v in (*loss_graph.state, *(node.out for node in loss_graph.nodes if len(node.outs) == 1))}
    pairs = {t.layer: (named[t.node.ins[1].name], named[t.node.out.name]) for t in training.trained}
    found = differentiate(loss_graph, loss, tuple(v for pair in pairs.values() for v in pair))
    squared: dict[int, Array] = {}
    fisher: dict[int, Array] = {}
    mean: dict[int, Array] = {}
    for image, label in zip(images.images, images.labels, strict=True):
        inputs = as_input(image, pixel_encoding(graph)), np.array([label], np.int32)
        values = evaluate_all(found.graph, found.graph.state, *inputs)
        for layer, (w, y) in pairs.items():
            dw = _unscaled(values[found.gradients[w]], w.type)
            squared[layer] = squared.get(layer, 0) + _by_channel(dw**2)
            mean[layer] = mean.get(layer, 0) + dw / len(images)
            moved = _fisher(values, y, found.gradients[y])
            fisher[layer] = fisher.get(layer, 0) + np.full(w.type.shape[-1], moved / w.type.shape[-1])
    return squared, fisher, mean


def _fisher(values: Mapping[Value, Array], y: Value, dy: Value) -> float:
    """The sum over channels of (Σ activation · gradient)²; their scales cancel."""
    product = (values[y].astype(np.float64) - y.type.zero) * values[dy]
    return float((product.reshape(-1, product.shape[-1]).sum(axis=0) ** 2).sum())


def _short_run(graph: Graph, scheme: Scheme, training: Training, data: Data) -> Scores:
    """How far one epoch moves the weights of each layer when all of them learn."""
    quick = replace(data, test=data.test.spread(1))
    options = sm.Options(len(data.classes))
    program = sm.compile(graph, scheme, options=options)
    learned = sm.learn(program, quick, sm.Course(1, JOINT_RATE))
    bits = options.bits(scheme) - 8  # beyond int8
    moved = {}
    for trained in training.trained:
        w = trained.node.ins[1]
        fraction = unpack(learned.state[f"{w.name}.fraction"], bits, w.type.size).reshape(w.type.shape)
        steps = learned.state[w.name].astype(np.float64) - graph.constants[w]
        moved[trained.layer] = _real(steps + (fraction.astype(np.float64) / 2**bits - 0.5), w.type)
    return moved


def _by_channel(weights: Array) -> Array:
    summed: Array = weights.astype(np.float64).reshape(-1, weights.shape[-1]).sum(axis=0)
    return summed


def _real(weights: Array, type_: Type) -> Array:
    return weights * _scales(type_)


def _unscaled(gradient: Array, type_: Type) -> Array:
    """A gradient with respect to int8 weights as one with respect to real ones."""
    return gradient.astype(np.float64) / _scales(type_)


def _scales(type_: Type) -> Array:
    assert type_.q is not None
    along = [-1 if i == type_.q.axis else 1 for i in range(len(type_.shape))]
    return np.array(type_.q.scale).reshape([1] if type_.q.axis is None else along)


def as_contributions(graph: Graph, scores: Scores, excluding: bool) -> Contributions:
    """Scores as contributions that a search can use: scaled so that all layers together add what the rule says.

    `excluding`, depthwise layers and those that narrow add nothing.
    """
    rule = estimate(graph)
    without = rule.depths[-1].accuracy
    kept = {layer: score for layer, score in scores.items() if not excluding or layer in widening(graph)}
    total = sum(max(float(score.sum()), 0.0) for score in kept.values())
    ruled = {one.layer: one.accuracy - without for one in rule.shares if one.share == WHOLE and one.layer in scores}
    scale = sum(ruled.values()) / total if total else 0.0
    shares = []
    for layer, score in sorted(kept.items()):
        for share in SHARES:
            scheme = Scheme("one", len(layers(graph)) - layer, ((layer, share),))
            channels = list(resolve(scheme, graph)[0].channels)
            gain = scale * float(score[channels].sum())
            shares.append(LayerShare(layer, share, without + min(max(gain, 0.0), 1 - without)))
    return replace(rule, shares=tuple(shares))


def candidates(graph: Graph, evidence: Evidence) -> dict[str, Contributions]:
    """Every estimate that was tried, by name."""
    found = {"rule": estimate(graph)}
    kinds: tuple[tuple[str, Scores], ...] = (
        ("gradient", evidence.squared),
        ("fisher", evidence.fisher),
        ("movement", evidence.movement),
        ("attributed", evidence.attributed),
    )
    for name, scores in kinds:
        found[name] = as_contributions(graph, scores, False)
        found[f"{name}-excluding"] = as_contributions(graph, scores, True)
    return found


def judge(graph: Graph, measured: Contributions, found: Mapping[str, Contributions]) -> tuple[Judged, ...]:
    """Each estimate's ranks beside those of what was measured."""
    layer_numbers = [one.layer for one in measured.shares if one.share == WHOLE]
    wide = [layer for layer in layer_numbers if layer in widening(graph)]

    def ranked(guess: Contributions, chosen: Sequence[int], gain: Callable[[Contributions, int], float]) -> float:
        return rank_correlation([gain(guess, layer) for layer in chosen], [gain(measured, layer) for layer in chosen])

    return tuple(
        Judged(name, ranked(guess, layer_numbers, _whole_gain), ranked(guess, wide, _whole_gain), guess)
        for name, guess in found.items()
    )


def _whole_gain(contributions: Contributions, layer: int) -> float:
    """Of a layer's whole weights; nothing where it was not tried."""
    known = {(one.layer, one.share) for one in contributions.shares}
    return contributions.weights_gain(layer, WHOLE) if (layer, WHOLE) in known else 0.0
