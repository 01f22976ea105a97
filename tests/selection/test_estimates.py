"""Contributions by rule, and the estimates it was judged against: what they look at, and that judging can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from experiments.architectures import draw
from experiments.estimates import Evidence, as_contributions, candidates, gather, judge
from experiments.paper.channels import squared_gradients
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.selection.contributions import Contributions
from smidgen.selection.estimates import estimate, widening
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, load_scheme, resolve
from tests.support.contributions import measured
from tests.support.house import TOP
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import examples, first

ZOO = ("mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3")


@pytest.mark.parametrize("name", ZOO)
def test_by_rule_the_layers_worth_training_are_those_the_paper_chose_most_of(name: str) -> None:
    graph = sm.load(name)
    chosen = widening(graph)
    for layer, node in enumerate(layers(graph)):
        out, *window, channels = node.ins[1].type.shape
        pointwise = isinstance(node.op, Conv2D) and window == [1, 1] and out > channels
        assert (layer in chosen) == (pointwise or layer == 0)
    published = load_scheme("148kb" if name != "mbv2-w0.35" else "138kb", graph)
    assert {layer for layer, _ in published.weights} <= set(chosen)


@pytest.mark.parametrize("name", ZOO)
def test_by_rule_later_layers_more_channels_more_biases_and_more_bits_never_add_less(name: str) -> None:
    graph = sm.load(name)
    found = estimate(graph)
    found.check(graph)
    whole = [found.weights_gain(one.layer, one.share) for one in found.shares if one.share == 1]
    assert whole == sorted(whole)
    assert whole[0] > 0
    for layer in widening(graph):
        gains = [found.weights_gain(layer, one.share) for one in found.shares if one.layer == layer]
        assert gains == sorted(set(gains))
    depths = [one.accuracy for one in found.depths]
    assert depths == sorted(set(depths))
    assert 0 < found.kept(8) < found.kept(10) < found.kept(12) == 1
    assert "not measured" in found.left_out[0]


def test_an_estimate_survives_the_file() -> None:
    found = estimate(small_network())
    assert Contributions.from_json(found.to_json()) == found


def test_shares_that_learn_the_same_channels_are_named_once() -> None:
    graph = small_network()
    for one in estimate(graph).shares:
        scheme = Scheme("one", len(layers(graph)) - one.layer, ((one.layer, one.share),))
        others = [
            len(resolve(replace(scheme, weights=((o.layer, o.share),)), graph)[0].channels)
            for o in estimate(graph).shares
            if o.layer == one.layer and o.share != one.share
        ]
        assert len(resolve(scheme, graph)[0].channels) not in others


@pytest.mark.parametrize("name", first("ds-cnn", "resnet8", "mobilenet-v1", "squeezenet", "autoencoder"))
def test_a_network_of_other_blocks_has_layers_worth_training_too(name: str) -> None:
    graph = sm.from_torch(*draw(name))
    whole = [layer for layer, node in enumerate(layers(graph)) if not isinstance(node.op, Depthwise)]
    chosen = widening(graph)
    assert set(chosen) <= set(whole)
    assert len(chosen) >= len(whole) / 2
    estimate(graph).check(graph)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return gather(small_network(), draw_shapes(3, 1), 1)


def test_squared_gradients_of_numpy_are_those_of_pytorch(evidence: Evidence) -> None:
    graph, data = small_network(), draw_shapes(3, 1)
    count = len(layers(graph))
    scheme = Scheme("all", count - 1, tuple((layer, Fraction(1)) for layer in range(1, count)))
    for layer, expected in squared_gradients(scheme, graph, data, 0).items():
        np.testing.assert_allclose(evidence.squared[layer], expected, rtol=1e-3)


def test_every_kind_of_evidence_is_of_every_layer_and_finite(evidence: Evidence) -> None:
    for scores in (evidence.squared, evidence.fisher, evidence.movement, evidence.attributed):
        assert list(scores) == list(range(1, len(layers(small_network()))))
        assert all(np.isfinite(score).all() for score in scores.values())
    assert all(score.sum() > 0 for score in evidence.fisher.values())


@given(st.integers(0, 99))
@settings(max_examples=examples(10))
def test_judging_tells_the_best_estimate_from_the_worst(seed: int) -> None:
    graph = small_network()
    real = measured(graph, seed)
    order = {one.layer: real.weights_gain(one.layer, one.share) for one in real.shares if one.share == 1}
    place = {layer: sorted(order, key=lambda one: order[one]).index(layer) + 1.0 for layer in order}
    sizes = {layer: node.ins[1].type.shape[-1] for layer, node in enumerate(layers(graph))}
    same = as_contributions(graph, {i: np.full(sizes[i], p / sizes[i]) for i, p in place.items()}, False)
    worst = as_contributions(graph, {i: np.full(sizes[i], 1 / p / sizes[i]) for i, p in place.items()}, False)
    best, reverse = judge(graph, real, {"same": same, "reverse": worst})
    assert best.every == pytest.approx(1)
    assert reverse.every == pytest.approx(-1)


def test_excluded_layers_add_nothing_and_the_rest_adds_what_the_rule_says(evidence: Evidence) -> None:
    graph = small_network()
    rule = estimate(graph)
    total = sum(rule.weights_gain(layer, Fraction(1)) for layer in widening(graph) if layer > 0)
    for name, found in candidates(graph, evidence).items():
        named = {one.layer for one in found.shares}
        whole = [found.weights_gain(one.layer, one.share) for one in found.shares if one.share == 1]
        if name.endswith("-excluding"):
            assert named == set(widening(graph)) - {0}
        if name.startswith(("gradient", "fisher", "movement")):
            assert sum(whole) == pytest.approx(total)


def test_without_measured_contributions_nothing_can_be_judged_and_that_is_told(tmp_path: Path) -> None:
    command = [sys.executable, str(TOP / "benchmarks" / "estimates.py"), "--contributions", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TOP / "src")}
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert told.returncode == 1
    assert told.stderr.strip() == f"{tmp_path / 'mcunet-5fps.json'} cannot be read: No such file or directory"
