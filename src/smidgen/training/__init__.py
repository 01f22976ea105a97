"""Graph + scheme → training graph: head, scheme, autodiff, lowering, building, and passes that make it small."""

from smidgen.errors import TrainingError
from smidgen.training.building import Training, build_training
from smidgen.training.options import Head, HeadDtype, HeadStart, Options
from smidgen.training.scheme import Scheme, SchemeError, load_scheme

__all__ = [
    "Head", "HeadDtype", "HeadStart", "Options", "Scheme", "SchemeError", "Training", "TrainingError",
    "build_training", "load_scheme",
]  # fmt: skip
