"""Images are read in the formats that the documents name; any other is named, and starts no program."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import EpsImagePlugin, Image

from smidgen.data import DataError, load_data, load_images, load_labelled
from smidgen.data.images import SUFFIXES
from smidgen.data.load import open_samples
from smidgen.ir import Array, QParams, Type

INPUT = Type((1, 8, 8, 3), "int8", QParams.per_tensor(2 / 255, 0))
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 24 24\n%%EndComments\n(any) print\nshowpage\n%%EOF\n"
CONTENTS = {
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
    "AVIF": b"\0\0\0\x1cftypavif\0\0\0\0avifmif1",
    "PostScript": POSTSCRIPT,
    "SVG": b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>',
    "PDF": b"%PDF-1.7\n",
    "Photoshop": b"8BPS\0\1",
    "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n",
    "JPEG XL": b"\xff\x0a\0",
    "icon": b"\0\0\1\0\1\0",
}
READERS: dict[str, Callable[[Path], object]] = {
    "load_data": load_data,
    "load_images": lambda folder: load_images(folder, 9),
    "load_labelled": lambda folder: load_labelled(folder, 9),
    "predict": lambda folder: _shown(folder),
}


def _shown(folder: Path) -> list[Array]:
    with open_samples(folder, INPUT) as found:
        return [one.read() for one in found]


def encoded(kind: str, **more: object) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (9, 8), (200, 100, 50)).save(data, kind, **more)
    return data.getvalue()


def folders(place: Path, **more: bytes) -> Path:
    """Write two classes of six photographs, and more files by their paths, in which __ is a slash and _ a dot."""
    for label in ("a", "b"):
        for number in range(6):
            _write(place / label / f"{number}.png", encoded("png"))
    for name, data in more.items():
        _write(place / name.replace("__", "/").replace("_", "."), data)
    return place


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize("reader", READERS)
def test_postscript_in_a_data_set_starts_no_ghostscript(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program called gs writes that it ran; as Pillow looks for it, it would."""
    ran = tmp_path / "ran"
    _write(tmp_path / "bin/gs", f"#!/bin/sh\necho ran > {ran}\necho 10.0\n".encode())
    (tmp_path / "bin/gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    folder = folders(tmp_path / "data", a__photo_png=POSTSCRIPT, b__photo_png=POSTSCRIPT)
    for label in ("a", "b"):
        for number in range(6):
            (folder / label / f"{number}.png").write_bytes(POSTSCRIPT)
    with pytest.raises(DataError, match=r"\.png is a PostScript file; Smidgen reads JPEG, PNG"):
        READERS[reader](folder)
    assert not ran.exists()


@pytest.mark.parametrize("name", CONTENTS)
def test_a_format_that_is_not_read_is_named_whatever_the_file_is_called(name: str, tmp_path: Path) -> None:
    _write(tmp_path / "photo.jpg", CONTENTS[name])
    with pytest.raises(DataError, match=rf"photo\.jpg is an? {name}.* Smidgen reads JPEG, PNG, .* convert it first"):
        _shown(tmp_path / "photo.jpg")


@pytest.mark.parametrize("name", ["photo.heic", "PHOTO.HEIF", "x.avif", "x.eps", "x.svg", "x.psd", "x.nef", "x.jxl"])
def test_a_file_with_the_suffix_of_such_a_format_is_named_without_a_look_at_it(name: str, tmp_path: Path) -> None:
    _write(tmp_path / name, b"anything")
    with pytest.raises(DataError, match=rf"^{name} is an? .*; Smidgen reads JPEG, PNG"):
        _shown(tmp_path / name)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["a__6_heic", "c__0_avif"])
def test_images_that_cannot_be_read_are_not_left_out_of_a_folder_in_silence(
    reader: str, name: str, tmp_path: Path
) -> None:
    """Neither one among others, nor a class that has no other images."""
    folder = folders(tmp_path / "data", **{name: b"anything"})
    with pytest.raises(DataError, match=r"^[ac]/[06]\.(heic|avif) is an? (HEIC|AVIF) image"):
        READERS[reader](folder)


def test_a_drawing_that_lies_beside_the_folders_of_labels_is_no_sample(tmp_path: Path) -> None:
    assert len(load_data(folders(tmp_path / "data", logo_svg=b"<svg/>")).train) == 10


def test_every_format_that_the_documents_name_is_read(tmp_path: Path) -> None:
    """Also what phones write: JPEG files that hold a second picture (MPO)."""
    kinds = {".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF", ".tiff": "TIFF", ".pgm": "PPM", ".ppm": "PPM"}
    page = Path("docs/data.md").read_text("utf-8")
    for suffix in SUFFIXES:
        kind = kinds.get(suffix, suffix[1:].upper())
        assert suffix[1:] in page or suffix in (".jpeg", ".tif", ".pgm")
        _write(tmp_path / f"photo{suffix}", encoded(kind))
    _write(tmp_path / "phone.jpg", encoded("MPO", save_all=True, append_images=[Image.new("RGB", (9, 8))]))
    found = _shown(tmp_path)
    assert len(found) == len(SUFFIXES) + 1
    assert all(image.shape == (8, 9, 3) for image in found)


def test_bytes_that_are_no_image_are_refused_without_the_reader_s_own_words(tmp_path: Path) -> None:
    _write(tmp_path / "photo.png", b"nothing that is an image")
    with pytest.raises(DataError, match=r"photo\.png cannot be read as an image \(it is none of JPEG, PNG"):
        _shown(tmp_path / "photo.png")
