"""Float graph + ranges → int8 graph: tensors that share a quantization, rounded constants, corrected biases."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from smidgen import numerics, ops
from smidgen.ir import Array, Builder, Graph, Node, Op, QParams, Type, Value
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ops.normalize import rounded_constants
from smidgen.ops.recurrence import Recurrent
from smidgen.ops.unit_norm import UNIT
from smidgen.ops.weighted import Weighted, weighted
from smidgen.quantization.batch import Values, accumulate
from smidgen.quantization.calibration import QuantizationError, Range, scale_of

# The output has the input's quantization.
KEEPS_QUANTIZATION = (
    ops.MaxPool, ops.AvgPool, ops.Crop, ops.Pad, ops.Pick, ops.Reshape, ops.ResizeBilinear, ops.Transpose,
)  # fmt: skip
ONE_QUANTIZATION = (ops.Concat, ops.Maximum)  # inputs and output have the same
# The output has a new one.
NEW_QUANTIZATION = (
    Weighted, Recurrent, ops.Activate, ops.Add, ops.MatMul, ops.Mul, ops.Mean, ops.Lookup, ops.Normalize, ops.PRelu,
)  # fmt: skip
FIXED: Mapping[type[Op], QParams] = {
    ops.Softmax: ops.Softmax.output, ops.LogSoftmax: ops.LogSoftmax.output, ops.UnitNorm: UNIT,
}  # fmt: skip
WITH_CONSTANTS = Weighted | Recurrent | ops.Normalize  # all inputs but the first are constants
WEIGHT_STEPS = 127
LARGEST_BIAS = 2**29  # leaves the accumulator room for the products
NEARLY = 2**-13  # of a step: float32 puts halves a little off


def input_scale(preprocessing: Preprocessing, channels: int) -> QParams:
    """Return the quantization of an image input: one step per pixel value (p becomes p − 128) if all channels agree.

    Otherwise, and if the numbers of pixels stay away from zero, it is the smallest range that holds them and zero.
    """
    numbers = preprocessing.numbers(channels)
    step = numbers[1, 0] - numbers[0, 0]
    zero = int(np.floor(-128 - numbers[0, 0] / step + 0.5 + NEARLY))
    if np.ptp(numbers[0]) == np.ptp(numbers[255]) == 0 and -128 <= zero <= 127:
        return QParams.per_tensor(step, zero)
    return scale_of((float(numbers.min()), float(numbers.max())))


def check_ops(graph: Graph) -> None:
    """Raise QuantizationError if an op has no int8 form."""
    for node in graph.nodes:
        what = f"{type(node.op).__name__}, which gives %{node.outs[0].name},"
        if not isinstance(node.op, (*KEEPS_QUANTIZATION, *ONE_QUANTIZATION, *NEW_QUANTIZATION, *FIXED)):
            raise QuantizationError(f"{what} has no int8 form; leave it out")
        if isinstance(node.op, WITH_CONSTANTS) and not all(v in graph.constants for v in node.ins[1:]):
            raise QuantizationError(f"{what} computes its weights; they must be constants")


def share_scales(graph: Graph, ranges: Mapping[Value, Range], given: QParams | None) -> dict[Value, QParams]:
    """Return a quantization for every computed value; `given` is that of the input, if it is fixed.

    Tensors that pools, pads and reshapes join have one, that of all their ranges together; so have the inputs of a
    concatenation or a maximum, but for those that are fixed (an image, probabilities): these are requantized for it.
    """
    group: dict[Value, list[Value]] = {v: [v] for v in (*graph.inputs, *(n.out for n in graph.nodes))}
    fixed: dict[Value, QParams] = {} if given is None else {graph.inputs[0]: given}
    fixed |= {node.out: FIXED[type(node.op)] for node in graph.nodes if type(node.op) in FIXED}

    def join(a: Value, b: Value) -> None:
        if group[a] is not group[b]:
            members = [*group[a], *group[b]]
            group.update(dict.fromkeys(members, members))

    for node in graph.nodes:
        if isinstance(node.op, KEEPS_QUANTIZATION):
            join(node.ins[0], node.out)
        elif isinstance(node.op, ONE_QUANTIZATION):
            for value in node.ins:
                if value in group and not any(v in fixed for v in group[value]):
                    join(value, node.out)
    chosen: dict[Value, QParams] = {}
    for value, members in group.items():
        known = next((fixed[v] for v in members if v in fixed), None)
        low, high = min(ranges[v][0] for v in members), max(ranges[v][1] for v in members)
        chosen[value] = known or scale_of((low, high))
    return chosen


def round_graph(graph: Graph, scales: Mapping[Value, QParams]) -> Graph:
    """Return the same nodes in int8, by the same names."""
    g = Builder(graph.name, graph.preprocessing, graph.classes)
    values = {v: g.input(v.name, Type(v.type.shape, "int8", scales[v])) for v in graph.inputs}
    for node in graph.nodes:
        q, op = scales[node.out], node.op
        if isinstance(op, WITH_CONSTANTS):
            x = values[node.ins[0]]
            ins: tuple[Value, ...] = (x, *_constants(g, node, [graph.constants[v] for v in node.ins[1:]], x.type, q))
        else:
            wanted = q if isinstance(op, ONE_QUANTIZATION) else None
            ins = tuple(_operand(g, graph, values, v, wanted) for v in node.ins)
        rounded = _without_redundant_activation(op, node.out.type.shape, q)
        values[node.out] = g.emit(rounded, *ins, q=q, name=node.out.name)
    return g.graph(*(values[v] for v in graph.outputs))


def _operand(g: Builder, graph: Graph, values: Mapping[Value, Value], value: Value, q: QParams | None) -> Value:
    """Return a node's input, a value made before or a constant as int8, in the quantization wanted if there is one."""
    if (data := graph.constants.get(value)) is not None:
        q = q or scale_of((float(data.min()), float(data.max())))
        return g.constant(value.name, numerics.quantize(data, q), q)
    made = values[value]
    return made if q in (None, made.type.q) else g.emit(ops.Requantize(), made, q=q, name=f"{made.name}.requantized")


