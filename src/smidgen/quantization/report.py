"""The noise of an int8 graph against its float graph, layer by layer."""

import math
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from smidgen.data import as_input, pixel_encoding
from smidgen.data.samples import Samples
from smidgen.ir import Array, Graph, Node, Value
from smidgen.numerics import dequantize, quantize
from smidgen.ops import Lookup, Requantize
from smidgen.quantization.batch import Passes, run_batch, run_node, scores_of
from smidgen.quantization.calibration import functions_of

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
class QuantizationReport:
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
    alike: bool = False  # all samples are the same, so that their agreement says nothing

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
        if self.alike:
            lines.append("the samples are all alike, so that agreement says nothing; give samples that differ")
        if self.accuracy is not None:
            lines.append(str(self.accuracy))
        if (weak := self.weakest) is not None:
            lines.append(f"weakest layer: {weak.name} ({weak.op}), {_decibels(weak.alone)} alone")
        return "\n".join(lines)

    def table(self) -> Table:
        """Return a table of all layers, those that add much noise in bold."""
        table = Table(title=Text(self.model), title_justify="left", box=None, pad_edge=False)
        table.add_column("layer", overflow="fold")
        for name in ("op", "output", "scale", "zero", "alone", "cumulative"):
            table.add_column(name, justify="left" if name in ("op", "output") else "right")
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
class _Comparison:
    """Two graphs side by side on the same samples."""

    real: Graph
    rounded: Graph
    nodes: dict[str, Node]  # of the rounded graph, by their outputs
    functions: dict[str, Lookup]

    def run(self, samples: Array, integers: Array) -> tuple[int, dict[str, Array]]:
        """Run both graphs: `samples` are the float graph's input, `integers` the same as int8.

        Return how many choices are equal, and the squares of each layer's signal, all its noise and the noise it adds.
        """
        got: dict[str, Array] = {}
        run_batch(self.rounded, integers, lambda v, array: got.update({v.name: array}))
        floats: dict[str, Array] = {}
        squares: dict[str, Array] = {}

        def look(value: Value, array: Array) -> None:
            floats[value.name] = array
            node = self.nodes.get(value.name)
            if node is not None and (q := node.out.type.q) is not None:
                alone = run_node(node, tuple(self._rounded(v, floats) for v in node.ins), self.rounded)
                results = (dequantize(result, q) for result in (got[value.name], alone))
                wanted, *seen = (self._seen(value.name, one) for one in (array, *results))
                off = (np.square(wanted.astype(np.float64) - one).sum() for one in seen)
                squares[value.name] = np.array([np.square(wanted, dtype=np.float64).sum(), *off])

        run_batch(self.real, samples, look)
        a, b = (found[graph.outputs[0].name] for found, graph in ((floats, self.real), (got, self.rounded)))
        tops = [array.reshape(len(array), -1).argmax(axis=1) for array in (a, b)]
        return int((tops[0] == tops[1]).sum()), squares

    def _seen(self, name: str, array: Array) -> Array:
        """Return a layer's output for comparison, after the function that is its only reader."""
        function = self.functions.get(name)
        return array if function is None else function.real(array)

    def _rounded(self, value: Value, floats: dict[str, Array]) -> Array:
        """Return a constant, or the float graph's numbers rounded: those before a requantization, which it lacks."""
        if (held := self.rounded.constants.get(value)) is not None:
            return held
        node = self.nodes.get(value.name)
        source = node.ins[0] if node is not None and isinstance(node.op, Requantize) else value
        assert value.type.q is not None
        return quantize(floats[source.name], value.type.q)


def scored_classes(graph: Graph) -> int | None:
    """Return how many classes a graph scores; None if its first output is no list of scores."""
    shape = graph.scores.type.shape
    return shape[-1] if shape and math.prod(shape) == shape[-1] > 1 else None


def top1(graph: Graph, labelled: Samples, passes: Passes) -> float:
    """Return the share of the images whose class is the graph's largest output."""

    def run(places: slice) -> int:
        shown = [as_input(image, pixel_encoding(graph)) for image in labelled.images[places]]
        predicted = scores_of(graph, np.stack(shown)).argmax(axis=1)
        return int((predicted == np.array(labelled.labels[places])).sum())

    return sum(passes.each(run, len(labelled), "testing")) / len(labelled)


def compare(
    real: Graph, rounded: Graph, samples: Array, integers: Array, passes: Passes
) -> tuple[float, float | None, tuple[LayerNoise, ...]]:
    """Compare both graphs on the samples: the share of equal first choices, the output's ratio, each layer's noise."""
    nodes = {node.out.name: node for node in rounded.nodes}
    both = _Comparison(real, rounded, nodes, functions_of(rounded))
    same, squares = 0, {name: np.zeros(3) for name in nodes}
    for equal, seen in passes.each(lambda at: both.run(samples[at], integers[at]), len(samples), "comparing"):
        same += equal
        for name, found in seen.items():
            squares[name] += found
    ratios: dict[str, tuple[float | None, ...]] = {}
    for name, (signal, *noises) in ((name, found.tolist()) for name, found in squares.items()):
        ratios[name] = tuple(10 * math.log10(signal / noise) if signal and noise else None for noise in noises)
    known = {node.out.name for node in real.nodes}
    layers = tuple(
        LayerNoise(name, type(node.op).__name__, type_.shape, type_.scale, type_.zero, *ratios[name])
        for name, node in nodes.items()
        if name in known and (type_ := node.out.type)
    )
    return same / len(samples), ratios.get(rounded.outputs[0].name, (None, None))[0], layers
