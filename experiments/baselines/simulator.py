"""A graph run in PyTorch, and trained there in fp32."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.baselines.arithmetic import Arithmetic
from experiments.baselines.rules import RULES, by_reference
from smidgen.errors import GraphError, InputError
from smidgen.ir import Array, Graph, Value
from smidgen.ops.losses import check_softmax
from smidgen.ops.state import units
from smidgen.ops.update import BiasStep, DenseStep, Step, WeightStep
from smidgen.training import Training


class Simulator:
    """A graph ready to run: its constants and state are `tensors`, to be replaced or differentiated at will.

    With `rounded` off, nothing is rounded and clamps alone remain: the real-valued network behind the int8 one.
    """

    def __init__(self, graph: Graph, *, rounded: bool = True, device: str = "cpu") -> None:
        self.graph, self.device = graph, torch.device(device)
        data = {**graph.constants, **graph.state}
        self.tensors = {v: self._tensor(array) for v, array in data.items()}
        arithmetic = Arithmetic(rounded, self.device)
        self._functions = tuple(
            (node, RULES.get(type(node.op), by_reference)(node, arithmetic)) for node in graph.nodes
        )

    def run(self, *arrays: Array) -> dict[Value, Tensor]:
        """Every value of one run."""
        if len(arrays) != len(self.graph.inputs):
            raise GraphError(f"{self.graph.name} takes {len(self.graph.inputs)} inputs, {len(arrays)} were given")
        values = dict(self.tensors)
        values.update(zip(self.graph.inputs, (self._tensor(a) for a in arrays), strict=True))
        for node, function in self._functions:
            outs = function(*(values[v] for v in node.ins))
            values.update(zip(node.outs, outs if isinstance(outs, tuple) else (outs,), strict=True))
        return values

    def gradients(self, wanted: tuple[Value, ...], *arrays: Array) -> tuple[Array, ...]:
        """The gradients of the graph's only output, summed over the batch, with respect to some of `tensors`."""
        leaves = [self.tensors[v].requires_grad_() for v in wanted]
        (loss,) = self.graph.outputs
        total = self.run(*arrays)[loss].sum()
        return tuple(g.cpu().numpy() for g in torch.autograd.grad(total, leaves))

    def _tensor(self, array: Array) -> Tensor:
        """int8 and float32 as float32, which holds them; int32 as float64, which does."""
        kind = np.float64 if array.dtype == np.int32 else np.float32
        return torch.from_numpy(array.astype(kind)).to(self.device)


class FloatTraining:
    """SGD, one sample at a time, with fp32 weights and fp32 gradients: nothing that learns is ever rounded.

    The forward pass, the first weights and the scaling of each step are those of the int8 training given;
    activations are int8 as there.
    """

    def __init__(self, training: Training, *, device: str = "cpu") -> None:
        check_softmax(training.step, "training in float32")
        check_learns_always(training.step, "training in float32")
        self._simulator = Simulator(training.forward, device=device)
        self._logits = training.forward.scores
        self.weights = {v: self._simulator.tensors[v].requires_grad_() for v in training.forward.state}
        found = _factors(training.step)
        self._factors = [found[v].to(w) for v, w in self.weights.items()]

    def train(self, image: Array, label: int, learning_rate: float) -> float:
        """One step; the loss before it."""
        logits = self._simulator.run(image)[self._logits]
        loss = F.cross_entropy(logits, torch.tensor([label], device=self._simulator.device))
        weights = tuple(self.weights.values())
        with torch.no_grad():
            for w, factor, gradient in zip(weights, self._factors, torch.autograd.grad(loss, weights), strict=True):
                w.sub_(gradient * factor, alpha=learning_rate)
        return float(loss.detach())

    def predict(self, images: Array) -> Array:
        """The class of each image of a batch."""
        with torch.inference_mode():
            classes: Array = self._simulator.run(images)[self._logits].argmax(dim=1).cpu().numpy()
        return classes


def _factors(step: Graph) -> dict[Value, Tensor]:
    """What multiplies the gradient of each tensor that learns, in its shape or one that repeats along it."""
    found: dict[Value, Tensor] = {}
    for node in step.nodes:
        if isinstance(node.op, Step):
            axis = node.op.axis if isinstance(node.op, WeightStep) else 0
            weight, *_ = node.op.parts(node.ins).states
            along = [-1 if i == axis else 1 for i in range(len(weight.type.shape))]
            found[weight] = torch.tensor(node.op.factors, dtype=torch.float64).reshape(along)
            if isinstance(node.op, BiasStep) and node.op.shifts:  # a difference counts units, and so does its gradient
                found[weight] /= torch.from_numpy(4.0 ** units(node.op.shifts))
        elif isinstance(node.op, DenseStep):
            w, b, *_ = node.op.parts(node.ins).states
            found |= {w: torch.ones(1), b: torch.ones(1)}
    return found


def check_learns_always(step: Graph, what: str) -> None:
    """Raise InputError for a training step that skips samples."""
    if step.roles and step.roles.skip_below:
        raise InputError(
            f"{step.name} skips steps below a loss of {step.roles.skip_below:.6g}, {what} learns from all of them; use "
            "the host, a board or a fleet"
        )
