"""A program as a project: its link to a host, its store in flash, and a folder that is written whole."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from smidgen.codegen.entries import replay_usage, ring_header
from smidgen.codegen.runtime import RUNTIME, render
from smidgen.codegen.sources import Sources, audio_usage, interface
from smidgen.codegen.spelling import fingerprint_words
from smidgen.data.files import made_folder
from smidgen.errors import InputError
from smidgen.ir import Graph

LINK = RUNTIME / "link"


def serves(graph: Graph) -> bool:
    """Return whether a program can be used over a link: by one image at a time."""
    return len(graph.prediction_inputs) == 1


def link_files() -> dict[str, str]:
    """Return the frames in C, the same for every program, by name."""
    return {path.name: path.read_text("utf-8") for path in sorted(LINK.iterdir()) if path.suffix in (".c", ".h")}


def link_header(graph: Graph, sources: Sources) -> dict[str, str]:
    """Return the program's own header, by its name; nothing for a program that takes more than an image."""
    if not serves(graph):
        return {}
    fields = {
        **interface(graph, sources), "name": re.sub(r"[^\w.-]", "_", graph.name), "image_bytes": graph.image.type.bytes,
        "fingerprint": fingerprint_words(graph), "variables": len(graph.variables),
        "output_bytes": ", ".join(str(v.type.bytes) for v in graph.outputs),
    }  # fmt: skip
    return {f"{sources.prefix}_link.h": render("link.h", **fields)}


STORE = RUNTIME / "store"
SECTOR_BYTES = 4096  # of the flash of an emulated board, which takes words
HEAD, SAVE = 64, 96  # bytes, no less than the store takes at the head of a sector, and of a save beside the state
SPARE = 2  # sectors beyond those of two states: that many may wear out


def store_files() -> dict[str, str]:
    """Return the store in C and drivers for chips, by path in a project; the same for every program.

    A linker drops the store where nobody calls it. No project compiles a driver by itself: its user chooses one.
    """
    store = {f"smidgen/{path.name}": path for path in sorted(STORE.glob("*.[ch]"))}
    drivers = {f"flash/{path.name}": path for path in sorted((STORE / "flash").glob("*.c"))}
    return {name: path.read_text("utf-8") for name, path in {**store, **drivers}.items()}


def kept_sectors(state_bytes: int) -> int:
    """Return the sectors of an emulated board's flash in which a state is kept: room for two, and some to wear out."""
    return 2 * -(-(state_bytes + SAVE) // (SECTOR_BYTES - HEAD)) + SPARE


def kept_fields(sources: Sources) -> dict[str, object]:
    """Return where a board's flash keeps the program's state, as template fields; empty where nothing is learned."""
    if not sources.learns:
        return {"kept_bytes": 0, "kept_words": "", "kept_usage": ""}
    count = kept_sectors(sources.state_bytes)
    ring = sources.replay_bytes // SECTOR_BYTES
    size = (count + ring) * SECTOR_BYTES
    fields = {
        "sector_bytes": SECTOR_BYTES, "kept_sectors": count, "ring_sectors": ring, "flash_sectors": count + ring,
        "kept_text": f"{size // 1024} KB",
    }  # fmt: skip
    words = "; `keep.h` and `flash.c` are where what was learned is kept"
    usage = render("board/kept_usage.md", **fields)
    return {**fields, "kept_bytes": size, "kept_words": words, "kept_usage": usage}


LISTING = ".smidgen"  # the file that names all others of a project: by it a folder of ours is known
HEADING = "These files were written by Smidgen; a folder that holds anything else is not replaced.\n"
BUILT = ("example", "firmware.elf", "build")  # what make and CMake leave beside them

Content = TypeVar("Content", bound=str | bytes)


def listed(files: Mapping[str, Content]) -> dict[str, Content | str]:
    """Return the same files, and one that names them."""
    return {**files, LISTING: HEADING + "".join(f"{name}\n" for name in sorted(files) if name != LISTING)}


def project_fields(graph: Graph, sources: Sources, arena_bytes: int) -> dict[str, object]:
    """Return the facts about a program that a project's files state, as fields of templates."""
    fields: dict[str, object] = {
        "name": graph.name,
        "arena_bytes": f"{arena_bytes:,}", "constant_bytes": f"{sources.constant_bytes:,}",
        "state_bytes": f"{sources.state_bytes:,}", "replay_bytes": sources.replay_bytes,
        **interface(graph, sources),
    }  # fmt: skip
    usage = render("train_usage.md" if sources.learns else "usage.md", **fields).rstrip()
    usage += "\n\n" + render("store_usage.md", **fields).rstrip() if sources.learns else ""
    usage += replay_usage(graph, sources.prefix) if sources.replay_bytes else ""
    return {**fields, "usage": usage + audio_usage(graph, sources).rstrip()}


def project_files(graph: Graph, sources: Sources, board: Mapping[str, str]) -> dict[str, str]:
    """Return a project that builds with `make` or CMake, by path: model, kernels, and the files of its board."""
    link = link_header(graph, sources)
    own = {**sources.files, **link, **ring_header(graph, sources.latent, sources.prefix)}
    kernels = {path.name: path.read_text("utf-8") for path in sources.runtime} | (link_files() if link else {})
    kernels["CMakeLists.txt"] = render("kernels.cmake")
    return listed(
        {
            **{f"model/{name}": text for name, text in own.items()},
            **{f"smidgen/{name}": text for name, text in kernels.items()},
            **(store_files() if sources.learns else {}),
            **board,
        }
    )


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
    known = {LISTING, *(folder / LISTING).read_text("utf-8", errors="replace").splitlines()[1:]}
    found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    names = (path.relative_to(folder) for path in found)
    if strangers := sorted(str(name) for name in names if name.parts[0] not in BUILT and str(name) not in known):
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        raise InputError(
            f"{folder} holds {strangers[0]}{more}, not written by Smidgen, and --force deletes nothing else; move it "
            "away, or name another folder"
        )


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
