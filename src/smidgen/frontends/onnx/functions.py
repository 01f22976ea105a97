"""Layers that round as microcontrollers do: functions that an ONNX file brings along and a runtime inlines.

Each computes what its namesake among ONNX's operators does, from the same first inputs; others say how it rounds.
Real numbers become the whole steps they stand for, float32 sums those exactly (`EXACT`), double scales and rounds the
sums. So a file stays what it seems, layers between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from onnx import FunctionProto, TensorProto, parser

from smidgen.frontends.onnx.attention_functions import ATTENTION_LAYERS, ATTENTION_NUMBERS, ATTENTION_TEXT
from smidgen.ops.functions import TABLES as TFLITE_TABLES
from smidgen.ops.softmax import C_32_17, C_48_17, SUM_BITS

DOMAIN, VERSION = "smidgen", 1
OPSET = 20  # the first with Gelu
EXACT = 1 << 24  # up to it float32 holds every whole number
LONG, RECTIFIED = "Long", "Rectified"  # layers whose sums may be beyond that, and whose results are never below zero

# A value's step is its scale. What `factor`, `half` and `tie` are: `rounding.Rounding`.
TEXT = """
Steps (x, step) => (n) {
    ratio = Div(x, step)
    n = Round(ratio)
}

Real (n, step) => (y) {
    single = Cast<to = float>(n)
    y = Mul(single, step)
}

# Rounding to multiples of 2·half, halves up, then to whole numbers, halves away from zero, is one rounding: half away
# from zero, tie up, and to the nearest, of which there are never two.
Rounded (n, factor, half, tie) => (whole) {
    wide = Cast<to = double>(n)
    product = Mul(wide, factor)
    side = Sign(product)
    away = Mul(side, half)
    moved = Add(product, away)
    untied = Add(moved, tie)
    whole = Round(untied)
}

Scaled (n, factor, half, tie, step) => (y) {
    whole = smidgen.Rounded(n, factor, half, tie)
    y = smidgen.Real(whole, step)
}

# Twice a number, cut to a whole one, still tells halves apart.
HalvesAway (n, factor, step) => (y) {
    wide = Cast<to = double>(n)
    product = Mul(wide, factor)
    size = Abs(product)
    twice = Add(size, size)
    cut = Floor(twice)
    one = Constant<value = double {1.0}>()
    next = Add(cut, one)
    two = Constant<value = double {2.0}>()
    quotient = Div(next, two)
    whole = Floor(quotient)
    side = Sign(product)
    signed = Mul(side, whole)
    y = smidgen.Real(signed, step)
}

# Weights are as they are held, uint8 around 128: no runtime keeps what it makes of DequantizeLinear for the next run.
Weights (w) => (n) {
    single = Cast<to = float>(w)
    zero = Constant<value_float = 128.0>()
    n = Sub(single, zero)
}

Conv <kernel_shape, strides, pads, dilations, group>
    (x, w, b, w_step, w_zero, b_step, b_zero, x_step, factor, half, tie, step) => (y) {
    n = smidgen.Steps(x, x_step)
    weights = smidgen.Weights(w)
    bias = Cast<to = float>(b)
    sums = Conv<kernel_shape: ints = @kernel_shape, strides: ints = @strides, pads: ints = @pads,
                dilations: ints = @dilations, group: int = @group>(n, weights, bias)
    y = smidgen.Scaled(sums, factor, half, tie, step)
}

# What is below zero makes no difference to a layer whose activation cuts it off.
RectifiedConv <kernel_shape, strides, pads, dilations, group>
    (x, w, b, w_step, w_zero, b_step, b_zero, x_step, factor, up, step) => (y) {
    n = smidgen.Steps(x, x_step)
    weights = smidgen.Weights(w)
    bias = Cast<to = float>(b)
    sums = Conv<kernel_shape: ints = @kernel_shape, strides: ints = @strides, pads: ints = @pads,
                dilations: ints = @dilations, group: int = @group>(n, weights, bias)
    wide = Cast<to = double>(sums)
    product = Mul(wide, factor)
    moved = Add(product, up)
    whole = Round(moved)
    y = smidgen.Real(whole, step)
}

