"""The noise of an int8 graph against its float graph, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from smidgen.data import as_input, pixel_encoding
from smidgen.data.samples import Samples
from smidgen.ir import Array, Graph, Node, Value
from smidgen.numerics import dequantize, quantize
from smidgen.ops.elementwise import Requantize
from smidgen.quantization.batch import run_batch, run_node, scores_of
from smidgen.quantization.calibration import ProgressCallback, each_batch, functions_of

WEAK = 10.0  # dB: below this a layer is pointed out


@dataclass(frozen=True)
class LayerNoise:
    """Signal to noise of a layer's output in decibels; None if no noise, or no signal, was seen.

    `cumulative` includes the noise of all layers before it; `alone` is what the layer adds when it reads the float
    graph's numbers rounded to its input. Where only a function reads a layer, both are measured after that function.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    cumulative: float | None
    alone: float | None


@dataclass(frozen=True)
class Accuracy:
    """The share of labelled samples whose class is the largest output, before quantization and after."""

    images: int
    float32: float
    int8: float

    def __str__(self) -> str:
        return f"top-1 on {self.images} labelled samples: {self.float32:.1%} in float32, {self.int8:.1%} in int8"


@dataclass(frozen=True)
class Report:
    """An int8 graph against the float graph it came from, on samples that did not set its ranges."""

    model: str
    method: str
    calibrated: int  # samples that set the ranges
    compared: int  # others, that these figures are of
    held_out: bool  # false where there were too few samples to keep some apart
    agreement: float  # share of the compared samples whose largest output is the same
    output: float | None  # dB
    layers: tuple[LayerNoise, ...]
    accuracy: Accuracy | None  # None without labels of the model's own classes

    @property
    def weakest(self) -> LayerNoise | None:
        """The layer that adds most noise."""
        known = [layer for layer in self.layers if layer.alone is not None]
        return min(known, key=lambda layer: layer.alone or 0.0, default=None)

    def __str__(self) -> str:
        apart = "other" if self.held_out else "same"
        lines = [
            f"{self.model}: {len(self.layers)} layers in int8, ranges by {self.method} from {self.calibrated} samples",
            f"on {self.compared} {apart} samples the top-1 agrees with float32 on {self.agreement:.1%}, "
            f"the output has {_decibels(self.output)} of signal to noise",
        ]
        if self.accuracy is not None:
            lines.append(str(self.accuracy))
        if (weak := self.weakest) is not None:
            lines.append(f"weakest layer: {weak.name} ({weak.op}), {_decibels(weak.alone)} alone")
        return "\n".join(lines)

    def table(self) -> Table:
        """Return a table of all layers, those that add much noise in bold."""
        table = Table(title=Text(self.model), title_justify="left", box=None, pad_edge=False)
        table.add_column("layer", overflow="fold")
        table.add_column("op")
        table.add_column("output")
        for column in ("scale", "zero", "alone", "cumulative"):
            table.add_column(column, justify="right")
        for layer in self.layers:
            weak = layer.alone is not None and layer.alone < WEAK
            table.add_row(
                layer.name, layer.op, "×".join(map(str, layer.shape)), f"{layer.scale:.5g}", str(layer.zero),
                _decibels(layer.alone), _decibels(layer.cumulative), style="bold" if weak else None,
            )  # fmt: skip
        return table


def _decibels(ratio: float | None) -> str:
    return "exact" if ratio is None else f"{ratio:.1f} dB"


@dataclass(frozen=True)
class _Noise:
    """Sums of squares of a signal and of what was added to it."""

    signal: float = 0.0
    noise: float = 0.0

    @staticmethod
    def between(wanted: Array, got: Array) -> _Noise:
        signal = np.square(wanted, dtype=np.float64).sum()
        return _Noise(float(signal), float(np.square(wanted.astype(np.float64) - got).sum()))

    def __add__(self, other: _Noise) -> _Noise:
        return _Noise(self.signal + other.signal, self.noise + other.noise)

    @property
    def ratio(self) -> float | None:
        if self.noise == 0 or self.signal == 0:
            return None
        return 10 * math.log10(self.signal / self.noise)


@dataclass(frozen=True)
class _Batch:
    """The results of a few samples: the noise of each layer after all before it and alone, and equal first choices."""

    noise: dict[str, tuple[_Noise, _Noise]]
    same: int
    count: int


