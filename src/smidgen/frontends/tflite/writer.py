"""Graph → TFLite: each node becomes one operator, or a few where TFLite has none of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from smidgen import ops
from smidgen.errors import ExportError, GraphError
from smidgen.frontends.tflite.assignments import Keeping
from smidgen.frontends.tflite.encode import encode
from smidgen.frontends.tflite.flatbuffer import (
    ACTIVATIONS,
    SAME,
    TENSOR_TYPES,
    VALID,
    ZERO_PLACE,
    TfliteModel,
    TfliteOperator,
    TfliteOptions,
    TfliteTensor,
)
from smidgen.frontends.tflite.functions import FUNCTION_OPERATORS
from smidgen.frontends.tflite.metadata import class_metadata
from smidgen.frontends.tflite.moves import MOVES
from smidgen.frontends.tflite.recurrences import RECURRENCES
from smidgen.ir import DTYPES, Array, Graph, Node, Op, QParams, Type, Value, verify
from smidgen.numerics import INT32_MAX
from smidgen.ops.elementwise import ADD_SHIFT
from smidgen.ops.weighted import Windowed
from smidgen.ops.window import Pad, Window, same_pad

# The least version of each operator that takes int8; in float32, version 1 does.
INT8_VERSION: Mapping[str, int] = {
    "ADD": 2, "AVERAGE_POOL_2D": 2, "BATCH_MATMUL": 2, "CONCATENATION": 2, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3,
    "DEQUANTIZE": 2,
    "FULLY_CONNECTED": 4, "GATHER": 2, "L2_NORMALIZATION": 2,
    "MAXIMUM": 2, "MAX_POOL_2D": 2, "MEAN": 2, "MUL": 2, "PAD": 2, "PADV2": 2,
    "PRELU": 1, "QUANTIZE": 1, "RELU": 2, "RELU6": 2, "RELU_N1_TO_1": 1, "RESHAPE": 1, "SOFTMAX": 2, "TRANSPOSE": 2,
    "RESIZE_BILINEAR": 2, "RESIZE_NEAREST_NEIGHBOR": 2, "SLICE": 2,
}  # fmt: skip
REQUANTIZE_VERSION, DILATED_VERSION = 2, 2  # of QUANTIZE from int8, of DEPTHWISE_CONV_2D in float32
GROUPED_VERSION, PER_CHANNEL_DENSE_VERSION = 6, 12  # of CONV_2D, of FULLY_CONNECTED
ACTIVATION_OPERATORS: Mapping[str, str] = {"relu": "RELU", "relu6": "RELU6", "relu_n1_to_1": "RELU_N1_TO_1"}


def write_tflite(graph: Graph) -> bytes:
    """The graph as the bytes of a `.tflite` file, on which LiteRT's reference kernels give the same bytes."""
    verify(graph)
    learning = len(graph.updates) - len(graph.variables)
    if learning:
        raise ExportError(
            f"{graph.name} trains: it updates {learning} values, TFLite only infers; export the learned model"
        )
    return encode(Lowering(graph).model())


