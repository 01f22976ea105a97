"""The preprocessing that a network was trained with: stated once, and carried by the model from then on."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smidgen.errors import InputError

ORDERS = ("rgb", "bgr", "gray")
FITS = ("crop", "stretch")


@dataclass(frozen=True)
class Preprocessing:
    """Pixel p of a channel stands for (low + p · (high − low) / 255 − mean) / std, where `range` is (low, high).

    `mean` and `std` hold one number for all channels or one for each, in the order in which the network sees them.
    `fit` names how an image of another shape is made to fit: its middle cropped, or all of it stretched.
    """

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    order: str = "rgb"
    range: tuple[float, float] = (0.0, 1.0)
    fit: str = "crop"

    def check(self, channels: int) -> None:
        """Raise InputError unless it can be applied to pixels of this many channels."""
        for what, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, channels):
                raise InputError(f"preprocessing has {len(numbers)} numbers as {what} for {channels} channels")
        if not all(map(math.isfinite, (*self.mean, *self.std, *self.range))) or min(self.std) <= 0:
            raise InputError(
                f"preprocessing by mean {self.mean} and std {self.std} is not possible; std must be above 0"
            )
        if self.range[0] >= self.range[1]:
            raise InputError(f"pixels cannot stand for {self.range[0]} … {self.range[1]}; give a rising range")
        if self.order not in ORDERS or self.fit not in FITS:
            known = f"orders are {', '.join(ORDERS)}, fits {', '.join(FITS)}"
            raise InputError(
                f"preprocessing in order {self.order[:40]!r} and fit {self.fit[:40]!r} is unknown; {known}"
            )
        if self.order == "bgr" and channels != 3:
            raise InputError(f"the order bgr takes 3 channels, the model has {channels}; use rgb or gray")

    def numbers(self, channels: int) -> NDArray[np.float64]:
        """Return the number that each of the 256 pixel values stands for in each channel, as [256, channels]."""
        low, high = self.range
        mean, std = (np.broadcast_to(np.array(n, np.float64), (channels,)) for n in (self.mean, self.std))
        pixels = low + np.arange(256)[:, None] * ((high - low) / 255)
        return np.asarray((pixels - mean) / std)

    def __str__(self) -> str:
        low, high = (f"{end:g}" for end in self.range)
        mean, std = (", ".join(f"{x:g}" for x in numbers) for numbers in (self.mean, self.std))
        return f"{self.order} pixels as {low} … {high}, minus mean {mean}, over std {std}; {self.fit} to fit"