class Comparison:
    """Two graphs side by side on the same samples."""

    def __init__(self, real: Graph, rounded: Graph) -> None:
        self.real, self.rounded = real, rounded
        self.nodes = {node.out.name: node for node in rounded.nodes}
        self.functions = functions_of(rounded)
        self.whole = {name: _Noise() for name in self.nodes}
        self.alone = {name: _Noise() for name in self.nodes}
        self.same = self.count = 0

    def run(self, samples: Array, integers: Array) -> _Batch:
        """Run both graphs: `samples` are the float graph's input, `integers` the same as int8."""
        got: dict[str, Array] = {}
        run_batch(self.rounded, integers, lambda v, array: got.update({v.name: array}))
        floats: dict[str, Array] = {}
        noise: dict[str, tuple[_Noise, _Noise]] = {}

        def look(value: Value, array: Array) -> None:
            floats[value.name] = array
            node = self.nodes.get(value.name)
            if node is not None:
                wanted = self._seen(value.name, array)
                results = (_reals(node.out, result) for result in (got[value.name], self._alone(node, floats)))
                whole, alone = (_Noise.between(wanted, self._seen(value.name, result)) for result in results)
                noise[value.name] = whole, alone

        run_batch(self.real, samples, look)
        a, b = (found[graph.outputs[0].name] for found, graph in ((floats, self.real), (got, self.rounded)))
        tops = [array.reshape(len(array), -1).argmax(axis=1) for array in (a, b)]
        return _Batch(noise, int((tops[0] == tops[1]).sum()), len(samples))

    def add(self, batch: _Batch) -> None:
        for name, (whole, alone) in batch.noise.items():
            self.whole[name] += whole
            self.alone[name] += alone
        self.same += batch.same
        self.count += batch.count

    def _seen(self, name: str, array: Array) -> Array:
        """Return a layer's output for comparison, after the function that is its only reader."""
        function = self.functions.get(name)
        return array if function is None else function.real(array)

    def _alone(self, node: Node, floats: dict[str, Array]) -> Array:
        return run_node(node, tuple(self._rounded(value, floats) for value in node.ins), self.rounded)

    def _rounded(self, value: Value, floats: dict[str, Array]) -> Array:
        """Return a constant, or the float graph's numbers rounded: those before a requantization, which it lacks."""
        if (held := self.rounded.constants.get(value)) is not None:
            return held
        node = self.nodes.get(value.name)
        source = node.ins[0] if node is not None and isinstance(node.op, Requantize) else value
        assert value.type.q is not None
        return quantize(floats[source.name], value.type.q)

    def report(self, model: str, method: str, calibrated: int, held_out: bool, known: Accuracy | None) -> Report:
        output = self.whole.get(self.rounded.outputs[0].name, _Noise()).ratio
        same = self.same / self.count
        return Report(model, method, calibrated, self.count, held_out, same, output, self._layers(), known)

    def _layers(self) -> tuple[LayerNoise, ...]:
        known = {node.out.name for node in self.real.nodes}
        return tuple(
            LayerNoise(
                name, type(node.op).__name__, node.out.type.shape, node.out.type.scale, node.out.type.zero,
                self.whole[name].ratio, self.alone[name].ratio,
            )
            for name, node in self.nodes.items()
            if name in known
        )  # fmt: skip


def _reals(value: Value, array: Array) -> Array:
    assert value.type.q is not None
    return dequantize(array, value.type.q)


def scored_classes(graph: Graph) -> int | None:
    """Return how many classes a graph scores; None if its first output is no list of scores."""
    shape = graph.scores.type.shape
    return shape[-1] if shape and math.prod(shape) == shape[-1] > 1 else None


def top1(graph: Graph, labelled: Samples, on_progress: ProgressCallback, threads: int = 1) -> float:
    """Return the share of the images whose class is the graph's largest output."""

    def run(places: slice) -> int:
        shown = [as_input(image, pixel_encoding(graph)) for image in labelled.images[places]]
        predicted = scores_of(graph, np.stack(shown)).argmax(axis=1)
        return int((predicted == np.array(labelled.labels[places])).sum())

    return sum(each_batch(run, len(labelled), "testing", on_progress, threads)) / len(labelled)


def compare(
    real: Graph,
    rounded: Graph,
    samples: Array,
    integers: Array,
    on_progress: ProgressCallback,
    threads: int = 1,
) -> Comparison:
    """Compare both graphs on the samples, a few at a time."""
    comparison = Comparison(real, rounded)

    def run(places: slice) -> _Batch:
        return comparison.run(samples[places], integers[places])

    for batch in each_batch(run, len(samples), "comparing", on_progress, threads):
        comparison.add(batch)
    return comparison
