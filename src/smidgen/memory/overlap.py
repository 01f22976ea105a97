"""Overlap: a map that is made row by row grows into the place of one that is consumed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Thing = TypeVar("Thing")  # a value of a graph, or the index of an item to pack


@dataclass(frozen=True)
class Overlap(Generic[Thing]):
    """What is consumed begins `distance` bytes above the beginning of what is made, which grows into its place."""

    consumed: Thing
    made: Thing
    distance: int  # bytes, less than the thing made is long
