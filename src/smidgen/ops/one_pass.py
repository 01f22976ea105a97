"""Learning in one pass: a sample is added to sums of integers, and a head is made of them."""

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, Value, op
from smidgen.numerics import one_pass
from smidgen.numerics.one_pass import Sums
from smidgen.ops.checks import LABEL, check_is, shown

SAMPLE = Type((2,), "int32")  # a class, and 1 for a sample to add, −1 for one to take out
CODE = Type((1,), "int32")  # of one_pass: 0 where it went well
LIMIT = Type((1,), "float32")
FAR = Type((1, 1), "float32")  # above 1: none of the classes
MOST_FEATURES = 4096
MOST_CLASSES = 4096


def _check_sums(what: str, n: Type, m: Type, g: Type) -> None:
    """Raise GraphError unless the types are those of sums."""
    if len(m.shape) != 2 or m.shape[0] > MOST_CLASSES or m.shape[1] > MOST_FEATURES:
        raise GraphError(
            f"{what} takes sums of up to {MOST_CLASSES} classes by {MOST_FEATURES} features, not {shown(m)}"
        )
    classes, d = m.shape
    check_is(what, "counts", n, Type((classes + 1,), "int32"))
    check_is(what, "sums", m, Type((classes, d), "int32"))
    check_is(what, "products", g, Type((one_pass.triangle(d),), "int32"))


class SumsOp(Op):
    """An op that changes sums in place: its first three inputs, and its first three outputs; the last is a code."""

    takes = "int32"

    def moved(self, node: Node) -> int:
        return 3

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        return (*node.ins, node.outs[3])

    def params(self, node: Node) -> Params:
        classes, d = node.ins[1].type.shape
        return {"classes": classes, "d": d}


@op
class Observe(SumsOp):
    """Add a sample to the sums, or take it out. Inputs: n, m, g, features, sample; the last output is a code."""

    kernel = "smg_observe_s8"

    def infer(self, n: Type, m: Type, g: Type, x: Type, sample: Type) -> tuple[Type, ...]:
        _check_sums("Observe", n, m, g)
        if x.dtype != "int8" or x.q is None or x.q.axis is not None or x.shape != (1, m.shape[1]):
            raise GraphError(f"Observe takes int8[1, {m.shape[1]}] with one scale as its features, not {shown(x)}")
        check_is("Observe", "sample", sample, SAMPLE)
        return n, m, g, CODE

    def ref(self, node: Node, n: Array, m: Array, g: Array, x: Array, sample: Array) -> tuple[Array, ...]:
        centred = x[0].astype(np.int64) - node.ins[3].type.zero
        sign = 1 if sample[1] > 0 else -1
        code, after = one_pass.observe(Sums(n, m, g), centred, int(sample[0]), sign)
        return after.n, after.m, after.g, np.array([code], np.int32)

    def params(self, node: Node) -> Params:
        return {**super().params(node), "zero": node.ins[3].type.zero}

    def macs(self, node: Node) -> int:
        return node.ins[2].type.size


@op
class MergeSums(SumsOp):
    """Add other sums, or take them out. Inputs: n, m, g, the other n, m, g, and 1 or −1; the last output is a code."""

    kernel = "smg_merge_sums"

    def infer(self, n: Type, m: Type, g: Type, *rest: Type) -> tuple[Type, ...]:
        _check_sums("MergeSums", n, m, g)
        for name, found, own in zip(("counts", "sums", "products", "sign"), rest, (n, m, g, CODE), strict=True):
            check_is("MergeSums", f"other {name}", found, own)
        return n, m, g, CODE

    def ref(self, node: Node, *arrays: Array) -> tuple[Array, ...]:
        (*both, sign) = arrays
        code, after = one_pass.merge(Sums(*both[:3]), Sums(*both[3:]), 1 if sign[0] > 0 else -1)
        return after.n, after.m, after.g, np.array([code], np.int32)


@op
class ForgetClass(SumsOp):
    """Take a class out of the sums by its number. Inputs: n, m, g, label; the last output is a code."""

    kernel = "smg_forget_class"

    def infer(self, n: Type, m: Type, g: Type, label: Type) -> tuple[Type, ...]:
        _check_sums("ForgetClass", n, m, g)
        check_is("ForgetClass", "label", label, LABEL)
        return n, m, g, CODE

    def ref(self, node: Node, n: Array, m: Array, g: Array, label: Array) -> tuple[Array, ...]:
        code, after = one_pass.forget_class(Sums(n, m, g), int(label[0]))
        return after.n, after.m, after.g, np.array([code], np.int32)


@op
class Solve(Op):
    """Make the float32 head of the sums, and the limit of Distance. Inputs: w, b, limit, n, m, g; last comes a code."""

    scale: float  # of the features

    kernel = "smg_solve_f32"
    takes = "float32"
    working_memory = True

    def infer(self, w: Type, b: Type, limit: Type, n: Type, m: Type, g: Type) -> tuple[Type, ...]:
        _check_sums("Solve", n, m, g)
        check_is("Solve", "limit", limit, LIMIT)
        check_is("Solve", "weights", w, Type(m.shape, "float32"))
        check_is("Solve", "biases", b, Type(m.shape[:1], "float32"))
        if not 2.0**-60 <= self.scale <= 2.0**60:
            raise GraphError(f"Solve of features of a scale of {self.scale:g}; give one from 2^-60 to 2^60")
        return w, b, limit, CODE

    def ref(self, node: Node, w: Array, b: Array, limit: Array, n: Array, m: Array, g: Array) -> tuple[Array, ...]:
        code, weights, biases = one_pass.solve(Sums(n, m, g), self.scale, w, b)
        if code == one_pass.DONE:
            limit = np.array([one_pass.limit(Sums(n, m, g))])
        return weights, biases, limit, np.array([code], np.int32)

    def moved(self, node: Node) -> int:
        return 3

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        return (*node.ins, node.outs[3])

    def params(self, node: Node) -> Params:
        classes, d = node.ins[4].type.shape
        return {"classes": classes, "d": d, "scale": float(np.float32(self.scale))}

    def macs(self, node: Node) -> int:
        classes, d = node.ins[4].type.shape
        return d**3 // 6 + classes * d * d


@op
class Distance(Op):
    """The squared distance of features to the nearest mean, over the limit. Inputs: n, m, features, limit."""

    kernel = "smg_distance_s8"
    takes = "int32"

    def infer(self, n: Type, m: Type, x: Type, limit: Type) -> Type:
        _check_sums("Distance", n, m, Type((one_pass.triangle(m.shape[-1] if m.shape else 1),), "int32"))
        if x.dtype != "int8" or x.q is None or x.q.axis is not None or x.shape != (1, m.shape[1]):
            raise GraphError(f"Distance takes int8[1, {m.shape[1]}] with one scale as its features, not {shown(x)}")
        check_is("Distance", "limit", limit, LIMIT)
        return FAR

    def ref(self, node: Node, n: Array, m: Array, x: Array, limit: Array) -> Array:
        centred = x.astype(np.int64) - node.ins[2].type.zero
        return np.array([[one_pass.distance(n, m, one, limit[0])] for one in centred])

    def params(self, node: Node) -> Params:
        classes, d = node.ins[1].type.shape
        return {"classes": classes, "d": d, "zero": node.ins[2].type.zero}

    def macs(self, node: Node) -> int:
        return node.ins[1].type.size


ON_SUMS: tuple[type[Op], ...] = (
    Observe,
    MergeSums,
    ForgetClass,
    Solve,
    Distance,
)  # whose kernels smidgen_sums.h declares
