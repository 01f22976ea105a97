"""Tiny-ImageNet-200 from archives: `blob`, the images' files end to end, `off`, where each begins, and labels `y`."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CHUNK = 500  # images that a process decodes at a time


def read_images(archives: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All images [n, rows, columns, colours] and their labels."""
    files: list[bytes] = []
    labels = []
    for path in archives:
        with np.load(path, allow_pickle=False) as archive:
            blob = archive["blob"].tobytes()
            files += [blob[a:b] for a, b in pairwise(archive["off"])]
            labels.append(archive["y"].astype(np.int64))
    chunks = [files[i : i + CHUNK] for i in range(0, len(files), CHUNK)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(_decode, chunks))), np.concatenate(labels)


def _decode(files: list[bytes]) -> NDArray[np.uint8]:
    return np.stack([np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])
