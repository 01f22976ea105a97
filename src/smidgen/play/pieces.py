"""Two builds of a program as one and a difference: their constants, which are most of them, are the same bytes."""

from __future__ import annotations

BLOCK = 256  # bytes; runs that are shorter are not looked for

Pieces = list[tuple[int, int]]


def pieces_of(whole: bytes, other: bytes) -> tuple[Pieces, bytes]:
    """Return pieces whose bytes are those of `other`: where each begins in `whole` and its bytes; and the rest.

    A piece that begins at −1 is the next of the rest.
    """
    places = {whole[at : at + BLOCK]: at for at in range(0, len(whole) - BLOCK + 1, BLOCK)}
    pieces: Pieces = []
    rest, at, own = bytearray(), 0, 0  # `own`: where what only `other` has begins
    while at + BLOCK <= len(other):
        found = places.get(other[at : at + BLOCK])
        if found is None:
            at += 1
            continue
        back = 0
        while back < min(at - own, found) and other[at - back - 1] == whole[found - back - 1]:
            back += 1
        begin, start = at - back, found - back
        size = back + BLOCK
        while begin + size < len(other) and start + size < len(whole) and other[begin + size] == whole[start + size]:
            size += 1
        _add(pieces, rest, other[own:begin])
        pieces.append((start, size))
        at = own = begin + size
    _add(pieces, rest, other[own:])
    return pieces, bytes(rest)


def _add(pieces: Pieces, rest: bytearray, own: bytes) -> None:
    if own:
        pieces.append((-1, len(own)))
        rest += own
