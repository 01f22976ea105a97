"""Views of memory: a layout and numpy agree on every element."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from smidgen.frontends.layout import TensorLayout, common_factors, moves
from smidgen.ir import Array

shapes = st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=5).map(tuple)


def seen(layout: TensorLayout, memory: Array) -> Array:
    """The elements of a memory in the order of the file's dimensions."""
    back = np.argsort(layout.memory) if layout.memory else ()
    return memory.reshape(layout.sizes).transpose(back).reshape(layout.shape)


@st.composite
def layouts(draw: st.DrawFn) -> TensorLayout:
    shape = draw(shapes)
    return TensorLayout.of(shape, tuple(draw(st.permutations(range(len(shape))))))


@given(layouts(), st.data())
def test_transposing_moves_no_element(layout: TensorLayout, data: st.DataObject) -> None:
    memory = np.arange(math.prod(layout.shape))
    perm = tuple(data.draw(st.permutations(range(len(layout.shape)))))
    assert np.array_equal(seen(layout.permuted(perm), memory), seen(layout, memory).transpose(perm))


@given(layouts(), shapes, st.data())
def test_reshaping_moves_no_element_or_is_refused(
    layout: TensorLayout, shape: tuple[int, ...], data: st.DataObject
) -> None:
    size = math.prod(layout.shape)
    rest, left = [], size
    for n in shape:
        if left % n == 0:
            rest.append(n)
            left //= n
    target = tuple(data.draw(st.permutations([*rest, left])))
    memory = np.arange(size)
    reshaped = layout.reshaped(target)
    if reshaped is not None:
        assert reshaped.shape == target
        assert np.array_equal(seen(reshaped, memory), seen(layout, memory).reshape(target))
    else:
        assert layout.memory != tuple(range(len(layout.memory))), "a plain layout takes any shape"


def test_flattening_a_map_needs_no_memory_moved() -> None:
    layout = TensorLayout.channels_last((1, 8, 3, 5)).reshaped((1, 120))
    assert layout is not None
    assert layout.dims == ((), (8, 3, 5))
    assert layout.sizes == (3, 5, 8)


@given(layouts(), st.data())
def test_moves_are_the_transposition_they_stand_for(layout: TensorLayout, data: st.DataObject) -> None:
    assume(layout.memory)
    then = tuple(data.draw(st.permutations(layout.memory)))
    runs, perm = moves(layout.memory, then)
    memory = np.arange(math.prod(layout.shape))
    sizes = [math.prod(layout.factors[i] for i in run) for run in runs]
    moved = memory.reshape(sizes).transpose(perm).reshape(-1)
    assert np.array_equal(seen(TensorLayout(layout.dims, then), moved), seen(layout, memory))
    for a, b in pairwise(perm):
        assert b != a + 1, "two runs that stay together are one"


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [((6,), (2, 3), (2, 3)), ((4, 3), (2, 6), (2, 2, 3)), ((4, 3), (3, 4), None), ((5,), (5,), (5,)), ((), (), ())],
)
def test_two_products_are_cut_alike_where_they_can_be(
    a: tuple[int, ...], b: tuple[int, ...], common: tuple[int, ...] | None
) -> None:
    assert common_factors(a, b) == common
