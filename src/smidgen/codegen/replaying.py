"""Latent replay in C: what a program's headers say of its latent, and how many of them flash keeps."""

from __future__ import annotations

import re

from smidgen.codegen.runtime import render
from smidgen.codegen.spelling import fingerprint_words
from smidgen.codegen.teaching import ARGUMENTS, PARAMETERS
from smidgen.ir import Graph
from smidgen.ir.graph import roles_of
from smidgen.memory.cutting import front
from smidgen.memory.rows import Cut

HEAD, SLOTS, WIDEST = 48, 256, 8  # of smidgen_replay.h: bytes of a head, slots at most, sectors tried to a group


def latent_fields(graph: Graph, cut: Cut) -> dict[str, object]:
    """The latent, as fields of templates."""
    return {
        "latents": len(cut.latent), "sizes": ", ".join(str(v.type.bytes) for v in cut.latent), "bytes": cut.bytes,
        "front_fingerprint": fingerprint_words(front(graph, cut)),
    }  # fmt: skip


def ring_header(graph: Graph, latent: tuple[int, ...], prefix: str) -> dict[str, str]:
    """The header by which a program learns from a ring, by its name; nothing for one whose latent has no parts."""
    if not latent:
        return {}
    roles = roles_of(graph)
    argument = ARGUMENTS[roles.label_kind].removesuffix(", ")
    fields: dict[str, object] = {
        "name": re.sub(r"[^\w.-]", "_", graph.name), "prefix": prefix, "PREFIX": prefix.upper(),
        "parameter": PARAMETERS[roles.label_kind], "argument": ARGUMENTS[roles.label_kind],
        "kept_bytes": kept_bytes(graph, sum(latent)),
        "keep_parameter": f", {PARAMETERS[roles.label_kind]}".removesuffix(", "),
        "keep_argument": f", {argument}" if argument else "",
    }  # fmt: skip
    return {f"{prefix}_replay.h": render("ring.h", **fields, **_told(graph, prefix))}


def replay_usage(graph: Graph, prefix: str) -> str:
    """How a program learns from what it kept, as its README says it."""
    argument = ARGUMENTS[roles_of(graph).label_kind]
    fields = {"prefix": prefix, "PREFIX": prefix.upper(), "argument": argument}
    return "\n\n" + render("replay_usage.md", **fields).rstrip()


def kept_bytes(graph: Graph, latent_bytes: int) -> int:
    """Bytes of an example: its latent, and what a step is told where that is no class."""
    label = roles_of(graph).label
    return latent_bytes + (label.type.bytes if label and label.type.dtype != "int32" else 0)


def _told(graph: Graph, prefix: str) -> dict[str, object]:
    """How what a step is told goes into a ring and comes back: a class as the example's label, else as bytes."""
    roles = roles_of(graph)
    if roles.label_kind == "classes":
        labels = f"{roles.logits.type.shape[-1]}u"
        return {
            "keep_label": "(uint32_t)label", "keep_told": "", "recall_told": "", "recalled": "(int)label, ",
            "labels": labels,
        }  # fmt: skip
    plain: dict[str, object] = {"keep_label": "0", "labels": "1u", "keep_told": "", "recall_told": "", "recalled": ""}
    if roles.label is None:
        return plain
    place, size = f"{prefix}_input({graph.inputs.index(roles.label)})", roles.label.type.bytes
    given = ARGUMENTS[roles.label_kind].removesuffix(", ")
    kind = {"float32": "float", "uint8": "unsigned char"}[roles.label.type.dtype]
    return plain | {
        "keep_told": f"    if (!failed) failed = smg_replay_write(ring, {given}, {size});\n",
        "recall_told": f"    if (!failed) failed = smg_replay_read(ring, {place}, {size});\n",
        "recalled": f"(const {kind} *){place}, ",
    }


def kept_examples(flash_bytes: int, latent_bytes: int, sector: int = 4096, unit: int = 256) -> int:
    """How many examples a ring keeps in flash of such sectors and units, as `smg_replay_room` counts them.

    Unless told otherwise of sectors of 4 KB that are programmed by 256 bytes, as beside an RP2040: the most wasteful.
    """
    sectors, slot = flash_bytes // sector, _slot(latent_bytes, unit)
    least = -(-slot // sector)
    return max((_kept(wide, sectors, slot, sector) for wide in range(least, least + WIDEST)), default=0)


def least_flash(latent_bytes: int, sector: int = 4096, unit: int = 256) -> int:
    """The least flash that keeps an example."""
    return 2 * -(-_slot(latent_bytes, unit) // sector) * sector


def _slot(latent_bytes: int, unit: int) -> int:
    return sum(-(-size // unit) * unit for size in (HEAD, latent_bytes))


def _kept(wide: int, sectors: int, slot: int, sector: int) -> int:
    """The examples that are kept where so many sectors are erased together."""
    groups = min(sectors // wide, SLOTS)
    if groups < 2:
        return 0
    slots = min(wide * sector // slot, SLOTS // groups)
    return (groups - 1) * slots - (slots - 1) * (groups - 1) // 8
