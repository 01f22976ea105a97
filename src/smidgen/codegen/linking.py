"""A program at the end of a byte stream: the header by which its firmware serves a host, and what it includes."""

from __future__ import annotations

import re

from smidgen.codegen.generating import Sources
from smidgen.codegen.runtime import RUNTIME, render
from smidgen.codegen.spelling import fingerprint_words
from smidgen.ir import Graph

LINK = RUNTIME / "link"
KINDS = {"float32": "float", "uint8": "unsigned char"}  # of what a step is told, as C calls it


def serves(graph: Graph) -> bool:
    """Whether a host can serve itself of a program over a link: by one image at a time."""
    return len(graph.prediction_inputs) == 1


def link_files() -> dict[str, str]:
    """The frames in C, the same for every program, by name."""
    return {path.name: path.read_text() for path in sorted(LINK.iterdir()) if path.suffix in (".c", ".h")}


def link_header(graph: Graph, sources: Sources) -> dict[str, str]:
    """The program's own header, by its name; nothing for a program that takes more than an image."""
    if not serves(graph):
        return {}
    image, prefix = graph.image.type, sources.prefix
    fields: dict[str, object] = {
        "name": re.sub(r"[^\w.-]", "_", graph.name), "prefix": prefix, "PREFIX": prefix.upper(),
        "learns": int(sources.learns), "replays": int(bool(sources.latent)),
        "streamed": int(sources.streamed_input), "image_bytes": image.bytes,
        "row_bytes": image.bytes // image.shape[1] if sources.streamed_input else 0,
        "fingerprint": fingerprint_words(graph),
        "output_bytes": ", ".join(str(v.type.bytes) for v in graph.outputs),
        "begin_stream": f"{prefix}_reset();" if graph.variables else "/* each image stands for itself */",
        **_told(graph, prefix),
    }  # fmt: skip
    fields["kept"] = f", {handed}" if (handed := str(fields["handed"]).removesuffix(", ")) else ""
    fields["again"] = render("link_replay.h", **fields) if sources.latent else ""
    return {f"{prefix}_link.h": render("link.h", **fields)}


def _told(graph: Graph, prefix: str) -> dict[str, object]:
    """Where a step's label lies, how it is handed over, and when it is wrong."""
    label = graph.roles.label if graph.roles else None
    if label is None or graph.roles is None:
        return {"label_bytes": 0, "label_place": f"&{prefix}_linked.label", "handed": "", "label_wrong": "0"}
    if label.type.dtype == "int32":
        place, count = f"{prefix}_linked.label", graph.roles.logits.type.shape[-1]
        return {
            "label_bytes": 4, "label_place": f"&{place}", "handed": f"{place}, ",
            "label_wrong": f"{place} < 0 || {place} >= {count}",
        }  # fmt: skip
    place = f"{prefix}_input({graph.inputs.index(label)})"
    return {
        "label_bytes": label.type.bytes, "label_place": place, "label_wrong": "0",
        "handed": f"(const {KINDS[label.type.dtype]} *){place}, ",
    }  # fmt: skip
