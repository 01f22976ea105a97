"""Losses besides softmax and their gradients against textbook formulas in float64, the same bytes by numpy and by C."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Op, QParams, Type
from smidgen.ops import CellCrossEntropy, MeanSquaredError, ReconstructionError, SigmoidCrossEntropy
from tests.ops.test_loss import QUIET, both, one
from tests.support.native import Kernels

BEYOND = (np.inf, -np.inf, np.nan, 3e38, -3e38)


def vectors(n: int) -> tuple[Type, Type]:
    return Type((1, n), "float32"), Type((1, n), "float32")


def drawn(n: int, power: float, seed: int) -> tuple[Array, Array]:
    """Logits of any size and targets of 0 to 1."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 2.0**power, (1, n)).astype(np.float32), rng.random((1, n), np.float32)


@given(st.integers(1, 40), st.floats(-10, 7), st.integers(0, 2**31 - 1))
@QUIET
def test_sigmoid_cross_entropy_is_the_mean_over_outputs(kernels: Kernels, n: int, power: float, seed: int) -> None:
    logits, target = drawn(n, power, seed)
    loss, gradient = both(kernels, one(SigmoidCrossEntropy(), *vectors(n)), logits, target)
    z, t = logits.astype(np.float64), target.astype(np.float64)
    wanted = np.mean(np.logaddexp(0, z) - z * t)
    assert float(loss[0]) == pytest.approx(wanted, rel=2e-6, abs=2e-7)
    np.testing.assert_allclose(gradient, (1 / (1 + np.exp(-z)) - t) / n, rtol=1e-5, atol=3e-7 / n)


@given(st.integers(1, 40), st.floats(-10, 20), st.integers(0, 2**31 - 1))
@QUIET
def test_the_mean_of_squared_errors_is_taken_over_outputs(kernels: Kernels, n: int, power: float, seed: int) -> None:
    y, target = drawn(n, power, seed)
    loss, gradient = both(kernels, one(MeanSquaredError(), *vectors(n)), y, target)
    error = y.astype(np.float64) - target.astype(np.float64)
    assert float(loss[0]) == pytest.approx(np.mean(error**2), rel=1e-5)
    np.testing.assert_allclose(gradient, 2 * error / n, rtol=1e-5, atol=1e-6 * 2.0**power)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(-128, 127), st.integers(0, 2**31 - 1))
@QUIET
def test_what_a_network_makes_of_its_input_is_compared_with_the_real_numbers_it_stands_for(
    kernels: Kernels, h: int, w: int, zero: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (1, h, w, 3)).astype(np.int8)
    y = rng.normal(0, 3, (1, h * w * 3)).astype(np.float32)
    q = QParams.per_tensor(0.0371, zero)
    loss, gradient = both(kernels, one(ReconstructionError(), Type(y.shape, "float32"), Type(x.shape, "int8", q)), y, x)
    error = y.astype(np.float64) - float(q.one) * (x.reshape(y.shape).astype(np.float64) - zero)
    assert float(loss[0]) == pytest.approx(np.mean(error**2), rel=1e-5)
    np.testing.assert_allclose(gradient, 2 * error / error.size, rtol=1e-5, atol=1e-6)


def cell_types(h: int, w: int, c: int) -> tuple[Type, Type]:
    return Type((1, h, w, c), "float32"), Type((1, h, w), "uint8")


