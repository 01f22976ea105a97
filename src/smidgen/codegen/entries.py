"""Functions of a program beyond run and predict: steps on labels and on kept examples, and a front end for audio."""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from smidgen.codegen.runtime import render
from smidgen.codegen.spelling import wrapped
from smidgen.ir import Array, Graph, LabelKind, Roles, Type
from smidgen.ir.graph import roles_of
from smidgen.ir.log_mel import LogMel
from smidgen.numerics.log_mel import LogMelTables, log_mel_tables, scaling
from smidgen.ops.losses import loss_of

PARAMETERS: Mapping[LabelKind, str] = {
    "classes": "int label, ", "vectors": "const float *target, ", "maps": "const unsigned char *labels, ",
    "nothing": "",
}  # fmt: skip
ARGUMENTS: Mapping[LabelKind, str] = {"classes": "label, ", "vectors": "target, ", "maps": "labels, ", "nothing": ""}
LABEL_TYPES = {"float32": "float", "uint8": "unsigned char"}
LARGEST = "Run, and give the index of the largest score: of output 0, or of the logits of a program that learns."


def step_comment(roles: Roles) -> str:
    """Return the header's comment on a step."""
    skipped = f" A step whose loss is below {roles.skip_below:.6g} ends there, and changes nothing."
    text = f"One step on the image in input 0; gives the loss before it. {_label_sentence(roles)}"
    return _comment(text + skipped * bool(roles.skip_below))


def predicts(graph: Graph) -> str:
    """Return the header's comment on a prediction."""
    if says_yes(graph):
        return _comment("Run, and give 1 where the logit is above 0, else 0.")
    holds = loss_of(graph).output.format(classes=graph.scores.type.shape[-1])
    return _comment(f"{LARGEST} Output {graph.outputs.index(graph.scores)} holds {holds}." if holds else LARGEST)


def label_facts(graph: Graph, prefix: str) -> dict[str, object]:
    """Return the facts about a program's labels: vectors and maps have a place in its inputs, classes have none."""
    roles = graph.roles
    if roles is None:
        return {"kind": "", "bytes": 0, "place": "", "handed": "", "served": "", "parameter": "", "argument": ""}
    kind, label, place = roles.label_kind, roles.label, ""
    if label and kind != "classes":
        place = f"{prefix}_input({graph.inputs.index(label)})"
    return {
        "kind": kind, "bytes": label.type.bytes if label else 0, "size": label.type.size if label else 0,
        "place": place, "handed": f"(const {LABEL_TYPES[label.type.dtype]} *){place}, " if label and place else "",
        "served": "label, " if kind == "classes" else f"{place}, " if place else "",
        "parameter": PARAMETERS[kind], "argument": ARGUMENTS[kind], "note": _label_sentence(roles),
        "classes": roles.logits.type.shape[-1], "scores": graph.outputs.index(roles.logits),
    }  # fmt: skip


def says_yes(graph: Graph) -> bool:
    """Return whether a program has one output, which means yes or no."""
    return loss_of(graph).sigmoid and graph.scores.type.size == 1


def _label_sentence(roles: Roles) -> str:
    """Return a sentence on the label that is handed over with the image."""
    if roles.label is None:
        return "What the network should give is the image itself."
    shape = roles.label.type.shape
    if roles.label_kind == "vectors":
        return f"`target` holds {shape[1]} numbers, one for each output."
    if roles.label_kind == "maps":
        classes = roles.logits.type.shape[-1]
        return (
            f"`labels` holds the class of each of {shape[1]} x {shape[2]} cells, row by row; a number from {classes} "
            "up is for a cell that teaches nothing."
        )
    return "Labels count from 0."


def _comment(text: str) -> str:
    return "\n * ".join(textwrap.wrap(f"/* {text} */", 117))


SYMBOLS = ("smg_hear",)
PLACES = 20  # bytes of smg_heard on a chip, whose addresses take four


