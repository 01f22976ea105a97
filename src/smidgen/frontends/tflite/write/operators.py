"""TFLite's operators for each op of a graph, and the file that they are appended to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.frontends.blocks import sum_scales, where
from smidgen.frontends.tflite import flatbuffer
from smidgen.frontends.tflite.flatbuffer import ACTIVATIONS, SAME, VALID, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import DTYPES, Array, Graph, Node, Op, QParams, Type, Value
from smidgen.numerics import INT32_MAX
from smidgen.numerics.int16 import FRACTION
from smidgen.ops.elementwise import ADD_SHIFT
from smidgen.ops.recurrence import gate_scales
from smidgen.ops.resize import nearest
from smidgen.ops.weighted import Windowed
from smidgen.ops.window import Pad, Window, same_pad

# The first version of each operator that takes int8; in float32, version 1 does.
INT8_VERSION: Mapping[str, int] = {
    "ADD": 2, "AVERAGE_POOL_2D": 2, "BATCH_MATMUL": 2, "CONCATENATION": 2, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3,
    "DEQUANTIZE": 2, "FULLY_CONNECTED": 4, "GATHER": 2, "L2_NORMALIZATION": 2, "LOG_SOFTMAX": 2, "MAXIMUM": 2,
    "MAX_POOL_2D": 2, "MEAN": 2, "MUL": 2, "PAD": 2, "PADV2": 2, "PRELU": 1, "QUANTIZE": 1, "RELU": 2, "RELU6": 2,
    "RELU_N1_TO_1": 1, "RESHAPE": 1, "RESIZE_BILINEAR": 2, "RESIZE_NEAREST_NEIGHBOR": 2, "SLICE": 2, "SOFTMAX": 2,
    "TRANSPOSE": 2,
}  # fmt: skip
REQUANTIZE_VERSION, DILATED_VERSION = 2, 2  # of QUANTIZE from int8, of DEPTHWISE_CONV_2D in float32
GROUPED_VERSION, PER_CHANNEL_DENSE_VERSION = 6, 12  # of CONV_2D, of FULLY_CONNECTED
RESIZE_VERSION = 3  # of resizes that align centres, or corners of the nearest
RESIZES = ((False, False), (False, True), (True, False))  # ways to resize: align corners, align centres
GATES = ("input", "forget", "cell", "output")


class Lowering:
    """A file being written: the graph's values as its tensors, its nodes as operators."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: list[TfliteTensor] = []
        self.operators: list[TfliteOperator] = []
        kept = {**graph.constants, **graph.state}
        self.data = {value: data for value, data in kept.items() if value not in graph.variables}
        self.places: dict[Value, int] = {}
        self.added: dict[TfliteTensor, int] = {}

    def place(self, value: Value) -> int:
        """Return the index of a value's tensor, which the first call appends."""
        if value not in self.places:
            self.places[value] = self.append(tensor_of(value, self.data.get(value)))
        return self.places[value]

    def append(self, tensor: TfliteTensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def temporary(self, name: str, type_: Type) -> int:
        """Return the index of a tensor between two operators of one node."""
        return self.append(tensor_of(Value(name, type_), None))

    def constant(self, tensor: TfliteTensor) -> int:
        """Return the index of a constant that is not a value of the graph, or whose quantization differs from it."""
        if tensor not in self.added:
            self.added[tensor] = self.append(tensor)
        return self.added[tensor]

    def held(self, name: str, data: Array, q: QParams | None = None) -> int:
        """Return the index of a constant of this data."""
        return self.constant(tensor_of(Value(name, Type(data.shape, data.dtype.name, q)), data))

    def integers(self, name: str, numbers: Sequence[object]) -> int:
        return self.held(name, np.array(numbers, np.int32))

    def emit(
        self, code: str, node: Node, *ins: int, options: TfliteOptions | None = None, version: int = 0,
        out: int | None = None,
    ) -> None:  # fmt: skip
        """Append an operator that computes the node's output, or another tensor on the way to it."""
        if not version:
            version = INT8_VERSION[code] if node.ins[0].type.dtype == "int8" else 1
        outs = (self.place(node.out) if out is None else out,)
        self.operators.append(TfliteOperator(code, ins, outs, options or TfliteOptions(), version))

    def padded(self, code: str, node: Node, pad: Pad, *ins: int) -> int:
        """Append an operator that pads the node's input, and return the index of the padded tensor."""
        top, bottom, left, right = pad
        x = node.ins[0].type
        pads = self.integers("padding", [(0, 0), (top, bottom), (left, right), (0, 0)])
        n, h, w, c = x.shape
        shape = (n, h + top + bottom, w + left + right, c)
        y = self.temporary(f"{node.out.name}.padded", Type(shape, x.dtype, x.q))
        self.emit(code, node, self.place(node.ins[0]), pads, *ins, out=y)
        return y

    def bias(self, node: Node) -> int:
        """Return the index of the bias with the scale TFLite expects, s_x·s_w; a constant may be read under several."""
        b = node.ins[2]
        if b.type.dtype != "int32":
            return self.place(b)
        if b not in self.data:
            raise ExportError(f"{where(node)}: its bias %{b.name} is computed or an input; TFLite needs a constant")
        scales = sum_scales(node)
        return self.constant(replace(tensor_of(b, self.data[b]), scales=scales, zeros=(0,) * len(scales), axis=0))


def tensor_of(value: Value, data: Array | None) -> TfliteTensor:
    """Return a value as a tensor, a constant if it has data."""
    type_ = value.type
    raw = None if data is None else data.astype(DTYPES[type_.dtype].newbyteorder("<"), copy=False).tobytes()
    if type_.q is None:
        return TfliteTensor(value.name, type_.shape, type_.dtype, data=raw)
    scales, axis = type_.q.scale, type_.q.axis or 0
    return TfliteTensor(value.name, type_.shape, type_.dtype, scales, (type_.q.zero,) * len(scales), axis, raw)


Lower = Callable[[Lowering, Node, Any], None]  # the file, a node and the node's op
Integers = Mapping[str, Sequence[object]]


def _one(
    code: str, options: Callable[[Any], TfliteOptions] = lambda op: TfliteOptions(),
    integers: Callable[[Any, Type], Integers] = lambda op, y: {}, version: int = 0,
) -> Lower:  # fmt: skip
    """Return the rule of an op that is one operator: its options, and its constant inputs of integers by name."""

    def lower(file: Lowering, node: Node, op: Op) -> None:
        ins = [file.place(value) for value in node.ins]
        ins += [file.integers(name, numbers) for name, numbers in integers(op, node.out.type).items()]
        file.emit(code, node, *ins, options=options(op), version=version)

    return lower


def _activated(op: Any) -> TfliteOptions:
    return TfliteOptions(fused_activation_function=ACTIVATIONS[op.activation])


def _window_options(window: Window, activation: str, padding: int) -> TfliteOptions:
    return TfliteOptions(
        padding=padding, stride_h=window.stride[0], stride_w=window.stride[1], dilation_h_factor=window.dilation[0],
        dilation_w_factor=window.dilation[1], filter_height=window.size[0], filter_width=window.size[1],
        fused_activation_function=ACTIVATIONS[activation],
    )  # fmt: skip


def _padding(window: Window, x: Type) -> int | None:
    """Return TFLite's code for the window's padding, or None if it has none."""
    if window.pad == (0, 0, 0, 0):
        return int(VALID)
    return int(SAME) if window.pad == same_pad(x.shape, window.size, window.stride, window.dilation) else None


def _conv(file: Lowering, node: Node, op: Windowed) -> None:
    x, w, _ = (value.type for value in node.ins)
    window = op.window(w)
    padding = _padding(window, x)
    first = file.place(node.ins[0]) if padding is not None else file.padded("PAD", node, op.pad)
    options = _window_options(window, op.activation, VALID if padding is None else padding)
    ins = (first, file.place(node.ins[1]), file.bias(node))
    if isinstance(op, ops.Conv2D):
        file.emit("CONV_2D", node, *ins, options=options, version=GROUPED_VERSION if op.groups > 1 else 0)
    else:
        version = DILATED_VERSION if x.dtype == "float32" and op.dilation != (1, 1) else 0
        options = options.but(depth_multiplier=w.shape[3] // x.shape[3])
        file.emit("DEPTHWISE_CONV_2D", node, *ins, options=options, version=version)


def _pool(file: Lowering, node: Node, op: ops.MaxPool | ops.AvgPool) -> None:
    x, window, largest = node.ins[0].type, op.window, isinstance(op, ops.MaxPool)
    padding = _padding(window, x)
    if padding is None and not largest:
        same = same_pad(x.shape, window.size, window.stride)
        raise ExportError(
            f"{where(node)}: TFLite averages with no padding or with {same}, not with {window.pad}; use one of these"
        )
    if padding is None:
        # Padding must never win: fill with the lowest number, not with zero.
        least = np.array([-np.inf if x.dtype == "float32" else np.iinfo(x.dtype).min], x.dtype)
        source = file.padded("PADV2", node, op.pad, file.held("least", least, x.q))
    else:
        source = file.place(node.ins[0])
    options = _window_options(window, op.activation, VALID if padding is None else padding)
    file.emit("MAX_POOL_2D" if largest else "AVERAGE_POOL_2D", node, source, options=options)


def _dense(file: Lowering, node: Node, op: ops.Dense) -> None:
    """Write a dense layer, unless its scaled sum leaves int32: TFLite converts it before it saturates."""
    x, w, b = node.ins
    if x.type.dtype == "int8":
        factor = float(np.max(op.params(node)["factor"]))
        bias = np.abs(file.data[b].astype(np.int64)).max() if b in file.data else 0
        most = x.type.shape[1] * 255 * 128 + int(bias)
        if most * factor > INT32_MAX:
            raise ExportError(
                f"{where(node)}: sums up to {most:,} times {factor:.3g}, the ratio of scales, are beyond TFLite's "
                "int32; calibrate the model again"
            )
    per_channel = w.type.q is not None and len(w.type.q.scale) > 1
    ins, version = (file.place(x), file.place(w), file.bias(node)), PER_CHANNEL_DENSE_VERSION if per_channel else 0
    file.emit("FULLY_CONNECTED", node, *ins, options=_activated(op), version=version)


def _add(file: Lowering, node: Node, op: ops.Add) -> None:
    a, b, y = (*node.ins, node.out)
    if y.type.q and 2 * max(a.type.scale, b.type.scale) >= y.type.scale * 2**ADD_SHIFT:
        raise ExportError(
            f"{where(node)}: TFLite adds only where the output's scale {y.type.scale:.3g} is above 2^{1 - ADD_SHIFT} "
            f"of its inputs' {a.type.scale:.3g} and {b.type.scale:.3g}; calibrate the model again"
        )
    file.emit("ADD", node, file.place(a), file.place(b), options=_activated(op))


def _activate(file: Lowering, node: Node, op: ops.Activate) -> None:
    known = [name for name in ACTIVATIONS if name != "none"]
    if op.activation not in known:
        raise ExportError(f"{where(node)}: '{op.activation}' is no activation of TFLite; use {', '.join(known)}")
    file.emit(op.activation.upper(), node, file.place(node.ins[0]))


def _lookup(file: Lowering, node: Node, op: ops.Lookup) -> None:
    """Write TFLite's own function, or a gather at x + 128 from a table whose name states what it holds."""
    (x,), y = node.ins, node.out
    for code, (function, alpha, version) in flatbuffer.FUNCTION_OPERATORS.items():
        same = function == op.function.removesuffix("_tanh") and (code == "LEAKY_RELU" or alpha == op.alpha)
        if same and not op.slope and (op.tflite or x.type.dtype == "float32"):
            options = TfliteOptions(alpha=op.alpha, approximate=op.function == "gelu_tanh")
            file.emit(code, node, file.place(x), options=options, version=version if x.type.dtype == "int8" else 1)
            return
    if x.type.dtype != "int8":
        raise ExportError(f"{where(node)}: {op.function} is exported as a table of int8 results; quantize the model")
    raw, places = (file.temporary(f"{y.name}.{role}", Type(y.type.shape, "int32")) for role in ("integers", "places"))
    int8, int32 = (flatbuffer.TENSOR_TYPES[name] for name in ("int8", "int32"))
    types, zero = TfliteOptions(in_data_type=int8, out_data_type=int32), [flatbuffer.ZERO_PLACE]
    file.emit("CAST", node, file.place(x), options=types, version=1, out=raw)
    file.emit("ADD", node, raw, file.integers("zero_place", zero), version=1, out=places)
    name = f"{'slope of ' if op.slope else ''}{op.function}({op.alpha!r}, {op.beta!r})"
    file.emit("GATHER", node, file.held(name, op.table(x.type, y.type), y.type.q), places)


def _log_softmax(file: Lowering, node: Node, op: ops.LogSoftmax) -> None:
    if op.beta != 1.0:
        raise ExportError(f"{where(node)}: TFLite's has no beta, this has {op.beta}; export the model to .onnx")
    file.emit("LOG_SOFTMAX", node, file.place(node.ins[0]))


def _pick(file: Lowering, node: Node, op: ops.Pick) -> None:
    """Write a resize to the nearest if it is one, else gather rows and columns."""
    x, y = node.ins[0].type, node.out.type
    sizes, wanted, source = x.shape[1:3], y.shape[1:3], file.place(node.ins[0])
    every = tuple(p or tuple(range(n)) for p, n in zip((op.rows, op.columns), sizes, strict=True))
    for corners, half in RESIZES:
        if every == tuple(nearest(n, m, corners, half) for n, m in zip(sizes, wanted, strict=True)):
            options = TfliteOptions(align_corners=corners, half_pixel_centers=half)
            version = RESIZE_VERSION if corners or half else 0
            size = file.integers("size", wanted)
            file.emit("RESIZE_NEAREST_NEIGHBOR", node, source, size, options=options, version=version)
            return
    if op.rows and op.columns:
        rows = file.temporary(f"{node.out.name}.rows", Type((1, wanted[0], sizes[1], x.shape[3]), x.dtype, x.q))
        file.emit("GATHER", node, source, file.integers("places", op.rows), options=TfliteOptions(axis=1), out=rows)
        source = rows
    axis = 2 if op.columns else 1
    file.emit("GATHER", node, source, file.integers("places", op.columns or op.rows), options=TfliteOptions(axis=axis))


def _bilinear(file: Lowering, node: Node, op: ops.ResizeBilinear) -> None:
    options = TfliteOptions(align_corners=op.align_corners, half_pixel_centers=op.half_pixel)
    ins = file.place(node.ins[0]), file.integers("size", op.size)
    file.emit("RESIZE_BILINEAR", node, *ins, options=options, version=RESIZE_VERSION if op.half_pixel else 0)


def _lstm(file: Lowering, node: Node, op: ops.Lstm) -> None:
    """Write an LSTM: its weights become those of four gates, its state two variables."""
    (x, w, u, b), y, name = node.ins, node.out.type, node.out.name
    steps, cells = x.type.shape[1], y.shape[-1]
    w_scales, u_scales = (gate_scales(value.type) if value.type.q else None for value in (w, u))
    b_scales = None if x.type.q is None or w_scales is None else [x.type.scale * scale for scale in w_scales]
    weights, recurrent = _gates(file, w, w_scales), _gates(file, u, u_scales)
    kept = Type((1, cells), "int16", QParams.per_tensor(2.0 ** (op.bits - FRACTION))) if y.q else y
    hidden, cell = (
        file.append(replace(tensor_of(Value(f"{name}.{role}", replace(kind, shape=(1, cells))), None), variable=True))
        for role, kind in (("hidden", y), ("cell", kept))
    )
    source, biases, absent = file.place(x), _gates(file, b, b_scales), (flatbuffer.NO_TENSOR,) * 4
    ins = (source, *weights, *recurrent, *absent[:3], *biases, *absent[:2], hidden, cell, *absent)
    between: tuple[int, ...] = ()
    if y.q:  # results on the way: the kernel asks only for the quantization of the hidden state
        between = tuple(file.temporary(f"{name}.{gate}", Type((0,), "float32")) for gate in GATES)
        between += (file.temporary(f"{name}.rounded", Type((0,), y.dtype, y.q)),)
    options = TfliteOptions(fused_activation_function=flatbuffer.TANH, cell_clip=op.clip)
    states = file.place(node.out)
    if not op.whole:
        states = file.temporary(f"{name}.states", Type((1, steps, cells), y.dtype, y.q))
    lstm = TfliteOperator("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, (states,), options, intermediates=between)
    file.operators.append(lstm)
    if not op.whole:
        last = file.temporary(f"{name}.last", Type((1, 1, cells), y.dtype, y.q))
        part = file.integers("start", (0, steps - 1, 0)), file.integers("size", (1, 1, cells))
        file.emit("SLICE", node, states, *part, out=last)
        file.emit("RESHAPE", node, last, file.integers("shape", y.shape))


def _gates(file: Lowering, value: Value, scales: Sequence[float] | None) -> list[int]:
    """Return the constants of each gate, with one scale each."""
    if value not in file.data:
        raise ExportError(f"the weights %{value.name} are computed or an input; TFLite needs constants")
    qs = (None,) * len(GATES) if scales is None else [QParams.per_tensor(scale) for scale in scales]
    parts = zip(GATES, file.data[value], qs, strict=True)
    return [file.held(f"{value.name}.{gate}", part, q) for gate, part, q in parts]


LOWERINGS: Mapping[type[Op], Lower] = {
    ops.Activate: _activate, ops.Add: _add, ops.AvgPool: _pool, ops.Conv2D: _conv, ops.Dense: _dense,
    ops.Depthwise: _conv, ops.Lookup: _lookup, ops.Lstm: _lstm, ops.MaxPool: _pool, ops.Pick: _pick,
    ops.ResizeBilinear: _bilinear, ops.LogSoftmax: _log_softmax,
    ops.Concat: _one("CONCATENATION", lambda op: TfliteOptions(axis=op.axis)),
    ops.Crop: _one("SLICE", integers=lambda op, y: {"start": op.start, "size": y.shape}),
    ops.Dequantize: _one("DEQUANTIZE"), ops.Maximum: _one("MAXIMUM"), ops.Mul: _one("MUL", _activated),
    ops.MatMul: _one("BATCH_MATMUL", lambda op: TfliteOptions(adj_x=op.transpose_a, adj_y=op.transpose_b)),
    ops.Mean: _one(
        "MEAN", lambda op: TfliteOptions(keep_dims=op.keep_dims), lambda op, y: {"height_and_width": (1, 2)}
    ),
    ops.Pad: _one("PAD", integers=lambda op, y: {"padding": [*zip(op.before, op.after, strict=True)]}),
    ops.PRelu: _one("PRELU"), ops.Quantize: _one("QUANTIZE"), ops.UnitNorm: _one("L2_NORMALIZATION"),
    ops.Requantize: _one("QUANTIZE", version=REQUANTIZE_VERSION),
    ops.Reshape: _one("RESHAPE", integers=lambda op, y: {"shape": op.shape}),
    ops.Softmax: _one("SOFTMAX", lambda op: TfliteOptions(beta=op.beta)),
    ops.Transpose: _one("TRANSPOSE", integers=lambda op, y: {"permutation": op.perm}),
}  # fmt: skip