def _constants(g: Builder, node: Node, held: list[Array], x: Type, q: QParams) -> tuple[Value, ...]:
    """Return a layer's constants as integers, given those in float32."""
    if isinstance(node.op, Recurrent):
        return _gate_constants(g, node, held, x.scale, q.one)
    _, first, second = node.ins
    if isinstance(node.op, ops.Normalize):  # scales in int16, shifts in parts of the output's step
        rounded = rounded_constants(held[0], held[1], q)
        return g.constant(first.name, rounded.scale, rounded.q), g.constant(second.name, rounded.shift)
    (w, b), axis = held, weighted(node).weight_axis
    scales = weight_scales(w, b, axis, x.scale)
    bias = np.rint(b / (x.scale * scales)).astype(np.int32)  # in steps of the accumulator
    return _rounded_weights(g, first.name, w, scales, axis), g.constant(second.name, bias)


def _without_redundant_activation(op: Op, shape: tuple[int, ...], q: QParams) -> Op:
    """Drop an activation whose limits are those of int8: saturation does the same."""
    activation = getattr(op, "activation", "none")
    if activation == "none" or isinstance(op, ops.Activate):
        return op
    limits = numerics.activation_range(activation, Type(shape, "int8", q))
    return replace(op, activation="none") if limits == (numerics.INT8_MIN, numerics.INT8_MAX) else op  # type: ignore[call-arg]


def _rounded_weights(g: Builder, name: str, w: Array, scales: Array, axis: int) -> Value:
    along = [-1 if i == axis else 1 for i in range(w.ndim)]
    rounded = np.clip(np.rint(w / scales.reshape(along)), -WEIGHT_STEPS, WEIGHT_STEPS).astype(np.int8)
    return g.constant(name, rounded, QParams.per_channel(scales, axis))


def _gate_constants(g: Builder, node: Node, held: list[Array], x_scale: float, y_scale: float) -> tuple[Value, ...]:
    """Return weights of x and of the hidden state rounded gate by gate, and the bias in steps of its sums."""
    (w, u, b), gates = held, len(held[0])
    beside = np.zeros((gates, b.shape[1]))  # added to the sums of the hidden state
    beside[-1] = b[-1] if len(b) > gates else 0.0
    made, steps = [], []
    for value, weights, bias, scale in ((node.ins[1], w, b[:gates], x_scale), (node.ins[2], u, beside, y_scale)):
        scales = weight_scales(weights, np.abs(bias).max(axis=1), 0, scale)
        made.append(_rounded_weights(g, value.name, weights, scales, 0))
        steps.append(np.rint(bias / (scale * scales[:, None])))
    rows = [*steps[0], *steps[1][-1:]][: len(b)]
    return (*made, g.constant(node.ins[3].name, np.array(rows).astype(np.int32)))


def weight_scales(w: Array, b: Array, axis: int, x_scale: float) -> Array:
    """Return one scale per channel: the largest weight is 127 steps; a channel of zeros takes the largest scale.

    A scale is at least what keeps the bias, in steps of the accumulator, within its range.
    """
    others = tuple(i for i in range(w.ndim) if i != axis)
    scales = np.abs(w).max(axis=others).astype(np.float64) / WEIGHT_STEPS
    scales = np.where(scales > 0, scales, scales.max() or 1.0 / WEIGHT_STEPS)
    least = np.abs(b.astype(np.float64)) / (x_scale * LARGEST_BIAS)
    return np.asarray(np.maximum(scales, least).astype(np.float32), np.float64)


def correct_biases(real: Graph, rounded: Graph, samples: Array, integers: Array) -> Graph:
    """Subtract the mean error that rounding leaves in each channel from its bias, layer by layer.

    `samples` are the input of the float graph, `integers` the same as int8. Errors are taken before the activation,
    with all earlier layers already corrected.
    """
    float_node = {node.out.name: node for node in real.nodes}
    constants = dict(rounded.constants)
    graph = replace(rounded, constants=constants)
    reals, ints = Values(real, samples), Values(graph, integers)
    for node in rounded.nodes:
        twin = float_node.get(node.out.name)
        if twin is None:
            ints.run(node)
        elif isinstance(node.op, Weighted):
            sums, wanted = accumulate(node, *ints.of(node)), accumulate(twin, *reals.of(twin))
            axes, w = tuple(range(sums.ndim - 1)), node.ins[1].type.q
            assert w is not None
            step = node.ins[0].type.scale * np.array(w.scale)  # of the accumulator
            errors = sums.mean(axis=axes) - wanted.mean(axis=axes, dtype=np.float64) / step
            off = np.rint(np.clip(errors, -LARGEST_BIAS, LARGEST_BIAS)).astype(np.int64)
            bias = np.clip(constants[node.ins[2]] - off, -2 * LARGEST_BIAS, 2 * LARGEST_BIAS)
            constants[node.ins[2]] = bias.astype(np.int32)
            ints.keep(node, node.op.finish(node, sums - off))
            reals.keep(twin, weighted(twin).finish(twin, wanted))
        else:
            ints.run(node)
            reals.run(twin)
    return graph
