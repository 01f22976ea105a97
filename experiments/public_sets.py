"""Make data sets of photographs in public repositories, as zips like those that measurements read.

`python -m experiments.public_sets caltech101 CLONE OUTPUT` takes a clone of MachineLearning2020/Homework2-Caltech101
and its own split, without the background; `… cartoons CLONE OUTPUT` one of MachineLearning2020/Homework3-PACS and its
cartoons, every third of them to test. Images get a short side of 160 pixels. Of a class of Caltech-101 30 images at
most are learned from, as is usual there, and 20 tested.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections import Counter
from pathlib import Path

from PIL import Image

SIDE, QUALITY = 160, 80
LEARNED, TESTED = 30, 20  # images of a class of Caltech-101, at most


def listed_caltech(clone: Path) -> tuple[list[Path], list[Path]]:
    """Return the images of Caltech-101 to learn from and to test with."""

    def images(split: str, most: int) -> list[Path]:
        names = (clone / f"{split}.txt").read_text().split()
        found = [clone / "101_ObjectCategories" / name for name in names if not name.startswith("BACKGROUND")]
        taken, kept = Counter[str](), []
        for path in found:
            taken[path.parent.name] += 1
            if taken[path.parent.name] <= most:
                kept.append(path)
        return kept

    return images("train", LEARNED), images("test", TESTED)


def listed_cartoons(clone: Path) -> tuple[list[Path], list[Path]]:
    """Return the cartoons of PACS to learn from and to test with."""
    found = sorted((clone / "PACS" / "cartoon").glob("*/*.jpg"))
    return [one for place, one in enumerate(found) if place % 3], found[::3]


SETS = {"caltech101": listed_caltech, "cartoons": listed_cartoons}


def write(parts: tuple[list[Path], list[Path]], output: Path) -> None:
    """Write images as `{train,test}/<class>/<name>.webp`."""
    with zipfile.ZipFile(output, "w") as archive:
        for split, images in zip(("train", "test"), parts, strict=True):
            for path in images:
                archive.writestr(f"{split}/{path.parent.name}/{path.stem}.webp", shrunk(path))


def shrunk(path: Path) -> bytes:
    """Return an image with a short side of 160 pixels as WebP."""
    with Image.open(path) as image:
        scale = SIDE / min(image.size)
        width, height = (max(round(side * scale), SIDE) for side in image.size)
        kept = io.BytesIO()
        image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS).save(kept, "webp", quality=QUALITY)
        return kept.getvalue()


if __name__ == "__main__":
    _, name, clone, output = sys.argv
    write(SETS[name](Path(clone)), Path(output))
