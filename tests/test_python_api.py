"""What Python's users meet: help that can be read, names that are meant for them, and errors that say the way out."""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import pytest

import smidgen as sm
from smidgen.ir.preprocessing import Preprocessing
from tests.support.float_graphs import dequantized
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

FUNCTIONS = [name for name in sm.__all__ if inspect.isfunction(getattr(sm, name))]


@pytest.fixture(scope="module")
def program() -> sm.Program:
    return sm.compile(small_network(), "head", options=sm.Options(classes=3))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_shows_no_object_s_address(name: str) -> None:
    assert " at 0x" not in pydoc.plain(pydoc.render_doc(getattr(sm, name)))


def test_the_package_lists_its_public_names_alone() -> None:
    assert {name for name in dir(sm) if not name.startswith("__")} == {n for n in sm.__all__ if not n.startswith("__")}


def test_real_numbers_are_refused_with_the_line_that_quantizes_them(program: sm.Program) -> None:
    given = program.graph.image.type
    x = np.linspace(-1, 1, given.size, dtype=np.float32).reshape(given.shape)
    with program.start() as device:
        with pytest.raises(sm.InputError, match=r"the tensor given is float32.*quantize it: ") as raised:
            device.train(x, 1, 0.1)
        line = str(raised.value).partition("quantize it: ")[2]
        assert device.train(eval(line, {"np": np, "x": x}), 1, 0.1) > 0


def test_a_list_is_refused_in_a_sentence(program: sm.Program) -> None:
    with program.start() as device, pytest.raises(sm.InputError, match="given was a list; give a numpy array"):
        device.train([1, 2, 3], 1, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("label", "said"), [(1.5, "the label is 1.5,"), ("idle", "the label is 'idle',")])
def test_a_label_that_is_no_class_is_said_as_it_is(program: sm.Program, label: object, said: str) -> None:
    x = np.zeros(program.graph.image.type.shape, np.int8)
    with program.start() as device, pytest.raises(sm.InputError, match=said):
        device.train(x, label, 0.1)  # type: ignore[arg-type]


def test_the_agreement_on_samples_that_are_all_alike_is_said_to_say_nothing() -> None:
    model, images = dequantized(small_network(), Preprocessing()), draw_shapes(4, 2).train.images
    assert "all alike, so that agreement says nothing" in str(sm.quantize(model, [images[0]] * 8))
    assert "alike" not in str(sm.quantize(model, images[:8]))


def test_a_simulation_on_the_processor_reports_within_an_epoch() -> None:
    pytest.importorskip("torch")
    data, seen = draw_shapes(40, 2), list[int]()
    program = sm.compile(small_network(), "head", options=sm.Options(classes=len(data.classes)))
    course = sm.Course(1, 0.01, augment=None)
    sm.simulate([program], data, course, device="cpu", on_progress=lambda at: seen.append(at.step))
    assert seen[0] == 0
    assert len(seen) > 1 + len(data.train) // 100
    assert seen[-1] == len(data.train)
