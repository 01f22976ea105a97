"""Learning in one pass beside a training step: the frozen network to the sums, and the head that they give."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, Node, Type, Value
from smidgen.ir.graph import OnePass, refuse_variables
from smidgen.ir.rewriting import needed, prune
from smidgen.ir.text import fingerprint
from smidgen.numerics.one_pass import Sums
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Dequantize
from smidgen.ops.losses import check_softmax
from smidgen.ops.one_pass import SAMPLE, Distance, Observe, Solve
from smidgen.training.building import Training
from smidgen.training.head import ending_of
from smidgen.training.options import Head
from smidgen.training.projection import projection
from smidgen.training.weights import BIAS, WEIGHTS, flat_features

FROZEN = "frozen."  # begins the names of what the frozen network computes


def with_one_pass(model: Graph, training: Training, step: Graph) -> Graph:
    """Return a training step, as passes left it, that can also learn the classes of its head in one pass."""
    check_softmax(step, "one pass")
    refuse_variables(step, "one pass")
    if training.head.dtype != "float32":
        raise InputError(
            f"one pass makes a head of float32, that of {model.name} is {training.head.dtype}; begin a new one"
        )
    collect, sample = _collect(model, step, training.head)
    sums = tuple(_named(collect.state, name) for name in ("sums.n", "sums.m", "sums.g"))
    limit = _named(collect.state, "limit")
    g = Builder("solve")
    made = [g.persistent(v.name, collect.state[v]) for v in (*_head(collect), limit)]
    held = [g.persistent(v.name, collect.state[v]) for v in sums]
    scale = collect.outputs[1].type.scale
    *after, code = g.emit_all(Solve(scale), *made, *held, name="solved")
    g.update(made, after)
    phase = Value("phase", Type((1,), "int32"))
    added = {**{v: collect.state[v] for v in (*sums, limit)}, phase: np.ones(1, np.int32)}
    parts = OnePass(collect, g.graph(code), sums, phase, sample)
    return replace(step, state={**step.state, **added}, one_pass=parts)


def _head(step: Graph) -> tuple[Value, Value]:
    return _named(step.state, WEIGHTS), _named(step.state, BIAS)


def _named(values: Iterable[Value], name: str) -> Value:
    return next(v for v in values if v.name == name)


def _collect(model: Graph, step: Graph, head: Head) -> tuple[Graph, Value]:
    """The frozen network to its logits, and a sample's way into the sums."""
    ending, image = ending_of(model), step.image
    g = Builder(model.name, model.preprocessing)
    values: dict[Value, Value] = {model.image: g.input(f"{FROZEN}{image.name}", image.type)}
    for node in needed(model, ending.features):
        for value in node.ins:
            if value in model.constants and value not in values:
                own = value in step.constants and np.array_equal(step.constants[value], model.constants[value])
                name = value.name if own else f"{FROZEN}{value.name}"
                values[value] = g.constant(name, model.constants[value], value.type.q)
        name = f"{FROZEN}{node.outs[0].name}"
        outs = g.emit_all(node.op, *(values[v] for v in node.ins), q=node.outs[0].type.q, name=name)
        values.update(zip(node.outs, outs, strict=True))
    features = flat_features(g, values[ending.features], FROZEN)
    if head.project is not None:
        features = g.emit(projection(model, features, head.project), features, name=f"{FROZEN}projected")
    real = g.emit(Dequantize(), features, name=f"{FROZEN}real")
    w, b = (g.persistent(v.name, step.state[v]) for v in _head(step))
    logits = g.emit(Dense(), real, w, b, name=f"{FROZEN}logits")
    sample = g.input("sample", SAMPLE)
    empty = Sums.empty(*w.type.shape)
    sums = [g.persistent(f"sums.{name}", getattr(empty, name)) for name in "nmg"]
    limit = g.persistent("limit", np.zeros(1, np.float32))
    far = g.emit(Distance(), *sums[:2], features, limit, name="far")
    *after, code = g.emit_all(Observe(), *sums, features, sample, name="observed")
    g.update(sums, after)
    return g.graph(logits, features, code, far), sample


def features_fingerprint(graph: Graph) -> str:
    """Return a fingerprint of all that makes the features, whatever else of the network learns, and by any scheme."""
    assert graph.one_pass is not None
    collect = graph.one_pass.collect
    return front_fingerprint(collect, collect.outputs[1])


def front_fingerprint(graph: Graph, features: Value) -> str:
    """Return a fingerprint of all that makes a value of the image, by any names."""
    whole = Graph((graph.image,), (features,), graph.nodes, graph.constants, preprocessing=graph.preprocessing)
    front = prune(whole)
    read = dict.fromkeys(v for node in front.nodes for v in (*node.ins, *node.outs)) or (features,)
    names = {v: Value(f"v{i}", v.type) for i, v in enumerate(read)}
    nodes = (Node(n.op, tuple(names[v] for v in n.ins), tuple(names[v] for v in n.outs)) for n in front.nodes)
    constants = {names[v]: data for v, data in front.constants.items()}
    image = names.get(graph.image, graph.image)
    return fingerprint(
        replace(front, inputs=(image,), outputs=(names[features],), nodes=tuple(nodes), constants=constants)
    )


def frozen_constants(graph: Graph) -> dict[Value, Value]:
    """Return the constant of the frozen network that a trained tensor begins as, by the tensor."""
    if graph.one_pass is None:
        return {}
    by_name = {v.name: v for v in graph.one_pass.collect.constants}
    pairs = ((v, by_name.get(f"{FROZEN}{v.name}")) for v in graph.state)
    return {v: found for v, found in pairs if found is not None and _same(graph, v, found)}


def _same(graph: Graph, state: Value, constant: Value) -> bool:
    assert graph.one_pass is not None
    held: Array = graph.one_pass.collect.constants[constant]
    return state.type == constant.type and np.array_equal(graph.state[state], held)
