"""fit(): from a model and images to firmware that learns within a budget, every stage in order, on one screen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from smidgen.data import Augment, Data, examples, pixel_encoding
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.fitting.ledger import FitError, Ledger, digest, digest_of
from smidgen.fitting.made import (
    BoardMeasured,
    ContributionsMade,
    Fitted,
    LearnedHere,
    ModelMade,
    ProjectWritten,
    RateMade,
    ReportWritten,
    SchemeFound,
    StageDone,
)
from smidgen.frontends import export_model
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import Graph
from smidgen.ir.fingerprint import fingerprint
from smidgen.learning import Course, LearningProgress, learn
from smidgen.learning.checkpoint import read_checkpoint, start_fingerprint
from smidgen.ops import Lookup
from smidgen.pipeline import Program, compile
from smidgen.quantization import quantize
from smidgen.results.inspection import describe
from smidgen.results.profiling import profile
from smidgen.selection.contributions import Contributions, read_contributions, write_contributions

Made = TypeVar("Made")
