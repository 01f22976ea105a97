"""Pictures for docs/internals/how-it-works.md, drawn from real programs by `python benchmarks/illustrate.py`.

That of quantization-aware scaling is drawn from benchmarks/results/ratios.json, which
`python benchmarks/ratios.py --model mcunet-5fps --data cifar10 --images 8 --json` prints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from experiments.drawn import arrow, box, legend, path, picture, words
from experiments.ladder import ladder
from smidgen import Options, Scheme, compile, load, search
from smidgen.frontends.network import build
from smidgen.ir import Array, Graph
from smidgen.numerics.stochastic import random_words
from smidgen.ops.update import FusedBiasStep, FusedWeightStep
from smidgen.pipeline import Program
from smidgen.results.memory import Kind, life_cycle
from smidgen.selection.estimates import shipped_or_estimated
from smidgen.training.head import layers
from smidgen.training.scheme import resolve
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import BlockTable, Stage

TOP = Path(__file__).parents[1]
RATIOS = TOP / "benchmarks" / "results" / "ratios.json"
NETWORK, SCHEME, BUDGET = "mcunet-5fps", "99kb", "128KB"
TEN = Options(classes=10)
KINDS: dict[Kind, tuple[str, str]] = {
    "activation": ("blue tint", "maps"),
    "saved": ("orange tint", "saved for the backward pass"),
    "gradient": ("green tint", "gradients"),
    "scratch": ("gray tint", "working memory"),
}


def quantize() -> str:
    """Two channels of one layer: the same 255 steps, of another size."""
    node = layers(load(NETWORK))[24]
    weights, scales = node.ins[1], node.ins[1].type.q
    assert scales is not None
    steps = np.asarray(scales.scale, np.float64)
    rows = load(NETWORK).constants[weights].reshape(len(steps), -1)
    parts: list[str] = []
    for place, channel in enumerate((int(steps.argmin()), int(steps.argmax()))):
        parts += _channel(110 + 150 * place, rows[channel], float(steps[channel]))
    told = "Histograms of the int8 weights of two channels, each over its own axis of real numbers."
    return picture("Quantize: 255 steps, and for each channel a size of its own", told, (860, 370), parts)


def _channel(top: float, row: Array, step: float) -> Iterator[str]:
    counts, edges = np.histogram(row, bins=51, range=(-127.5, 127.5))
    for count, edge in zip(counts, edges[:-1], strict=True):
        if count:
            height = 90 * count / counts.max()
            yield box((40 + 3 * (edge + 127.5), top + 60 - height), (13, height), "blue tint", f"{count} weights")
    yield path("axis", (40, top + 60), (805, top + 60))
    for q in (-127, 0, 127):
        x = 40 + 3 * (q + 127.5)
        yield words(x, top + 78, f"{q}", "middle", "small")
        yield words(x, top + 96, f"{q * step:.3g}", "middle", "small faint")
    yield words(40, top - 36, f"one step is {step:.2g}", kind="small")


def choose() -> str:
    """What each layer's weights were measured to add, and what fits into the budget."""
    graph = load(NETWORK)
    known = shipped_or_estimated(graph)
    found = search(graph, known, budget=BUDGET, target="cortex-m7", options=TEN)
    count = len(layers(graph))
    gains = {layer: max(known.weights_gain(layer, one.share) for one in known.shares if one.layer == layer)
             for layer in {one.layer for one in known.shares}}  # fmt: skip
    trained = {one.layer: one for one in resolve(found.scheme, graph, 0)}
    width = 780 / count
    parts = [words(40, 66, "measured: points of top-1 that a layer's weights add, at best", kind="small")]
    for layer, gain in sorted(gains.items()):
        height = max(gain, 0.0) * 100 * 8
        parts.append(
            box((50 + layer * width, 180 - height), (width - 3, height), "gray tint", f"layer {layer}: {gain:+.1%}")
        )
    parts += [
        path("axis", (46, 180), (834, 180)),
        words(40, 214, f"chosen for {BUDGET}: share of its input channels", kind="small"),
    ]
    for layer, one in sorted(trained.items()):
        share = len(one.channels) / one.node.ins[1].type.shape[-1] if one.channels else 0.0
        x = 50 + layer * width
        parts.append(box((x, 310 - 80 * share), (width - 3, 80 * share), "orange tint", f"layer {layer}: {share:.3g}"))
        parts.append(box((x, 316), (width - 3, 10), "green tint", f"layer {layer}: its bias"))
    parts += [path("axis", (46, 310), (834, 310)), words(50, 350, "layer 0", kind="small faint")]
    parts += [words(834, 350, f"layer {count - 1}", "end", "small faint")]
    parts += legend(250, 350, (("orange tint", "weights learn"), ("green tint", "bias learns")))
    told = f"Bars of measured gains over the layers of {NETWORK}; below, the scheme that a search chose for {BUDGET}."
    return picture("Choose: memory goes where it was measured to help", told, (860, 370), parts)


