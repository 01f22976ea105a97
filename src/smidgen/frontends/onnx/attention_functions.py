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

# 1 / root of whole numbers below 2^31 as a multiplier and its right shift, which may be below zero.
InverseRoot (squares) => (multiplier, right) {
    two = Constant<value = int64 {2}>()
    n = Max(squares, two)
    large = Constant<value = int64 {536870912}>()
    reached = GreaterOrEqual(n, large)
    over = Cast<to = int64>(reached)
    four = Constant<value = int64 {4}>()
    quarter = Div(n, four)
    fits = Where(reached, quarter, n)
    bounds = Constant<value_ints = [ROOT_BOUNDS]>()
    above = GreaterOrEqual(fits, bounds)
    counts = Cast<to = int64>(above)
    last = Constant<value_ints = [-1]>()
    place = ReduceSum<keepdims = 1>(counts, last)
    lifts = Constant<value_ints = [ROOT_LIFTS]>()
    lift = Gather(lifts, place)
    raised = Mul(fits, lift)
    whole = Div(raised, two)
    one = Constant<value = int64 {1}>()
    next = Add(whole, one)
    half = Div(next, two)
    start = Constant<value = int64 {268435456}>()
    x1 = smidgen.RootStep(half, start)
    x2 = smidgen.RootStep(half, x1)
    x3 = smidgen.RootStep(half, x2)
    x4 = smidgen.RootStep(half, x3)
    x5 = smidgen.RootStep(half, x4)
    diagonal = Constant<value = int64 {1518500250}>()
    x = smidgen.HighProduct(x5, diagonal)
    single = Less(squares, two)
    most = Constant<value = int64 {2147483647}>()
    multiplier = Where(single, most, x)
    rights = Constant<value_ints = [ROOT_RIGHTS]>()
    shift = Gather(rights, place)
    more = Add(shift, over)
    zero = Constant<value = int64 {0}>()
    right = Where(single, zero, more)
}

RootStep (half, x) => (y) {
    square = smidgen.HighProduct(x, x)
    third = smidgen.HighProduct(square, x)
    sixty_four = Constant<value = int64 {64}>()
    cube = smidgen.Raised(third, sixty_four)
    three_halves = Constant<value = int64 {402653184}>()
    left = smidgen.HighProduct(three_halves, x)
    other = smidgen.HighProduct(half, cube)
    rest = Sub(left, other)
    eight = Constant<value = int64 {8}>()
    y = smidgen.Raised(rest, eight)
}

LpNormalization <axis, p> (x, x_step, step) => (y) {
    n = smidgen.Steps(x, x_step)
    q = Cast<to = int64>(n)
    squared = Mul(q, q)
    last = Constant<value_ints = [-1]>()
    squares = ReduceSum<keepdims = 1>(squared, last)
    multiplier, right = smidgen.InverseRoot(squares)
    least = Constant<value = int64 {ROOT_LEAST}>()
    place = Sub(right, least)
    ups = Constant<value_ints = [ROOT_UPS]>()
    up = Gather(ups, place)
    times = Constant<value_ints = [ROOT_TIMES]>()
    twice = Gather(times, place)
    factor = Mul(multiplier, twice)
    raised = Mul(q, up)
    high = smidgen.HighProduct(raised, factor)
    halves = Constant<value_ints = [ROOT_HALVES]>()
    half = Gather(halves, place)
    size = Abs(high)
    nearest = Add(size, half)
    divisors = Constant<value_ints = [ROOT_DIVISORS]>()
    divisor = Gather(divisors, place)
    cut = Div(nearest, divisor)
    side = Sign(high)
    whole = Mul(cut, side)
    y = smidgen.Real(whole, step)
}
"""
# What a root is taken of is raised by pairs of bits to [2^27, 2^29): by 13 from 2 on, by one less from 8 on, …
_PAIRS = range(13, -1, -1)
_RIGHTS = range(-2, 13)  # the right shifts of a reciprocal root that this leads to
_BITS = 7  # of a result
_RIGHT = ROOT_BITS - SCORE_BITS - MOST_PAIRS  # of a normalized number, where what its root was taken of was raised most
ATTENTION_NUMBERS = {
    "FAR_ABOVE": str(1 << 62), "FOURS": ", ".join(str(4**k) for k in range(1, MOST_PAIRS + 1)),
    "RAISES": ", ".join(str(4 ** (MOST_PAIRS - k)) for k in range(MOST_PAIRS + 1)),
    "ROOT_TIMES_INVERSE": str(1 << ROOT_BITS),
    "SCORE_HALVES": ", ".join(str(1 << (_RIGHT + k - 1)) for k in range(MOST_PAIRS + 1)),
    "SCORE_DIVISORS": ", ".join(str(1 << (_RIGHT + k)) for k in range(MOST_PAIRS + 1)),
    "ROOT_BOUNDS": ", ".join(str(2 * 4 ** (13 - p)) for p in _PAIRS[1:]),
    "ROOT_LIFTS": ", ".join(str(4**p) for p in _PAIRS), "ROOT_RIGHTS": ", ".join(str(11 - p) for p in _PAIRS),
    "ROOT_LEAST": str(_RIGHTS[0]), "ROOT_TIMES": ", ".join(str(1 << max(-r, 0)) for r in _RIGHTS),
    "ROOT_UPS": ", ".join(str(1 << max(_BITS - max(r, 0), 0)) for r in _RIGHTS),
    "ROOT_HALVES": ", ".join(str((1 << max(r - _BITS, 0)) // 2) for r in _RIGHTS),
    "ROOT_DIVISORS": ", ".join(str(1 << max(r - _BITS, 0)) for r in _RIGHTS),
    "SCALE_UNIT": str(1 << SCALE_BITS), "SHIFT_HALF": str(1 << (SHIFT_BITS - 1)), "SHIFT_UNIT": str(1 << SHIFT_BITS),
}  # fmt: skip
# What they are read as, and how many of their inputs that takes.
ATTENTION_LAYERS: dict[str, tuple[str, int]] = {
    "GroupNormalization": ("GroupNormalization", 3), "LayerNormalization": ("LayerNormalization", 3),
    "LpNormalization": ("LpNormalization", 1), "MatMul": ("MatMul", 2),
}  # fmt: skip
