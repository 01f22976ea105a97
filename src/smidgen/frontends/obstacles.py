"""What stands in the way of an import, in one sentence: every operator that has no rule, and how often it is there.

The operators that are read are not listed in it: docs/internals/ops.md has them all.
"""

from __future__ import annotations

from collections import Counter

from smidgen.errors import ImportModelError

PAGE = "docs/internals/ops.md lists what is read"
CUT = "replace it, or cut the model before it"


class UnsupportedOperatorError(ImportModelError):
    """An operator that has no rule: where the first one is, what it is, and a way out."""

    def __init__(self, where: str, code: str, instead: str = CUT) -> None:
        super().__init__(f"{where} is not supported; {instead} ({PAGE})")
        self.where, self.code, self.instead = where, code, instead


def with_others(error: ImportModelError, others: Counter[str]) -> ImportModelError:
    """The same complaint, and how often which operators further on are not supported either."""
    if not others:
        return error
    if isinstance(error, UnsupportedOperatorError):
        counted = _counted(others + Counter([error.code]))
        return ImportModelError(f"not supported are {counted}; the first is {error.where}: {error.instead} ({PAGE})")
    return ImportModelError(f"{error}; not supported either, further on: {_counted(others)} ({PAGE})")


def _counted(codes: Counter[str]) -> str:
    return ", ".join(f"{count} × {code}" for code, count in sorted(codes.items()))