class Lowering:
    """A file in the making: the graph's values as its tensors, its nodes as operators."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: list[TfliteTensor] = []
        self.operators: list[TfliteOperator] = []
        self.keeping = Keeping(graph.variables)
        self.data = {
            v: data for v, data in (*graph.constants.items(), *graph.state.items()) if v not in graph.variables
        }
        self.places: dict[Value, int] = {}
        self.added: dict[TfliteTensor, int] = {}

    def model(self) -> TfliteModel:
        inputs = tuple(self.place(value) for value in self.graph.inputs)
        for variable in self.graph.variables:
            self.place(variable)
        self.operators += self.keeping.read(self.tensors, self.places)
        for node in self.graph.nodes:
            if isinstance(node.op, ops.Assign):
                self.places[node.out] = self.place(node.ins[1])
                self.operators.append(self.keeping.assign(node, self.places[node.out]))
                continue
            lower = LOWERINGS.get(type(node.op))
            if lower is None:
                known = ", ".join(sorted(op.__name__ for op in LOWERINGS))
                raise ExportError(
                    f"{where(node)}: TFLite has no such operator; supported are {known}; others go to .onnx or .smg"
                )
            _check_scales(node)
            lower(self, node)
        outputs = tuple(self.place(value) for value in self.graph.outputs)
        classes, name = self.graph.classes, self.graph.name
        metadata = class_metadata(name) if classes else b""
        others = self.keeping.initial([_tensor(v, self.graph.state[v]) for v in self.graph.variables])
        return TfliteModel(tuple(self.tensors), tuple(self.operators), inputs, outputs, name, metadata, classes, others)

    def place(self, value: Value) -> int:
        """The index of a value's tensor, added at the first call."""
        if value not in self.places:
            self.places[value] = self.append(_tensor(value, self.data.get(value)))
        return self.places[value]

    def append(self, tensor: TfliteTensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def constant(self, tensor: TfliteTensor) -> int:
        """The index of a constant that is not a value of the graph, or that needs a quantization of its own."""
        if tensor not in self.added:
            self.added[tensor] = self.append(tensor)
        return self.added[tensor]

    def temporary(self, name: str, type_: Type) -> int:
        """The index of a tensor on the way from one operator to the next."""
        return self.append(_tensor(Value(name, type_), None))

    def held(self, name: str, data: Array, q: QParams | None = None) -> int:
        """The index of a constant of this data."""
        return self.constant(_tensor(Value(name, Type(data.shape, data.dtype.name, q)), data))

    def integers(self, name: str, data: Array) -> int:
        return self.constant(TfliteTensor(name, data.shape, "int32", data=data.astype("<i4").tobytes()))

    def emit(
        self, code: str, node: Node, *ins: int, options: TfliteOptions | None = None, version: int = 0,
        out: int | None = None,
    ) -> None:  # fmt: skip
        """Append the operator that computes the node's output, or a tensor on the way to it."""
        outs = (self.place(node.out) if out is None else out,)
        self.operators.append(
            TfliteOperator(code, ins, outs, options or TfliteOptions(), version or _version(code, node))
        )

    def padded(self, code: str, node: Node, pad: Pad, *ins: int) -> int:
        """The node's input with `pad` around its map: the index of a tensor of its own."""
        top, bottom, left, right = pad
        x = node.ins[0].type
        pads = self.integers("padding", np.array([(0, 0), (top, bottom), (left, right), (0, 0)]))
        n, h, w, c = x.shape
        shape = (n, h + top + bottom, w + left + right, c)
        y = self.append(_tensor(Value(f"{node.out.name}.padded", Type(shape, x.dtype, x.q)), None))
        self.operators.append(
            TfliteOperator(code, (self.place(node.ins[0]), pads, *ins), (y,), TfliteOptions(), _version(code, node))
        )
        return y

    def bias(self, node: Node) -> int:
        """The bias with the scale TFLite expects of it, s_x·s_w; a constant may be read under several."""
        x, w, b = node.ins
        if b.type.dtype != "int32":
            return self.place(b)
        if b not in self.data:
            raise ExportError(f"{where(node)}: its bias %{b.name} is computed or an input; TFLite needs a constant")
        assert w.type.q is not None
        scales = tuple(float(s) for s in np.float32(x.type.scale) * np.array(w.type.q.scale, np.float32))
        return self.constant(replace(_tensor(b, self.data[b]), scales=scales, zeros=(0,) * len(scales), axis=0))


def where(node: Node) -> str:
    return f"{type(node.op).__name__} of %{node.outs[0].name}"


def _check_scales(node: Node) -> None:
    """Raise where the scales are beyond the arithmetic, both ours and TFLite's."""
    try:
        if node.out.type.dtype == "int8":
            node.op.params(node)
    except GraphError as error:
        raise ExportError(f"{where(node)}: {error}") from None


def _tensor(value: Value, data: Array | None) -> TfliteTensor:
    type_ = value.type
    raw = None if data is None else data.astype(DTYPES[type_.dtype].newbyteorder("<"), copy=False).tobytes()
    if type_.q is None:
        return TfliteTensor(value.name, type_.shape, type_.dtype, data=raw)
    scales, axis = type_.q.scale, type_.q.axis or 0
    return TfliteTensor(value.name, type_.shape, type_.dtype, scales, (type_.q.zero,) * len(scales), axis, raw)


def _version(code: str, node: Node) -> int:
    return INT8_VERSION[code] if node.ins[0].type.dtype == "int8" else 1


def _activation(activation: str) -> int:
    return ACTIVATIONS[activation]


def _window_options(window: Window, activation: str, padding: int) -> TfliteOptions:
    return TfliteOptions(
        padding=padding,
        stride_h=window.stride[0],
        stride_w=window.stride[1],
        dilation_h_factor=window.dilation[0],
        dilation_w_factor=window.dilation[1],
        filter_height=window.size[0],
        filter_width=window.size[1],
        fused_activation_function=_activation(activation),
    )


def _padding(window: Window, x: Type) -> int | None:
    """TFLite's word for the window's padding, or None where it has none."""
    if window.pad == (0, 0, 0, 0):
        return int(VALID)
    return int(SAME) if window.pad == same_pad(x.shape, window.size, window.stride, window.dilation) else None


def _conv(lowering: Lowering, node: Node) -> None:
    op = node.op
    assert isinstance(op, Windowed)
    x, w, _ = (value.type for value in node.ins)
    window = op.window(w)
    padding = _padding(window, x)
    first = lowering.place(node.ins[0]) if padding is not None else lowering.padded("PAD", node, op.pad)
    options = _window_options(window, op.activation, VALID if padding is None else padding)
    ins = (first, lowering.place(node.ins[1]), lowering.bias(node))
    if isinstance(op, ops.Conv2D):
        version = GROUPED_VERSION if op.groups > 1 else 0
        lowering.emit("CONV_2D", node, *ins, options=options, version=version)
    else:
        version = DILATED_VERSION if x.dtype == "float32" and op.dilation != (1, 1) else 0
        options = replace(options, depth_multiplier=w.shape[3] // x.shape[3])
        lowering.emit("DEPTHWISE_CONV_2D", node, *ins, options=options, version=version)


def _dense(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Dense)
    x, w, _ = node.ins
    per_channel = w.type.q is not None and len(w.type.q.scale) > 1
    if x.type.dtype == "int8":
        _check_product(lowering, node)
    options = TfliteOptions(fused_activation_function=_activation(node.op.activation))
    ins = (lowering.place(x), lowering.place(w), lowering.bias(node))
    version = PER_CHANNEL_DENSE_VERSION if per_channel else 0
    lowering.emit("FULLY_CONNECTED", node, *ins, options=options, version=version)


def _check_product(lowering: Lowering, node: Node) -> None:
    """TFLite converts the scaled sum to int32 before it saturates: beyond that range its result is undefined."""
    factor = float(np.max(node.op.params(node)["factor"]))
    bias = np.abs(lowering.data[node.ins[2]].astype(np.int64)).max() if node.ins[2] in lowering.data else 0
    most = node.ins[0].type.shape[1] * 255 * 128 + int(bias)
    if most * factor > INT32_MAX:
        raise ExportError(
            f"{where(node)}: sums up to {most:,} times {factor:.3g}, the ratio of scales, are beyond TFLite's int32; "
            "calibrate the model again"
        )


def _binary(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Add | ops.Mul)
    a, b, y = (*node.ins, node.out)
    if isinstance(node.op, ops.Add) and y.type.q and 2 * max(a.type.scale, b.type.scale) >= y.type.scale * 2**ADD_SHIFT:
        raise ExportError(
            f"{where(node)}: TFLite adds only where the output's scale {y.type.scale:.3g} is above 2^{1 - ADD_SHIFT} "
            f"of its inputs' {a.type.scale:.3g} and {b.type.scale:.3g}; calibrate the model again"
        )
    options = TfliteOptions(fused_activation_function=_activation(node.op.activation))
    ins = (lowering.place(value) for value in node.ins)
    lowering.emit("ADD" if isinstance(node.op, ops.Add) else "MUL", node, *ins, options=options)


def _maximum(lowering: Lowering, node: Node) -> None:
    lowering.emit("MAXIMUM", node, *(lowering.place(value) for value in node.ins))


def _matmul(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.MatMul)
    options = TfliteOptions(adj_x=node.op.transpose_a, adj_y=node.op.transpose_b)
    lowering.emit("BATCH_MATMUL", node, *(lowering.place(value) for value in node.ins), options=options)


def _prelu(lowering: Lowering, node: Node) -> None:
    x, slope = node.ins
    lowering.emit("PRELU", node, lowering.place(x), lowering.place(slope))


def _max_pool(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.MaxPool)
    x, window = node.ins[0].type, node.op.window
    padding = _padding(window, x)
    options = _window_options(window, node.op.activation, VALID if padding is None else padding)
    if padding is not None:
        lowering.emit("MAX_POOL_2D", node, lowering.place(node.ins[0]), options=options)
        return
    # Padding must never win: fill with the least number there is, not with zero.
    least = np.array([-np.inf if x.dtype == "float32" else np.iinfo(x.dtype).min], x.dtype)
    fill = lowering.constant(_tensor(Value("least", Type((1,), x.dtype, x.q)), least))
    lowering.emit("MAX_POOL_2D", node, lowering.padded("PADV2", node, node.op.pad, fill), options=options)


def _avg_pool(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.AvgPool)
    x, window = node.ins[0].type, node.op.window
    padding = _padding(window, x)
    if padding is None:
        same = same_pad(x.shape, window.size, window.stride)
        raise ExportError(
            f"{where(node)}: TFLite averages with no padding or with {same}, not with {window.pad}; use one of these"
        )
    options = _window_options(window, node.op.activation, padding)
    lowering.emit("AVERAGE_POOL_2D", node, lowering.place(node.ins[0]), options=options)


def _mean(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Mean)
    axes = lowering.integers("height_and_width", np.array([1, 2]))
    options = TfliteOptions(keep_dims=node.op.keep_dims)
    lowering.emit("MEAN", node, lowering.place(node.ins[0]), axes, options=options)


def _softmax(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Softmax)
    lowering.emit("SOFTMAX", node, lowering.place(node.ins[0]), options=TfliteOptions(beta=node.op.beta))


def _unit_norm(lowering: Lowering, node: Node) -> None:
    lowering.emit("L2_NORMALIZATION", node, lowering.place(node.ins[0]))


def _activate(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Activate)
    if node.op.activation not in ACTIVATION_OPERATORS:
        raise ExportError(
            f"{where(node)}: '{node.op.activation}' is not an activation of TFLite; use "
            f"{', '.join(ACTIVATION_OPERATORS)}"
        )
    lowering.emit(ACTIVATION_OPERATORS[node.op.activation], node, lowering.place(node.ins[0]))


def _quantize(lowering: Lowering, node: Node) -> None:
    version = REQUANTIZE_VERSION if isinstance(node.op, ops.Requantize) else 0
    lowering.emit("QUANTIZE", node, lowering.place(node.ins[0]), version=version)


def _dequantize(lowering: Lowering, node: Node) -> None:
    lowering.emit("DEQUANTIZE", node, lowering.place(node.ins[0]))


def _lookup(lowering: Lowering, node: Node) -> None:
    """TFLite's own function, or a table's elements at x + 128, whose name says what they are."""
    op, (x,), y = node.op, node.ins, node.out
    assert isinstance(op, ops.Lookup)
    own = _own_function(op)
    if own is not None and (op.tflite or x.type.dtype == "float32"):
        code, version = own
        options = TfliteOptions(alpha=op.alpha, approximate=op.function == "gelu_tanh")
        version = version if x.type.dtype == "int8" else 1
        lowering.emit(code, node, lowering.place(x), options=options, version=version)
        return
    if x.type.dtype != "int8":
        raise ExportError(f"{where(node)}: {op.function} is exported as a table of int8 results; quantize the model")
    raw, places = (
        lowering.append(TfliteTensor(f"{y.name}.{what}", y.type.shape, "int32")) for what in ("integers", "places")
    )
    types = TfliteOptions(in_data_type=TENSOR_TYPES["int8"], out_data_type=TENSOR_TYPES["int32"])
    zero = lowering.integers("zero_place", np.array([ZERO_PLACE]))
    lowering.operators += [
        TfliteOperator("CAST", (lowering.place(x),), (raw,), types), TfliteOperator("ADD", (raw, zero), (places,))
    ]  # fmt: skip
    name = f"{'slope of ' if op.slope else ''}{op.function}({op.alpha!r}, {op.beta!r})"
    data = op.table(x.type, y.type)
    table = lowering.constant(_tensor(Value(name, Type(data.shape, "int8", y.type.q)), data))
    lowering.emit("GATHER", node, table, places)


def _own_function(op: ops.Lookup) -> tuple[str, int] | None:
    """TFLite's operator for a function, and the version that takes int8."""
    for code, (function, alpha, version) in FUNCTION_OPERATORS.items():
        same = function == op.function.removesuffix("_tanh") and (code == "LEAKY_RELU" or alpha == op.alpha)
        if same and not op.slope:
            return code, version
    return None


LOWERINGS: Mapping[type[Op], Callable[[Lowering, Node], None]] = {
    **MOVES, **RECURRENCES,
    ops.Activate: _activate, ops.Add: _binary, ops.AvgPool: _avg_pool, ops.Conv2D: _conv,
    ops.Dense: _dense, ops.Depthwise: _conv, ops.Dequantize: _dequantize, ops.Lookup: _lookup, ops.MatMul: _matmul,
    ops.Maximum: _maximum,
    ops.MaxPool: _max_pool, ops.Mean: _mean, ops.Mul: _binary, ops.PRelu: _prelu,
    ops.Quantize: _quantize, ops.Requantize: _quantize, ops.Softmax: _softmax, ops.UnitNorm: _unit_norm,
}  # fmt: skip
