"""Random search: candidates drawn one by one, the best of those that fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smidgen.selection.problem import Problem
from smidgen.selection.sampling import EVALUATIONS, Trials, draw_genes, head_alone


def draw_lots(problems: Sequence[Problem], budget: int, evaluations: int = EVALUATIONS, seed: int = 0) -> Trials:
    """So many candidates, the head alone among them."""
    rng, trials = np.random.default_rng(seed), Trials(problems, budget)
    trials.evaluate(head_alone(problems))
    while trials.tried < evaluations:
        trials.evaluate(draw_genes(problems, rng))
    return trials
