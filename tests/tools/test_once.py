"""What several workers need is made once, whoever asks first."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.support.once import Once


def make(counted: Path, folder: Path) -> tuple[str, Path]:
    with counted.open("a") as file:
        file.write("made\n")
    (folder / "file").write_text("kept")
    return "result", folder / "file"


def ask(folder: Path) -> tuple[str, Path]:
    return Once(folder / "shared")("thing", partial(make, folder / "counted"))


def test_processes_that_ask_at_once_get_one_result(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="there are no file locks here")
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        found = set(pool.map(ask, [tmp_path] * 4))
    ((result, file),) = found
    assert (result, file.read_text()) == ("result", "kept")
    assert (tmp_path / "counted").read_text() == "made\n"


def test_what_failed_is_made_again(tmp_path: Path) -> None:
    once = Once(tmp_path)

    def fail(folder: Path) -> int:
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        once("thing", fail)
    assert once("thing", lambda folder: 7) == once("thing", fail) == 7
