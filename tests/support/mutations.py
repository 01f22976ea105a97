"""Hostile training graphs: the text of a sound one with a few numbers, names, types or lines changed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np

from smidgen.errors import SmidgenError
from smidgen.ir import DTYPES, OPS, Array, Graph, Node, Type, Value, infer
from smidgen.ir.rewriting import prune
from smidgen.ir.text import _TextReader, print_graph
from smidgen.numerics import ACTIVATIONS
from smidgen.ops.dense import Dense
from smidgen.ops.rules import Momentum
from smidgen.training import Options, build_training
from smidgen.training.head import layers
from smidgen.training.passes import TRAINING, run
from smidgen.training.scheme import Scheme
from tests.support.networks import CLASSES, NETWORKS, one_scale_hidden
from tests.support.training_cases import TRAINING_GRAPHS

INTEGERS = (0, 1, 2, 3, 4, 7, 8, 16, 127, 128, 255, 4096, 400_000_000, 2**31 - 2, 2**31 - 1, 2**31, -1, -2, -128)
REALS = ("0.0", "-1.0", "1.0", "1e-30", "1e30", "1e300", "3e-07", "0.5")
DIMENSION = 12  # most shapes stay below it, so that graphs run at once
INTEGER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
REAL = re.compile(r"(?<![\w])-?\d+\.\d+(?:e-?\d+)?|(?<![\w])\d+e-?\d+")
NAMED = re.compile(r"%([A-Za-z_][\w.]*)")
CALL = re.compile(r" = ([A-Za-z0-9]+)\(([^)]*)\)(.*)")
DECLARED = re.compile(r"%([A-Za-z_][\w.]*): ([a-z0-9]+)\[([0-9,]*)\]")


@dataclass(frozen=True)
class Text:
    """A graph in text form, and the data of its constants and its state by name."""

    lines: tuple[str, ...]
    data: Mapping[str, Array]

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def text_of(graph: Graph) -> Text:
    data = {v.name: array for v, array in (*graph.constants.items(), *graph.state.items())}
    return Text(tuple(print_graph(graph).splitlines()), data)


@cache
def sound() -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """Return the graphs to mutate: whole training steps, before and after passes, and every case of a kernel alone."""
    hows = (
        (Fraction(1), Options(CLASSES)),
        (Fraction(1, 2), Options(CLASSES)),
        (Fraction(1, 2), Options(CLASSES, weight_bits=8, rule=Momentum(0.9))),
        (Fraction(1, 2), Options(1, weight_bits=8, loss="sigmoid")),
        (Fraction(1), Options(CLASSES, weight_bits=10, head_dtype="int8", rule=Momentum(0.5, accumulate=2))),
    )
    steps = []
    for seed, network in enumerate((*NETWORKS, one_scale_hidden)):
        graph = network(seed)
        found = layers(graph)
        for share, options in hows:
            shares = (Fraction(1) if isinstance(node.op, Dense) else share for node in found)
            scheme = Scheme("hostile", len(found), tuple(enumerate(shares)))
            step = build_training(graph, scheme, options).step
            steps += [run(step), run(step, (prune,))] if options.weight_bits == 12 else [run(step, TRAINING)]
    return tuple(map(text_of, steps)), tuple(map(text_of, TRAINING_GRAPHS.values()))


def _of_kind(text: Text, start: str) -> list[int]:
    return [i for i, line in enumerate(text.lines) if line.startswith(start)]


def _line(rng: random.Random, text: Text, start: str, change: Callable[[str], str]) -> Text:
    """The text with a line that starts so changed."""
    found = _of_kind(text, start)
    if not found:
        return text
    at = rng.choice(found)
    return replace(text, lines=(*text.lines[:at], *change(text.lines[at]).split("\n"), *text.lines[at + 1 :]))


def _one(rng: random.Random, pattern: re.Pattern[str], text: str, instead: Callable[[str], str]) -> str:
    """One match, chosen at random, replaced."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + instead(match[0]) + text[match.end() :]


