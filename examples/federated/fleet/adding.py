"""Sums of many devices, added up by a server that needs to see none of them. Nothing here needs Flower."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array
from smidgen.learning.sums import KeptSums
from smidgen.numerics.one_pass import Sums, triangle

Content = dict[str, Any]  # what a message holds, as Flower carries it
# What is asked, and what of each device; the answers of those that give one.
Ask = Callable[[str, Mapping[int, Content]], dict[int, Content]]


@dataclass(frozen=True, eq=False)
class Part:
    """Sums of a device as one vector modulo 2³², masked or plain, and what they are sums of."""

    vector: Array  # uint32
    of: KeptSums  # with empty sums

    @classmethod
    def plain(cls, kept: KeptSums) -> Part:
        sums = kept.sums
        vector = np.concatenate([part.reshape(-1).view(np.uint32) for part in (sums.n, sums.m, sums.g)])
        return cls(vector, replace(kept, sums=Sums.empty(*sums.m.shape)))

    @classmethod
    def read(cls, content: Content) -> Part:
        """Take a part out of a message; InputError where it is none."""
        try:
            stated, vector = json.loads(str(content["of"])), np.frombuffer(content["vector"], "<u4")
            classes, d = stated["room"]
            if vector.size != classes + 1 + classes * d + triangle(d):
                raise InputError(f"a device sent {vector.size:,} numbers for sums of {classes} classes by {d} features")
            of = KeptSums(Sums.empty(classes, d), stated["features"], tuple(stated["classes"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a device sent no sums: {type(error).__name__}") from None
        return cls(vector, of)

    @property
    def content(self) -> Content:
        """Return the part as a message holds it."""
        stated = {"features": self.of.features, "classes": self.of.classes, "room": self.of.sums.m.shape}
        return {"vector": self.vector.astype("<u4").tobytes(), "of": json.dumps(stated)}

    def __add__(self, other: Part) -> Part:
        """Add modulo 2³²; InputError where they are sums of different networks or classes."""
        of = self.of.merged(other.of)
        return Part(self.vector + other.vector, of)

    @property
    def kept(self) -> KeptSums:
        """Return the sums; InputError where no samples give such numbers, as when a mask is left on them."""
        n, m, _ = (part.size for part in (self.of.sums.n, self.of.sums.m, self.of.sums.g))
        whole = self.vector.view(np.int32)
        sums = Sums(whole[:n].copy(), whole[n : n + m].reshape(self.of.sums.m.shape).copy(), whole[n + m :].copy())
        if not sums.sound:
            raise InputError(
                "no samples give the sums of this fleet: masks do not cancel, or there are over 33,025 samples"
            )
        return replace(self.of, sums=sums)


def total(parts: Iterable[Part]) -> KeptSums:
    """Add parts up, in any order."""
    return reduce(Part.__add__, parts).kept


def gather(ask: Ask, devices: Iterable[int]) -> tuple[KeptSums, dict[int, Content]]:
    """Add up what devices saw, masked in pairs; also return the devices that took part, with their first answers.

    Where one falls out in between, its masks stay on the others' sums: they are asked again, for other masks.
    """
    asked = list(devices)
    while True:
        there = ask("query.keys", {device: {} for device in asked})
        public = [answer["public"] for answer in there.values()]
        parts = ask("train.sums", {device: {"keys": public} for device in there}) if there else {}
        if not parts:
            raise InputError("no device of the fleet gave its sums; their logs say why")
        if len(parts) == len(there):
            return total(map(Part.read, parts.values())), there
        asked = list(parts)


def leave(ask: Ask, whole: KeptSums, device: int) -> KeptSums:
    """Subtract what a device saw that leaves."""
    answers = ask("train.leave", {device: {}})
    if device not in answers:
        raise InputError("the device that leaves did not give its sums; nothing was subtracted")
    return whole.merged(Part.read(answers[device]).kept, -1)
