"""Means, sums and maxima over any dimensions of a TFLite file are LiteRT's, and what lies before them learns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.codec import encode
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Array, evaluate
from tests.frontends.test_tflite import read_back
from tests.support.litert import run_litert
from tests.support.tiers import examples


@dataclass(frozen=True)
class Reduction:
    """One operator over some axes; `scale` is the output's, where it is int8."""

    code: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    keep: bool
    dtype: str
    scale: float = 0.1
    zero: int = 3

    def model(self) -> bytes:
        rank = len(self.shape)
        over = {axis % rank for axis in self.axes}
        shape = tuple(1 if i in over else d for i, d in enumerate(self.shape) if self.keep or i not in over)
        same = self.code == "REDUCE_MAX"
        x, y = ((0.05, -7), (0.05, -7) if same else (self.scale, self.zero)) if self.dtype == "int8" else ((), ())
        tensors = (
            TfliteTensor("x", self.shape, self.dtype, x[:1], x[1:]),
            TfliteTensor("axes", (len(self.axes),), "int32", data=np.array(self.axes, "<i4").tobytes()),
            TfliteTensor("y", shape, self.dtype, y[:1], y[1:]),
        )
        operator = TfliteOperator(self.code, (0, 1), (2,), TfliteOptions(keep_dims=self.keep), 2)
        return encode(TfliteModel(tensors, (operator,), (0,), (2,)))


@st.composite
def reductions(draw: st.DrawFn, code: str, dtype: str) -> Reduction:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))
    rank = len(shape)
    axes = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    keep = draw(st.booleans()) or len(axes) == rank
    count = math.prod(shape[i] for i in axes) if code == "SUM" else 1
    scale = 0.05 * count * 2.0 ** draw(st.floats(0, 2))
    signed = tuple(axis - rank if draw(st.booleans()) else axis for axis in axes)
    return Reduction(code, shape, signed, keep, dtype, float(np.float32(scale)), draw(st.integers(-20, 20)))


def numbers(one: Reduction, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if one.dtype == "float32":
        return rng.normal(size=one.shape).astype(np.float32)
    return rng.integers(-128, 128, one.shape, np.int8)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("code", "dtype"),
    [("MEAN", "int8"), ("MEAN", "float32"), ("SUM", "float32"), ("REDUCE_MAX", "int8"), ("REDUCE_MAX", "float32")],
)
def test_reductions_over_any_dimensions_are_litert_s(code: str, dtype: str) -> None:
    @settings(max_examples=examples(60))
    @given(one=reductions(code, dtype), seed=st.integers(0, 2**32 - 1))
    def check(one: Reduction, seed: int) -> None:
        x, model = numbers(one, seed), one.model()
        (mine,), (other,) = evaluate(read_back(model), x), run_litert(model, x)
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        apart = 1e-5 if dtype == "float32" else 0
        np.testing.assert_allclose(mine.astype(np.float64), other, rtol=0, atol=apart)

    check()


@settings(max_examples=examples(60))
@given(one=reductions("SUM", "int8"), seed=st.integers(0, 2**32 - 1))
def test_a_sum_of_int8_is_within_a_step_of_that_of_the_numbers_they_stand_for(one: Reduction, seed: int) -> None:
    """LiteRT's kernel takes int8 below zero for bytes above 127, and wraps where it should saturate: it is no judge."""
    x = numbers(one, seed)
    (y,) = evaluate(read_back(one.model()), x)
    steps = ((x.astype(int) + 7) * 0.05).sum(axis=one.axes, keepdims=one.keep) / one.scale + one.zero
    np.testing.assert_allclose(y.astype(np.float64), np.clip(steps, -128, 127), rtol=0, atol=1)


def test_a_mean_over_the_map_stays_one_node() -> None:
    graph = read_back(Reduction("MEAN", (1, 4, 5, 3), (1, 2), False, "int8").model())
    assert [type(node.op).__name__ for node in graph.nodes] == ["Mean"]


def test_a_mean_over_rows_after_channels_as_tinyengine_exports_it_takes_no_copy_of_the_first() -> None:
    """[1, channels, rows, columns] over columns: they run fastest, so one transpose brings them together."""
    graph = read_back(Reduction("MEAN", (1, 5, 3, 3), (3,), True, "int8").model())
    assert [type(node.op).__name__ for node in graph.nodes] == ["Transpose", "Reshape", "Mean", "Reshape"]


@pytest.mark.parametrize(
    ("axes", "sentence"), [((4,), "axis 4 does not fit .1, 3, 3, 2."), ((), "reduces no dimension")]
)
def test_axes_that_are_not_there_are_refused(axes: tuple[int, ...], sentence: str) -> None:
    tensors = (
        TfliteTensor("x", (1, 3, 3, 2), "float32"),
        TfliteTensor("axes", (len(axes),), "int32", data=np.array(axes, "<i4").tobytes()),
        TfliteTensor("y", (1, 3, 3, 2), "float32"),
    )
    with pytest.raises(ImportModelError, match=sentence):
        read_back(encode(TfliteModel(tensors, (TfliteOperator("MEAN", (0, 1), (2,)),), (0,), (2,))))
