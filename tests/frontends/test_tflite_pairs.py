"""Differences, minima and quotients of TFLite files are LiteRT's, every pair of int8 alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.codec import encode
from smidgen.frontends.tflite.flatbuffer import ACTIVATIONS, TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Array, QParams, evaluate
from tests.frontends.test_tflite import EVERY_INT8, QUANTIZATIONS, read_back
from tests.support.litert import run_litert
from tests.support.tiers import examples

GRID = tuple(np.ascontiguousarray(side)[None] for side in np.meshgrid(EVERY_INT8, EVERY_INT8))


def tensor(name: str, shape: tuple[int, ...], q: QParams | None, data: Array | None = None) -> TfliteTensor:
    raw = None if data is None else data.tobytes()
    if q is None:
        return TfliteTensor(name, shape, "float32", data=raw)
    return TfliteTensor(name, shape, "int8", q.scale, (q.zero,), data=raw)


def pair(code: str, a: TfliteTensor, b: TfliteTensor, y: TfliteTensor, activation: str = "none") -> bytes:
    options = TfliteOptions(fused_activation_function=ACTIVATIONS[activation])
    operator = TfliteOperator(code, (0, 1), (2,), options, 2 if a.dtype == "int8" and code != "DIV" else 1)
    inputs = tuple(i for i, one in enumerate((a, b)) if one.data is None)
    return encode(TfliteModel((a, b, y), (operator,), inputs, (2,)))


def assert_alike(model: bytes, *ins: Array) -> None:
    (mine,), (other,) = evaluate(read_back(model), *ins), run_litert(model, *ins)
    if mine.dtype == np.int8:
        np.testing.assert_array_equal(mine, other)
    else:
        np.testing.assert_allclose(mine, other, rtol=1e-6)


@settings(max_examples=examples(30))
@given(a=QUANTIZATIONS, b=QUANTIZATIONS, y=QUANTIZATIONS, activation=st.sampled_from(("none", "relu", "relu6")))
def test_every_pair_of_int8_is_subtracted_as_in_litert(a: QParams, b: QParams, y: QParams, activation: str) -> None:
    shape = GRID[0].shape
    model = pair("SUB", tensor("a", shape, a), tensor("b", shape, b), tensor("y", shape, y), activation)
    assert_alike(model, *GRID)


@settings(max_examples=examples(30))
@given(q=QUANTIZATIONS, y=QUANTIZATIONS, first=st.booleans(), shape=st.sampled_from(((1,), (6,), (1, 1, 6))))
def test_constants_are_subtracted_from_either_side(q: QParams, y: QParams, first: bool, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    known = tensor("k", shape, y, rng.integers(-128, 128, shape, np.int8))
    x = tensor("x", (1, 50, 6), q)
    operands = (known, x) if first else (x, known)
    assert_alike(pair("SUB", *operands, tensor("y", (1, 50, 6), y)), rng.integers(-128, 128, (1, 50, 6), np.int8))


@settings(max_examples=examples(10))
@given(q=QUANTIZATIONS)
def test_the_smaller_of_every_pair_of_int8_is_litert_s(q: QParams) -> None:
    shape = GRID[0].shape
    assert_alike(pair("MINIMUM", tensor("a", shape, q), tensor("b", shape, q), tensor("y", shape, q)), *GRID)
    limit = tensor("k", (1,), q, np.array([17], np.int8))
    assert_alike(pair("MINIMUM", tensor("a", shape, q), limit, tensor("y", shape, q)), GRID[0])


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1), shape=st.sampled_from(((1, 256, 3), (256, 3), (1, 16, 16, 3))),
    one=st.booleans(), activation=st.sampled_from(("none", "relu")),
)  # fmt: skip
def test_int8_is_divided_by_constants_as_in_litert(
    seed: int, shape: tuple[int, ...], one: bool, activation: str
) -> None:
    rng = np.random.default_rng(seed)
    x, k = (QParams.per_tensor(2.0 ** rng.uniform(-8, 1), int(rng.integers(-128, 128))) for _ in range(2))
    steps = rng.choice([-100, -3, -1, 1, 2, 50, 90], 1 if one else 3)
    data = np.clip(steps + k.zero, -128, 127).astype(np.int8)
    data = np.where(data == k.zero, data - 1 if k.zero > -128 else data + 1, data).astype(np.int8)
    large = float(np.abs(data.astype(int) - k.zero).max()) * k.one  # by it, LiteRT's kernel loses what is below a step
    y = QParams.per_tensor(x.one / large * 2.0 ** rng.uniform(-2, 0), int(rng.integers(-128, 128)))
    model = pair("DIV", tensor("x", shape, x), tensor("k", data.shape, k, data), tensor("y", shape, y), activation)
    assert_alike(model, np.repeat(EVERY_INT8.reshape(-1, 1), 3, axis=1).reshape(shape))


@pytest.mark.parametrize("code", ["SUB", "MINIMUM", "MAXIMUM", "DIV"])
def test_floats_agree_with_litert(code: str) -> None:
    rng = np.random.default_rng(1)
    a, k = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 5, 4), (4,)))
    assert_alike(pair(code, tensor("a", a.shape, None), tensor("k", k.shape, None, k), tensor("y", a.shape, None)), a)
    if code == "DIV":
        return
    model = pair(code, tensor("a", a.shape, None), tensor("b", a.shape, None), tensor("y", a.shape, None))
    assert_alike(model, a, rng.normal(size=a.shape).astype(np.float32))


def test_division_by_what_is_computed_is_refused_with_a_way_out() -> None:
    model = pair("DIV", tensor("a", (1, 4), None), tensor("b", (1, 4), None), tensor("y", (1, 4), None))
    with pytest.raises(ImportModelError, match="only division by constants is supported"):
        read_back(model)
    nothing = tensor("k", (1,), None, np.zeros(1, np.float32))
    with pytest.raises(ImportModelError, match="or by 0"):
        read_back(pair("DIV", tensor("a", (1, 4), None), nothing, tensor("y", (1, 4), None)))
