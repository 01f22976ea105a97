"""How a program in C is told what a sample should give: a class, a vector, a map of classes, or nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from smidgen.codegen.runtime import render
from smidgen.ir import Graph, LabelKind, Roles, Value
from smidgen.ops.losses import loss_of

PARAMETERS: Mapping[LabelKind, str] = {
    "classes": "int label, ", "vectors": "const float *target, ", "maps": "const unsigned char *labels, ",
    "nothing": "",
}  # fmt: skip
ARGUMENTS: Mapping[LabelKind, str] = {"classes": "label, ", "vectors": "target, ", "maps": "labels, ", "nothing": ""}
LARGEST = "Run, and give the index of the largest score: of output 0, or of the logits of a program that learns."


def train_header(roles: Roles, common: Mapping[str, object]) -> str:
    """What the header says of learning."""
    step = _comment(f"One step on the image in input 0; gives the loss before it. {_told(roles)}{_skipped(roles)}")
    error = render("error.h", **common) if roles.label_kind == "nothing" else ""
    return render("train.h", **common, parameter=PARAMETERS[roles.label_kind], step=step, error_header=error)


def copied(label: Value, place: str) -> str:
    """The label, as a step is handed it, to its place."""
    if label.type.dtype == "int32":
        return f"    *{place} = label;\n"
    given = {"float32": "target", "uint8": "labels"}[label.type.dtype]
    return f"    for (int32_t i = 0; i < {label.type.size}; i++) {place}[i] = {given}[i];\n"


def choice(graph: Graph) -> str:
    """How a prediction is made from the scores."""
    if _says_yes(graph):
        return "    best = scores[0] > 0;\n"
    count = graph.scores.type.size
    return f"    for (int i = 1; i < {count}; i++)\n        if (scores[i] > scores[best]) best = i;\n"


def predicts(graph: Graph) -> str:
    """What a prediction gives, as a comment of the header."""
    if _says_yes(graph):
        return _comment("Run, and give 1 where the logit is above 0, else 0.")
    holds = loss_of(graph).output.format(classes=graph.scores.type.shape[-1])
    return _comment(f"{LARGEST} Output {graph.outputs.index(graph.scores)} holds {holds}." if holds else LARGEST)


def taught(graph: Graph, prefix: str) -> dict[str, object]:
    """What an example, a README and the server of a board have to know of it, as fields of templates."""
    roles = graph.roles
    if roles is None:
        return dict.fromkeys(("teach", "taken", "handed", "argument", "ask", "what", "told"), "")
    told, label = roles.label_kind, roles.label
    shape = {
        "label_size": label.type.size if label else 0, "classes": roles.logits.type.shape[-1],
        "scores": graph.outputs.index(roles.logits),
    }  # fmt: skip
    taken, handed = _served(graph, label, prefix)
    return {
        "teach": render(f"teach/{told}.c", prefix=prefix, **shape),
        "taken": taken, "handed": handed, "argument": ARGUMENTS[told],
        "ask": f"`{prefix}_error()` to see how unlike it is to all that was learned" if told == "nothing" else
        f"`{prefix}_predict()` to name it",
        "what": "class" if told == "classes" else "pattern",
        "told": "" if told == "classes" else f"- {_told(roles)}\n",
    }  # fmt: skip


def _served(graph: Graph, label: Value | None, prefix: str) -> tuple[str, str]:
    """How the server of a board takes a label, and how it hands it over: vectors and maps from where they lie."""
    if label is None:
        return "", ""
    if label.type.dtype == "int32":
        return "    int32_t label;\n    take(&label, sizeof label);\n", "label, "
    place = f"{prefix}_input({graph.inputs.index(label)})"
    return f"    take({place}, {label.type.bytes});\n", f"{place}, "


def _says_yes(graph: Graph) -> bool:
    """Whether a program has one output, which says yes or no."""
    return loss_of(graph).sigmoid and graph.scores.type.size == 1


def _told(roles: Roles) -> str:
    """What is handed over besides the image, in a sentence."""
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


def _skipped(roles: Roles) -> str:
    """Which steps learn nothing, in a sentence; nothing where all of them learn."""
    below = f"{roles.skip_below:.6g}"
    return f" A step whose loss is below {below} ends there, and changes nothing." if roles.skip_below else ""


def _comment(text: str) -> str:
    return "\n * ".join(textwrap.wrap(f"/* {text} */", 117))
