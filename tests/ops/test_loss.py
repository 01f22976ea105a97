"""The loss, its gradient and the rate of a step against float64, from the least to the largest there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smidgen.ir import Array, Builder, Node, Op, Type
from smidgen.ops import CrossEntropyGrad, MaxAbs, Rate, SoftmaxCrossEntropy
from tests.support.native import Kernels, pointer

QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FLOAT32_MOST = float(np.finfo(np.float32).max)
EDGES = (0.0, 1.0, 2.0**-86, 2.0**-87, 2.0**126, 1.5 * 2.0**126, 2.0**127, FLOAT32_MOST, np.inf)
positive = st.one_of(
    st.floats(-140, 127).map(lambda power: np.float32(2.0**power)),
    st.sampled_from([0.0, 1.0, 2.0**-86, 2.0**-87, 2.0**126, 1.5 * 2.0**126, 2.0**127, FLOAT32_MOST, np.inf]).map(
        np.float32
    ),
)


def one(op: Op, *types: Type) -> Node:
    g = Builder("one")
    return g.graph(*g.emit_all(op, *(g.input(f"x{i}", t) for i, t in enumerate(types)))).nodes[0]


def both(kernels: Kernels, node: Node, *arrays: Array) -> tuple[Array, ...]:
    """A node's outputs, the same bytes by numpy and by C."""
    found = node.op.ref(node, *arrays)
    outs = found if isinstance(found, tuple) else (found,)
    made = [np.zeros_like(out) for out in outs]
    kernels.call(node, *(pointer(a) for a in (*arrays, *made)))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(outs, made, strict=True))
    return outs


@given(positive, positive)
@QUIET
def test_the_rate_is_the_learning_rate_times_the_unit_of_gradients(
    kernels: Kernels, learning_rate: np.float32, g0: np.float32
) -> None:
    node = one(Rate(), Type((1,), "float32"), Type((1,), "float32"))
    with np.errstate(all="ignore"):
        ((mantissa, exponent),) = (r.tolist() for r in both(kernels, node, np.array([learning_rate]), np.array([g0])))
    exact = float(learning_rate) * float(g0)
    found = math.ldexp(mantissa, exponent - 31)
    if exact < 2.0**-86 * (1 - 2.0**-24) or not exact < 2.0**127:
        assert (mantissa, exponent) == (0, 0)
    else:
        assert 2**30 <= mantissa < 2**31
        assert abs(found - exact) <= 2.0**-23 * exact


@pytest.mark.parametrize("wrong", [-1.0, -np.inf, np.nan, -0.0, 0.0, 1e-45])
def test_what_is_no_rate_is_none(kernels: Kernels, wrong: float) -> None:
    node = one(Rate(), Type((1,), "float32"), Type((1,), "float32"))
    for arrays in ((wrong, 1.0), (1.0, wrong)):
        assert both(kernels, node, *(np.array([x], np.float32) for x in arrays))[0].tolist() == [0, 0]


def textbook(logits: Array, label: int) -> tuple[float, Array]:
    """−log softmax(logits)[label] and softmax − one-hot, in float64."""
    exact = logits[0].astype(np.float64) - float(logits.max())
    total = np.exp(exact).sum()
    gradient = np.exp(exact) / total
    gradient[label] -= 1
    return float(np.log(total) - exact[label]), gradient


@given(st.integers(2, 40), st.floats(-10, 7), st.integers(0, 2**31 - 1))
@QUIET
def test_loss_and_gradient_are_those_of_softmax_cross_entropy(
    kernels: Kernels, classes: int, power: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2.0**power, (1, classes)).astype(np.float32)
    label = int(rng.integers(classes))
    types = Type((1, classes), "float32"), Type((1,), "int32")
    index = np.array([label], np.int32)
    loss, probabilities = both(kernels, one(SoftmaxCrossEntropy(), *types), logits, index)
    (gradient,) = both(kernels, one(CrossEntropyGrad(), *types), probabilities, index)
    (unit,) = both(kernels, one(MaxAbs(), types[0]), gradient)
    wanted_loss, wanted = textbook(logits, label)
    assert float(loss[0]) == pytest.approx(wanted_loss, rel=3e-7, abs=3e-7 * classes)
    np.testing.assert_allclose(gradient[0], wanted, rtol=2e-6, atol=3e-7)
    assert float(unit[0]) == np.abs(gradient).max()


@pytest.mark.parametrize("label", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_sample_without_a_class_teaches_nothing(kernels: Kernels, label: int) -> None:
    types, index = (Type((1, 3), "float32"), Type((1,), "int32")), np.array([label], np.int32)
    logits = np.array([[1.0, -2.0, 0.5]], np.float32)
    loss, probabilities = both(kernels, one(SoftmaxCrossEntropy(), *types), logits, index)
    assert loss[0] == 0
    assert not both(kernels, one(CrossEntropyGrad(), *types), probabilities, index)[0].any()


def test_a_class_that_is_certain_costs_nothing_and_one_that_is_impossible_its_distance(kernels: Kernels) -> None:
    types = Type((1, 2), "float32"), Type((1,), "int32")
    for logits, label, wanted in (((0.0, -200.0), 0, 0.0), ((0.0, -200.0), 1, 200.0), ((5.0, 5.0), 1, math.log(2))):
        arrays = np.array([logits], np.float32), np.array([label], np.int32)
        assert both(kernels, one(SoftmaxCrossEntropy(), *types), *arrays)[0][0] == pytest.approx(wanted, rel=1e-6)
