"""The callback of whoever does not ask for progress: it shows some in a notebook, and nothing anywhere else."""

from __future__ import annotations

import sys
import time
from typing import Any

EVERY = 0.2  # seconds between two updates


class _Ignore:
    """A callback that shows a line of progress below a notebook's cell, shown by its name in help()."""

    def __init__(self) -> None:
        self._cell, self._due = 0, 0.0

    def __call__(self, *at: Any) -> None:
        """Show a stage's own progress, or how many of how many are done; a notebook's kernel is an IPython."""
        python = sys.modules.get("IPython")
        shell = python.get_ipython() if python is not None and "ipykernel" in sys.modules else None
        if shell is None:
            return
        counts: tuple[Any, ...] = at
        if len(at) == 1:
            counts = getattr(at[0], "done", None), getattr(at[0], "total", None)
        if len(counts) != 2 or not all(isinstance(one, int | float) for one in counts):
            return
        done, total = counts
        if time.monotonic() < self._due and done != total:
            return
        doing = getattr(at[0], "doing", "") or "progress"
        bar = f"<progress value='{done}' max='{max(total, 1)}'></progress> {doing}: {done:,} of {total:,}"
        again, self._cell = self._cell == shell.execution_count, shell.execution_count
        display = sys.modules["IPython.display"]
        display.display(display.HTML(bar), display_id=f"smidgen-{self._cell}", update=again)
        self._due = time.monotonic() + EVERY

    def __repr__(self) -> str:
        return "ignore"


ignore = _Ignore()
