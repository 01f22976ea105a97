"""Tables of functions, and batch normalization: what they compute, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.baselines import Simulator
from smidgen.errors import GraphError, TargetError
from smidgen.frontends.tflite import read_tflite, write_tflite
from smidgen.frontends.tflite.codec import decode, encode
from smidgen.frontends.tflite.flatbuffer import ACTIVATIONS as FUSED
from smidgen.frontends.tflite.flatbuffer import TfliteOptions
from smidgen.ir import Builder, QParams, Type, evaluate
from smidgen.numerics import ACTIVATIONS
from smidgen.ops import BatchNorm, Lookup
from smidgen.pipeline import compile
from tests.support.case_parts import FUNCTION_PARAMETERS, Q
from tests.support.litert import run_litert

parameters = pytest.mark.parametrize(("function", "alpha", "beta"), FUNCTION_PARAMETERS)


@parameters
def test_functions_of_floats_are_pytorchs(function: str, alpha: float, beta: float) -> None:
    g = Builder("f")
    y = g.emit(Lookup(function, alpha, beta), g.input("x", Type((1, 4001), "float32")))
    x = np.concatenate([np.linspace(-20, 20, 4000), [80.0]]).astype(np.float32)[None]
    theirs = Simulator(g.graph(y)).run(x)[y].numpy()
    np.testing.assert_allclose(evaluate(g.graph(y), x)[0], theirs, rtol=1e-4, atol=2e-6)


@parameters
def test_a_table_holds_the_nearest_step_of_every_result(function: str, alpha: float, beta: float) -> None:
    x, y = Type((256,), "int8", Q(0.05, -3)), Type((256,), "int8", Q(0.02, 10))
    op = Lookup(function, alpha, beta)
    numbers = torch.arange(-128, 128, dtype=torch.float64)
    g = Builder("f")
    value = g.emit(op, g.input("x", x), q=y.q)
    real = Simulator(g.graph(value), rounded=False).run(numbers.numpy().astype(np.int8))[value].numpy()
    assert np.abs(op.table(x, y) - real).max() <= 0.5 + 1e-4  # beyond the limits both saturate


def test_a_function_nobody_knows_is_refused_by_name() -> None:
    g = Builder("f")
    with pytest.raises(GraphError, match="no function 'sine'; known are abs, celu"):
        g.emit(Lookup("sine"), g.input("x", Type((4,), "float32")))


def test_parameters_must_be_numbers() -> None:
    g = Builder("f")
    x = g.input("x", Type((4,), "float32"))
    with pytest.raises(GraphError, match=r"elu has the parameters nan and 0\.0; give finite numbers"):
        g.emit(Lookup("elu", float("nan")), x)
    with pytest.raises(GraphError, match="celu divides by its alpha"):
        g.emit(Lookup("celu"), x)


def test_batch_normalization_scales_and_shifts_each_channel() -> None:
    g = Builder("norm")
    scale, shift = np.array([2, -1], np.float32), np.array([0.5, 3], np.float32)
    x = g.input("x", Type((1, 2, 1, 2), "float32"))
    graph = g.graph(g.emit(BatchNorm(), x, g.constant("scale", scale), g.constant("shift", shift)))
    array = np.array([[[[1, 2]], [[3, 4]]]], np.float32)
    assert evaluate(graph, array)[0].ravel().tolist() == [2.5, 1, 6.5, -1]
    with pytest.raises(TargetError, match=r"BatchNorm.*no C kernel for float32; quantize the model first"):
        compile(graph)


def test_batch_normalization_is_refused_in_int8_and_with_other_channels() -> None:
    g = Builder("norm")
    one = g.constant("one", np.ones(3, np.float32))
    with pytest.raises(GraphError, match="BatchNorm takes float32, not int8, float32, float32"):
        g.emit(BatchNorm(), g.input("q", Type((1, 3), "int8", Q(0.1))), one, one)
    with pytest.raises(GraphError, match=r"BatchNorm of \[1, 4\] needs one scale and one shift per channel"):
        g.emit(BatchNorm(), g.input("x", Type((1, 4), "float32")), one, one)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_fused_to_the_sum_before_a_table_limits_its_places(activation: str, tmp_path: Path) -> None:
    """As LiteRT does it, for every int8: the places of the table, x + 128, are what is limited."""
    g = Builder()
    x = g.input("x", Type((1, 256), "int8", QParams.per_tensor(0.05, -120)))
    model = decode(write_tflite(g.graph(g.emit(Lookup("tanh"), x, q=QParams.per_tensor(0.01)))))
    limit = TfliteOptions(fused_activation_function=FUSED[activation])
    changed = replace(
        model, operators=tuple(replace(o, options=limit) if o.code == "ADD" else o for o in model.operators)
    )
    path = tmp_path / "limited.tflite"
    path.write_bytes(encode(changed))
    every = np.arange(-128, 128).astype(np.int8)[None]
    (found,), (expected,) = evaluate(read_tflite(path), every), run_litert(path.read_bytes(), every)
    np.testing.assert_array_equal(found, expected)
    distinct = len(set(found.ravel().tolist()))
    assert distinct == {"relu6": 7, "relu_n1_to_1": 2}.get(activation, distinct)
    assert activation not in ("none", "relu") or distinct > 30
