"""One command for everything: a model and images in, a program that learns within a budget out."""

from smidgen.fitting.auto import AutoFitted, fit_auto
from smidgen.fitting.fitted import Fitted
from smidgen.fitting.lock import FitError
from smidgen.fitting.networks import Found, Limits, NetworkMade, find_network
from smidgen.fitting.pipeline import FitProgress, fit
from smidgen.fitting.stages import SCHEME, training_target

__all__ = [
    "SCHEME", "AutoFitted", "FitError", "FitProgress", "Fitted", "Found", "Limits", "NetworkMade", "find_network",
    "fit", "fit_auto", "training_target",
]  # fmt: skip
