"""Predictions of a model, sample by sample, and how often they are right: in numpy, in C, on a board."""

from smidgen.inference.evaluation import (
    CellsTested,
    ClassesTested,
    ClassTested,
    LabelsTested,
    NumbersTested,
    ReconstructionTested,
    Tested,
    test,
)
from smidgen.inference.prediction import ClassProbability, MapCell, Prediction, Predictions, predict
from smidgen.inference.scores import InferenceProgress

__all__ = [
    "CellsTested", "ClassProbability", "ClassTested", "ClassesTested", "InferenceProgress", "LabelsTested", "MapCell",
    "NumbersTested", "Prediction", "Predictions", "ReconstructionTested", "Tested", "predict", "test",
]  # fmt: skip
