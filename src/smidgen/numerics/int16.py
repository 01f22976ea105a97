"""Gates of recurrent layers in 16 bits as TFLite computes them: sigmoid and tanh, exactly."""

import numpy as np

from smidgen.ir import Array
from smidgen.numerics.fixed_point import INT16

INT16_MIN, INT16_MAX = -INT16.most - 1, INT16.most
GATE_BITS = 3  # before the point of what goes into a gate: Q3.12
FRACTION = 15  # bits behind the point of what comes out of one: Q0.15
saturate = INT16.saturate


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^−x): Q3.12 → Q0.15."""
    x = np.asarray(x, np.int64)
    positive = saturate(INT16.reciprocal(INT16.exp_negative(-np.abs(x), GATE_BITS)) << 1)
    return np.where(x == 0, 1 << 14, np.where(x > 0, positive, INT16_MAX - positive))


def tanh(x: Array, whole: int) -> Array:
    """Return tanh of x with `whole` bits before the point, 0 … 6, in Q0.15."""
    x = np.asarray(x, np.int64)
    magnitude = saturate((INT16.reciprocal(INT16.exp_negative(-np.abs(x), whole + 1)) - (1 << 13)) << 2)
    return np.where(x == 0, 0, np.where(x < 0, -magnitude, magnitude))