def _integer(rng: random.Random, old: str) -> str:
    near = int(old) + rng.choice((-2, -1, 1, 2))
    return str(rng.choice((near, near, int(old) * 2, int(old) // 2, rng.choice(INTEGERS))))


def attribute(rng: random.Random, text: Text) -> Text:
    """A number or a word among a node's attributes."""

    def change(line: str) -> str:
        match = CALL.search(line)
        if match is None:
            return line
        rest, kind = match[3], rng.randrange(4)
        if kind == 0:
            rest = _one(rng, REAL, rest, lambda old: rng.choice(REALS))
        elif kind == 1:
            rest = _one(rng, re.compile(r"'\w+'"), rest, lambda old: repr(rng.choice(ACTIVATIONS)))
        else:
            rest = _one(rng, INTEGER, rest, lambda old: _integer(rng, old))
        return line[: match.start(3)] + rest

    return _line(rng, text, "%", change)


def length(rng: random.Random, text: Text) -> Text:
    """An attribute with an element more, or fewer."""

    def change(line: str) -> str:
        match = CALL.search(line)
        if match is None:
            return line
        rest = _one(rng, re.compile(r"[^(,]+, "), match[3], lambda old: rng.choice(("", old + old)))
        return line[: match.start(3)] + rest

    return _line(rng, text, "%", change)


def inputs(rng: random.Random, text: Text) -> Text:
    """A node that reads another value, one more, one fewer, or two the other way round."""
    names = NAMED.findall(str(text))

    def change(line: str) -> str:
        match = CALL.search(line)
        if match is None:
            return line
        read = match[2].split(", ")
        at, kind = rng.randrange(len(read)), rng.randrange(5)
        if kind < 2:
            read[at] = f"%{rng.choice(names)}"
        elif kind == 2:
            other = rng.randrange(len(read))
            read[at], read[other] = read[other], read[at]
        elif kind == 3:
            read.insert(at, rng.choice(read))
        else:
            read.pop(at)
        return line[: match.start(2)] + ", ".join(read) + line[match.end(2) :]

    return _line(rng, text, "%", change)


def kind(rng: random.Random, text: Text) -> Text:
    """Another op in a node's place, or another gradient in a fused step."""

    def change(line: str) -> str:
        if "gradient=" in line and rng.randrange(2):
            names = ("ConvGradWeight", "DepthwiseGradWeight", "DenseGradWeight", "ChannelSum")
            return re.sub(r"gradient=\w+", f"gradient={rng.choice(names)}", line)
        return CALL.sub(lambda m: m[0].replace(m[1], rng.choice(sorted(OPS)), 1), line)

    return _line(rng, text, "%", change)


def declared(rng: random.Random, text: Text) -> Text:
    """Another shape, dtype or quantization of a value."""

    def change(line: str) -> str:
        def other(old: str) -> str:
            match = DECLARED.fullmatch(old)
            assert match is not None
            dtype, shape = match[2], [int(d) for d in match[3].split(",") if d]
            if not rng.randrange(4):
                dtype = rng.choice(list(DTYPES))
            elif not shape or not rng.randrange(6):
                shape.insert(rng.randrange(len(shape) + 1), rng.randrange(1, 4))
            elif not rng.randrange(6):
                shape.pop(rng.randrange(len(shape)))
            else:
                at = rng.randrange(len(shape))
                shape[at] = rng.choice((shape[at] + 1, max(shape[at] - 1, 0), rng.randrange(1, DIMENSION)))
            return f"%{match[1]}: {dtype}[{','.join(map(str, shape))}]"

        changed = _one(rng, DECLARED, line, other)
        return re.sub(r" q\([^)]*\)", "", changed) if not rng.randrange(8) else changed

    return _line(rng, text, rng.choice(("input", "const", "state", "%")), change)


def lines(rng: random.Random, text: Text) -> Text:
    """A line gone, twice, or elsewhere."""
    changed = list(text.lines)
    at, to = rng.randrange(1, len(changed)), rng.randrange(1, len(changed))
    taken = changed[at] if not rng.randrange(3) else changed.pop(at)
    if rng.randrange(3):
        changed.insert(min(to, len(changed)), taken)
    return replace(text, lines=tuple(changed))


def targets(rng: random.Random, text: Text) -> Text:
    """Another value in an update, in a role, or as an output."""
    names = NAMED.findall(str(text))
    start = rng.choice(("update", "roles", "output"))
    return _line(rng, text, start, lambda line: _one(rng, NAMED, line, lambda old: f"%{rng.choice(names)}"))


WAYS = (attribute, attribute, attribute, length, inputs, inputs, kind, declared, declared, lines, targets)


def mutate(seed: int) -> Text:
    """A hostile graph: the same one for the same seed."""
    rng = random.Random(seed)
    steps, alone = sound()
    text = rng.choice(alone if rng.randrange(4) else steps)
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(WAYS)(rng, text)
    return _with_data(consistent(text) if rng.randrange(3) else text)


def consistent(text: Text) -> Text:
    """Nodes' outputs declared as their ops infer them: a change spreads instead of being refused."""
    reader = _TextReader(_with_data(text).data)
    try:
        for line in text.lines:
            reader.line(line)
    except SmidgenError:
        return text
    became: dict[Value, Value] = {}
    nodes = []
    for node in reader.nodes:
        node = replace(node, ins=tuple(became.get(v, v) for v in node.ins))
        nodes.append(replace(node, outs=_inferred(node)))
        became.update(zip(node.outs, nodes[-1].outs, strict=True))
    updates = {old: became.get(new, new) for old, new in reader.updates.items()}
    outputs = tuple(became.get(v, v) for v in reader.outputs)
    graph = Graph(
        tuple(reader.inputs), outputs, tuple(nodes), reader.constants, reader.name, reader.state, updates,
        reader.preprocessing, reader.roles and reader.roles.after(became),
        reader.classes,
    )  # fmt: skip
    return replace(text, lines=tuple(print_graph(graph).splitlines()))


def _inferred(node: Node) -> tuple[Value, ...]:
    try:
        types = infer(node.op, tuple(v.type for v in node.ins))
    except SmidgenError:
        return node.outs
    if len(types) != len(node.outs):
        return node.outs
    first = types[0]
    if node.op.requantizes and first.dtype == "int8":
        first = Type(first.shape, first.dtype, node.outs[0].type.q)
    return tuple(replace(v, type=t) for v, t in zip(node.outs, (first, *types[1:]), strict=True))


def _with_data(text: Text) -> Text:
    """Data of the types declared: what there was, repeated or cut."""
    data = dict(text.data)
    for line in text.lines:
        match = DECLARED.search(line) if line.startswith(("const", "state")) else None
        if match is None or match[2] not in DTYPES:
            continue
        shape = tuple(int(d) for d in match[3].split(",") if d)
        old = data.get(match[1], np.zeros(1, np.int8))
        if np.prod(shape, dtype=np.float64) < 2**20:
            data[match[1]] = np.resize(old, shape).astype(match[2])
    return replace(text, data=data)
