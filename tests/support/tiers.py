"""The tiers of the tests: `make test` runs a sample of what is drawn or repeated, `make test-all` all of it.

`pytest --quick` asks for the sample. Tests that it leaves out altogether are marked `slow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pytest

SHARE = 0.3  # of the examples that a quick run draws
LEAST = 10  # examples of which a quick run drops none

Item = TypeVar("Item")
Key = TypeVar("Key")


class _Run:
    quick = False  # set from the command line, before tests are imported


def set_quick(quick: bool) -> None:
    """Choose between a quick run and a full one."""
    _Run.quick = quick


def is_quick() -> bool:
    """Return whether this run takes samples."""
    return _Run.quick


def examples(count: int, quick: int | None = None) -> int:
    """Return how many examples Hypothesis draws: `count` in full, else `quick` or a share of them."""
    if not _Run.quick:
        return count
    return quick if quick is not None else max(min(count, LEAST), round(count * SHARE))


def some(items: Sequence[Item], every: int) -> list[Item]:
    """Return all items, or in a quick run every so-many-th."""
    return list(items[::every] if _Run.quick else items)


def some_of(items: Mapping[Key, Item], every: int) -> dict[Key, Item]:
    """Return all items of a mapping, or in a quick run every so-many-th."""
    return {key: items[key] for key in some(list(items), every)}


def first(*parameters: object, quick: int = 1) -> list[Any]:
    """Return the parameters of a test, of which all but the first few are slow."""
    return [
        each if index < quick else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.slow)
        for index, each in enumerate(parameters)
    ]