@given(st.integers(1, 5), st.integers(1, 5), st.integers(2, 9), st.floats(-8, 6), st.integers(0, 2**31 - 1))
@QUIET
def test_the_loss_of_cells_is_the_mean_over_those_that_have_a_class(
    kernels: Kernels, h: int, w: int, c: int, power: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2.0**power, (1, h, w, c)).astype(np.float32)
    labels = rng.choice(np.array([*range(c), c, 255], np.uint8), (1, h, w))
    labels[0, 0, 0] = 0
    loss, gradient = both(kernels, one(CellCrossEntropy(), *cell_types(h, w, c)), logits, labels)
    z, known = logits.astype(np.float64), labels < c
    z -= z.max(axis=-1, keepdims=True)
    total = np.exp(z).sum(axis=-1, keepdims=True)
    chosen = np.take_along_axis(z, np.where(known, labels, 0)[..., None], axis=-1)
    assert float(loss[0]) == pytest.approx((np.log(total) - chosen)[known].mean(), rel=2e-6, abs=3e-7 * c)
    p = np.exp(z) / total
    wanted = np.where(known[..., None], p - np.eye(256)[labels][..., :c], 0) / known.sum()
    np.testing.assert_allclose(gradient, wanted, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("label", [3, 4, 255])
def test_cells_without_a_class_teach_nothing(kernels: Kernels, label: int) -> None:
    logits, labels = np.full((1, 2, 2, 3), 7.0, np.float32), np.full((1, 2, 2), label, np.uint8)
    loss, gradient = both(kernels, one(CellCrossEntropy(), *cell_types(2, 2, 3)), logits, labels)
    assert loss[0] == 0
    assert not gradient.any()


@pytest.mark.parametrize("op", [SigmoidCrossEntropy(), MeanSquaredError()], ids=["sigmoid", "squares"])
@pytest.mark.parametrize("logit", BEYOND)
@pytest.mark.parametrize("target", [0.0, 1.0, *BEYOND])
def test_no_logit_and_no_target_makes_a_loss_that_is_no_number(
    kernels: Kernels, op: Op, logit: float, target: float
) -> None:
    arrays = np.array([[logit, 0.5]], np.float32), np.array([[target, 0.5]], np.float32)
    loss, gradient = both(kernels, one(op, *vectors(2)), *arrays)
    assert math.isfinite(loss[0])
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("logit", BEYOND)
def test_no_logit_of_a_cell_makes_a_loss_that_is_no_number(kernels: Kernels, logit: float) -> None:
    logits = np.array([[[[logit, 0.0, -1.0], [0.0, logit, logit]]]], np.float32)
    node = one(CellCrossEntropy(), *cell_types(1, 2, 3))
    for label in range(3):
        loss, gradient = both(kernels, node, logits, np.full((1, 1, 2), label, np.uint8))
        assert math.isfinite(loss[0])
        assert np.isfinite(gradient).all()


def test_targets_beyond_0_and_1_are_taken_for_them(kernels: Kernels) -> None:
    node, logits = one(SigmoidCrossEntropy(), *vectors(3)), np.array([[0.3, -2.0, 0.1]], np.float32)
    beyond = both(kernels, node, logits, np.array([[7.0, -3.0, np.nan]], np.float32))
    within = both(kernels, node, logits, np.array([[1.0, 0.0, 0.0]], np.float32))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(beyond, within, strict=True))


F32, ROW = Type((1, 4), "float32"), QParams.per_channel([0.1] * 4, 1)


@pytest.mark.parametrize(
    ("op", "types", "said"),
    [
        (SigmoidCrossEntropy(), (Type((1, 4), "int8"), F32), "takes float32, not int8"),
        (SigmoidCrossEntropy(), (F32, Type((1, 3), "float32")), r"takes float32\[1, 4\] as its target"),
        (MeanSquaredError(), (Type((2, 4), "float32"),) * 2, r"takes float32\[1, …\]"),
        (MeanSquaredError(), (Type((1, 2, 2), "float32"),) * 2, r"takes float32\[1, outputs\]"),
        (ReconstructionError(), (F32, Type((1, 4), "int8")), "int8 with one scale"),
        (ReconstructionError(), (F32, Type((1, 4), "int8", ROW)), "int8 with one scale"),
        (ReconstructionError(), (F32, Type((1, 5), "int8", QParams.per_tensor(1.0))), "compares 4 outputs with 5"),
        (CellCrossEntropy(), (F32, Type((1,), "int32")), "takes a .* map"),
        (CellCrossEntropy(), (Type((1, 2, 2, 1), "float32"), Type((1, 2, 2), "uint8")), "2 to 256 classes"),
        (CellCrossEntropy(), (Type((1, 2, 2, 3), "float32"), Type((1, 2, 3), "uint8")), r"takes uint8\[1, 2, 2\]"),
    ],
)
def test_what_a_loss_cannot_compare_is_refused(op: Op, types: tuple[Type, ...], said: str) -> None:
    g = Builder("model")
    with pytest.raises(GraphError, match=said):
        g.emit_all(op, *(g.input(f"x{i}", type_) for i, type_ in enumerate(types)))
