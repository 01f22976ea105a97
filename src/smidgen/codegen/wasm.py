"""A program's exports as a WebAssembly module, and the facts about it that the module tells in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from smidgen.codegen.entries import AudioFrontEnd, audio_front_end, label_facts, says_yes
from smidgen.codegen.one_pass import one_pass_facts
from smidgen.codegen.runtime import render
from smidgen.codegen.sources import Sources, interface
from smidgen.codegen.spelling import C_TYPES, literal, text_literal
from smidgen.data.pixels import PixelEncoding, pixel_encoding, pixel_table
from smidgen.data.samples import DataError
from smidgen.ir import Graph, Type, Value
from smidgen.ir.text import fingerprint
from smidgen.memory import state_offsets
from smidgen.ops.endings import ending_of

VERSION = 1  # of the exports
EXPORTS = "wasm.c"
AUDIO_CHUNK = 4096  # samples that are handed over at once
HEAD_BYTES = 16  # of what was learned as `model_save` writes it, before the state
WIDTH = 100  # characters to a line of JSON in C


def wasm_exports(graph: Graph, sources: Sources) -> dict[str, str]:
    """Return the C file of a module's exports, by its name."""
    text = json.dumps(module_facts(graph, sources), ensure_ascii=False, separators=(",", ":"))
    scores, index = graph.scores.type, graph.outputs.index(graph.scores)
    audio = audio_front_end(graph, sources.prefix)
    facts = {
        **interface(graph, sources), "name": re.sub(r"[^\w.-]", "_", graph.name),
        "about": [text_literal(text[i : i + WIDTH]) for i in range(0, len(text), WIDTH)],
        "image_bytes": graph.image.type.bytes, "scores": _score_fields(scores, index),
        "pixels": _pixel_fields(graph), "audio": audio and _audio_fields(audio), "state_bytes": sources.state_bytes,
        "variables": len(graph.variables), "latent": sources.latent,
    }  # fmt: skip
    return {EXPORTS: render("wasm/wasm.c", **facts)}


def module_facts(graph: Graph, sources: Sources) -> dict[str, object]:
    """Return what a module says of itself: sizes, types and places of all that its exports hand over."""
    label, index = label_facts(graph, sources.prefix), graph.outputs.index(graph.scores)
    inputs = [v for v in graph.inputs if graph.roles is None or v in (graph.image, graph.roles.label)]
    placed = graph.roles is not None and label["kind"] in ("vectors", "maps") and graph.roles.label is not None
    audio = audio_front_end(graph, sources.prefix)
    return {
        "version": VERSION, "name": graph.name, "fingerprint": fingerprint(graph)[:16], "classes": list(graph.classes),
        "inputs": [_tensor(v.type) | {"index": graph.inputs.index(v)} for v in inputs],
        "outputs": [_tensor(v.type) for v in graph.outputs],
        "scores": {"output": index, "ending": ending_of(graph), "yes_or_no": says_yes(graph)},
        "pixels": _pixels_of(graph), "audio": _audio_of(audio), "learns": sources.learns,
        "label": {
            "kind": label["kind"], "input": graph.inputs.index(_label(graph)) if placed else None,
            "classes": label.get("classes", 0),
        },
        "state": {"bytes": sources.state_bytes, "tensors": _state(graph)},
        "saved_bytes": HEAD_BYTES + sources.state_bytes if sources.learns else 0,
        "latent": list(sources.latent), "one_pass": _sums(graph),
    }  # fmt: skip


def _label(graph: Graph) -> Value:
    assert graph.roles is not None
    assert graph.roles.label is not None
    return graph.roles.label


def _tensor(type_: Type) -> dict[str, object]:
    facts: dict[str, object] = {"shape": list(type_.shape), "dtype": type_.dtype, "bytes": type_.bytes}
    quantized = type_.q is not None and type_.q.axis is None
    return facts | ({"scale": type_.scale, "zero": type_.zero} if quantized else {})


def _state(graph: Graph) -> list[dict[str, object]]:
    """Return the tensors of the state: names, types, offsets in its block, and which of them learn."""
    learned = set(graph.updates) if graph.roles else set()
    places = state_offsets(graph).items() if graph.state else ()
    return [_tensor(v.type) | {"name": v.name, "offset": at, "learns": v in learned} for v, at in places]


def _sums(graph: Graph) -> dict[str, object] | None:
    if graph.one_pass is None:
        return None
    facts = one_pass_facts(graph)
    return {"classes": facts["classes"], "features": facts["features"], "bytes": facts["sums_bytes"]}


def _score_fields(type_: Type, index: int) -> dict[str, object]:
    """Return how the output of scores becomes float32: as `numerics.dequantize` does it, by one product in double."""
    number = "(float)from[i]"
    if type_.dtype == "int8" and type_.q is not None:
        number = f"(float)({literal(float(type_.scale), 'float64')} * (from[i] - ({type_.zero})))"
    return {"output": index, "count": type_.size, "type": C_TYPES[type_.dtype], "number": number}


def _pixels_of(graph: Graph) -> dict[str, int] | None:
    """Return the size of the images that a program takes, None where no pixels become its input."""
    encoding, shape = pixel_encoding(graph), graph.image.type.shape
    if encoding.audio is not None or len(shape) != 4 or shape[-1] not in (1, 3):
        return None
    try:
        pixel_table(encoding)
    except DataError:
        return None
    return {"height": shape[1], "width": shape[2], "channels": shape[3]}


def _pixel_fields(graph: Graph) -> dict[str, object] | None:
    """Return the tables by which colours become the input, a list for each of its channels."""
    if _pixels_of(graph) is None:
        return None
    encoding, type_ = pixel_encoding(graph), graph.image.type
    channels = type_.shape[-1]
    rows = [", ".join(literal(number, type_.dtype) for number in row) for row in pixel_table(encoding).T.tolist()]
    return {
        "count": type_.size, "channels": channels, "type": C_TYPES[type_.dtype], "rows": rows,
        "source": f"{channels - 1} - c" if _reversed(encoding) else "c",
    }  # fmt: skip


def _reversed(encoding: PixelEncoding) -> bool:
    return encoding.preprocessing is not None and encoding.preprocessing.order == "bgr"


def _audio_of(audio: AudioFrontEnd | None) -> dict[str, int] | None:
    if audio is None:
        return None
    return {"rate": audio.spec.rate, "samples": audio.spec.samples(audio.type.shape), "chunk": AUDIO_CHUNK}


def _audio_fields(audio: AudioFrontEnd) -> Mapping[str, int]:
    rows, row = audio.spec.rows(audio.type.shape)
    return {"chunk": AUDIO_CHUNK, "rows": rows, "row": row}
