"""Members of zip archives, unfolded piece by piece within a budget."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

from smidgen.data.budget import Budget

PIECE = 2**20  # bytes unfolded at a time
_STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def named(members: Iterable[zipfile.ZipInfo], where: str, budget: Budget) -> dict[str, zipfile.ZipInfo]:
    """The members by name, of which each may stand there once."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        if member.filename in found:
            raise budget.error(f"{where} holds {member.filename[:80]!a} twice; pack it again")
        found[member.filename] = member
    return found


def unfold(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget) -> bytes:
    """A member's bytes, as many as it declares; the budget must have room for them first."""
    what = f"{member.filename[:80]!a}"
    if member.compress_type not in _STORED_OR_DEFLATED:
        raise budget.error(f"{what} is compressed in a way other than deflate; pack it again")
    budget.take(what, member.file_size)
    whole, left = io.BytesIO(), member.file_size
    with archive.open(member) as file:  # in pieces: read at once, it would unfold before its size is looked at
        while left > 0 and (piece := file.read(min(PIECE, left))):
            whole.write(piece)
            left -= len(piece)
    if left:
        raise budget.error(f"{what} holds {left:,} bytes less than the {member.file_size:,} it declares; pack it again")
    return whole.getvalue()
