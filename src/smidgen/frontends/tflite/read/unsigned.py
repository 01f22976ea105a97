"""uint8 tensors as int8: a byte less 128 with a zero point less 128 is the same real number.

That is exact for activations. Weights have no zero point here: those of old uint8 files, less theirs, stay unchanged
within −127 … 127; a channel that reaches further is rounded to a coarser scale.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from smidgen.frontends.tflite.flatbuffer import VALID, TfliteModel, TfliteOperator, TfliteTensor
from smidgen.ir import Array

HALF = 128  # between uint8 and int8
MOST = 127  # steps of a weight
WEIGHT_AXES: Mapping[str, int] = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
# Operators whose uint8 kernels round differently from the int8 ones.
WITHIN_A_STEP: Mapping[str, str] = {"L2_NORMALIZATION": "L2 normalizations", "RESIZE_BILINEAR": "bilinear resizes"}
INT32 = np.iinfo(np.int32)


@dataclass
class _SignedWeights:
    """Converted weights, and how many layers' were exact or rounded, with their channels."""

    exact: int = 0
    rounded: int = 0
    channels: int = 0
    of: int = 0
    tensors: dict[int, TfliteTensor] = field(default_factory=dict)
    coarser: dict[int, Array] = field(default_factory=dict)  # by tensor, new scales as multiples of the old one


def as_signed(model: TfliteModel) -> tuple[TfliteModel, tuple[str, ...]]:
    """Return the same model without uint8, and a note on its uint8 weights."""
    weights = _SignedWeights()
    for operator in model.operators:
        _convert_weights(model, operator, weights)
    tensors = [weights.tensors.get(i) or _moved(tensor) for i, tensor in enumerate(model.tensors)]
    operators: list[TfliteOperator] = []
    for operator in model.operators:
        operators += _in_one_scale(_with_bias(operator, tensors, weights.coarser), model, tensors)
    pools = (o.options for o in model.operators if o.code == "AVERAGE_POOL_2D" and _reads_uint8(model, o))
    odd = (p.filter_height % 2 and p.filter_width % 2 and p.padding == VALID for p in pools)
    averages = sum(not one for one in odd)  # of even numbers: halves of uint8 go up, those of int8 away from zero
    near = Counter(o.code for o in model.operators if o.code in WITHIN_A_STEP and _reads_uint8(model, o))
    joins = len(operators) - len(model.operators)
    return replace(model, tensors=tuple(tensors), operators=tuple(operators)), _notes(weights, averages, near, joins)


def _reads_uint8(model: TfliteModel, operator: TfliteOperator) -> bool:
    index = operator.inputs[0] if operator.inputs else -1
    return 0 <= index < len(model.tensors) and model.tensors[index].dtype == "uint8"


def _notes(weights: _SignedWeights, averages: int, near: Mapping[str, int], joins: int) -> tuple[str, ...]:
    layers, parts = weights.exact + weights.rounded, []
    if weights.rounded:
        parts.append(
            f"the weights of {weights.exact} of {layers} layers exactly, of {weights.rounded} requantized: "
            f"{weights.channels} of their {weights.of:,} channels reach beyond {MOST} steps"
        )
    elif layers:
        parts.append(f"the weights of all {layers} layers exactly")
    if averages:
        parts.append(f"halves in {averages} average pools go away from zero, not up")
    parts += [f"{n} {WITHIN_A_STEP[code]} round as those of int8 do, within a step" for code, n in near.items()]
    if joins:
        parts.append(f"{joins} parts of concatenations are requantized to the scale of the whole, within a step")
    return (f"uint8 became int8: {'; '.join(parts)}",) if parts else ()


def _moved(tensor: TfliteTensor) -> TfliteTensor:
    """Return a uint8 tensor as int8; bytes without a scale are the numbers 0 … 255."""
    zeros = tensor.zeros or (0,) * len(tensor.scales)
    if tensor.dtype != "uint8" or len(tensor.scales) > 1 or len(zeros) != len(tensor.scales):
        return tensor
    data = None if tensor.data is None else bytes(np.frombuffer(tensor.data, np.uint8) ^ np.uint8(HALF))
    scales, zeros = (tensor.scales, zeros) if tensor.scales else ((1.0,), (0,))
    return replace(tensor, dtype="int8", scales=scales, zeros=(zeros[0] - HALF,), data=data)


