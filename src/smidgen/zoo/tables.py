"""The networks' shapes as tables of blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """An inverted-residual block: it widens `expand` times, filters, and narrows to `channels`."""

    expand: int
    kernel: int
    stride: int
    channels: int


@dataclass(frozen=True)
class BlockTable:
    """The channels of the 3×3 stem, which halves the image, and the blocks after it."""

    stem: int
    blocks: tuple[Stage, ...]


def mbv2(width: float) -> BlockTable:
    """Return MobileNetV2 (Sandler et al. 2018, table 2) without its last 1×1 convolution, as the paper uses it."""
    repeated = (  # expand, channels, times, stride of the first
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    blocks = tuple(
        Stage(expand, 3, stride if index == 0 else 1, round_to_8(channels * width))
        for expand, channels, times, stride in repeated
        for index in range(times)
    )
    return BlockTable(round_to_8(32 * width), blocks)


def round_to_8(channels: float) -> int:
    """Return the nearest multiple of 8 that loses no more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def _table(stem: int, *blocks: tuple[int, int, int, int]) -> BlockTable:
    return BlockTable(stem, tuple(Stage(*block) for block in blocks))


PROXYLESS_W03 = _table(
    16,
    (1, 3, 1, 8),
    (3, 5, 2, 16), (3, 3, 1, 16),
    (3, 7, 2, 16), (3, 3, 1, 16), (3, 5, 1, 16), (3, 5, 1, 16),
    (6, 7, 2, 24), (3, 5, 1, 24), (3, 5, 1, 24), (3, 5, 1, 24),
    (6, 5, 1, 32), (3, 5, 1, 32), (3, 5, 1, 32), (3, 5, 1, 32),
    (6, 7, 2, 64), (6, 7, 1, 64), (3, 7, 1, 64), (3, 7, 1, 64),
    (6, 7, 1, 96),
)  # fmt: skip

MCUNET_5FPS = _table(
    16,
    (1, 3, 1, 8),
    (4, 3, 2, 16), (3, 3, 1, 16),
    (3, 7, 2, 24), (5, 3, 1, 24),
    (5, 3, 2, 40), (4, 7, 1, 40),
    (4, 5, 1, 48), (3, 3, 1, 48), (4, 3, 1, 48),
    (5, 7, 2, 96), (4, 5, 1, 96), (4, 5, 1, 96),
    (6, 3, 1, 160),
)  # fmt: skip
