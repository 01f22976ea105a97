"""What an instruction does to the stack and where it leads, as far as a bound of the stack needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["push", "unknown push", "branch", "pointer"]


@dataclass(frozen=True)
class Effect:
    """Bytes put on the stack, or the address that is called or jumped to, or neither where it is unknown."""

    kind: Kind
    value: int = 0


def halfword(text: bytes, at: int) -> int:
    """Of machine code."""
    return int.from_bytes(text[at : at + 2], "little")


def signed(value: int, bits: int) -> int:
    """A field of so many bits as a signed number."""
    return value - (1 << bits) if value >> bits - 1 else value
