"""What is worth training: measured contributions, the search for a scheme under a budget, the learning rate."""

from smidgen.selection.contributions import Contributions, ContributionsError

__all__ = ["Contributions", "ContributionsError"]
