"""What stands in the way of an import: the first obstacle in full, and every operator behind it that has no rule."""

from __future__ import annotations

from collections import Counter

from smidgen.errors import ImportModelError


def with_others(error: ImportModelError, others: Counter[str]) -> ImportModelError:
    """The same complaint, and how often which operators further on are not supported either."""
    if not others:
        return error
    counted = ", ".join(f"{count} × {code}" for code, count in sorted(others.items()))
    return ImportModelError(f"{error}; not supported either, further on: {counted}")
