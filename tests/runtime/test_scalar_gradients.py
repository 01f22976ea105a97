"""Two products by one multiplication, at the brink of what 16 bits hold: numpy's bytes without packed arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen.ir import Array, QParams, Type
from smidgen.ops.conv import ConvGradWeight
from smidgen.ops.gradient import GradOp
from smidgen.targets.boards import M0PLUS, M3, Core
from smidgen.targets.firmware import BoardTarget
from tests.support.case_parts import Rng
from tests.support.training_cases import HOWS, conv_grad, depthwise_grad, fused
from tests.support.training_inputs import Feed, Shape, TrainingCase, gradients
from tests.targets.test_board_training import ROOMY, differing

MOST = 255  # what magnitudes of gradients may come to before a sum of products with -128 needs more bits


def brink(shape: tuple[int, ...], eights: tuple[int, ...]) -> Feed:
    """Gradients of one sign whose magnitudes, eight along some axes, come to MOST or to one more."""

    def draw(rng: Rng) -> Array:
        sign, total = rng.choice([-1, 1]), MOST + rng.integers(0, 2)
        eight = np.full(8, total // 8)
        eight[: total % 8] += 1
        return np.broadcast_to(sign * eight.reshape(eights), shape).astype(np.int8)

    return Feed(Type(shape, "int8"), draw)


def lowest(w: Feed) -> Feed:
    """Weights that are all -128, of which some are the largest."""

    def draw(rng: Rng) -> Array:
        return np.where(rng.random(w.type.shape) < rng.choice([0.0, 0.1]), 127, -128).astype(np.int8)

    return Feed(Type(w.type.shape, "int8", QParams.per_tensor(0.05, 0)), draw)


def cases() -> Iterator[TrainingCase]:
    for name, (op, dy, w), eights in (
        ("rows", conv_grad(Shape((2, 3, 16), 8)), (8,)),
        ("window", depthwise_grad(Shape((2, 4, 5), 5, (3, 7))), (2, 4, 1)),
    ):
        for masked in (False, True):
            changed: GradOp = replace(op, masked=masked)
            yield gradients(f"{name}-{masked}", changed, brink(dy.type.shape, eights), lowest(w), shift=22)


@pytest.mark.slow
@pytest.mark.parametrize("core", [M0PLUS, M3], ids=["m0plus", "m3"])
def test_sums_that_16_bits_just_hold_or_do_not_are_numpys(core: Core, cache: Path) -> None:
    step = fused("step", ConvGradWeight, Shape((2, 3, 16), 8), next(iter(HOWS.values())))  # so that a program learns
    drawn = [step, *(replace(case, name=f"{case.name}-{i}") for i in range(4) for case in cases())]
    graphs = {case.name: case.build(np.random.default_rng(i)) for i, case in enumerate(drawn)}
    assert differing(BoardTarget(replace(ROOMY, core=core), cache=cache), drawn, graphs) == []
