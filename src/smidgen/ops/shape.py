"""Ops that move bytes and compute nothing: pad, crop, reshape, transpose, concatenate."""

import math

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import MAX_RANK, Array, Builder, Node, Op, Params, Type, Value, op


def _one_scale(what: str, x: Type) -> None:
    if x.q is not None and x.q.axis is not None:
        raise GraphError(f"{what} takes tensors with one scale, its input has {len(x.q.scale)}")


def _four(shape: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """Return a shape or list of pads, brought to rank four by leading entries."""
    return (fill,) * (MAX_RANK - len(shape)) + shape


@op
class Pad(Op):
    """Zeros (real ones: the zero point) around the tensor, `before` and `after` in each dimension."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    kernel = "smg_pad_s8"

    def infer(self, x: Type) -> Type:
        _one_scale("Pad", x)
        pads = (*self.before, *self.after)
        if len(self.before) != len(x.shape) or len(self.after) != len(x.shape):
            raise GraphError(f"Pad of {len(self.before)} dimensions does not fit {list(x.shape)}")
        if x.dtype not in ("int8", "float32") or any(not 0 <= p <= 4096 for p in pads):
            raise GraphError(f"Pad takes int8 or float32 and 0 to 4096 elements per side, not {x.dtype} and {pads}")
        shape = tuple(b + d + a for b, d, a in zip(self.before, x.shape, self.after, strict=True))
        return Type(shape, x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        pads = tuple(zip(self.before, self.after, strict=True))
        return np.asarray(np.pad(x, pads, constant_values=node.ins[0].type.zero))

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        stop = tuple(b + d for b, d in zip(self.before, node.ins[0].type.shape, strict=True))
        return (g.emit(Crop(self.before, stop), dy),)

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        return {
            "x_shape": np.array(_four(x.shape, 1), np.int32),
            "y_shape": np.array(_four(node.out.type.shape, 1), np.int32),
            "before": np.array(_four(self.before, 0), np.int32),
            "zero": x.zero,
        }  # fmt: skip


@op
class Crop(Op):
    """The part of a tensor from `start` to `stop` in each dimension."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    kernel = "smg_crop_s8"

    def infer(self, x: Type) -> Type:
        inside = len(self.start) == len(self.stop) == len(x.shape) and all(
            0 <= a < b <= d for a, b, d in zip(self.start, self.stop, x.shape, strict=True)
        )
        if not inside:
            raise GraphError(f"Crop from {self.start} to {self.stop} does not fit {list(x.shape)}")
        return Type(tuple(b - a for a, b in zip(self.start, self.stop, strict=True)), x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        return np.ascontiguousarray(x[tuple(slice(a, b) for a, b in zip(self.start, self.stop, strict=True))])

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        after = tuple(d - b for d, b in zip(node.ins[0].type.shape, self.stop, strict=True))
        return (g.emit(Pad(self.start, after), dy),)

    def params(self, node: Node) -> Params:
        return {
            "x_shape": np.array(_four(node.ins[0].type.shape, 1), np.int32),
            "y_shape": np.array(_four(node.out.type.shape, 1), np.int32),
            "start": np.array(_four(self.start, 0), np.int32),
        }


@op
class Reshape(Op):
    """The same bytes under another shape: the output is the input's memory, no code runs."""

    shape: tuple[int, ...]

    view = True

    def infer(self, x: Type) -> Type:
        _one_scale("Reshape", x)
        if math.prod(self.shape) != x.size:
            raise GraphError(f"Reshape of {list(x.shape)} to {list(self.shape)} changes the number of elements")
        return Type(self.shape, x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        return x.reshape(self.shape)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return (g.emit(Reshape(node.ins[0].type.shape), dy),)


@op
class Transpose(Op):
    """Dimension i of the output is dimension perm[i] of the input."""

    perm: tuple[int, ...]

    kernel = "smg_transpose_s8"

    def infer(self, x: Type) -> Type:
        _one_scale("Transpose", x)
        if sorted(self.perm) != list(range(len(x.shape))) or x.dtype not in ("int8", "float32"):
            raise GraphError(f"Transpose by {self.perm} does not fit {x.dtype}{list(x.shape)}")
        return Type(tuple(x.shape[p] for p in self.perm), x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        return np.ascontiguousarray(x.transpose(self.perm))

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return (g.emit(Transpose(tuple(self.perm.index(i) for i in range(len(self.perm)))), dy),)

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        steps = [math.prod(x.shape[i + 1 :]) for i in range(len(x.shape))]
        return {
            "y_shape": np.array(_four(node.out.type.shape, 1), np.int32),
            "x_step": np.array(_four(tuple(steps[p] for p in self.perm), 0), np.int32),
        }  # fmt: skip


@op
class Concat(Op):
    """The inputs one after another along `axis`; all have one quantization."""

    axis: int

    kernel = "smg_concat_s8"
    variadic = True

    def infer(self, *xs: Type) -> Type:
        if not xs or not 0 <= self.axis < len(xs[0].shape):
            raise GraphError(f"Concat along axis {self.axis} needs inputs that have that axis")
        first = xs[0]
        _one_scale("Concat", first)
        for x in xs:
            alike = len(x.shape) == len(first.shape) and all(
                a == b or i == self.axis for i, (a, b) in enumerate(zip(x.shape, first.shape, strict=True))
            )
            if not alike or (x.dtype, x.q) != (first.dtype, first.q) or x.dtype not in ("int8", "float32"):
                raise GraphError(f"Concat's inputs differ: {first} and {x}; requantize them to one quantization first")
        total = sum(x.shape[self.axis] for x in xs)
        return Type((*first.shape[: self.axis], total, *first.shape[self.axis + 1 :]), first.dtype, first.q)

    def ref(self, node: Node, *xs: Array) -> Array:
        return np.concatenate(xs, axis=self.axis)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        parts: list[Value | None] = []
        at = 0
        for value in node.ins:
            shape = value.type.shape
            start = tuple(at if i == self.axis else 0 for i in range(len(shape)))
            stop = tuple(a + d for a, d in zip(start, shape, strict=True))
            parts.append(g.emit(Crop(start, stop), dy))
            at += shape[self.axis]
        return tuple(parts)

    def params(self, node: Node) -> Params:
        """Return sizes: each input contributes `part` contiguous bytes to each of `outer` runs of the output."""
        y = node.out.type
        inner = math.prod(y.shape[self.axis + 1 :])
        parts = [v.type.shape[self.axis] * inner for v in node.ins]
        return {
            "outer": math.prod(y.shape[: self.axis]), "count": len(parts), "part": np.array(parts, np.int32),
        }  # fmt: skip
