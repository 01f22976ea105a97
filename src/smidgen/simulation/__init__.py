"""The same graph in PyTorch: the int8 forward pass exactly, its gradients in fp32, and training in fp32 to compare to.

Tensors hold the quantized numbers as floats. Gradients use the straight-through estimator: they pass rounding
unchanged, and a clamp strictly inside its limits, as `autodiff` defines them, by torch's own differentiation. Where a
graph's leading dimension is 1 it may be a batch here. A course's images are made on the device, byte for byte the
host's, and the paper's float baselines learn from them, many runs at once.
"""

from smidgen.simulation.baselines import BaselineProgress, BaselineResult, train_baselines
from smidgen.simulation.images import CourseImages, centred
from smidgen.simulation.rules import RULES
from smidgen.simulation.running import FloatTraining, Simulator
from smidgen.simulation.runs import Baseline

__all__ = [
    "RULES",
    "Baseline",
    "BaselineProgress",
    "BaselineResult",
    "CourseImages",
    "FloatTraining",
    "Simulator",
    "centred",
    "train_baselines",
]
