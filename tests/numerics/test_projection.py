"""The projection of features: signs that are orthogonal, sums that other tools give, too, and a scale that fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen import ops
from smidgen.frontends.tflite import read_tflite, write_tflite
from smidgen.ir import Builder, Graph, QParams, Type, evaluate
from smidgen.numerics import projection
from tests.support.litert import run_litert
from tests.support.tiers import examples


def sylvester(width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Hadamard's matrix, doubled again and again."""
    made = np.ones((1, 1), np.int64)
    while len(made) < width:
        made = np.kron(np.array([[1, 1], [1, -1]]), made)
    return made


@given(d=st.integers(1, 300), data=st.data())
@settings(max_examples=examples(60))
def test_outputs_take_different_rows_of_hadamard_s_matrix(d: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, d))
    width, rows = projection.width(d), projection.rows(d, count).astype(int)
    assert width // 2 < d <= width
    assert len(set(rows.tolist())) == count
    expected = sylvester(width)[rows, :d] * projection.signs(d)
    assert np.array_equal(projection.matrix(d, count), expected)
    if d == width:
        assert np.array_equal(expected @ expected.T, d * np.eye(count))


def test_half_of_the_features_are_turned_and_more_of_them_change_no_sign() -> None:
    signs = projection.signs(4096)
    assert abs(signs.sum()) < 4 * np.sqrt(4096)
    assert np.array_equal(projection.signs(100), signs[:100])


def projecting(d: int, count: int, shift: int, zero: int) -> Graph:
    g = Builder("projecting")
    x = g.input("x", Type((1, d), "int8", QParams.per_tensor(0.037, zero)))
    return g.graph(g.emit(ops.Project(count, shift), x))


@pytest.mark.parametrize(("d", "count", "shift"), [(1, 1, 0), (24, 24, 2), (160, 96, 4), (1280, 192, 7)])
def test_litert_gives_the_same_bytes_for_its_dense_layer(d: int, count: int, shift: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(d)
    for zero in (-128, 3):
        graph = projecting(d, count, shift, zero)
        (tmp_path / "dense.tflite").write_bytes(write_tflite(graph))
        back = read_tflite(tmp_path / "dense.tflite")
        assert [type(node.op) for node in back.nodes] == [ops.Dense]
        for _ in range(8):
            x = rng.integers(-128, 128, (1, d)).astype(np.int8)
            (ours,), (read,) = evaluate(graph, x), evaluate(back, x)
            assert run_litert(write_tflite(graph), x)[0].tobytes() == ours.tobytes() == read.tobytes()


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(2, 200), size=st.floats(0, 127))
@settings(max_examples=examples(60))
def test_outputs_are_a_quarter_of_their_range_at_most_and_an_eighth_at_least(seed: int, d: int, size: float) -> None:
    """By the root of their mean square over all choices of signs, which is the length of the features."""
    x = np.random.default_rng(seed).integers(-1 - int(size), 2 + int(size), (4, d))
    shift = projection.fitting_shift(x)
    length = np.sqrt((x.astype(float) ** 2).sum(axis=1).mean())
    assert length <= projection.AIM * 2**shift
    assert shift == 0 or length > projection.AIM * 2 ** (shift - 1)
