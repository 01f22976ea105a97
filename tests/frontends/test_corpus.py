"""The kept corpus of each parser, every finding of the fuzzer among it: read, or refused in one sentence, and soon."""

from __future__ import annotations

import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smidgen.data import load_data, load_images
from smidgen.errors import SmidgenError
from smidgen.frontends import import_model
from smidgen.ir.text import parse_graph
from smidgen.learning.checkpoint import read_checkpoint
from smidgen.link.frames import Frames, read_answer
from smidgen.training.scheme import load_scheme
from tests.support.mutations import DECLARED

CORPUS = Path(__file__).parents[1] / "corpus"
SECONDS = 2.0  # of processor time for one file
BYTES = 2**26  # at most, while reading one of a few kilobytes
LARGEST_CORPUS = 300_000  # bytes
MEMORY = 2**24  # for the contents of one file


def read_model(path: Path) -> object:
    return import_model(path, MEMORY)


def read_data(path: Path) -> object:
    try:
        load_data(path, MEMORY)
    except SmidgenError:
        load_images(path, 3, MEMORY)
        raise
    return load_images(path, 3, MEMORY)


def read_image(path: Path) -> object:
    """The file alone, in a folder of images."""
    folder = path.parent / "alone"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path, folder / "image.png")
    return load_images(folder, 1, MEMORY)


def read_sound(path: Path) -> object:
    """The file alone, in a folder of sounds."""
    folder = path.parent / "alone"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path, folder / "sound.wav")
    return load_images(folder, 1, MEMORY)


def read_table(path: Path) -> object:
    """The file as a table, or else alone, in a folder of recordings."""
    folder = path.parent / "alone"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path, folder)
    try:
        return load_data(path, MEMORY)
    except SmidgenError:
        return load_images(folder, 1, MEMORY)


def read_text(path: Path) -> object:
    """A graph's text with zeros for its constants."""
    text = path.read_text()
    kept = [DECLARED.search(line) for line in text.splitlines() if line.startswith(("const ", "state "))]
    shapes = {m[1]: (tuple(int(n) for n in m[3].split(",") if n), m[2]) for m in kept if m}
    return parse_graph(text, {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()})


def read_scheme(path: Path) -> object:
    return load_scheme(str(path), import_model(CORPUS / "tflite" / "network.tflite"))


def read_frames(path: Path) -> object:
    """What goes over a link: as answers, and as requests, which have no longer head."""
    return [read_answer(content) for content in Frames().take(path.read_bytes()) if content is not None]


PARSERS: dict[str, Callable[[Path], object]] = {
    "tflite": read_model, "onnx": read_model, "pt2": read_model, "keras": read_model, "smg": read_model,
    "npz": read_model, "pkl": read_model, "image": read_image, "zip": read_data, "arrays": read_data, "npy": read_data,
    "table": read_table, "sound": read_sound, "ckpt": read_checkpoint, "text": read_text, "scheme": read_scheme,
    "answers": read_frames, "requests": read_frames,
}  # fmt: skip
UNTRACED = ("pt2",)  # PyTorch, of which the first file imports parts, would take a minute


def test_the_corpus_is_small_and_of_every_parser() -> None:
    assert {path.name for path in CORPUS.iterdir()} == PARSERS.keys()
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < LARGEST_CORPUS


@pytest.mark.parametrize("parser", PARSERS)
def test_every_file_of_the_corpus_is_read_or_refused_in_one_sentence(parser: str, tmp_path: Path) -> None:
    for kept in sorted((CORPUS / parser).iterdir()):
        path = Path(shutil.copy(kept, tmp_path))
        said = ""
        if parser not in UNTRACED:
            tracemalloc.start()
        began = time.process_time()
        try:
            PARSERS[parser](path)
        except SmidgenError as error:
            said = str(error)
            assert len(said.splitlines()) == 1, kept
        finally:
            spent, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert spent < SECONDS or parser in UNTRACED, f"{kept} took {spent:.1f} s"
        assert peak < BYTES, f"{kept} took {peak:,} bytes"
        name = str(kept.relative_to(CORPUS))
        assert not said or kept.name.startswith("found"), f"{name} is a seed, and refused: {said}"
