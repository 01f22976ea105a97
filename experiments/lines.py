"""Lines to boards that lose, repeat and change bytes, and boards that restart."""

from __future__ import annotations

import numpy as np

from smidgen.link import Stream
from smidgen.targets.lines import EmulatedStream


class Faulty:
    """A stream whose bytes, one in so many and in both directions, are lost, repeated or flipped in one bit."""

    def __init__(self, stream: Stream, share: float, seed: int = 0) -> None:
        self.stream, self.name, self._share = stream, stream.name, share
        self._rng = np.random.default_rng(seed)
        self.faults = 0

    def read(self, seconds: float) -> bytes:
        return self._spoiled(self.stream.read(seconds))

    def write(self, data: bytes) -> None:
        self.stream.write(self._spoiled(data))

    def close(self) -> None:
        self.stream.close()

    def _spoiled(self, data: bytes) -> bytes:
        spoiled, rng = bytearray(data), self._rng
        for at in np.flatnonzero(rng.random(len(data)) < self._share)[::-1].tolist():
            self.faults += 1
            kind = rng.integers(3)
            if kind == 0:
                del spoiled[at]
            elif kind == 1:
                spoiled.insert(at, spoiled[at])
            else:
                spoiled[at] ^= 1 << rng.integers(8)
        return bytes(spoiled)


class Flaky:
    """A stream to an emulated board that restarts before some of the requests, counted from 1."""

    def __init__(self, stream: EmulatedStream, at: tuple[int, ...]) -> None:
        self.stream, self.name, self._at = stream, stream.name, at
        self._writes = 0

    def read(self, seconds: float) -> bytes:
        return self.stream.read(seconds)

    def write(self, data: bytes) -> None:
        self._writes += 1
        if self._writes in self._at:
            self.stream.reset()
        self.stream.write(data)

    def close(self) -> None:
        self.stream.close()
