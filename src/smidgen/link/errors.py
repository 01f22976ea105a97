"""What can go wrong on a line."""

from __future__ import annotations

from smidgen.errors import SmidgenError


class LinkError(SmidgenError):
    """A board cannot be reached, does not answer, or runs something else."""


class BoardFailed(LinkError):
    """A board tried what it was asked for, and its own function says that it failed."""


class Restarted(LinkError):
    """A board has restarted since it was spoken to: it knows no session, or names another start."""
