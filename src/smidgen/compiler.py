"""The host's C compiler, and a cache of what it built: by content, shared safely between processes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from smidgen.errors import TargetError

FLAGS = ("-std=c99", "-O3", "-ffp-contract=off", "-fPIC", "-Wall", "-Wextra", "-Werror")
NATIVE = "-march=native"
ABANDONED = 3600  # seconds after which a build folder belongs to no build: one takes minutes at most


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C, the flags it takes, and a fingerprint of both and of the processor."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    fingerprint: str

    @property
    def title(self) -> str:
        """Its command and the flags that choose instructions."""
        return " ".join((Path(self.command[-1]).name, *(flag for flag in self.flags if flag.startswith("-m"))))

    def __call__(self, *arguments: str | Path, folder: Path) -> None:
        result = _execute((*self.command, *self.flags, *map(str, arguments)), folder)
        if result.returncode:
            raise TargetError(f"{' '.join(self.command)} could not build the program: {_first_error(result.stderr)}")


def find_compiler() -> Compiler:
    """Return the machine's `cc`, or the one in the ziglang wheel where there is none."""
    if path := shutil.which("cc"):
        return probe((path,))
    if importlib.util.find_spec("ziglang"):
        return probe((sys.executable, "-m", "ziglang", "cc"))
    raise TargetError("no C compiler was found; install one that answers to cc, or run: pip install ziglang")


@cache
def probe(command: tuple[str, ...]) -> Compiler:
    """Ask a compiler what it is, and whether it builds for the very processor it runs on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty.c").write_bytes(b"")
        version = _version(command, folder)
        # The predefined macros name the processor's features: objects are not for other processors.
        native = _execute((*command, NATIVE, "-dM", "-E", "empty.c"), folder)
    flags = (*FLAGS, NATIVE) if native.returncode == 0 else FLAGS
    return Compiler(command, flags, digest((*command, *flags, version, native.stdout)))


@cache
def cross(command: tuple[str, ...], flags: tuple[str, ...]) -> Compiler:
    """Return a compiler for another processor, which the flags name."""
    return Compiler(command, flags, digest((*command, *flags, _version(command, Path.cwd()))))


def _version(command: tuple[str, ...], folder: Path) -> str:
    result = _execute((*command, "--version"), folder)
    if result.returncode:
        raise TargetError(f"{' '.join(command)} does not work: {_first_error(result.stderr)}")
    return result.stdout


def _execute(command: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise TargetError(f"{command[0]} cannot be started: {error.strerror}") from None


def _first_error(text: str) -> str:
    lines = text.strip().splitlines() or ["it gave no reason"]
    return next((line for line in lines if "error" in line), lines[0])


def digest(texts: Iterable[str]) -> str:
    """Return a name for a content."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(f"{len(text)}:{text}".encode(errors="surrogateescape"))
    return sha.hexdigest()[:32]


def cache_folder() -> Path:
    """Return the platform's cache folder."""
    stated = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if sys.platform == "darwin":
        base = _home() / "Library" / "Caches"
    else:  # a relative path is to be ignored, by the XDG specification
        base = stated if stated.is_absolute() else _home() / ".cache"
    return base / "smidgen"


def _home() -> Path:
    """Return the user's home folder; an empty HOME names none, though `Path.home` takes it for the root of all."""
    try:
        found = Path.home() if os.environ.get("HOME", "is unset") else Path()
    except RuntimeError:
        found = Path()
    if not found.is_absolute():
        raise TargetError(
            "there is no home folder to keep built programs in; set HOME, or XDG_CACHE_HOME to a writable folder"
        )
    return found


@dataclass(frozen=True)
class Cache:
    """Built files by the content they came from; a file appears whole or not at all.

    Each lies in a folder named by what it was made from, and is named by its own bytes: one that was cut short or
    damaged does not match its name, and is built again.
    """

    folder: Path
    compiler: Compiler

    def build(self, suffix: str, sources: dict[str, str], *arguments: str | Path) -> Path:
        """Return the output of the compiler for these sources and arguments, built unless it is there.

        `sources` are written to a temporary folder, where the compiler runs.
        """
        key = digest((self.compiler.fingerprint, *map(str, arguments), *(t for item in sources.items() for t in item)))
        home = self.folder / key
        try:
            return _whole(home) or self._built(home, suffix, sources, arguments)
        except OSError as error:
            raise TargetError(f"the cache {self.folder} cannot be written: {error.strerror}") from None

    def _built(self, home: Path, suffix: str, sources: dict[str, str], arguments: tuple[str | Path, ...]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        _sweep(self.folder)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="build-") as name:
            work = Path(name)
            for file, text in sources.items():
                (work / file).parent.mkdir(exist_ok=True)
                (work / file).write_text(text, "utf-8")
            self.compiler("-o", f"built{suffix}", *arguments, folder=work)
            built = work / f"built{suffix}"
            kept = home / f"{_contents(built)}{suffix}"
            home.mkdir(exist_ok=True)
            os.replace(built, kept)  # nothing is removed: another process may have just put its own there
        return kept


def _contents(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _whole(home: Path) -> Path | None:
    """Return the file in a folder of the cache, unless none has the bytes it is named by."""
    return next((file for file in home.glob("*") if _contents(file) == file.stem), None)


def _sweep(folder: Path) -> None:
    """Remove what builds left that were killed."""
    for work in folder.glob("build-*"):
        with suppress(OSError):  # another process may remove it, too
            if work.stat().st_mtime < time.time() - ABANDONED:
                shutil.rmtree(work, ignore_errors=True)
