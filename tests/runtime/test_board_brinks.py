"""Limits inside the kernels of boards, on both sides of each: of shifts, saturation, masks, halfwords and lanes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, QParams, Type
from smidgen.ops.conv import ConvGradWeight
from smidgen.pipeline import compile
from smidgen.targets.boards import M0PLUS, M3, M7, M55, RV32IMC, Core
from smidgen.targets.firmware import BoardTarget
from tests.runtime.test_packed import agrees
from tests.support.case_parts import Q, Rng, binary
from tests.support.cases import inputs, together
from tests.support.drawn_layers import differing as differing_layers
from tests.support.drawn_layers import roomy
from tests.support.tiers import first
from tests.support.tools import need_emulator
from tests.support.training_cases import HOWS, conv_grad, fused, masked_overlay
from tests.support.training_inputs import Feed, Shape, TrainingCase, gradients
from tests.targets.test_board_training import differing

SCALAR = pytest.mark.parametrize("core", first(M0PLUS, M3, RV32IMC), ids=["m0plus", "m3", "riscv"])


def check(graphs: dict[str, Graph], core: Core, cache: Path) -> None:
    runs = [{name: inputs(graph, run) for name, graph in graphs.items()} for run in range(4)]
    agrees(graphs, runs, compile(together(graphs), target=BoardTarget(roomy(core), cache=cache)))


def learned(cases: list[TrainingCase], core: Core, cache: Path) -> list[str]:
    step = fused("step", ConvGradWeight, Shape((2, 3, 16), 8), next(iter(HOWS.values())))  # so that a program learns
    cases = [step, gradients("grad", *conv_grad(Shape((2, 3, 16), 8))), *cases]
    graphs = {case.name: case.build(np.random.default_rng(i)) for i, case in enumerate(cases)}
    return differing(BoardTarget(roomy(core), cache=cache), cases, graphs)


def ends(*shape: int) -> Feed:
    """A gradient whose elements are all as large as they can be."""

    def draw(rng: Rng) -> Array:
        return rng.choice(np.array([-127, 127], np.int8), shape)

    return Feed(Type(shape, "int8"), draw)


@SCALAR
def test_sums_are_divided_by_as_much_as_a_word_holds_and_by_more(core: Core, cache: Path) -> None:
    graphs = {}
    for shift in range(-31, -27):
        scale = 2 * 0.07 / (2**20 * 0.75 * 2.0**shift)
        graph = binary(f"add{shift}", ops.Add(), (1, 70), (1, 70), y=Q(scale, 7)).build(np.random.default_rng(0))
        assert graph.nodes[0].op.params(graph.nodes[0])["y_shift"] == shift
        graphs[f"add{shift}"] = graph
    check(graphs, core, cache)


@SCALAR
def test_gradients_of_minus_128_and_more_saturate_at_minus_127(core: Core, cache: Path) -> None:
    def case(shape: tuple[int, ...], masked: bool) -> TrainingCase:
        # 127.5 units each, which chance rounds to 127 or 128, as in no other case
        op = ops.RequantizeGrad(factors=(0.502,), masked=masked)
        return gradients(f"through-{shape}-{masked}", op, ends(*shape), shift=22)

    cases = [case(shape, masked) for shape in ((1, 4, 4, 16), (1, 3, 3, 7)) for masked in (False, True)]
    assert learned(cases, core, cache) == []


@SCALAR
def test_a_mask_that_stops_one_element_of_eight_stops_it(core: Core, cache: Path) -> None:
    def draw(rng: Rng) -> Array:
        """Bytes of which most let seven elements pass, or whole masks of the same byte."""
        bytes_ = (255 ^ (1 << rng.integers(0, 8, 36))).astype(np.uint8)
        return np.full_like(bytes_, bytes_[0]) if rng.random() < 0.5 else np.where(rng.random(36) < 0.3, 255, bytes_)

    cases = []
    for number in range(8):
        case = gradients(f"stopped-{number}", ops.RequantizeGrad(masked=True), ends(1, 6, 6, 8), shift=23)
        stopped = Feed(case.feeds[1].type, lambda rng: draw(rng).astype(np.uint8))
        cases.append(replace(case, feeds=(case.feeds[0], stopped, *case.feeds[2:])))
    assert learned(cases, core, cache) == []


def test_trained_weights_of_every_lane_are_packed(cache: Path) -> None:
    cases = [masked_overlay(f"lane-{n}", *conv_grad(Shape((4, 5, 24), 10)), (n, n + 8)) for n in range(8)]
    assert learned(cases, M7, cache) == []


def test_gradients_of_every_lane_of_a_small_map_are_laid_out(cache: Path) -> None:
    how = next(iter(HOWS.values()))
    cases = [fused(f"small-{n}", ConvGradWeight, Shape((4, n, 9), 8), how) for n in (1, 4, 16)]
    assert learned(cases, M7, cache) == []


def test_sums_of_weights_that_a_halfword_just_holds_or_does_not_are_exact(cache: Path) -> None:
    need_emulator(M55)

    def graph(k: tuple[int, int]) -> Graph:
        g = Builder("taps")
        x = g.input("x", Type((1, *k, 20), "int8", Q(0.05, -97)))
        w = g.constant("w", np.full((1, *k, 20), -128, np.int8), QParams.per_channel(np.full(20, 0.01), 3))
        return g.graph(g.emit(ops.Depthwise(), x, w, g.constant("b", np.zeros(20, np.int32)), q=Q(100.0, 3)))

    check({str(k): graph(k) for k in ((16, 16), (1, 257), (3, 86), (8, 33), (2, 264))}, M55, cache)


def test_a_group_of_fewer_than_four_outputs_is_computed_alone_where_weights_learn(cache: Path) -> None:
    need_emulator(M55)
    assert differing_layers(BoardTarget(roomy(M55), cache=cache), range(0, 60, 3)) == []
