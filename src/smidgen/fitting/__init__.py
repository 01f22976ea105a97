"""One command for everything: a model and images in, a program that learns within a budget out."""

from smidgen.fitting.fitted import Fitted
from smidgen.fitting.lock import FitError
from smidgen.fitting.pipeline import FitProgress, fit
from smidgen.fitting.stages import SCHEME, training_target

__all__ = ["SCHEME", "FitError", "FitProgress", "Fitted", "fit", "training_target"]
