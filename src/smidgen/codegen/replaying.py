"""Latent replay in C: what a program's header says of its latent."""

from __future__ import annotations

from smidgen.ir import Graph
from smidgen.ir.fingerprint import fingerprint
from smidgen.memory.cutting import front
from smidgen.memory.rows import Cut


def latent_fields(graph: Graph, cut: Cut) -> dict[str, object]:
    """The latent, as fields of templates."""
    digits = fingerprint(front(graph, cut))
    return {
        "latents": len(cut.latent), "sizes": ", ".join(str(v.type.bytes) for v in cut.latent), "bytes": cut.bytes,
        "front_fingerprint": f"0x{digits[:8]}u, 0x{digits[8:16]}u",
    }  # fmt: skip
