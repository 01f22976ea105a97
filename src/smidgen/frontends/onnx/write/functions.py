"""Layers that round as microcontrollers do: functions that an ONNX file brings along and a runtime inlines.

Each computes the same as its namesake among ONNX's operators, from the same first inputs; the other inputs define its
rounding. Real numbers become whole steps, float32 sums them exactly (up to `EXACT`), double scales and rounds the sums.
So a file remains ordinary QDQ: layers between DequantizeLinear and QuantizeLinear.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from onnx import FunctionProto, TensorProto, parser

from smidgen import numerics
from smidgen.errors import ExportError
from smidgen.ir import Array
from smidgen.numerics import INT32_MAX
from smidgen.numerics.fixed_point import INT32
from smidgen.ops import log_softmax
from smidgen.ops.functions import TABLES as TFLITE_TABLES
from smidgen.ops.normalize import ROOT_BITS, SCALE_BITS, SCORE_BITS, SHIFT_BITS
from smidgen.ops.softmax import SUM_BITS

DOMAIN, VERSION = "smidgen", 1
OPSET = 20  # the first with Gelu
EXACT = 1 << 24  # up to it float32 holds every whole number
LONG, RECTIFIED = "Long", "Rectified"  # layers whose sums may exceed EXACT, and whose results are never below zero
TEXT = Path(__file__).with_name("functions.onnxtxt")
KINDS = {
    "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
}  # fmt: skip
HEAD = f'<domain: "{DOMAIN}", opset_import: ["" : {OPSET}, "{DOMAIN}" : {VERSION}]>\n'
# ONNX's operators for the functions of Lookup, and the names of their attributes there.
OPERATORS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "abs": ("Abs", ()), "celu": ("Celu", ("alpha",)), "clip": ("Clip", ()), "elu": ("Elu", ("alpha",)),
    "erf": ("Erf", ()), "exp": ("Exp", ()), "gelu": ("Gelu", ()), "gelu_tanh": ("Gelu", ()),
    "hard_sigmoid": ("HardSigmoid", ("alpha", "beta")), "hard_swish": ("HardSwish", ()),
    "leaky_relu": ("LeakyRelu", ("alpha",)), "log": ("Log", ()), "mish": ("Mish", ()), "power": ("Pow", ()),
    "selu": ("Selu", ("alpha", "gamma")), "sigmoid": ("Sigmoid", ()), "silu": ("Sigmoid", ()),
    "softplus": ("Softplus", ()), "softsign": ("Softsign", ()), "tanh": ("Tanh", ()),
}  # fmt: skip
# Functions of one int8 value: further attributes, and further inputs before those of `Table`. `tflite` is 1 where a
# table that exists in two roundings has TFLite's.
TABLES: dict[str, tuple[str, str]] = {
    **{
        code: (", ".join((*attributes, *(("tflite",) if function in TFLITE_TABLES else ()))), "")
        for function, (code, attributes) in OPERATORS.items()
    },
    "Clip": ("", "low, high, "), "Pow": ("tflite", "exponent, "), "Gelu": ("approximate, tflite", ""),
    "Requantized": ("", ""), "Sigmoid": ("tflite", ""), "Swish": ("", ""),
}  # fmt: skip
WEIGHTED = {
    "Conv": "Conv", "Gemm": "Gemm", f"{LONG}Conv": "Conv", f"{LONG}Gemm": "Gemm", f"{RECTIFIED}Conv": "Conv",
}  # fmt: skip
IDENTITIES = ("Quantized", "Requantized")  # functions that only round
# How many of its inputs the operator of the same name takes, for functions of any other layer.
LAYERS: dict[str, int] = {
    **dict.fromkeys(TABLES, 1), "Clip": 3, "Pow": 2,
    "Add": 2, "AveragePool": 1, "GlobalAveragePool": 1, "GroupNormalization": 3, "LayerNormalization": 3,
    "LogSoftmax": 1, "LpNormalization": 1, "MatMul": 2, "Mul": 2, "PRelu": 2, "Quantized": 1, "Resize": 4, "Softmax": 1,
}  # fmt: skip


@cache
def library() -> dict[str, FunctionProto]:
    """Return every function by name."""
    numbers = _numbers()
    text = re.sub(r"(?m)^#.*\n", "", TEXT.read_text("utf-8"))
    text = re.sub(r"[A-Z_]{3,}", lambda found: numbers[found[0]], text)
    text = re.sub(r"to = (\w+)", lambda found: f"to = {KINDS[found[1]]}", text)
    bodies = text.strip().split("\n\n")
    for code, (attributes, inputs) in TABLES.items():
        more = f"<{attributes}>" if attributes else ""
        bodies.append(f"{code} {more} (x, {inputs}x_step, table) => (y) {{ y = {DOMAIN}.Table(x, x_step, table) }}")
    functions = [parser.parse_function(HEAD + body) for body in bodies]
    return {function.name: function for function in functions}


def functions_needed(names: set[str]) -> list[FunctionProto]:
    """Return the functions with these names, after those that they call."""
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


def _numbers() -> dict[str, str]:
    """Return the numbers that names in capitals stand for in the functions' text."""
    # The argument of a root is raised by pairs of bits: for normalization to [2^60, 2^62), counted from 4; for unit
    # norms to [2^27, 2^29), by 13 pairs from 2 on, by one less from 8 on, and so on.
    most = (ROOT_BITS - 1) // 2
    right = ROOT_BITS - SCORE_BITS - most  # shift of a score where the root's argument was raised most
    pairs, rights, bits = range(13, -1, -1), range(-2, 13), 7  # right shifts of a reciprocal root, bits of a result
    lists: dict[str, Iterable[int]] = {
        "FOURS": (4**k for k in range(1, most + 1)), "RAISES": (4 ** (most - k) for k in range(most + 1)),
        "SCORE_HALVES": (1 << (right + k - 1) for k in range(most + 1)),
        "SCORE_DIVISORS": (1 << (right + k) for k in range(most + 1)),
        "ROOT_BOUNDS": (2 * 4 ** (13 - p) for p in pairs[1:]), "ROOT_LIFTS": (4**p for p in pairs),
        "ROOT_RIGHTS": (11 - p for p in pairs), "ROOT_TIMES": (1 << max(-r, 0) for r in rights),
        "ROOT_UPS": (1 << max(bits - max(r, 0), 0) for r in rights),
        "ROOT_HALVES": ((1 << max(r - bits, 0)) // 2 for r in rights),
        "ROOT_DIVISORS": (1 << max(r - bits, 0) for r in rights),
        "POWERS": (1 << (32 - SUM_BITS + k) for k in range(SUM_BITS - 1)),
        "LIFTS": (1 << (SUM_BITS - k) for k in range(SUM_BITS)),
        "LOWER_POWERS": (1 << (31 - SUM_BITS + k) for k in range(SUM_BITS)),
        "LOG_LIFTS": (1 << (SUM_BITS - 1 - k) for k in range(SUM_BITS)),
    }  # fmt: skip
    single = {
        "FAR_ABOVE": 1 << 62, "ROOT_TIMES_INVERSE": 1 << ROOT_BITS, "ROOT_LEAST": rights[0],
        "SCALE_UNIT": 1 << SCALE_BITS, "SHIFT_HALF": 1 << (SHIFT_BITS - 1), "SHIFT_UNIT": 1 << SHIFT_BITS,
        "SLOPE": INT32.c_32_17, "START": INT32.c_48_17, "ONE": 1 << 29, "HALF_LIFT": (1 << 62) + (1 << 30),
        "DIVISOR": 1 << 31,
        "LOG_DIVISOR": 1 << log_softmax.LOG_SHIFT, "LOG_UNIT": 1 << (31 - log_softmax.LOG_BITS),
        "LOG_QUARTER": 1 << (29 - log_softmax.LOG_BITS), "LOG_SCALE": 1 << log_softmax.LOG_BITS,
        "LOG_TWO": log_softmax.LOG_TWO, "ROOT_OF_HALF": log_softmax.ROOT_HALF,
        "FOURTH_ROOT_OF_HALF": log_softmax.FOURTH_ROOT_HALF, "ALPHA_NUMERATOR": log_softmax.ALPHA_N,
        "ALPHA_SQUARE": log_softmax.ALPHA_D, "ALPHA_ONE": log_softmax.ALPHA_I, "ALPHA_LINE": log_softmax.ALPHA_F,
    }  # fmt: skip
    return {name: ", ".join(map(str, numbers)) for name, numbers in lists.items()} | {
        name: str(number) for name, number in single.items()
    }


STEPS = np.arange(-255, 257)  # int8 numbers from any zero point, and one more
NEAR = np.arange(-2, 3)  # sums around the first one that gives a step
BITS = 8  # of a number that int8 distinguishes
PLACES = 52  # of double after its first
SURE = -12  # the least shift for which double holds every product with a tie added
# Changes to try where double is too narrow: units in the last place of a factor, and shares of a tie.
TRIES = tuple((places, part) for places in (0, 1, -1, 2, -2, 3, -3) for part in (1, 0.25, 0))


@dataclass(frozen=True, eq=False)
class DoubleRounding:
    """TFLite's two roundings as one in double: n → the whole number nearest to n · factor + half · sign(n) + tie.

    It equals `numerics.multiply` within int8. The first rounding, halves up, is to multiples of 2^shift, which are
    2 · half; the tie is half of the least distance of a product from a midpoint that it is not on. Left shifts that
    wrap are not covered.
    """

    factor: Array
    half: Array
    tie: Array

    def parts(self, of: str = "") -> dict[str, Array]:
        """Return the numbers under the names that functions give them."""
        return {f"{of}factor": self.factor, f"{of}half": self.half, f"{of}tie": self.tie}

    def of(self, n: Array) -> Array:
        product = n * self.factor
        whole: Array = np.rint(product + np.sign(product) * self.half + self.tie).astype(np.int64)
        return whole


def rounding(multiplier: Array | int, shift: Array | int, lift: int = 0) -> DoubleRounding:
    """Return the rounding of numbers shifted left by `lift` beforehand, where double holds their products."""
    whole, exponent = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    factor = np.ldexp(whole.astype(np.float64), exponent - 31 + lift)
    half = np.where(exponent < 0, np.ldexp(1.0, exponent - 1), 0.0)
    tie = np.ldexp((whole & -whole).astype(np.float64), exponent - 32 + lift)
    least = np.ldexp(1.0, np.minimum(BITS, 31 + exponent) - PLACES)  # the least that double adds to the largest product
    most = np.ldexp(0.25, np.minimum(exponent, 0))
    return DoubleRounding(factor, half, np.clip(tie, least, most))


def rounding_of_sums(multiplier: Array | int, shift: Array | int, where: str) -> DoubleRounding:
    """Return the rounding of any int32 numbers; where double is too narrow, factor and tie change by a bit or so."""
    result = rounding(multiplier, shift)
    whole, exponent, factor, tie = (np.array(a) for a in (multiplier, shift, result.factor, result.tie))
    for place in np.flatnonzero(exponent < SURE):
        one = DoubleRounding(*(array.flat[place] for array in (factor, result.half, tie)))
        found = _nearest_equivalent(one, int(whole.flat[place]), int(exponent.flat[place]))
        if found is None:
            raise ExportError(f"{where}: double cannot reproduce its rounding; calibrate it again, or export it plain")
        factor.flat[place], tie.flat[place] = found.factor, found.tie
    return DoubleRounding(factor, result.half, tie)


def _nearest_equivalent(one: DoubleRounding, multiplier: int, shift: int) -> DoubleRounding | None:
    """Return a rounding close by that changes its result at the same sums as `numerics.multiply`."""
    if multiplier == 0:
        return one
    first = np.ceil((STEPS - 0.5 - np.where(STEPS > 0, one.half, -one.half)) / one.factor)
    sums = np.clip(first[:, None] + NEAR, -INT32_MAX, INT32_MAX)
    want = numerics.multiply(sums.astype(np.int64), multiplier, shift)
    for places, part in TRIES:
        tried = DoubleRounding(one.factor + places * np.spacing(one.factor), one.half, one.tie * part)
        if np.array_equal(tried.of(sums), want):
            return tried
    return None