def _convert_weights(model: TfliteModel, operator: TfliteOperator, weights: _SignedWeights) -> None:
    """Subtract the zero point of a layer's uint8 weights, if it has them, and record the result in `weights`."""
    index = operator.inputs[1] if operator.code in WEIGHT_AXES and len(operator.inputs) > 1 else -1
    if not 0 <= index < len(model.tensors) or index in weights.tensors or not _reads_uint8(model, operator):
        return  # a float32 layer reads uint8 weights as float32
    tensor, axis = model.tensors[index], WEIGHT_AXES[operator.code]
    whole = tensor.data is not None and len(tensor.data) == math.prod(tensor.shape) and axis < len(tensor.shape)
    if tensor.dtype != "uint8" or len(tensor.scales) != 1 or len(tensor.zeros) != 1 or not whole:
        return
    steps = tensor.array().astype(np.int32) - np.clip(tensor.zeros[0], 0, 255)
    others = tuple(i for i in range(steps.ndim) if i != axis)
    reach = np.abs(steps).max(axis=others, initial=0)
    multiples = np.maximum(reach / MOST, 1.0)
    plain = replace(tensor, dtype="int8", zeros=(0,))
    if multiples.max(initial=1.0) == 1.0:
        weights.exact += 1
        weights.tensors[index] = replace(plain, data=steps.astype(np.int8).tobytes())
        return
    weights.rounded += 1
    weights.channels += int((multiples > 1).sum())
    weights.of += len(multiples)
    scales = np.float32(tensor.scales[0]) * multiples.astype(np.float32)
    along = [-1 if i == axis else 1 for i in range(steps.ndim)]
    data = np.clip(np.rint(steps / multiples.reshape(along)), -MOST, MOST).astype(np.int8).tobytes()
    zeros = (0,) * len(scales)
    weights.tensors[index] = replace(plain, scales=tuple(scales.tolist()), zeros=zeros, axis=axis, data=data)
    weights.coarser[index] = multiples


def _in_one_scale(
    operator: TfliteOperator, model: TfliteModel, tensors: list[TfliteTensor]
) -> Iterator[TfliteOperator]:
    """Requantize each part of a uint8 concatenation that rescales, which int8 ones may not."""
    inputs, count = list(operator.inputs), len(model.tensors)
    if operator.code == "CONCATENATION" and len(operator.outputs) == 1 and 0 <= operator.outputs[0] < count:
        whole = tensors[operator.outputs[0]]
        for place, index in enumerate(inputs):
            if not 0 <= index < count or model.tensors[index].dtype != "uint8" or not whole.scales:
                continue
            part, wanted = tensors[index], (whole.scales, whole.zeros)
            if (part.scales, part.zeros) != wanted:
                scales, zeros = wanted
                tensors.append(replace(part, name=f"{part.name}.rescaled", scales=scales, zeros=zeros, data=None))
                inputs[place] = len(tensors) - 1
                yield TfliteOperator("QUANTIZE", (index,), (inputs[place],))
    yield replace(operator, inputs=tuple(inputs))


def _with_bias(operator: TfliteOperator, tensors: list[TfliteTensor], coarser: Mapping[int, Array]) -> TfliteOperator:
    """Return the layer with its bias in steps of its weights' new scales, appended to the tensors."""
    inputs = operator.inputs
    multiples = coarser.get(inputs[1]) if len(inputs) > 2 and operator.code in WEIGHT_AXES else None
    if multiples is None or not 0 <= inputs[2] < len(tensors):
        return operator
    bias = tensors[inputs[2]]
    if bias.dtype != "int32" or bias.shape != multiples.shape or len(bias.data or b"") != 4 * multiples.size:
        return operator
    steps = np.clip(np.rint(bias.array() / multiples), INT32.min, INT32.max).astype("<i4")
    tensors.append(replace(bias, data=steps.tobytes(), scales=(), zeros=()))
    return replace(operator, inputs=(*inputs[:2], len(tensors) - 1, *inputs[3:]))
