"""The choice of what to train: measured contributions, the search for a scheme under a budget, the learning rate."""

from smidgen.selection.analysis import AnalysisProgress, analyze
from smidgen.selection.contributions import Contributions, ContributionsError, average_contributions
from smidgen.selection.estimates import estimate
from smidgen.selection.found import Found, Pareto
from smidgen.selection.methods import SearchError
from smidgen.selection.searching import pareto, search

__all__ = [
    "AnalysisProgress", "Contributions", "ContributionsError", "Found", "Pareto", "SearchError", "analyze",
    "average_contributions", "estimate", "pareto", "search",
]  # fmt: skip
