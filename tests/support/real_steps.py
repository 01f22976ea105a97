"""A training step in real numbers: PyTorch's autograd on what the integers stand for, straight through rounding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from smidgen.ir import Array, Graph, Node, Value, evaluate_all
from smidgen.ops import Conv2D, Dense, Depthwise, Dequantize, Mean, Overlay

LIMITS = {"none": (-np.inf, np.inf), "relu": (0.0, np.inf), "relu6": (0.0, 6.0)}


def scale_of(graph: Graph, value: Value) -> Array:
    """Real units of one integer step of a tensor that learns, in a shape that broadcasts along it."""
    if value.type.q is not None:
        scales = np.array(value.type.q.scale, np.float64)
        axis = value.type.q.axis
        return (
            scales if axis is None else scales.reshape([-1 if i == axis else 1 for i in range(len(value.type.shape))])
        )
    if value.type.dtype == "float32":
        return np.ones(1)
    (layer,) = (node for node in graph.nodes if len(node.ins) == 3 and node.ins[2] == value)
    x, w, _ = layer.ins
    assert w.type.q is not None
    return np.float64(x.type.scale) * np.array(w.type.q.scale, np.float64) * np.ones(value.type.shape)


class RealStep:
    """Gradients of the loss with respect to the real numbers that a network's state stands for, in float64."""

    def __init__(self, graph: Graph, image: Array, label: int) -> None:
        self.graph = graph
        self.integers = evaluate_all(graph, graph.state, image)
        self.reals: dict[Value, torch.Tensor] = {}
        for value, data in (*graph.constants.items(), *graph.state.items(), *zip(graph.inputs, [image], strict=True)):
            zero = 0 if value.type.q is None else value.type.q.zero
            scale = scale_of(graph, value)
            self.reals[value] = torch.tensor(
                scale * (data.astype(np.float64) - zero), requires_grad=value in graph.state
            )
        for node in graph.nodes:
            self.reals[node.out] = self._rounded(node, self._compute(node))
        (logits,) = graph.outputs
        loss = torch.nn.functional.cross_entropy(self.reals[logits], torch.tensor([label]))
        loss.backward()  # type: ignore[no-untyped-call]
        self.loss = loss.item()

    def gradients(self) -> Mapping[Value, Array]:
        """dL/dreal of everything that is state."""
        return {v: self.reals[v].grad.numpy() for v in self.graph.state}  # type: ignore[union-attr]

    def _compute(self, node: Node) -> torch.Tensor:
        op, ins = node.op, [self.reals[v] for v in node.ins]
        if isinstance(op, Overlay):
            whole = ins[0].clone()
            whole[..., list(op.channels)] = ins[1]
            return whole
        if isinstance(op, Mean):
            return ins[0].mean(dim=(1, 2))
        if isinstance(op, Dense):
            return ins[0] @ ins[1].T + ins[2]
        if isinstance(op, Dequantize):
            return ins[0]
        assert isinstance(op, Conv2D | Depthwise)
        x, w, b = ins
        depthwise = isinstance(op, Depthwise)
        w = w.permute(3, 0, 1, 2) if depthwise else w.permute(0, 3, 1, 2)
        groups = x.shape[3] if isinstance(op, Depthwise) else op.groups
        y = torch.nn.functional.conv2d(
            x.permute(0, 3, 1, 2), w, b, op.stride, (op.pad[0], op.pad[2]), op.dilation, groups
        )
        return y.permute(0, 2, 3, 1)

    def _rounded(self, node: Node, y: torch.Tensor) -> torch.Tensor:
        """The value that the integer stands for; gradients pass where it lies inside its limits."""
        type_ = node.out.type
        if type_.q is None or isinstance(node.op, Overlay):
            return y
        low, high = LIMITS[getattr(node.op, "activation", "none")]
        scale, zero = type_.scale, type_.q.zero
        integer = self.integers[node.out].astype(np.float64)
        lowest, highest = (np.clip(np.round(limit / scale) + zero, -128, 127) for limit in (low, high))
        inside = torch.tensor((integer > lowest) & (integer < highest))
        stands_for = torch.tensor(scale * (integer - zero))
        assert float((stands_for - y.detach()).abs()[inside].max()) < 0.51 * scale, (
            "the integer is not the real, rounded"
        )
        return stands_for + (y - y.detach()) * inside
