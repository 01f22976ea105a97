"""Notes on data that was read: files left out, classes without samples, samples to test with that were learned from."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from smidgen.data.files import Tree
from smidgen.data.layouts import Listing
from smidgen.data.samples import Data
from smidgen.ir import Array

NAMED = 3  # of many, by name


def notes_on(data: Data) -> tuple[str, ...]:
    """Return what its user should know of some data: classes that one part lacks, samples that are in both."""
    notes = []
    for part, samples in (("to learn from", data.train), ("to test with", data.test)):
        if data.label_kind == "classes" and (lacking := set(range(len(data.classes))) - set(samples.labels)):
            names = [data.classes[label] for label in sorted(lacking)]
            count = "1 class has" if len(names) == 1 else f"{len(names):,} classes have"
            notes.append(f"{data.name}: {count} no samples {part} {_named(names)}")
    learned = {_digest(sample) for sample in data.train.images}
    if again := [place for place, sample in enumerate(data.test.images) if _digest(sample) in learned]:
        notes.append(
            f"{data.name}: {len(again):,} of {len(data.test):,} test samples are training samples, too; accuracy on "
            "them says nothing of new ones"
        )
    return tuple(notes)


def _digest(sample: Array) -> bytes:
    """Return a fingerprint of a sample, 16 bytes."""
    head = f"{sample.dtype.str}{sample.shape}".encode()
    return hashlib.blake2b(sample.tobytes(), digest_size=16, key=head[:64]).digest()


def left_out(tree: Tree, listed: Listing, what: str) -> tuple[str, ...]:
    """Return which files and class folders of a tree are not among those listed, the samples of a kind by label."""
    used = {file.name for file, _ in (*listed.train, *listed.test)}
    by_suffix, notes = defaultdict[str, list[str]](list), []
    for name in sorted(_shown(tree.files) - used):
        by_suffix[PurePosixPath(name).suffix.lower() or "without an ending"].append(name)
    if by_suffix:
        kinds = ", ".join(f"{len(names):,} {suffix} {_named(names)}" for suffix, names in by_suffix.items())
        notes.append(f"{tree.where}: only {what} in the folders of classes are read; left out: {kinds}")
    holding = {str(PurePosixPath(name).parent) for name in used}
    beside = {str(PurePosixPath(folder).parent) for folder in holding}
    if empty := [one for one in sorted(_shown(tree.folders) - holding) if str(PurePosixPath(one).parent) in beside]:
        notes.append(f"{tree.where}: a folder without {what} is no class; left out: {len(empty):,} {_named(empty)}")
    return tuple(notes)


def _shown(names: Iterable[str]) -> set[str]:
    return {name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))}


def _named(names: Sequence[str]) -> str:
    """Return the first few names in brackets."""
    return f"({', '.join(repr(name[:60]) for name in names[:NAMED])}{', …' if len(names) > NAMED else ''})"
