"""The float32 trainer in numpy: its gradients are PyTorch's, and the same arguments give the same weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as torch_functional

from smidgen.fitting.float_network import Layer, Network, draw_network, train_network
from smidgen.fitting.shapes import ROW_WIDTHS, WINDOW_WIDTHS, shapes_for
from smidgen.ir import Array
from smidgen.ops.loss import Loss
from tests.support.tiers import examples

TorchLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOSSES: Mapping[Loss, TorchLoss] = {
    "softmax": torch_functional.cross_entropy,
    "sigmoid": torch_functional.binary_cross_entropy_with_logits,
    "mse": lambda scores, targets: torch_functional.mse_loss(scores, targets) / 2,
}


def in_torch(network: Network, x: torch.Tensor, weights: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """The same network by PyTorch's own convolutions, channels first."""
    y = x.transpose(1, 2)
    for layer, (w, b) in zip(network.layers, weights, strict=True):
        last = layer is network.layers[-1]
        y = y.mean(2, keepdim=True) if last else y
        side = (layer.kernel - 1) // 2 if layer.padded else 0
        taps = w.t()[:, None] if layer.depthwise else w.permute(2, 1, 0)
        groups = layer.outputs if layer.depthwise else 1
        y = torch_functional.conv1d(y, taps, b, layer.stride, side, groups=groups)
        y = y if last else y.relu()
    return y[:, :, 0]


def in_float64(network: Network) -> Network:
    """The network in float64, with biases, in which both libraries round to the same numbers of many digits."""
    rng = np.random.default_rng(0)
    wide = tuple((w.astype(np.float64), rng.normal(0, 0.1, b.shape)) for w, b in network.weights)
    return Network(network.layers, wide)


@settings(max_examples=examples(20))
@given(st.sampled_from((1, 8, 13, 50)), st.integers(1, 6), st.data(), st.sampled_from(sorted(LOSSES)))
def test_gradients_are_those_of_autograd(moments: int, channels: int, drawn: st.DataObject, loss: Loss) -> None:
    shape = drawn.draw(st.sampled_from(shapes_for(moments)))
    outputs, rng = 3, np.random.default_rng(1)
    network = in_float64(draw_network(shape.with_head(outputs), channels, seed=2))
    x, targets = rng.normal(size=(4, moments, channels)), np.eye(outputs)[rng.integers(0, outputs, 4)]
    weights = [tuple(torch.tensor(array, requires_grad=True) for array in pair) for pair in network.weights]
    scores = in_torch(network, torch.tensor(x), weights)  # type: ignore[arg-type]
    np.testing.assert_allclose(network.scores(x), scores.detach().numpy(), rtol=1e-9, atol=1e-12)
    LOSSES[loss](scores, torch.tensor(targets)).backward()  # type: ignore[no-untyped-call]
    found = [array for pair in network.gradients(x, targets, loss) for array in pair]
    for ours, theirs in zip(found, (array for pair in weights for array in pair), strict=True):
        assert theirs.grad is not None
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=1e-6, atol=1e-12)


def task(moments: int) -> tuple[Array, Array]:
    """Samples whose class is the channel with the largest mean."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, moments, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 120)
    x[np.arange(120), :, labels] += 4
    return x, np.eye(3, dtype=np.float32)[labels]


@pytest.mark.parametrize("moments", [1, 24])
def test_training_learns_and_the_same_arguments_give_the_same_weights(moments: int) -> None:
    x, targets = task(moments)
    layers = shapes_for(moments)[0].with_head(3)
    network, again, other = (train_network(layers, x, targets, "softmax", 3000, seed) for seed in (0, 0, 1))
    assert (network.scores(x).argmax(axis=1) == targets.argmax(axis=1)).mean() > 0.9
    both = zip(network.weights, again.weights, other.weights, strict=True)
    for (ours, _), (theirs, _), (others, _) in both:
        np.testing.assert_array_equal(ours, theirs)
        assert (ours != others).any()


@pytest.mark.parametrize("moments", [8, 9, 31, 100, 1000])
def test_every_shape_leaves_moments_to_average(moments: int) -> None:
    for shape in shapes_for(moments):
        left = moments
        for layer in shape.layers:
            _, left = layer.span(left)
            assert left >= 1
        assert left == 1 or not shape.name.startswith("dense")


def test_shapes_are_for_windows_or_rows() -> None:
    assert [len(shapes_for(moments)) for moments in (1, 60)] == [len(ROW_WIDTHS), len(WINDOW_WIDTHS) + 1]
    assert shapes_for(60)[0].layers[1] == Layer(8, 5, 2, depthwise=True)
