"""Models after learning: state frozen into constants, and heads that gain the new classes of some data.

A new class enters by its prototype, the mean of its examples' features f. Its row of the head is the part of f that no
row of the known classes reads, as long as these rows are on average; its bias is such that on its own examples it
scores, on average, MARGIN above the best of the known classes. Nothing else of the model changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, Value, refuse_variables
from smidgen.ir.rewriting import producers, prune
from smidgen.ops.state import LearnedBias, Overlay
from smidgen.pipeline import compile
from smidgen.targets.device import held
from smidgen.training import Options, Training, build_training, load_scheme
from smidgen.training.head import ending_of
from smidgen.training.options import LARGEST
from smidgen.training.weights import BIAS, WEIGHTS, head_numbers

MARGIN = 1.5  # logits; docs/internals/heads.md has the trials
MOST = 100  # examples of a class whose features are averaged


@dataclass(frozen=True, eq=False)
class Extended:
    """A model whose head knows more classes, and the data with its classes in the order of that head."""

    model: Graph
    data: Data
    added: tuple[str, ...]


def same_classes(model: Graph, data: Data) -> bool:
    """Return whether the data's classes are, by name, the model's in any order; True if either has no names."""
    return not model.classes or not data.names or set(model.classes) == set(data.names)


def in_order_of(model: Graph, data: Data) -> Data:
    """Return the data with its classes numbered as the model's, if the model names them all."""
    known = model.classes
    if data.names and set(data.names) <= set(known) and len(set(known)) == len(known):
        return data.arranged(known)
    return data


def extend(model: Graph, data: Data) -> Extended:
    """Add the classes of data that a model lacks to its head, each from its training examples.

    The data need not have examples of the known classes; where it has, they are not used here.
    """
    refuse_variables(model, "what finds a class's prototype")
    known, ending = model.classes, ending_of(model)
    if not known:
        raise InputError(
            f"{model.name} does not name its {ending.outputs} classes, so new ones cannot be recognized; name them "
            "with --class-names NAMES.txt"
        )
    if not ending.plain:
        raise InputError(
            f"the last layer of {model.name} is more than a matrix and a softmax and cannot be extended; begin with a "
            "new head"
        )
    added = tuple(name for name in data.classes if name not in known)
    if not data.names or not added:
        raise InputError(f"{data.name} holds no class that {model.name} lacks; it knows {listed(known)}")
    names = (*known, *added)
    if len(names) > LARGEST:
        raise InputError(f"{model.name} would score {len(names)} classes; heads of up to {LARGEST} can learn")
    whole = build_training(
        model, load_scheme("head", model), Options(len(names), head="new", head_dtype="float32"), None
    )
    rows, biases = head_numbers(model, ending)
    new = [_row(rows, biases, features) for features in _features(whole, data, added)]
    state: dict[str, Array] = {v.name: array for v, array in whole.forward.state.items()}
    state[WEIGHTS] = np.stack([*rows, *(row for row, _ in new)]).astype(np.float32)
    state[BIAS] = np.array([*biases, *(bias for _, bias in new)], np.float32)
    extended = replace(learned_graph(whole, state), classes=names)
    return Extended(extended, data.arranged(names), added)


def _features(whole: Training, data: Data, added: tuple[str, ...]) -> list[Array]:
    """Return the head's input for each new class's examples, float64 [examples, features]."""
    forward = whole.forward
    read = producers(forward)[forward.scores].ins[0]
    encoding, found = pixel_encoding(forward), list[Array]()
    with compile(prune(replace(forward, outputs=(read,), classes=()))).start() as device:
        for name in added:
            some = _of_class(data.train, data.classes.index(name)).spread(MOST)
            if not len(some):
                raise InputError(f"{data.name} holds no examples of {name!r} to learn from; add some")
            found.append(np.concatenate([device.run(as_input(x, encoding))[0] for x in some.images]).astype(np.float64))
    return found


def _of_class(samples: Samples, label: int) -> Samples:
    return samples.at(place for place, one in enumerate(samples.labels) if one == label)


def _row(rows: Array, biases: Array, features: Array) -> tuple[Array, float]:
    """Return the row and the bias of a class with these examples."""
    w, b = rows.astype(np.float64), biases.astype(np.float64)
    mean = features.mean(axis=0)
    # What the known rows read: the projection onto their span, by least squares.
    seen = np.linalg.lstsq(w.T, mean, rcond=None)[0] @ w
    own = mean - seen if np.linalg.norm(mean - seen) > 1e-6 * np.linalg.norm(mean) else mean
    row = own * (np.linalg.norm(w, axis=1).mean() / max(np.linalg.norm(own), 1e-30))
    best = (features @ w.T + b).max(axis=1)
    return row, float((best - features @ row).mean()) + MARGIN


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def learned_graph(training: Training, state: Mapping[str, Array]) -> Graph:
    """Return an inference graph that computes the logits of the program in this state, bit for bit.

    Variables stay variables, and begin as they did before learning.
    """
    forward = training.forward
    g = Builder(forward.name, forward.preprocessing, forward.classes)
    values: dict[Value, Value] = {v: g.input(v.name, v.type) for v in forward.inputs}
    variables = forward.variables
    learned = {v: held(state, v, forward.name).copy() for v in forward.state if v not in variables}
    known = {**forward.constants, **learned}
    for v, data in known.items():
        values[v] = g.constant(v.name, data, v.type.q)
    for v in variables:
        values[v] = g.persistent(v.name, forward.state[v], v.type.q)
    for node in forward.nodes:
        ins = tuple(values[v] for v in node.ins)
        if isinstance(node.op, Overlay | LearnedBias):
            arrays = (known[v] for v in node.ins)
            values[node.out] = g.constant(node.out.name, node.op.ref(node, *arrays), node.out.type.q)
        else:
            outs = g.emit_all(node.op, *ins, q=node.outs[0].type.q, name=node.outs[0].name)
            values.update(zip(node.outs, outs, strict=True))
    g.update((values[v] for v in variables), (values[forward.updates[v]] for v in variables))
    return prune(g.graph(*(values[v] for v in forward.outputs)))