# A cast to int32 drops the upper bits, as C's shift does.
LongConv <kernel_shape, strides, pads, dilations, group>
    (x, w, b, w_step, w_zero, b_step, b_zero, x_step, x_zero, lift, factor, half, tie, step) => (y) {
    n = QuantizeLinear(x, x_step, x_zero)
    zero = Constant<value = uint8 {128}>()
    products = ConvInteger<kernel_shape: ints = @kernel_shape, strides: ints = @strides, pads: ints = @pads,
                           dilations: ints = @dilations, group: int = @group>(n, w, x_zero, zero)
    map = Constant<value_ints = [1, 2]>()
    bias = Unsqueeze(b, map)
    sums = Add(products, bias)
    wide = Cast<to = int64>(sums)
    raised = Mul(wide, lift)
    lifted = Cast<to = int32>(raised)
    y = smidgen.Scaled(lifted, factor, half, tie, step)
}

Gemm <transB> (x, w, b, w_step, w_zero, b_step, b_zero, x_step, factor, step) => (y) {
    n = smidgen.Steps(x, x_step)
    weights = smidgen.Weights(w)
    bias = Cast<to = float>(b)
    sums = Gemm<transB: int = @transB>(n, weights, bias)
    y = smidgen.HalvesAway(sums, factor, step)
}

LongGemm <transB> (x, w, b, w_step, w_zero, b_step, b_zero, x_step, x_zero, factor, step) => (y) {
    n = QuantizeLinear(x, x_step, x_zero)
    columns = Transpose<perm = [1, 0]>(w)
    zero = Constant<value = uint8 {128}>()
    products = MatMulInteger(n, columns, x_zero, zero)
    sums = Add(products, b)
    y = smidgen.HalvesAway(sums, factor, step)
}

Add (a, b, a_step, b_step, a_factor, a_half, a_tie, b_factor, b_half, b_tie, factor, half, tie, step) => (y) {
    n = smidgen.Steps(a, a_step)
    m = smidgen.Steps(b, b_step)
    left = smidgen.Rounded(n, a_factor, a_half, a_tie)
    right = smidgen.Rounded(m, b_factor, b_half, b_tie)
    sums = Add(left, right)
    y = smidgen.Scaled(sums, factor, half, tie, step)
}

Mul (a, b, a_step, b_step, factor, half, tie, step) => (y) {
    n = smidgen.Steps(a, a_step)
    m = smidgen.Steps(b, b_step)
    products = Mul(n, m)
    y = smidgen.Scaled(products, factor, half, tie, step)
}

# Where one part is not zero, the other is.
PRelu (x, slope, x_step, slope_step, up_factor, up_half, up_tie, factor, half, tie, step) => (y) {
    n = smidgen.Steps(x, x_step)
    m = smidgen.Steps(slope, slope_step)
    above = Relu(n)
    below = Sub(n, above)
    products = Mul(below, m)
    left = smidgen.Rounded(above, up_factor, up_half, up_tie)
    right = smidgen.Rounded(products, factor, half, tie)
    whole = Add(left, right)
    y = smidgen.Real(whole, step)
}

GlobalAveragePool (x, x_step, factor, half, tie, step) => (y) {
    n = smidgen.Steps(x, x_step)
    wide = Cast<to = double>(n)
    map = Constant<value_ints = [2, 3]>()
    sums = ReduceSum<keepdims = 1>(wide, map)
    y = smidgen.Scaled(sums, factor, half, tie, step)
}

# Means over whole windows, padding and all, times the size of one are near the whole numbers that the sums are.
AveragePool <kernel_shape, strides, pads> (x, x_step, size, zeros, zero, factor, half, tie, step) => (y) {
    n = smidgen.Steps(x, x_step)
    means = AveragePool<kernel_shape: ints = @kernel_shape, strides: ints = @strides, pads: ints = @pads,
                        count_include_pad = 1>(n)
    products = Mul(means, size)
    sums = Round(products)
    totals = Add(sums, zeros)
    means_of_all = smidgen.Rounded(totals, factor, half, tie)
    whole = Sub(means_of_all, zero)
    y = smidgen.Real(whole, step)
}

