"""The kernel of `ordered_dot` in Triton's language: one thread adds up one element of the result."""

import triton.language as tl


def ordered_dot_kernel(  # type: ignore[no-untyped-def]
    a, b, out, terms, second, third, each,
    a0, a1, a2, a3, a4, b0, b1, b2, b3, b4,
    BLOCK: tl.constexpr,
):  # fmt: skip
    device = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < each
    i, rest = at // (second * third), at % (second * third)
    j, k = rest // third, rest % third
    left = a + device * a0 + i * a2 + j * a3 + k * a4
    right = b + device * b0 + i * b2 + j * b3 + k * b4
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(terms):
        x = tl.load(left, mask=inside, other=0.0).to(tl.float64)
        y = tl.load(right, mask=inside, other=0.0).to(tl.float64)
        total = total + (x * y).to(tl.float32)  # exact in float64, so rounded once; and not fused with the sum
        left += a1
        right += b1
    tl.store(out + device * each + at, total, mask=inside)