@dataclass(frozen=True)
class AudioFrontEnd:
    """The front end of a program, by the input that it fills."""

    spec: LogMel
    type: Type
    prefix: str

    @property
    def tables(self) -> dict[str, Array]:
        """Return its tables in flash, by their names in C."""
        tables = log_mel_tables(self.spec)
        arrays = ((f.name, getattr(tables, f.name)) for f in fields(LogMelTables))
        return {f"{self.prefix}_audio_{name}": a for name, a in arrays if isinstance(a, np.ndarray) and a.size}

    @property
    def bytes(self) -> int:
        """SRAM that it takes: samples of a window, features of all frames, a transform, and where these lie."""
        return 2 * self.spec.window + self.type.size + 4 * self.spec.size + PLACES

    def fields(self, streamed: bool) -> dict[str, object]:
        """Return the fields of its templates."""
        spec, shape, prefix = self.spec, self.type.shape, self.prefix
        rows, row = spec.rows(shape)
        copies = f"for (int i = 0; i < {rows}; i++) {prefix}_audio_row(0, (int8_t *){prefix}_input(0) + i * {row}, i);"
        show = f"{prefix}_source({prefix}_audio_row, 0);" if streamed else copies
        return {
            "rate": spec.rate, "frames": spec.frames(shape), "samples": spec.samples(shape), "bytes": self.bytes,
            "params": "\n    ".join(wrapped("", self._params())[1:]), "window": spec.window,
            "size": self.type.size, "scratch": spec.size, "show": show,
        }  # fmt: skip

    def _params(self) -> list[str]:
        spec, tables, by = self.spec, log_mel_tables(self.spec), scaling(self.spec, self.type)
        numbers = {
            "window": spec.window, "hop": spec.hop, "size": spec.size, "bands": spec.bands,
            "coefficients": spec.coefficients, "bins": int((tables.first + tables.count).max()),
            "frames": spec.frames(self.type.shape), "across": int(spec.across),
            "multiplier": by.multiplier, "shift": by.shift, "zero": by.zero, "offset": f"INT64_C({tables.offset})",
        }  # fmt: skip
        places = {name.removeprefix(f"{self.prefix}_audio_"): name for name in self.tables}
        return [f".{name} = {item}" for name, item in (numbers | places).items()]


def audio_bytes(graph: Graph) -> int:
    """Return the SRAM of a program's audio front end, in addition to arena and state."""
    audio = audio_front_end(graph, "")
    return audio.bytes if audio else 0


def audio_front_end(graph: Graph, prefix: str) -> AudioFrontEnd | None:
    """Return the front end of an audio model; None where the input is not made of audio, or not int8."""
    spec = graph.preprocessing
    if not isinstance(spec, LogMel) or graph.image.type.dtype != "int8" or graph.image.type.q is None:
        return None
    return AudioFrontEnd(spec, graph.image.type, prefix)


HEAD, SLOTS, WIDEST = 48, 256, 8  # of smidgen_replay.h: bytes of a head, slots at most, sectors tried to a group


def ring_header(graph: Graph, latent: tuple[int, ...], prefix: str) -> dict[str, str]:
    """Return the header by which a program learns from a ring, by its name; nothing without a latent."""
    if not latent:
        return {}
    fields: dict[str, object] = {
        "name": re.sub(r"[^\w.-]", "_", graph.name), "prefix": prefix, "PREFIX": prefix.upper(),
        "kept_bytes": kept_bytes(graph, sum(latent)), "label": label_facts(graph, prefix),
    }  # fmt: skip
    return {f"{prefix}_replay.h": render("ring.h", **fields)}


def replay_usage(graph: Graph, prefix: str) -> str:
    """Return how a program learns from what it kept, for its README."""
    fields = {"prefix": prefix, "PREFIX": prefix.upper(), "label": label_facts(graph, prefix)}
    return "\n\n" + render("replay_usage.md", **fields).rstrip()


def kept_bytes(graph: Graph, latent_bytes: int) -> int:
    """Return the bytes of an example: its latent, and its label unless that is a class."""
    label = roles_of(graph).label
    return latent_bytes + (label.type.bytes if label and label.type.dtype != "int32" else 0)


def kept_examples(flash_bytes: int, latent_bytes: int, sector: int = 4096, unit: int = 256) -> int:
    """Return how many examples a ring keeps in flash of these sectors and units, as `smg_replay_room` counts them.

    The default is the most wasteful: sectors of 4 KB, programmed by 256 bytes, as of an RP2040.
    """
    sectors, slot = flash_bytes // sector, _slot(latent_bytes, unit)
    least = -(-slot // sector)
    kept = [0]
    for wide in range(least, least + WIDEST):  # sectors that are erased together
        if (groups := min(sectors // wide, SLOTS)) > 1:
            slots = min(wide * sector // slot, SLOTS // groups)
            kept.append((groups - 1) * slots - (slots - 1) * (groups - 1) // 8)
    return max(kept)


def least_flash(latent_bytes: int, sector: int = 4096, unit: int = 256) -> int:
    """Return the least flash that keeps an example."""
    return 2 * -(-_slot(latent_bytes, unit) // sector) * sector


def _slot(latent_bytes: int, unit: int) -> int:
    return sum(-(-size // unit) * unit for size in (HEAD, latent_bytes))
