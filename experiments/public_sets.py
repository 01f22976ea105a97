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
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from experiments.sheets import read_sheets
from smidgen.data.samples import evenly

SIDE, QUALITY = 160, 80
LEARNED, TESTED = 30, 20  # images of a class of Caltech-101, at most
KEPT, KEPT_OF_FEW, FEW, KEPT_TO_TEST = 25, 60, 20, 1_000  # of a class, of one of few, and in all
SCENES_LEARNED, SCENES_TESTED = 200, 300  # and of the scenes


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


def listed_clothing(clone: Path) -> tuple[list[Path], list[Path]]:
    """Return the photographs of clothes to learn from and to test with."""
    return sorted((clone / "train").glob("*/*.jpg")), sorted((clone / "test").glob("*/*.jpg"))


def listed_scenes(clone: Path) -> tuple[list[Path], list[Path]]:
    """Return the scenes to learn from and to test with."""

    def images(split: str, most: int) -> list[Path]:
        folders = sorted((clone / split / split).iterdir())
        return [path for folder in folders for path in sorted(folder.glob("*.jpg"))[:most]]

    return images("seg_train", SCENES_LEARNED), images("seg_test", SCENES_TESTED)


SETS = {
    "caltech101": listed_caltech, "cartoons": listed_cartoons, "clothing": listed_clothing, "scenes": listed_scenes,
}  # fmt: skip


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


def write_limited(source: Path, output: Path) -> None:
    """Write part of a data set as the files that it has."""
    files = dict(_tiles(source)) if source.stem == "cifar10" else dict(_files(source))
    of_class: dict[tuple[str, str], list[str]] = {}
    for name in sorted(files):
        split, label, _ = name.split("/")
        of_class.setdefault((split, label), []).append(name)
    classes = len({label for _, label in of_class})
    most = {"train": KEPT if classes > FEW else KEPT_OF_FEW, "test": -(-KEPT_TO_TEST // classes)}
    with zipfile.ZipFile(output, "w") as archive:
        for (split, _), names in of_class.items():
            for name in evenly(names, min(most[split], len(names))):
                archive.writestr(name, files[name])


def _files(source: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if name.count("/") == 2 and name.startswith(("train/", "test/")) and not name.endswith("/"):
                yield name, archive.read(name)


def _tiles(source: Path) -> Iterator[tuple[str, bytes]]:
    data = read_sheets(source)
    for split, samples in (("train", data.train), ("test", data.test)):
        for place, label in enumerate(samples.labels):
            kept = io.BytesIO()
            Image.fromarray(np.asarray(samples.images[place])).save(kept, "png")
            yield f"{split}/{data.classes[label]}/{place:05}.png", kept.getvalue()


if __name__ == "__main__":
    _, name, given, output = sys.argv
    if name == "limit":
        write_limited(Path(given), Path(output))
    else:
        write(SETS[name](Path(given)), Path(output))
