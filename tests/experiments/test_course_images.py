"""The images of a course on a PyTorch device are, byte for byte, those of the host's course."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.baselines import images as module
from experiments.baselines.images import CourseImages, centred
from smidgen.data import Augment, DataError, PixelEncoding, Samples, as_input, centre
from smidgen.ir import Array, QParams, Type
from smidgen.ir.log_mel import MFCC
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning.course import Course
from tests.support.tiers import examples

torch.set_num_threads(1)  # pytest's workers share the cores
PAPER = QParams.per_tensor(2 / 255, 0)
CROPS = Course(epochs=3, learning_rate=0.1, seed=4)


def encoding(rows: int, columns: int, colours: int = 3, preprocessing: Preprocessing | None = None) -> PixelEncoding:
    return PixelEncoding(Type((1, rows, columns, colours), "int8", PAPER), preprocessing)


def drawn(sizes: list[tuple[int, int, int]], seed: int = 0) -> Samples:
    """Noise, where every coefficient shows, of these sizes; the label of each is its place."""
    rng = np.random.default_rng(seed)
    images = tuple(rng.integers(0, 256, size).astype(np.uint8) for size in sizes)
    return Samples(images, tuple(range(len(images))))


def hosts(samples: Samples, taken: PixelEncoding, course: Course, epoch: int) -> Array:
    order = course.order(epoch, len(samples))
    return np.concatenate([course.image(samples.images[i], taken, epoch, i) for i in order])


side = st.one_of(st.integers(1, 9), st.integers(10, 90), st.sampled_from([127, 128, 129, 200, 331]))
preprocessings = st.one_of(
    st.none(),
    st.builds(
        Preprocessing,
        mean=st.just((0.4, 0.5, 0.6)),
        std=st.just((0.2, 0.3, 0.25)),
        order=st.sampled_from(["rgb", "bgr", "gray"]),
        fit=st.sampled_from(["crop", "stretch"]),
    ),
)


@settings(max_examples=examples(60))
@given(
    sizes=st.lists(st.tuples(side, side, st.sampled_from([1, 3])), min_size=1, max_size=6),
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    preprocessing=preprocessings,
    augment=st.sampled_from([Augment(), Augment((0.01, 0.3)), Augment((1.0, 1.0)), Augment((0.9, 1.0), (0.1, 9.0))]),
    seed=st.integers(0, 1000),
)
def test_an_epoch_shows_the_bytes_of_the_host(
    sizes: list[tuple[int, int, int]],
    rows: int,
    columns: int,
    preprocessing: Preprocessing | None,
    augment: Augment,
    seed: int,
) -> None:
    samples, taken = drawn(sizes, seed), encoding(rows, columns, 3, preprocessing)
    course = Course(epochs=2, learning_rate=0.1, augment=augment, seed=seed)
    images, labels = CourseImages(samples, taken, course, "cpu").epoch(1)
    assert images.dtype == torch.int8
    assert labels.tolist() == list(course.order(1, len(samples)))
    assert np.array_equal(images.numpy(), hosts(samples, taken, course, 1))


@settings(max_examples=examples(60))
@given(
    sizes=st.lists(st.tuples(side, side, st.sampled_from([1, 3])), min_size=1, max_size=6),
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    colours=st.sampled_from([1, 3]),
    stretched=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_middle_is_that_of_the_host(
    sizes: list[tuple[int, int, int]], rows: int, columns: int, colours: int, stretched: bool, seed: int
) -> None:
    samples = drawn(sizes, seed)
    taken = encoding(rows, columns, colours, Preprocessing(fit="stretch") if stretched else None)
    expected = np.concatenate([centre(image, taken) for image in samples.images])
    assert np.array_equal(centred(samples, taken, "cpu").numpy(), expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 700), (700, 1), (600, 401), (32, 32), (128, 128)])
def test_extreme_sizes_are_resized_as_the_host_does(size: tuple[int, int]) -> None:
    samples, taken = drawn([(*size, 3)] * 12), encoding(128, 128)
    images, _ = CourseImages(samples, taken, CROPS, "cpu").epoch(0)
    assert np.array_equal(images.numpy(), hosts(samples, taken, CROPS, 0))
    plain = centred(samples, taken, "cpu").numpy()
    assert np.array_equal(plain, np.concatenate([centre(image, taken) for image in samples.images]))


def test_a_box_that_a_rounded_product_makes_too_large_is_the_whole_image() -> None:
    samples, taken = drawn([(29, 29, 3), (29, 58, 3), (116, 29, 1)]), encoding(224, 224)
    assert 224 * (29 / 224) > 29  # in float64
    expected = np.concatenate([centre(image, taken) for image in samples.images])
    assert np.array_equal(centred(samples, taken, "cpu").numpy(), expected)


def test_without_crops_an_epoch_shows_the_middle() -> None:
    samples, taken = drawn([(9, 14, 3), (20, 8, 3)]), encoding(8, 8)
    course = Course(epochs=1, learning_rate=0.1, augment=None)
    images, labels = CourseImages(samples, taken, course, "cpu").epoch(0)
    assert torch.equal(images, centred(samples, taken, "cpu")[labels])


def test_parts_are_the_epoch_cut_and_groups_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, taken = drawn([(5 + i, 30 - i, 3) for i in range(23)]), encoding(8, 8)
    shown = CourseImages(samples, taken, CROPS, "cpu")
    images, labels = shown.epoch(2)
    monkeypatch.setattr(module, "MOST_IMAGES", 4)
    monkeypatch.setattr(module, "MOST_PIXELS", 600)
    parts = list(shown.chunks(2, 5))
    assert [len(part) for part, _ in parts] == [5, 5, 5, 5, 3]
    assert torch.equal(torch.cat([part for part, _ in parts]), images)
    assert torch.equal(torch.cat([part for _, part in parts]), labels)
    assert not torch.equal(images, shown.epoch(1)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_makes_the_same_bytes() -> None:
    rng = np.random.default_rng(0)
    sizes = [(int(h), int(w), 3) for h, w in rng.integers(1, 300, (400, 2))]
    samples, taken = drawn(sizes), encoding(96, 128)
    images, _ = CourseImages(samples, taken, CROPS, "cuda").epoch(0)
    assert np.array_equal(images.cpu().numpy(), hosts(samples, taken, CROPS, 0))
    plain = centred(samples, taken, "cuda").cpu().numpy()
    assert np.array_equal(plain, np.concatenate([centre(image, taken) for image in samples.images]))


def test_a_float_input_takes_the_hosts_numbers() -> None:
    samples = drawn([(12, 31, 3)] * 4)
    taken = PixelEncoding(Type((1, 8, 8, 3), "float32"), Preprocessing((0.5,), (0.25,)))
    images, _ = CourseImages(samples, taken, CROPS, "cpu").epoch(0)
    assert images.dtype == torch.float32
    assert np.array_equal(images.numpy(), hosts(samples, taken, CROPS, 0))


def test_tensors_and_sounds_are_shown_as_the_host_shows_them() -> None:
    rng = np.random.default_rng(0)
    tensors: tuple[Array, ...] = tuple(rng.normal(0, 1, (49, 10, 1)).astype(np.float32) for _ in range(7))
    sounds: tuple[Array, ...] = tuple(rng.integers(-9999, 9999, 16000).astype(np.int16) for _ in range(7))
    taken = PixelEncoding(Type((1, 49, 10, 1), "int8", QParams.per_tensor(0.6, 80)), audio=MFCC)
    for images in (tensors, sounds, (*tensors[:3], *sounds[:4])):
        samples = Samples(images, tuple(range(7)))
        shown = CourseImages(samples, taken, CROPS, "cpu")
        for epoch in range(2):
            assert np.array_equal(shown.epoch(epoch)[0].numpy(), hosts(samples, taken, CROPS, epoch))
        plain = np.concatenate([as_input(sample, taken) for sample in images])
        assert np.array_equal(centred(samples, taken, "cpu").numpy(), plain)


def test_an_input_that_is_no_image_is_refused() -> None:
    with pytest.raises(DataError, match="is not an image"):
        centred(drawn([(4, 4, 3)]), PixelEncoding(Type((1, 40), "int8", PAPER)), "cpu")
