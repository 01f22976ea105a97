"""Preprocessing: one statement of how pixels become numbers, kept by every file, pass and program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smidgen as sm
from smidgen.data import Augment, PixelEncoding, centre, from_pixels, pixel_encoding
from smidgen.errors import GraphError, ImportModelError, InputError
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import QParams, Type, verify
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.text import parse_graph, print_graph
from smidgen.learning import learned_graph
from tests.support.small_network import small_network

IMAGENET = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
finite = st.floats(-300, 300)
positive = st.floats(1e-3, 300)


@st.composite
def preprocessings(draw: st.DrawFn) -> Preprocessing:
    low = draw(finite)
    return Preprocessing(
        tuple(draw(st.lists(finite, min_size=3, max_size=3))),
        (draw(positive),),
        draw(st.sampled_from(("rgb", "bgr", "gray"))),
        (low, low + draw(positive)),
        draw(st.sampled_from(("crop", "stretch"))),
    )


@given(preprocessings())
def test_the_text_of_a_graph_gives_its_preprocessing_back(stated: Preprocessing) -> None:
    graph = replace(small_network(), preprocessing=stated)
    again = parse_graph(print_graph(graph), graph.constants)
    assert again.preprocessing == stated
    assert again == graph
    assert replace(again, preprocessing=None) != graph


def test_a_file_keeps_it_and_a_file_without_one_still_reads(tmp_path: Path) -> None:
    graph = small_network()
    for stated in (IMAGENET, Preprocessing(), None):
        write_smg(replace(graph, preprocessing=stated), tmp_path / "a.smg")
        assert read_smg(tmp_path / "a.smg").preprocessing == stated
    assert "preprocessing" not in print_graph(graph)


@pytest.mark.parametrize("line", ["mean=(0.5, 0.5)", "std=(0.0,)", "order='hsv'", "mean=0.5", "colour='red'", "red"])
def test_an_unsound_statement_in_a_file_is_refused(line: str) -> None:
    graph = small_network()
    text = print_graph(graph).replace("\n", f"\npreprocessing {line}\n", 1)
    with pytest.raises(GraphError):
        parse_graph(text, graph.constants)


@pytest.mark.parametrize(
    ("stated", "channels", "message"),
    [
        (Preprocessing(mean=(0.1, 0.2)), 3, "2 numbers as mean for 3 channels"),
        (Preprocessing(std=(0.0,)), 3, "std must be above 0"),
        (Preprocessing(mean=(float("nan"),)), 3, "is not possible; std must be above 0"),
        (Preprocessing(range=(1.0, 0.0)), 3, "give a rising range"),
        (Preprocessing(order="hsv"), 3, "orders are rgb, bgr, gray"),
        (Preprocessing(order="bgr"), 1, "takes 3 channels, the model has 1"),
    ],
)
def test_what_cannot_be_applied_is_refused_in_one_sentence(stated: Preprocessing, channels: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stated.check(channels)


def test_a_model_that_takes_no_images_carries_no_preprocessing() -> None:
    graph = small_network()
    flat = replace(graph.inputs[0], type=Type((1, 10), "int8", QParams.per_tensor(1.0)))
    with pytest.raises(GraphError, match="first input is \\[1, 10\\]"):
        verify(replace(graph, inputs=(flat,), nodes=(), outputs=(flat,), constants={}, preprocessing=IMAGENET))


def test_a_float_input_gets_exactly_the_numbers_the_formula_gives() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    got = from_pixels(pixels, PixelEncoding(Type((1, 5, 7, 3), "float32"), IMAGENET))
    assert np.allclose(got[0], (pixels / 255 - IMAGENET.mean) / IMAGENET.std, atol=1e-6)
    swapped = from_pixels(pixels, PixelEncoding(Type((1, 5, 7, 3), "float32"), replace(IMAGENET, order="bgr")))
    assert np.allclose(swapped[0], (pixels[..., ::-1] / 255 - IMAGENET.mean) / IMAGENET.std, atol=1e-6)


def test_an_int8_input_gets_the_nearest_step_of_each_channel() -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 256, 1).repeat(3, axis=2)
    type = Type((1, 1, 256, 3), "int8", QParams.per_tensor(0.0187, -14))
    got = from_pixels(pixels, PixelEncoding(type, IMAGENET)).astype(float)
    exact = from_pixels(pixels, PixelEncoding(Type(type.shape, "float32"), IMAGENET))
    ends = type.scale * (-128 + 14), type.scale * (127 + 14)
    assert np.abs(type.scale * (got + 14) - np.clip(exact, *ends)).max() <= 0.501 * type.scale
    assert not np.array_equal(got[..., 0], got[..., 1])


def test_gray_order_shows_every_channel_the_same_and_stretching_shows_all_of_an_image() -> None:
    image = np.random.default_rng(0).integers(0, 256, (6, 12, 3)).astype(np.uint8)
    type = Type((1, 6, 6, 3), "float32")
    gray = centre(image, PixelEncoding(type, Preprocessing(order="gray")))
    assert np.array_equal(gray[..., 0], gray[..., 2])
    colour = np.zeros((6, 12, 3), np.uint8)
    colour[:, :3] = 255  # outside the middle
    assert centre(colour, PixelEncoding(type, Preprocessing())).max() == -1
    assert centre(colour, PixelEncoding(type, Preprocessing(fit="stretch"))).max() == 1


def test_training_learning_and_crops_keep_it() -> None:
    graph = replace(small_network(), preprocessing=IMAGENET)
    program = sm.compile(graph, "last:2", options=sm.Options(classes=3))
    assert program.training is not None
    assert program.graph.preprocessing == program.training.forward.preprocessing == IMAGENET
    state = {v.name: data for v, data in program.graph.state.items()}
    assert learned_graph(program.training, state).preprocessing == IMAGENET
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    drawn = [Augment().apply(image, pixel_encoding(g), np.random.default_rng(1)) for g in (graph, small_network())]
    assert not np.array_equal(drawn[0], drawn[1])


def test_a_project_says_how_pixels_are_written() -> None:
    graph = small_network()
    silent = sm.compile(graph).files()
    plain = sm.compile(replace(graph, preprocessing=Preprocessing())).files()
    for name in ("model/model.h", "README.md"):
        assert "A pixel p" not in silent[name]
        assert "A pixel p of 0 to 255 (rgb order) is written as p - 128." in plain[name]
    bent = sm.compile(replace(graph, preprocessing=IMAGENET)).files()
    assert "by channel, rounded to the nearest, halves down." in bent["model/model.h"]


def test_a_damaged_statement_names_the_file(tmp_path: Path) -> None:
    write_smg(replace(small_network(), preprocessing=IMAGENET), tmp_path / "a.smg")
    data = (tmp_path / "a.smg").read_bytes()
    (tmp_path / "a.smg").write_bytes(data.replace(b"std=(0.229", b"std=(-.229"))
    with pytest.raises(ImportModelError, match=r"a\.smg does not hold a valid graph"):
        read_smg(tmp_path / "a.smg")
