"""The host's C compiler, and a cache of what it built: by content, shared safely between processes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from smidgen.errors import TargetError

FLAGS = ("-std=c99", "-O3", "-ffp-contract=off", "-fPIC", "-Wall", "-Wextra", "-Werror")
NATIVE = "-march=native"


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C, the flags it takes, and a fingerprint of both and of the processor."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    fingerprint: str

    def __call__(self, *arguments: str | Path, folder: Path) -> None:
        result = _execute((*self.command, *self.flags, *map(str, arguments)), folder)
        if result.returncode:
            raise TargetError(f"{' '.join(self.command)} could not build the program: {_first_error(result.stderr)}")


def find_compiler() -> Compiler:
    """The machine's `cc`, or the one in the ziglang wheel where there is none."""
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
        (folder / "empty.c").write_text("")
        version = _version(command, folder)
        # The predefined macros name the processor's features: objects are not for other processors.
        native = _execute((*command, NATIVE, "-dM", "-E", "empty.c"), folder)
    flags = (*FLAGS, NATIVE) if native.returncode == 0 else FLAGS
    return Compiler(command, flags, digest((*command, *flags, version, native.stdout)))


@cache
def cross(command: tuple[str, ...], flags: tuple[str, ...]) -> Compiler:
    """A compiler for another processor, which the flags name."""
    return Compiler(command, flags, digest((*command, *flags, _version(command, Path.cwd()))))


def _version(command: tuple[str, ...], folder: Path) -> str:
    result = _execute((*command, "--version"), folder)
    if result.returncode:
        raise TargetError(f"{' '.join(command)} does not work: {_first_error(result.stderr)}")
    return result.stdout


def _execute(command: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise TargetError(f"{command[0]} cannot be started: {error.strerror}") from None


def _first_error(text: str) -> str:
    lines = text.strip().splitlines() or ["it gave no reason"]
    return next((line for line in lines if "error" in line), lines[0])


def digest(texts: Iterable[str]) -> str:
    """A name for a content."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(f"{len(text)}:{text}".encode())
    return sha.hexdigest()[:32]


def cache_folder() -> Path:
    """Where the user's platform keeps what can be made again."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "smidgen"


@dataclass(frozen=True)
class Cache:
    """Built files by the content they came from; a file appears whole or not at all."""

    folder: Path
    compiler: Compiler

    def build(self, suffix: str, sources: dict[str, str], *arguments: str | Path) -> Path:
        """The output of the compiler for these sources and arguments, built unless it is there.

        `sources` are written to a temporary folder, where the compiler runs.
        """
        key = digest((self.compiler.fingerprint, *map(str, arguments), *(t for item in sources.items() for t in item)))
        built = self.folder / f"{key}{suffix}"
        if built.exists():
            return built
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="build-") as name:
                work = Path(name)
                for file, text in sources.items():
                    (work / file).write_text(text)
                self.compiler("-o", f"built{suffix}", *arguments, folder=work)
                os.replace(work / f"built{suffix}", built)
        except OSError as error:
            raise TargetError(f"the cache {self.folder} cannot be written: {error.strerror}") from None
        return built
