"""Samples divided into what is learned from and what judges, once or in turns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.data import Samples

CROSS = 2_000  # samples up to which each judges once; of more, a quarter is held back
FOLDS, MORE_FOLDS, FEW = 4, 5, 10  # folds, and those where no class has more than a few samples


@dataclass(frozen=True)
class Fold:
    """The places of the samples to learn from, and of those that judge."""

    train: tuple[int, ...]
    held: tuple[int, ...]


def make_folds(samples: Samples, classes: int, seed: int) -> tuple[Fold, ...]:
    """Divide samples into what judges and what is learned from; nothing where no class has two samples.

    A class with a single sample is always learned from.
    """
    rng, of_class = np.random.default_rng(seed), dict[int, list[int]]()
    for place, label in enumerate(samples.labels):
        of_class.setdefault(label if classes else 0, []).append(place)
    most = max(map(len, of_class.values()))
    count = min(most, MORE_FOLDS if classes and most <= FEW else FOLDS)
    if count < 2:
        return ()
    held: list[list[int]] = [[] for _ in range(count)]
    for shift, places in enumerate(of_class.values()):
        if len(places) > 1:
            for i, place in enumerate(rng.permutation(places)):
                held[(i + shift) % count].append(int(place))
    everything = set(range(len(samples)))
    folds = [Fold(tuple(sorted(everything - set(some))), tuple(sorted(some))) for some in held if some]
    return tuple(folds if len(samples) <= CROSS else folds[:1])
