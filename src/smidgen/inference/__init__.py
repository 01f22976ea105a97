"""What a model says of samples, one by one, and how often it is right: on the reference, in C, on a board."""

from smidgen.inference.predicting import Cell, ClassProbability, Prediction, Predictions, predict
from smidgen.inference.running import InferenceProgress
from smidgen.inference.tested import (
    CellsTested,
    ClassesTested,
    ClassTested,
    LabelsTested,
    NumbersTested,
    ReconstructionTested,
)
from smidgen.inference.testing import Tested, test

__all__ = [
    "Cell",
    "CellsTested",
    "ClassProbability",
    "ClassTested",
    "ClassesTested",
    "InferenceProgress",
    "LabelsTested",
    "NumbersTested",
    "Prediction",
    "Predictions",
    "ReconstructionTested",
    "Tested",
    "predict",
    "test",
]
