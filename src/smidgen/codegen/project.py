"""A project's files on the disk: a folder that appears whole, and that takes the place of no stranger's."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from smidgen.data.files import made_folder
from smidgen.errors import InputError

LISTING = ".smidgen"  # the file that names all others of a project: by it a folder of ours is known
HEADING = "These files were written by Smidgen; a folder that holds anything else is not replaced.\n"
BUILT = ("example", "firmware.elf", "build")  # what make and CMake leave beside them

Content = TypeVar("Content", bound=str | bytes)


def listed(files: Mapping[str, Content]) -> dict[str, Content | str]:
    """The same files, and one that names them."""
    return {**files, LISTING: HEADING + "".join(f"{name}\n" for name in sorted(files))}


def write_project(files: Mapping[str, str | bytes], folder: Path, force: bool = False) -> None:
    """Write files by path into a new or empty folder, whole or not at all.

    With `force` a project that was written there before is replaced, and nothing else is.
    """
    try:
        check_project(folder, force)
        with made_folder(folder.parent):
            _write(files, folder, force)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None


def check_project(folder: Path, force: bool = False) -> None:
    """Raise InputError unless a project may be written there: it is new or empty, or is one to be replaced."""
    if not folder.is_symlink() and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
        return
    if not force:
        raise InputError(
            f"{folder} exists already and is not an empty folder; give --force to replace a project, or name another"
        )
    if folder.is_symlink() or not (folder / LISTING).is_file():
        raise InputError(
            f"{folder} is not a project that Smidgen wrote, and --force replaces only those; move it away, or name "
            "another"
        )
    if strangers := sorted(_strangers(folder)):
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        raise InputError(
            f"{folder} holds {strangers[0]}{more} besides what Smidgen wrote, and --force deletes nothing else; move "
            "it away, or name another folder"
        )


def _strangers(folder: Path) -> Iterator[str]:
    """What lies in a project's folder besides the files it lists and what building them leaves."""
    known = {LISTING, *(folder / LISTING).read_text(errors="replace").splitlines()[1:]}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if name.parts[0] not in BUILT and str(name) not in known and not (path.is_dir() and not path.is_symlink()):
            yield str(name)


def _write(files: Mapping[str, str | bytes], folder: Path, force: bool) -> None:
    """Write under a temporary name beside the folder, then rename; an old folder comes back where that fails."""
    work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    old = work.with_name(f"{work.name}-old")
    try:
        for name, content in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(content.encode() if isinstance(content, str) else content)
        work.chmod(0o755)
        if force and folder.exists():
            os.replace(folder, old)
        os.replace(work, folder)
    except BaseException:
        if old.exists() and not folder.exists():
            os.replace(old, folder)
        shutil.rmtree(work, ignore_errors=True)
        raise
    finally:
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
