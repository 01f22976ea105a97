"""The audio front end that a network was trained with: bands of a mel spectrum, stated once like a preprocessing."""

import math
from dataclasses import dataclass

from smidgen.errors import InputError

RATES = (8_000, 11_025, 12_000, 16_000)  # samples per second
SIZES = (64, 4096)  # of the Fourier transform
OFFSETS = (1e-9, 1.0)


@dataclass(frozen=True)
class LogMel:
    """Every `hop` samples, the logarithms of how loud each band of the last `window` samples is, or their DCT.

    Samples of −32768 to 32767 stand for −1 to 1. A window is weighted by a periodic Hann curve and continued by zeros
    to `size` samples, of which the Fourier transform's magnitudes are taken. `bands` triangles, evenly wide on the mel
    scale of 1127 · ln(1 + f / 700) between `low` and `high` Hz, sum them up; ln(sum + offset) is a band's feature.
    Where there are `coefficients`, the features are instead the first ones of the bands' orthonormal DCT-II, the
    zeroth not divided by √2. The input holds frame after frame, or `across` it, band after band.
    """

    rate: int = 16_000  # samples per second
    window: int = 480  # samples
    hop: int = 320  # samples
    size: int = 512  # samples, a power of two
    bands: int = 40
    low: float = 20.0  # Hz
    high: float = 4000.0  # Hz
    offset: float = 1e-6
    coefficients: int = 10  # 0 for the bands themselves
    across: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high", "offset"):  # 20 is written to files as 20.0, which reads back as a float
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def features(self) -> int:
        """Return how many numbers a frame has."""
        return self.coefficients or self.bands

    def frames(self, shape: tuple[int, ...]) -> int:
        """Return how many frames an input of this shape has."""
        return math.prod(shape) // self.features

    def samples(self, shape: tuple[int, ...]) -> int:
        """Return how many samples an input of this shape is made of."""
        return self.window + self.hop * (self.frames(shape) - 1)

    def rows(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the rows of an input of this shape, and the numbers in a row: frames of features, or the reverse."""
        frames = self.frames(shape)
        return (self.features, frames) if self.across else (frames, self.features)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise InputError unless an input of this shape can be made so."""
        self._check_windows()
        self._check_bands()
        frames, features = self.frames(shape), self.features
        whole = frames >= 1 and frames * features == math.prod(shape)
        if not whole or (len(shape) == 4 and shape != (1, *self.rows(shape), 1)):
            order = "features across frames" if self.across else "frames of features"
            raise InputError(
                f"sound of {features} features a frame does not fill an input {list(shape)} with {order}; give the "
                "--audio settings that the model was trained with"
            )

    def _check_windows(self) -> None:
        if self.rate not in RATES:
            known = ", ".join(f"{rate:,}" for rate in RATES)
            raise InputError(f"audio of {self.rate:,} samples per second is not supported; give one of {known}")
        if not SIZES[0] <= self.size <= SIZES[1] or self.size & (self.size - 1):
            raise InputError(
                f"a Fourier transform of {self.size} samples is not computed; give a power of two from {SIZES[0]} to "
                f"{SIZES[1]:,}"
            )
        if not 1 <= self.hop <= self.window <= self.size:
            raise InputError(
                f"windows of {self.window} samples every {self.hop} do not fit a transform of {self.size}; give "
                "1 <= hop <= window <= size"
            )

    def _check_bands(self) -> None:
        if not 1 <= self.bands <= self.size // 2 or not 0 <= self.coefficients <= self.bands:
            raise InputError(
                f"{self.bands} bands and {self.coefficients} coefficients cannot be had of {self.size} samples; give "
                f"1 to {self.size // 2} bands and at most as many coefficients"
            )
        if not 0 <= self.low < self.high <= self.rate / 2:
            raise InputError(
                f"there are no bands from {self.low:g} to {self.high:g} Hz in {self.rate:,} samples per second; give "
                f"0 <= low < high <= {self.rate / 2:g}"
            )
        if not OFFSETS[0] <= self.offset <= OFFSETS[1]:
            raise InputError(
                f"an offset of {self.offset:g} under the logarithm is not possible; give {OFFSETS[0]:g} to "
                f"{OFFSETS[1]:g}"
            )

    def __str__(self) -> str:
        milliseconds = (f"{1000 * samples / self.rate:g} ms" for samples in (self.window, self.hop))
        first = f"first {self.coefficients} coefficients of the DCT of " if self.coefficients else ""
        return (
            f"{first}{self.bands} log-mel bands, {self.low:g} to {self.high:g} Hz; {self.rate:,} samples per second, "
            f"windows of {' every '.join(milliseconds)}"
        )


MFCC = LogMel()  # MLPerf Tiny's keyword spotting
YAMNET = LogMel(window=400, hop=160, bands=64, low=125.0, high=7500.0, offset=0.001, coefficients=0)
