"""Contents of a graph: layer by layer, and in total."""

from dataclasses import dataclass

from rich.console import Group

from smidgen.data.inputs import takes_images
from smidgen.ir import Graph, Node, Type, Value
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing
from smidgen.quantization import GivenPixels, PixelChoice, known_pixels
from smidgen.tables import Cell, Table, counted, measured, rows_of
from smidgen.training.head import layers as numbered

SHOWN_NAMES = 12  # of classes
UNKNOWN = "the file does not say how pixels become numbers; --pixels does, or trials on your own may show it"


@dataclass(frozen=True)
class TensorSummary:
    """An input or output: name, element type, shape, and the numbers its integers stand for."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None
    zero: int | None


@dataclass(frozen=True)
class LayerSummary:
    """One node: what it computes, what that costs, and how its output is quantized."""

    number: int | None  # by which schemes name the layer; None where none can
    name: str
    op: str
    shape: tuple[int, ...]
    dtype: str
    macs: int
    parameters: int
    parameter_bytes: int
    scale: float | None
    zero: int | None
    weight_scales: int  # 0 without quantized weights, 1 for the whole tensor, else one per channel


@dataclass(frozen=True)
class Summary:
    """A graph's layers and totals."""

    name: str
    arithmetic: str  # of its layers: int8, float32, or both
    preprocessing: Preprocessing | LogMel | None
    classes: tuple[str, ...]  # by name; none where they are not known
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]
    layers: tuple[LayerSummary, ...]
    macs: int
    parameters: int
    parameter_bytes: int
    largest_activation_bytes: int
    pixels: PixelChoice | None = None  # how pictures enter a float32 model, as far as options or the file say so
    notes: tuple[str, ...] = ()  # on what the file's reader could not take over unchanged

    def table(self) -> Table:
        """Return a row for each layer."""
        columns = ("no.", "layer", "op", "output", "MACs", "parameters", "scale", "zero", "weights")
        totals = ("", f"{len(self.layers)} layers", "", "", f"{self.macs:,}", f"{self.parameters:,}", "", "", "")
        return Table(self.name, columns, rows_of(map(_row, self.layers)), totals=totals)

    def __rich__(self) -> Group:
        ends = [f"{what} {_tensor_text(t)}" for what, ts in (("in", self.inputs), ("out", self.outputs)) for t in ts]
        if self.pixels is not None:
            ends.append(f"images: {self.pixels.preprocessing}; {self.pixels}")
        elif self.preprocessing is not None:
            ends.append(f"{'sound' if isinstance(self.preprocessing, LogMel) else 'images'}: {self.preprocessing}")
        elif self.inputs[0].dtype == "float32" and takes_images(self.inputs[0].shape):
            ends.append(f"images: {UNKNOWN}")
        if self.classes:
            ends.append(f"{len(self.classes)} classes: {listed(self.classes)}")
        largest = f"largest activation {self.largest_activation_bytes:,} bytes"
        sizes = f"{self.arithmetic}: {self.parameter_bytes:,} bytes of parameters, {largest}"
        if any(layer.number is not None for layer in self.layers):
            ends.append("no. is the number by which a scheme names a layer")
        return Group(self.table(), "", *ends, sizes, *self.notes)


def describe(graph: Graph, given: GivenPixels = None) -> Summary:
    """Count a graph's layers, multiply-accumulates and parameters; `given` is how pixels become its numbers."""
    pixels = known_pixels(graph, given) if takes_images(graph.image.type.shape) else None
    numbers = {node.out: number for number, node in enumerate(numbered(graph))}
    layers = tuple(_layer(graph, node, numbers.get(node.outs[0])) for node in graph.nodes)
    held = {**graph.constants, **graph.state}
    activations = [v.type.bytes for v in (*graph.inputs, *(out for node in graph.nodes for out in node.outs))]
    return Summary(
        name=graph.name, arithmetic=" and ".join(sorted({layer.dtype for layer in layers}, reverse=True)) or "nothing",
        preprocessing=graph.preprocessing, classes=graph.classes, pixels=pixels,
        inputs=tuple(_tensor(value) for value in graph.inputs),
        outputs=tuple(_tensor(value) for value in graph.outputs), layers=layers,
        macs=sum(layer.macs for layer in layers), parameters=sum(value.type.size for value in held),
        parameter_bytes=sum(value.type.bytes for value in held), largest_activation_bytes=max(activations, default=0),
        notes=graph.notes,
    )  # fmt: skip


def _layer(graph: Graph, node: Node, number: int | None) -> LayerSummary:
    held = [value for value in node.ins if value in graph.constants or value in graph.state]
    out = node.outs[0]
    scale, zero = _quantization(out.type)
    return LayerSummary(
        number=number, name=out.name, op=type(node.op).__name__, shape=out.type.shape, dtype=out.type.dtype,
        macs=node.op.macs(node), parameters=sum(value.type.size for value in held),
        parameter_bytes=sum(value.type.bytes for value in held), scale=scale, zero=zero,
        weight_scales=max((len(value.type.q.scale) for value in held if value.type.q), default=0),
    )  # fmt: skip


def _tensor(value: Value) -> TensorSummary:
    return TensorSummary(value.name, value.type.dtype, value.type.shape, *_quantization(value.type))


def _quantization(type_: Type) -> tuple[float | None, int | None]:
    if type_.q is None or type_.q.axis is not None:
        return None, None
    return type_.q.one, type_.q.zero


def listed(names: tuple[str, ...]) -> str:
    """The first few names of classes."""
    return ", ".join((*names[:SHOWN_NAMES], "…")) if len(names) > SHOWN_NAMES else ", ".join(names)


def _row(layer: LayerSummary) -> tuple[str | Cell, ...]:
    weights = "" if layer.weight_scales == 0 else "per tensor" if layer.weight_scales == 1 else "per channel"
    return (
        counted(layer.number), layer.name, layer.op, _shape(layer.dtype, layer.shape), counted(layer.macs or None),
        counted(layer.parameters or None), measured(layer.scale, ".5g"), measured(layer.zero, "d"), weights,
    )  # fmt: skip


def _tensor_text(tensor: TensorSummary) -> str:
    q = "" if tensor.scale is None else f" scale {tensor.scale:.5g}, zero point {tensor.zero}"
    return f"{tensor.name} {_shape(tensor.dtype, tensor.shape)}{q}"


def _shape(dtype: str, shape: tuple[int, ...]) -> str:
    dims = "×".join(map(str, shape))
    return dims if dtype == "int8" else f"{dtype} {dims}"
