"""A folder with a tiny model and photographs, and the command that fits the one to the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PIL import Image

from smidgen.frontends.native import write_smg
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network

OUTPUT = "out"


def write_photographs(folder: Path, train: int = 12, test: int = 6) -> None:
    """Write a model, and so many images of each kind of shape to learn from and to test with."""
    write_smg(small_network(), folder / "small.smg")
    data = draw_shapes(train, test)
    for split, samples in (("train", data.train), ("test", data.test)):
        for place, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
            file = folder / "photos" / split / SHAPES[label] / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)


def start_fit(folder: Path, *more: str) -> subprocess.Popen[str]:
    """Start a fit of what is in the folder, as another process."""
    words = ("fit", "small.smg", "--data", "photos", "--budget", "48KB", "--epochs", "3", "-o", OUTPUT, *more)
    return subprocess.Popen(
        (sys.executable, "-m", "smidgen", *words), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str]:
    """Wait for a fit; return its exit code and what it said on stderr."""
    _, complained = process.communicate(timeout=seconds)
    return process.returncode, complained
