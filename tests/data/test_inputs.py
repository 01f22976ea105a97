"""Samples of any kind become a model's input: pictures by their pixels, numbers by the input's quantization."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.data import Augment, DataError, PixelEncoding, Samples, as_input, centre, examples
from smidgen.data.inputs import fits
from smidgen.ir import Array, Builder, QParams, Type, evaluate
from smidgen.learning import Course
from smidgen.ops.elementwise import Quantize
from tests.support import tiers

Q = QParams.per_tensor(0.05, -7)


def takes(*shape: int, dtype: str = "int8") -> PixelEncoding:
    return PixelEncoding(Type(shape, dtype, Q if dtype == "int8" else None))


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 3, shape).astype(np.float32)


@given(scale=st.floats(1e-4, 10), zero=st.integers(-128, 127), seed=st.integers(0, 1000))
@settings(max_examples=tiers.examples(60))
def test_numbers_are_rounded_as_the_op_quantize_rounds_them(scale: float, zero: int, seed: int) -> None:
    type = Type((1, 6), "int8", QParams.per_tensor(scale, zero))
    g = Builder("q")
    x = g.input("x", Type((1, 6), "float32"))
    graph = g.graph(g.emit(Quantize(), x, q=type.q))
    sample = numbers(6, seed=seed) * np.float32(scale * 20)
    (expected,) = evaluate(graph, sample[None])
    assert np.array_equal(as_input(sample, PixelEncoding(type)), expected)
    assert np.array_equal(as_input(sample.astype(np.float64), PixelEncoding(type)), expected)


def test_halves_are_rounded_away_from_zero() -> None:
    taken = PixelEncoding(Type((1, 6), "int8", QParams.per_tensor(0.5, 3)))
    sample = np.array([-1.25, -0.75, -0.25, 0.25, 0.75, 1.25], np.float32)
    assert as_input(sample, taken)[0].tolist() == [0, 1, 2, 4, 5, 6]


def test_a_float_input_takes_numbers_as_they_are_and_an_int8_input_int8() -> None:
    sample = numbers(5, 2)
    assert np.array_equal(as_input(sample, takes(1, 5, 2, dtype="float32"))[0], sample)
    given = np.arange(-5, 5, dtype=np.int8).reshape(5, 2)
    assert np.array_equal(as_input(given, takes(1, 5, 2))[0], given)


def test_bytes_are_a_picture_where_the_model_takes_images_and_numbers_elsewhere() -> None:
    bytes_ = np.arange(16 * 3, dtype=np.uint8).reshape(4, 4, 3)
    for shape in ((1, 4, 4, 3), (1, 8, 8, 1)):
        assert np.array_equal(as_input(bytes_, takes(*shape)), centre(bytes_, takes(*shape)))
    taken = PixelEncoding(Type((1, 48), "int8", QParams.per_tensor(1.0, -128)))
    assert np.array_equal(as_input(bytes_, taken).ravel(), np.arange(48) - 128)
    assert np.array_equal(as_input(bytes_, takes(1, 48, dtype="float32")).ravel(), np.arange(48))


@pytest.mark.parametrize(
    ("shape", "wanted", "fit"),
    [
        ((5, 2), (1, 5, 2), True),
        ((1, 5, 2), (1, 5, 2), True),
        ((5, 2), (1, 5, 1, 2), True),  # as convolutions along one axis have it
        ((10,), (1, 5, 2), True),
        ((5, 2), (1, 10), True),
        ((2, 5), (1, 5, 2), False),
        ((5, 2, 3), (1, 10, 3), False),
        ((9,), (1, 5, 2), False),
    ],
)
def test_a_shape_is_the_inputs_or_one_row(shape: tuple[int, ...], wanted: tuple[int, ...], fit: bool) -> None:
    assert fits(shape, wanted) is fit
    sample = numbers(*shape)
    if fit:
        assert np.array_equal(as_input(sample, takes(*wanted, dtype="float32")).ravel(), sample.ravel())
    else:
        with pytest.raises(DataError, match="give samples of") as raised:
            as_input(sample, takes(*wanted))
        assert str(list(shape)) in str(raised.value)
        assert str(list(wanted)) in str(raised.value)


@pytest.mark.parametrize(
    ("sample", "encoding", "message"),
    [
        (np.array([1.0, np.inf]), takes(1, 2), "holds 1 of 2 numbers that are not finite"),
        (np.array([1.0, 1e300]), takes(1, 2), "holds 1 of 2 numbers that are not finite"),
        (np.zeros(2, np.int8), takes(1, 2, dtype="float32"), "a sample is int8, .* but the model's input is float32"),
        (np.zeros(2, np.int32), takes(1, 2), "a sample is int32; give float32 numbers"),
        (np.zeros(2, np.float32), takes(1, 2, dtype="int32"), "samples cannot be given as int32"),
        (np.zeros((3, 64)), takes(1, 1, 64, 3), r"give samples of \[1, 64, 3\], channels last, or of 192 numbers"),
        (np.zeros((4, 4, 3), np.uint8), takes(1, 10), r"input int8\[1, 10\] is not an image; images need"),
    ],
)
def test_what_is_no_input_is_said_in_one_sentence(sample: Array, encoding: PixelEncoding, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_input(sample, encoding)


def test_tensors_are_neither_cropped_nor_flipped_nor_resized() -> None:
    sample, taken = numbers(6, 6, 1), takes(1, 6, 6, 1)
    course = Course(1, 0.1, augment=Augment())
    assert all(np.array_equal(course.image(sample, taken, epoch, 0), as_input(sample, taken)) for epoch in range(8))
    assert np.array_equal(examples(Samples((sample,), (0,)), taken)[0], as_input(sample, taken))
