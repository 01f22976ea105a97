"""The callback of whoever does not ask for progress."""

from __future__ import annotations


class _Ignore:
    """A callback that does nothing, shown by its name in help()."""

    def __call__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        return "ignore"


ignore = _Ignore()
