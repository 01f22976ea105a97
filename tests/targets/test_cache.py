"""What was built is kept where it belongs, is whole or built again, and nothing that was killed stays behind."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from smidgen.compiler import ABANDONED, Cache, Compiler, cache_folder, find_compiler, probe
from smidgen.data.files import write_whole
from smidgen.errors import InputError, TargetError
from smidgen.ir import Graph, evaluate
from smidgen.pipeline import compile
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from tests.support.graph_texts import graph_of

SOURCES = {"one.c": "int one(void) { return 1; }\n"}


def network() -> Graph:
    return graph_of("""
        graph small
        input %x: int8[1,4] q
        %y: int8[1,4] q = Requantize(%x)
        output %y
    """)


def made(cache: Path) -> Path:
    """One small file of the cache."""
    return Cache(cache, find_compiler()).build(".o", SOURCES, "-c", "one.c")


@pytest.mark.parametrize("damage", ["cut", "emptied", "changed", "removed"])
def test_a_damaged_file_of_the_cache_is_built_again(tmp_path: Path, damage: str) -> None:
    built = made(tmp_path)
    whole = built.read_bytes()
    if damage == "removed":
        built.unlink()
    else:
        changed = whole[:-1] + bytes([whole[-1] ^ 1])
        built.write_bytes({"cut": whole[:100], "emptied": b"", "changed": changed}[damage])
    assert made(tmp_path).read_bytes() == whole


class Together(Compiler):
    """As many builds as its barrier waits for end at the same moment."""

    barrier = Barrier(4)

    def __call__(self, *arguments: str | Path, folder: Path) -> None:
        (folder / "built.o").write_text("built\n")
        self.barrier.wait()


def test_what_one_builder_was_given_no_other_takes_away(tmp_path: Path) -> None:
    cache = Cache(tmp_path, Together((), (), "together"))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads meet at each line
    try:
        for i in range(100):
            with ThreadPoolExecutor(4) as pool:
                builds = [pool.submit(cache.build, ".o", {"one.c": f"int i = {i};"}) for _ in range(4)]
            assert {build.result().read_text() for build in builds} == {"built\n"}
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("target", [Host, BoardTarget])
def test_a_program_starts_from_a_cache_in_which_everything_is_damaged(
    tmp_path: Path, target: type[Host] | type[BoardTarget]
) -> None:
    graph, x = network(), np.arange(4, dtype=np.int8).reshape(1, 4)
    for _ in range(2):
        with compile(graph, target=target(cache=tmp_path)).start() as device:
            np.testing.assert_array_equal(device.run(x)[0], evaluate(graph, x)[0])
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert len(files) > 1
        for path in files:  # each replaced, because a library that is loaded is not to change
            half = path.read_bytes()[: path.stat().st_size // 2]
            path.unlink()
            path.write_bytes(half)


def test_folders_of_builds_that_were_killed_are_swept(tmp_path: Path) -> None:
    old, recent = tmp_path / "build-old", tmp_path / "build-recent"
    for folder in (old, recent):
        folder.mkdir()
        (folder / "half.c").write_text("int")
    past = time.time() - ABANDONED - 60
    os.utime(old, (past, past))
    made(tmp_path)
    assert not old.exists()
    assert recent.exists()
    assert len(list(tmp_path.glob("build-*"))) == 1


def test_without_a_home_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for home in ("", "relative"):  # an empty one would be taken for /
        monkeypatch.setenv("HOME", home)
        with pytest.raises(TargetError, match=r"there is no home folder .* set HOME, or XDG_CACHE_HOME"):
            cache_folder()
    monkeypatch.delenv("HOME")

    def nowhere(_: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(nowhere))
    with pytest.raises(TargetError, match="there is no home folder"):
        cache_folder()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "smidgen"


def test_a_relative_cache_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "smidgen"


def test_a_compiler_may_speak_any_encoding(tmp_path: Path) -> None:
    speaking = tmp_path / "cc"
    refusing = 'case "$*" in *built*) printf "\\351rror: caf\\351" >&2; exit 1;; esac'
    speaking.write_text(f'#!/bin/sh\nprintf "caf\\351 1.0"\n{refusing}\n')
    speaking.chmod(0o755)
    with pytest.raises(TargetError, match="could not build the program: �rror: caf�"):
        Cache(tmp_path / "cache", probe((str(speaking),))).build(".o", SOURCES, "-c", "one.c")


def test_two_writers_with_the_same_process_id_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace = tmp_path / "model.smg", Path.replace
    order: list[str] = []

    def interrupted(self: Path, target: Path) -> Path:
        """The rename, before which another container writes the same file."""
        if not order:
            order.append("inner")
            write_whole(path, b"inner")
            assert path.read_bytes() == b"inner"
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    write_whole(path, b"outer")
    assert path.read_bytes() == b"outer"
    assert list(tmp_path.iterdir()) == [path]


def test_two_builds_with_the_same_process_id_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler.__call__
    built: list[Path] = []

    def interrupted(self: Compiler, *arguments: str | Path, folder: Path) -> None:
        """The compiler, after which another container builds the same."""
        compiler(self, *arguments, folder=folder)
        if not built:
            built.append(folder)
            built.append(made(tmp_path))

    monkeypatch.setattr(Compiler, "__call__", interrupted)
    assert made(tmp_path) == built[1]
    assert not list(tmp_path.glob("build-*"))


def test_two_projects_with_the_same_process_id_do_not_meet(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, to, replace = compile(network(), target=host), tmp_path / "project", os.replace
    order: list[str] = []

    def interrupted(source: Path, target: Path) -> None:
        """The rename, before which another container writes the same project."""
        if not order:
            order.append("inner")
            program.write(to)
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(InputError, match="project cannot be written: Directory not empty"):
        program.write(to)
    written = (path for path in to.rglob("*") if path.is_file())
    assert sorted(str(path.relative_to(to)) for path in written) == sorted(program.files())
    assert list(tmp_path.iterdir()) == [to]


def test_a_file_is_written_with_the_rights_the_user_set(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"data")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
