"""The same graph in PyTorch: the int8 forward pass exactly, its gradients in fp32, and training in fp32 to compare to.

Tensors hold the quantized numbers as floats. Gradients use the straight-through estimator: they pass rounding
unchanged, and a clamp strictly inside its limits, as `autodiff` defines them, by torch's own differentiation. Where a
graph's leading dimension is 1 it may be a batch here. The paper's float baselines train on a course's images, many runs
at once.
"""

from experiments.baselines.rules import RULES
from experiments.baselines.runs import Baseline
from experiments.baselines.simulator import FloatTraining, Simulator
from experiments.baselines.train import BaselineProgress, BaselineResult, train_baselines

__all__ = [
    "RULES",
    "Baseline",
    "BaselineProgress",
    "BaselineResult",
    "FloatTraining",
    "Simulator",
    "train_baselines",
]