def small_network() -> Graph:
    """Seven layers and a head, which fit into a picture."""
    return build(draw(BlockTable(8, (Stage(1, 3, 1, 8), Stage(3, 3, 2, 16))), 16, 3, seed=0), "small")


def prune() -> str:
    """Forward above, backward below; what no trained tensor needs is gone."""
    graph = small_network()
    names = [node.out.name for node in layers(graph)]
    program = compile(graph, Scheme("picture", 3, ((len(names) - 3, Fraction(1)),)), options=Options(classes=3))
    parts: list[str] = []
    step, columns = 790 / (len(names) + 1), (*names, "head")
    for place, name in enumerate(columns):
        parts += _column(program, name, columns[place + 1 :], (36 + place * step, step))
    parts += [words(20, 78, "forward", kind="small faint"), words(20, 164, "backward", kind="small faint")]
    entries = (
        ("blue tint", "runs"), ("green tint", "gradient of a map"), ("orange tint", "learns"), ("gone", "pruned"),
    )  # fmt: skip
    parts += legend(40, 330, entries)
    told = "A row of layers, forward; under each, which gradients of its map, weights and bias the program computes."
    return picture("Differentiate, then prune what nothing needs", told, (860, 350), parts)


def _column(program: Program, name: str, behind: tuple[str, ...], place: tuple[float, float]) -> Iterator[str]:
    """A layer, and under it the gradients of its output, its weights and its bias."""
    x, step = place
    wide, nodes = step - 14, program.graph.nodes
    learned = {node.ins[0].name for node in nodes if isinstance(node.op, FusedWeightStep | FusedBiasStep)}
    passed = {node.ins[1].name for node in nodes if node.op.title.endswith("GradInput")}
    reached = not behind or f"{behind[0]}.w" in passed
    yield box((x, 90), (wide, 36), "blue tint")
    yield words(x + wide / 2, 113, name, "middle", "small")
    if behind:
        yield arrow((x + wide, 108), (x + step, 108))
    rows = ((reached, "green tint", "map"), (f"{name}.w" in learned, "orange tint", "weights"),
            (f"{name}.b" in learned, "orange tint", "bias"))  # fmt: skip
    for row, (there, kind, said) in enumerate(rows):
        top = 176 + 44 * row
        yield box((x, top), (wide, 32), kind if there else "gone", f"gradient of {name}'s {said}")
        yield words(x + wide / 2, top + 21, f"d {said}", "middle", "small" if there else "small faint")
    if reached and behind:
        yield arrow((x + step, 192), (x + wide, 192))


def order() -> str:
    """Peak memory from a full update down."""
    full, sparse, ordered = ladder(load(NETWORK), SCHEME).rungs
    bars = (
        ("all weights learn", full.plans[0]), (f"sparse: {SCHEME}", sparse.plans[0]),
        ("reordered, fused, in place", ordered.plans[0]), ("early layers row by row", ordered.plans[1]),
        ("image by rows", ordered.plans[2]),
    )  # fmt: skip
    most = max(one.total for _, one in bars if one)
    parts = []
    for place, (said, one) in enumerate(bars):
        if one is None:
            continue
        y, scale = 70 + 50 * place, 560 / most
        parts += [words(225, y + 19, said, "end", "small")]
        parts += [box((235, y), (one.state * scale, 28), "purple tint", f"state {one.state:,} bytes")]
        parts += [box((235 + one.state * scale, y), (one.arena * scale, 28), "blue tint", f"arena {one.arena:,} bytes")]
        parts += [words(243 + one.total * scale, y + 19, f"{one.total:,}" if place else "", kind="small")]
    first = bars[0][1]
    parts += [words(785, 89, f"{first.total:,} bytes", "end", "small")] if first else []
    parts += legend(235, 340, (("purple tint", "state: what learns"), ("blue tint", "arena: what a run uses")))
    told = f"Bytes of SRAM of a training step of {NETWORK}, from a full update down to the last way to run it."
    return picture("Prune, reorder, plan: the same step in less memory", told, (860, 360), parts)


