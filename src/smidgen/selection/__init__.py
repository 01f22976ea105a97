"""What is worth training: measured contributions, the search for a scheme under a budget, the learning rate."""

from smidgen.selection.analyzing import AnalysisProgress, analyze
from smidgen.selection.contributions import Contributions, ContributionsError

__all__ = ["AnalysisProgress", "Contributions", "ContributionsError", "analyze"]
