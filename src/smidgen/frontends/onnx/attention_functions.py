"""Functions of an ONNX file for what transformers are made of, as `functions` has those of other layers."""

from __future__ import annotations

from smidgen.ops.normalize import ROOT_BITS, SCALE_BITS, SCORE_BITS, SHIFT_BITS

MOST_PAIRS = (ROOT_BITS - 1) // 2  # of bits by which what a root is taken of is raised
ATTENTION_TEXT = """
# Double sums products of whole numbers exactly.
MatMul (a, b, a_step, b_step, factor, half, tie, step) => (y) {
    n = smidgen.Steps(a, a_step)
    m = smidgen.Steps(b, b_step)
    left = Cast<to = double>(n)
    right = Cast<to = double>(m)
    sums = MatMul(left, right)
    y = smidgen.Scaled(sums, factor, half, tie, step)
}

# ONNX divides towards zero, so that a floor is the quotient of a number lifted above zero by a multiple of the divisor.
Floored (x, divisor) => (quotient) {
    lift = Constant<value = int64 {FAR_ABOVE}>()
    lifted = Add(x, lift)
    all = Div(lifted, divisor)
    more = Div(lift, divisor)
    quotient = Sub(all, more)
}

# The root of a number in [2^60, 2^62), cut to a whole one: double is off by one at most.
Root (x) => (root) {
    wide = Cast<to = double>(x)
    real = Sqrt(wide)
    near = Cast<to = int64>(real)
    square = Mul(near, near)
    beyond = Greater(square, x)
    less = Cast<to = int64>(beyond)
    lower = Sub(near, less)
    one = Constant<value = int64 {1}>()
    next = Add(lower, one)
    above = Mul(next, next)
    fits = LessOrEqual(above, x)
    more = Cast<to = int64>(fits)
    root = Add(lower, more)
}

# Whole numbers normalized along the last dimension, as `ops.normalize` does it.
Scores (q, size, epsilon) => (scores) {
    last = Constant<value_ints = [-1]>()
    total = ReduceSum<keepdims = 1>(q, last)
    squared = Mul(q, q)
    squares = ReduceSum<keepdims = 1>(squared, last)
    all = Mul(size, squares)
    cross = Mul(total, total)
    spread = Sub(all, cross)
    wider = Add(spread, epsilon)
    one = Constant<value = int64 {1}>()
    v = Max(wider, one)
    fours = Constant<value_ints = [FOURS]>()
    reached = GreaterOrEqual(v, fours)
    counts = Cast<to = int64>(reached)
    above = ReduceSum<keepdims = 1>(counts, last)
    raises = Constant<value_ints = [RAISES]>()
    raise = Gather(raises, above)
    raised = Mul(v, raise)
    root = smidgen.Root(raised)
    whole = Constant<value = int64 {ROOT_TIMES_INVERSE}>()
    quotient = Div(whole, root)
    most = Constant<value = int64 {2147483647}>()
    inverse = Min(quotient, most)
    times = Mul(size, q)
    far = Sub(times, total)
    product = Mul(far, inverse)
    halves = Constant<value_ints = [SCORE_HALVES]>()
    half = Gather(halves, above)
    nearest = Add(product, half)
    divisors = Constant<value_ints = [SCORE_DIVISORS]>()
    divisor = Gather(divisors, above)
    scores = smidgen.Floored(nearest, divisor)
}

Moved (scores, scales, shifts, multiplier, divisor, step) => (y) {
    product = Mul(scores, scales)
    unit = Constant<value = int64 {SCALE_UNIT}>()
    scaled = smidgen.Floored(product, unit)
    parts = Mul(scaled, multiplier)
    fine = smidgen.Floored(parts, divisor)
    moved = Add(fine, shifts)
    half = Constant<value = int64 {SHIFT_HALF}>()
    nearest = Add(moved, half)
    fraction = Constant<value = int64 {SHIFT_UNIT}>()
    whole = smidgen.Floored(nearest, fraction)
    y = smidgen.Real(whole, step)
}

LayerNormalization <axis, epsilon> (x, scale, shift, x_step, size, least, scales, shifts, multiplier, divisor, step)
    => (y) {
    n = smidgen.Steps(x, x_step)
    q = Cast<to = int64>(n)
    scores = smidgen.Scores(q, size, least)
    y = smidgen.Moved(scores, scales, shifts, multiplier, divisor, step)
}

GroupNormalization <num_groups, epsilon>
    (x, scale, shift, x_step, size, least, scales, shifts, multiplier, divisor, step, grouped) => (y) {
    n = smidgen.Steps(x, x_step)
    q = Cast<to = int64>(n)
    apart = Reshape(q, grouped)
    of_groups = smidgen.Scores(apart, size, least)
    shape = Shape(x)
    scores = Reshape(of_groups, shape)
    y = smidgen.Moved(scores, scales, shifts, multiplier, divisor, step)
}
"""
_RIGHT = ROOT_BITS - SCORE_BITS - MOST_PAIRS  # of a normalized number, where what its root was taken of was raised most
ATTENTION_NUMBERS = {
    "FAR_ABOVE": str(1 << 62), "FOURS": ", ".join(str(4**k) for k in range(1, MOST_PAIRS + 1)),
    "RAISES": ", ".join(str(4 ** (MOST_PAIRS - k)) for k in range(MOST_PAIRS + 1)),
    "ROOT_TIMES_INVERSE": str(1 << ROOT_BITS),
    "SCORE_HALVES": ", ".join(str(1 << (_RIGHT + k - 1)) for k in range(MOST_PAIRS + 1)),
    "SCORE_DIVISORS": ", ".join(str(1 << (_RIGHT + k)) for k in range(MOST_PAIRS + 1)),
    "SCALE_UNIT": str(1 << SCALE_BITS), "SHIFT_HALF": str(1 << (SHIFT_BITS - 1)), "SHIFT_UNIT": str(1 << SHIFT_BITS),
}  # fmt: skip
# What they are read as, and how many of their inputs that takes.
ATTENTION_LAYERS: dict[str, tuple[str, int]] = {
    "GroupNormalization": ("GroupNormalization", 3), "LayerNormalization": ("LayerNormalization", 3),
    "MatMul": ("MatMul", 2),
}  # fmt: skip