# Rows and columns hold each point's shares of the four nearest; int8 itself is rounded, halves away from its zero.
Resize <mode, coordinate_transformation_mode> (x, roi, scales, sizes, x_step, zero, rows, columns, step) => (y) {
    n = smidgen.Steps(x, x_step)
    wide = Cast<to = double>(n)
    all = Add(wide, zero)
    down = MatMul(rows, all)
    sums = MatMul(down, columns)
    size = Abs(sums)
    half = Constant<value = double {0.5}>()
    up = Add(size, half)
    cut = Floor(up)
    side = Sign(sums)
    signed = Mul(cut, side)
    whole = Sub(signed, zero)
    y = smidgen.Real(whole, step)
}

Quantized (x, step) => (y) {
    ratio = Div(x, step)
    one = Constant<value = double {1.0}>()
    y = smidgen.HalvesAway(ratio, one, step)
}

# What reads one int8 value alone. Steps below zero count from the table's end.
Table (x, x_step, table) => (y) {
    n = smidgen.Steps(x, x_step)
    place = Cast<to = int64>(n)
    y = Gather(table, place)
}

# gemmlowp's fixed point; an element lies 0 to 255 steps below the largest of its row, so that exponentials are a table.
Softmax <axis, beta> (x, x_step, exponentials, parts, halves, divisors, step) => (y) {
    n = smidgen.Steps(x, x_step)
    last = Constant<value_ints = [-1]>()
    most = ReduceMax<keepdims = 1>(n, last)
    below = Sub(most, n)
    place = Cast<to = int64>(below)
    part = Gather(parts, place)
    total = ReduceSum<keepdims = 1>(part, last)
    scale, above = smidgen.Reciprocal(total)
    exponential = Gather(exponentials, place)
    share = smidgen.HighProduct(exponential, scale)
    half = Gather(halves, above)
    nearest = Add(share, half)
    divisor = Gather(divisors, above)
    whole = Div(nearest, divisor)
    y = smidgen.Real(whole, step)
}

# 1 / total of a Q12.19 sum in [2^19, 2^31) as Q0.31, and the bits by which it is over one.
Reciprocal (total) => (inverse, above) {
    powers = Constant<value_ints = [POWERS]>()
    reached = GreaterOrEqual(total, powers)
    counts = Cast<to = int64>(reached)
    last = Constant<value_ints = [-1]>()
    above = ReduceSum<keepdims = 1>(counts, last)
    lifts = Constant<value_ints = [LIFTS]>()
    lift = Gather(lifts, above)
    whole = Mul(total, lift)
    two = Constant<value = int64 {2}>()
    half = Div(whole, two)
    slope = Constant<value = int64 {SLOPE}>()
    line = smidgen.HighProduct(half, slope)
    start = Constant<value = int64 {START}>()
    x0 = Add(line, start)
    x1 = smidgen.Newton(half, x0)
    x2 = smidgen.Newton(half, x1)
    x3 = smidgen.Newton(half, x2)
    inverse = smidgen.Raised(x3, two)
}

Newton (half, x) => (y) {
    product = smidgen.HighProduct(half, x)
    one = Constant<value = int64 {ONE}>()
    rest = Sub(one, product)
    step = smidgen.HighProduct(x, rest)
    four = Constant<value = int64 {4}>()
    raised = smidgen.Raised(step, four)
    y = Add(x, raised)
}

# The upper half of twice a product of int32 numbers, halves up. ONNX divides towards zero, so that a floor is the
# quotient of a number lifted above zero.
HighProduct (a, b) => (high) {
    product = Mul(a, b)
    lift = Constant<value = int64 {HALF_LIFT}>()
    lifted = Add(product, lift)
    divisor = Constant<value = int64 {DIVISOR}>()
    quotient = Div(lifted, divisor)
    high = Sub(quotient, divisor)
}

