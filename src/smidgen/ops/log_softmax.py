"""The logarithm of softmax in int8, on gemmlowp's fixed-point arithmetic as TFLite's reference kernel uses it."""

import numpy as np

from smidgen.ir import Array, Node, Op, QParams, op
from smidgen.numerics.fixed_point import INT32, shift_right
from smidgen.ops.softmax import DIFF_BITS, SUM_BITS, Softmax, leading_zeros

LOG_OUTPUT = QParams.per_tensor(1 / 16, 127)
LOG_LEAST = -(1 << 30)  # a difference in Q5.26, −16, that is the lowest number in int8 whatever is subtracted from it
LOG_SHIFT = 22  # bits by which Q5.26 is finer than the output
LOG_BITS = DIFF_BITS + 1  # integer bits in which a logarithm is summed
LOG_TWO, ROOT_HALF, FOURTH_ROOT_HALF = 1488522236, 1518500250, 1805811301  # log 2, √½ and ∜½ in Q0.31
# 11/240 · ∜2, 1/20 · ∜2, 2/∜2 − ∜2 and 1/4 · ∜2 in Q0.31: coefficients of the quotient that stands for a logarithm.
ALPHA_N, ALPHA_D, ALPHA_I, ALPHA_F = 117049297, 127690142, 1057819769, 638450708


def log_of_sum(total: Array) -> Array:
    """Return the logarithm of a Q12.19 number from one on, as Q5.26.

    The number is 2^k · r with r near ∜½, and log r a quotient of polynomials. Two such splits are tried.
    """
    product, saturate = INT32.product, INT32.saturate
    quarter = 1 << (29 - LOG_BITS)
    zeros = leading_zeros(total)
    first = saturate(product(saturate(total << (zeros - 1)), ROOT_HALF) << 1)
    halved = leading_zeros(product(total, ROOT_HALF)) - 1
    r = np.minimum(first, saturate(total << halved))
    exponent = np.maximum(
        ((SUM_BITS - zeros) << (31 - LOG_BITS)) + quarter, ((SUM_BITS - halved) << (31 - LOG_BITS)) - quarter
    )
    p, q = (r + FOURTH_ROOT_HALF + 1) >> 1, 2 * (r - FOURTH_ROOT_HALF)
    square = product(q, q)
    numerator = product(q, r) + product(product(q, square), ALPHA_N)
    rest = product(p, ALPHA_I + q + product(ALPHA_D, square)) + product(ALPHA_F, q)
    quotient = product(shift_right(numerator, LOG_BITS), saturate(INT32.reciprocal(rest) << 1))
    return saturate((product(exponent, LOG_TWO) + quotient) << 1)


@op
class LogSoftmax(Softmax):
    """βx − log Σ exp(βx) along the last axis; in int8 its output is always 1/16 per step up to 127, which is 0."""

    kernel = "smg_log_softmax_s8"
    output = LOG_OUTPUT
    grad = Op.grad

    def ref(self, node: Node, x: Array) -> Array:
        if x.dtype == np.float32:
            below = (x - x.max(axis=-1, keepdims=True)) * np.float32(self.beta)
            return np.asarray(below - np.log(np.exp(below).sum(axis=-1, keepdims=True)))
        scaled, counts, total = self.sums(node.ins[0].type, x)
        rest = np.where(counts, scaled, LOG_LEAST) - log_of_sum(total)
        steps: Array = np.clip(shift_right(rest, LOG_SHIFT) + LOG_OUTPUT.zero, -128, 127)
        return steps.astype(np.int8)