def arena() -> str:
    """Where each tensor lies, and when."""
    program = compile(load(NETWORK), SCHEME, "cortex-m7", options=TEN, streamed_input=True)
    cycle = life_cycle(program)
    across, down = 780 / len(cycle.nodes), 300 / cycle.memory.peak
    parts = (
        [path("grid", (50 + across * cycle.backward, 60), (50 + across * cycle.backward, 370))]
        if cycle.backward
        else []
    )
    for one in cycle.tensors:
        kind, said = KINDS.get(one.kind, ("gray tint", one.kind))
        corner = (50 + one.start * across, 368 - (one.offset + one.bytes) * down)
        told = f"{one.name}: {one.bytes:,} bytes, {said}"
        parts.append(box(corner, ((one.end - one.start) * across, one.bytes * down), kind, told))
    parts += [
        path("axis", (50, 60), (50, 368), (834, 368)),
        words(50, 56, f"{cycle.memory.peak:,} bytes", kind="small faint"),
    ]
    parts += [words(50, 388, "first node", kind="small faint"), words(834, 388, "last node", "end", "small faint")]
    if cycle.backward:
        parts.append(words(50 + across * cycle.backward, 56, "the backward pass begins", "middle", "small faint"))
    parts += legend(150, 388, list(KINDS.values()))
    told = f"The arena of {NETWORK}, {SCHEME}, over the nodes of one step: a rectangle for each tensor."
    return picture("Plan: every byte has a place before the program starts", told, (860, 404), parts)


def scale() -> str:
    """Weight norm over gradient norm of each tensor."""
    found = json.loads(RATIOS.read_text())
    tensors = found["tensors"]
    kinds = (("int8", "orange"), ("qas", "green"), ("fp32", "blue"))
    values = [one[kind] for one in tensors for kind, _ in kinds]
    low, high = min(values), max(values)
    across = 770 / (len(tensors) - 1)
    parts = []
    for tick in range(int(np.ceil(low)), int(high) + 1):
        y = 320 - 240 * (tick - low) / (high - low)
        parts += [path("grid", (60, y), (834, y)), words(54, y + 4, f"10^{tick}", "end", "small faint")]
    for kind, tone in kinds:
        points = [(60 + across * i, 320 - 240 * (one[kind] - low) / (high - low)) for i, one in enumerate(tensors)]
        parts.append(path(f"{tone} curve", *points))
    parts += [words(60, 344, "first tensor", kind="small faint"), words(834, 344, "last tensor", "end", "small faint")]
    entries = (("orange", "int8"), ("green", "int8 with QAS"), ("blue", "float32"))
    parts += legend(250, 344, entries)
    told = "Curves over the tensors of a network: int8 lies far above float32 and zigzags; with QAS it follows."
    return picture("Scale the gradients: ‖weights‖ / ‖gradient‖ of each tensor", told, (860, 364), parts)


def rounding() -> str:
    """Forty steps of a tenth: rounded to the nearest, at random, and at random with four bits more."""
    steps, change = 40, 0.1
    nearest, chance, finer = [0.0], [0.0], [0.0]
    for index in range(steps):
        part = float(random_words(index + 1, 1)[0]) / 2**32
        nearest.append(round(nearest[-1] + change))
        chance.append(np.floor(chance[-1] + change + part))
        finer.append(np.floor(16 * (finer[-1] + change) + part) / 16)
    parts = []
    for tick in range(6):
        y = 300 - 46 * tick
        parts += [path("grid", (60, y), (834, y)), words(54, y + 4, f"{tick}", "end", "small faint")]
    exact = [change * index for index in range(steps + 1)]
    for line, tone in ((exact, "gray"), (nearest, "orange"), (chance, "blue"), (finer, "green")):
        points = [(60 + 770 * i / steps, 300 - 46 * value) for i, value in enumerate(line)]
        parts.append(path(f"{tone} curve", *points))
    entries = (
        ("gray", "exact"),
        ("orange", "8 bits, to the nearest"),
        ("blue", "8 bits, at random"),
        ("green", "12 bits, at random"),
    )
    parts += legend(60, 340, entries)
    told = "A weight over forty equal small steps: rounded to the nearest it never moves, at random it follows."
    return picture("Learn: small steps add up because they are rounded at random", told, (860, 360), parts)


PICTURES: dict[str, Callable[[], str]] = {
    one.__name__: one for one in (quantize, choose, prune, order, arena, scale, rounding)
}