# x · factor, saturated to int32 by way of double, which holds both.
Raised (x, factor) => (y) {
    product = Mul(x, factor)
    wide = Cast<to = double>(product)
    low = Constant<value = double {-2147483648.0}>()
    high = Constant<value = double {2147483647.0}>()
    limited = Clip(wide, low, high)
    y = Cast<to = int64>(limited)
}
"""
NUMBERS = {
    **ATTENTION_NUMBERS,
    "POWERS": ", ".join(str(1 << (32 - SUM_BITS + k)) for k in range(SUM_BITS - 1)),
    "LIFTS": ", ".join(str(1 << (SUM_BITS - k)) for k in range(SUM_BITS)),
    "SLOPE": str(C_32_17), "START": str(C_48_17), "ONE": str(1 << 29),
    "HALF_LIFT": str((1 << 62) + (1 << 30)), "DIVISOR": str(1 << 31),
}  # fmt: skip
KINDS = {
    "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
}  # fmt: skip
HEAD = f'<domain: "{DOMAIN}", opset_import: ["" : {OPSET}, "{DOMAIN}" : {VERSION}]>\n'
# ONNX's operators by the functions of Lookup, and what their attributes are called there.
OPERATORS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "abs": ("Abs", ()), "celu": ("Celu", ("alpha",)), "clip": ("Clip", ()), "elu": ("Elu", ("alpha",)),
    "erf": ("Erf", ()), "exp": ("Exp", ()), "gelu": ("Gelu", ()), "gelu_tanh": ("Gelu", ()),
    "hard_sigmoid": ("HardSigmoid", ("alpha", "beta")), "hard_swish": ("HardSwish", ()),
    "leaky_relu": ("LeakyRelu", ("alpha",)), "log": ("Log", ()), "mish": ("Mish", ()), "power": ("Pow", ()),
    "selu": ("Selu", ("alpha", "gamma")),
    "sigmoid": ("Sigmoid", ()), "silu": ("Sigmoid", ()), "softplus": ("Softplus", ()), "softsign": ("Softsign", ()),
    "tanh": ("Tanh", ()),
}  # fmt: skip
# Functions of one int8 value: further attributes, and further inputs before those of `Table`. `tflite` says whose
# rounding a table has, where there are two.
TABLES: dict[str, tuple[str, str]] = {
    **{
        code: (", ".join((*attributes, *(("tflite",) if function in TFLITE_TABLES else ()))), "")
        for function, (code, attributes) in OPERATORS.items()
    },
    "Clip": ("", "low, high, "), "Pow": ("tflite", "exponent, "), "Gelu": ("approximate, tflite", ""),
    "Requantized": ("", ""),
    "Sigmoid": ("tflite", ""), "Swish": ("", ""),
}  # fmt: skip
WEIGHTED = {
    "Conv": "Conv", "Gemm": "Gemm", f"{LONG}Conv": "Conv", f"{LONG}Gemm": "Gemm", f"{RECTIFIED}Conv": "Conv",
}  # fmt: skip
# What a function that stands for any other layer is read as, and how many of its inputs that takes.
LAYERS: dict[str, tuple[str, int]] = {
    **{code: (code, {"Clip": 3, "Pow": 2}.get(code, 1)) for code in TABLES},
    "Add": ("Add", 2), "AveragePool": ("AveragePool", 1), "GlobalAveragePool": ("GlobalAveragePool", 1),
    "Mul": ("Mul", 2), "PRelu": ("PRelu", 2), "Quantized": ("Identity", 1), "Requantized": ("Identity", 1),
    "Resize": ("Resize", 4),
    "Softmax": ("Softmax", 1), **ATTENTION_LAYERS,
}  # fmt: skip


@cache
def library() -> dict[str, FunctionProto]:
    """Every function, by name."""
    text = re.sub(r"(?m)^#.*\n", "", TEXT.rstrip() + "\n" + ATTENTION_TEXT)
    text = re.sub(r"[A-Z_]{3,}", lambda found: NUMBERS[found[0]], text)
    text = re.sub(r"to = (\w+)", lambda found: f"to = {KINDS[found[1]]}", text)
    bodies = text.strip().split("\n\n")
    for code, (attributes, inputs) in TABLES.items():
        more = f"<{attributes}>" if attributes else ""
        bodies.append(f"{code} {more} (x, {inputs}x_step, table) => (y) {{ y = {DOMAIN}.Table(x, x_step, table) }}")
    functions = [parser.parse_function(HEAD + body) for body in bodies]
    return {function.name: function for function in functions}


def functions_needed(names: set[str]) -> list[FunctionProto]:
    """The functions of these names and those they are made of, which come first."""
    ordered: dict[str, FunctionProto] = {}

    def add(name: str) -> None:
        function = library()[name]
        for node in function.node:
            if node.domain == DOMAIN and node.op_type not in ordered:
                add(node.op_type)
        ordered[name] = function

    for name in sorted(names):
        add(name)
    return list(ordered.values())
