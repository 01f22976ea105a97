"""Layers of channels-first files as nodes of the graph: convolution, dense, pooling, means, and moves of elements."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import TransposedConv, check_places, take
from smidgen.frontends.channels import Channels, Constant, FileTensor, Operand, Spans, int8_steps
from smidgen.frontends.layout import Shape, TensorLayout, channels_last
from smidgen.ir import MAX_RANK, Array, QParams, Value
from smidgen.numerics import activation_limits

SMALLEST = 2.0**-60  # step of a bias; below it the bias is zero
LIMIT = float(np.finfo(np.float32).max)  # in place of an infinite limit


class Layers(Channels):
    """Layers that the rules for a file's operators emit."""

    def conv(
        self, x: FileTensor, w: Constant, b: Constant | None, stride: Shape, pads: Spans, dilation: Shape, groups: int
    ) -> FileTensor:
        """Convolve over one or two dimensions; weights are [out, in / groups, rows, columns] or [out, …, length]."""
        rank, groups_fit = len(x.shape), groups >= 1 and len(x.shape) > 1 and w.shape[1:2] == (x.shape[1] // groups,)
        if len(w.shape) != rank or rank not in (3, 4) or not groups_fit or x.shape[1] % groups:
            raise ImportModelError(
                f"input {list(x.shape)} and weights {list(w.shape)} in {groups} groups do not fit; convolutions run "
                "over one or two dimensions"
            )
        depthwise = groups == x.shape[1] > 1
        steps, spread, (rows, columns) = _pair(stride), _pair(dilation), ((0, 0), *pads)[-2:]
        window = steps, (*rows, *columns), spread
        op = ops.Depthwise(*window) if depthwise else ops.Conv2D(*window, groups)
        axis, order = (3, (1, 2, 3, 0)) if depthwise else (0, (0, 2, 3, 1))
        lifted = (*w.shape[:2], *_pair(w.shape[2:]))
        source = self.to_map(self._weighted_input(x, w))
        weights = self._weights(source, w, axis, lambda a: a.reshape(lifted).transpose(order))
        value = self.emit(op, source, weights, self._bias(source, weights, b, w.shape[0]), q=self.q)
        return self.from_map(value, rank)

    def conv_transpose(
        self, x: FileTensor, w: Constant, b: Constant | None, stride: Shape, pads: Spans, extra: Shape, dilation: Shape,
        groups: int,
    ) -> FileTensor:  # fmt: skip
        """Convolve transposed; weights are [in, out, rows, columns] or [in, out, length], `extra` is appended."""
        rank = len(x.shape)
        if rank not in (3, 4) or len(w.shape) != rank or w.shape[0] != x.shape[1] or groups != 1:
            raise ImportModelError(
                f"input {list(x.shape)} and weights {list(w.shape)} in {groups} groups: a transposed convolution takes "
                "one group over one or two dimensions; enlarge by Upsample and a grouped convolution instead"
            )
        w = self._spread(w, dilation)
        kernel, steps, more = _pair(w.shape[2:]), _pair(stride), (0, *extra)[-2:]
        spans, sizes = ((0, 0), *pads)[-2:], _pair(x.shape[2:])
        numbers = zip(sizes, steps, kernel, spans, more, strict=True)
        h, wide = ((n - 1) * s + k - sum(span) + e for n, s, k, span, e in numbers)
        how = TransposedConv(kernel, steps, (spans[0][0], spans[1][0]), (h, wide))
        self.budget.check("its weights by phases", 8 * w.data.size * how.phases)
        first = w.transposed((1, 0, *range(2, rank)))
        lifted = (*first.shape[:2], *kernel)
        apart = first.each(lambda a: how.weights(a.reshape(lifted).transpose(0, 2, 3, 1)))
        scales = first.scales * how.phases if len(first.scales) > 1 else first.scales
        source = self.to_map(self._weighted_input(x, first))
        weights = self._weights(source, replace(apart, scales=scales), 0, lambda a: a)
        real = np.zeros(first.shape[0]) if b is None else np.broadcast_to(b.data.reshape(-1), first.shape[:1])
        bias = self._bias(source, weights, Constant(np.tile(real, how.phases)), how.phases * first.shape[0])
        return self.from_map(how.emit(self.builder, "none", source, weights, bias, self.q, self.name), rank)

    def _spread(self, w: Constant, dilation: Shape) -> Constant:
        """Return dilated weights [in, out, …]: the same with zeros between them."""
        if set(dilation) == {1}:
            return w
        if len(dilation) != len(w.shape) - 2 or min(dilation) < 1:
            raise ImportModelError(f"dilations {list(dilation)} do not fit weights {list(w.shape)}")
        shape = (*w.shape[:2], *((k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)))
        self.budget.check("its weights, dilated,", 8 * math.prod(shape))
        taken = (slice(None), slice(None), *(slice(None, None, d) for d in dilation))

        def between(a: Array) -> Array:
            whole = np.zeros(shape, a.dtype)
            whole[taken] = a
            return whole

        return w.each(between)

    def dense(self, x: FileTensor, w: Constant, b: Constant | None = None) -> FileTensor:
        """x · wᵀ + b along the last dimension; weights are [out, in], their columns reordered as memory is."""
        if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[1]:
            raise ImportModelError(f"input {list(x.shape)} and weights [out, in] of {list(w.shape)} do not fit")
        x, (n, k) = self._weighted_input(x, w), w.shape
        places = x.layout.places(len(x.shape) - 1)
        x = self.arranged(x, x.layout.with_last(places))
        order = [i - places[0] + 1 for i in x.layout.memory if i in places] if places else []
        cut = (n, *x.layout.dims[-1])
        rows = x.size // k
        pixels = rows > 1 and x.value.type.dtype == "float32"  # a 1×1 convolution: in int8, the quicker of the two
        source = self.view(x.value, (1, rows, 1, k) if pixels else (rows, k))
        shape = (n, 1, 1, k) if pixels else (n, k)
        weights = self._weights(source, w, 0, lambda a: a.reshape(cut).transpose(0, *order).reshape(shape))
        op = ops.Conv2D() if pixels else ops.Dense()
        value = self.emit(op, source, weights, self._bias(source, weights, b, n), q=self.q)
        outer = tuple(i for i in x.layout.memory if i not in places)
        last, end = ((n,), (len(outer),)) if n > 1 else ((), ())
        return FileTensor(value, TensorLayout((*x.layout.dims[:-1], last), outer + end))

    def _weighted_input(self, x: FileTensor, w: Constant) -> FileTensor:
        """Return the input in int8 where its weights are int8 and the file quantizes the output, else in float32."""
        usable = w.steps is not None and w.zero == 0 and (len(w.scales) == 1 or w.axis == 0)
        return self.int8_if_planned(x) if usable else self.real(x)

    def _weights(self, x: Value, w: Constant, axis: int, place: Callable[[Array], Array]) -> Value:
        if x.type.dtype == "float32":
            return self.constant("w", place(w.data.astype(np.float32)))
        assert w.steps is not None
        q = QParams.per_channel(w.scales, axis) if len(w.scales) > 1 else QParams.per_tensor(w.scales[0])
        return self.constant("w", place(int8_steps(w.steps)), q)

    def _bias(self, x: Value, w: Value, b: Constant | None, channels: int) -> Value:
        real: Array = np.zeros(channels) if b is None else b.data.astype(np.float64).reshape(-1)
        if real.size not in (1, channels):
            raise ImportModelError(f"a bias of {list(b.shape) if b else []} does not fit {channels} channels")
        real = np.broadcast_to(real, (channels,))
        if x.type.dtype == "float32":
            return self.constant("b", real.astype(np.float32))
        assert w.type.q is not None
        steps = np.rint(real / np.maximum(x.type.scale * np.array(w.type.q.scale), SMALLEST))
        return self.constant("b", np.clip(steps, -(2**31), 2**31 - 1).astype(np.int32))

    def batch_norm(self, x: FileTensor, scale: Array, shift: Array) -> FileTensor:
        """y = x · scale + shift for each of the channels, dimension 1."""
        channels = x.shape[1] if len(x.shape) > 1 else 0
        if scale.size != channels or shift.size != channels:
            raise ImportModelError(f"{scale.size} scales and {shift.size} shifts do not fit {list(x.shape)}")
        x = self.with_last(self.real(x), 1)
        return FileTensor(self.emit(ops.BatchNorm(), x.value, *self.scale_and_shift(scale, shift)), x.layout)

    def scale_and_shift(self, scale: Array, shift: Array) -> list[Value]:
        """Return float32 constants with a scale and a shift per channel."""
        roles = ("scale", scale), ("shift", shift)
        return [self.constant(role, np.asarray(data, np.float32).reshape(-1)) for role, data in roles]

    def clip(self, x: FileTensor, low: float, high: float) -> FileTensor:
        """Limit each element: by an activation where the limits are those of one, else by a function."""
        for name in ("relu", "relu6", "relu_n1_to_1"):
            if (low, high) == activation_limits(name):
                return self.unary(ops.Activate(name), x)
        return self.unary(ops.Lookup("clip", max(low, -LIMIT), min(high, LIMIT)), x)

    def pool(
        self, kind: type[ops.MaxPool] | type[ops.AvgPool], x: FileTensor, size: Shape, stride: Shape, pads: Spans,
        ceil: bool = False, counts_padding: bool = False,
    ) -> FileTensor:  # fmt: skip
        """Pool over one or two dimensions; with `counts_padding` an average counts padding as zeros."""
        source = self.to_map(x)
        k, s, p, behind = _pair(size), _pair(stride), ((0, 0), *pads)[-2:], (0, 0)
        if counts_padding and any(n for pair in p for n in pair):
            (top, bottom), (left, right) = p
            padding = ops.Pad((0, top, left, 0), (0, bottom, right, 0))
            source = self.builder.emit(padding, source, name=f"{source.name}.padded")
            behind, p = (bottom, right), ((0, 0), (0, 0))
        ends = [_end_padding(source.type.shape[1 + i], k[i], s[i], p[i], ceil, behind[i]) for i in (0, 1)]
        pad = (p[0][0], ends[0], p[1][0], ends[1])
        return self.from_map(self.emit(kind(k, s, pad), source), len(x.shape))

    def mean(self, x: FileTensor, axes: Sequence[int], keep: bool) -> FileTensor:
        """Average over some dimensions, which become 1 or, without `keep`, are removed."""
        over = {axis % len(x.shape) for axis in axes} if x.shape else set()
        rest = tuple(i for i in range(len(x.shape)) if i not in over)
        shape = tuple(1 if i in over else d for i, d in enumerate(x.shape) if keep or i not in over)
        x = self.int8_if_planned(x)
        gone = set(x.layout.order(tuple(over)))
        x = self.arranged(x, x.layout.with_last(set(x.layout.memory) - gone))
        count = math.prod(x.shape[i] for i in over)
        source = x.value
        if len(source.type.shape) != 4 or source.type.shape[0] != 1 or source.type.shape[3] * count != x.size:
            source = self.view(source, (1, count, 1, x.size // count))
        place = {old: new for new, old in enumerate(x.layout.order(rest))}
        memory = tuple(place[i] for i in x.layout.memory if i not in gone)
        layout = TensorLayout(tuple(x.layout.dims[i] for i in rest), memory)
        value = self.emit(ops.Mean(keep_dims=len(shape) == 4), source, q=self.q)
        return self.reshape(FileTensor(value, layout), shape)

    def pad(self, x: FileTensor, pads: Spans) -> FileTensor:
        """Put zeros around the tensor."""
        if len(pads) != len(x.shape) or any(n < 0 for pair in pads for n in pair):
            raise ImportModelError(f"padding {list(pads)} of {list(x.shape)} is not supported; pad by positive numbers")
        x, order = self._whole_dimensions(x)
        before, after = (tuple(pads[i][side] for i in order) for side in (0, 1))
        value = self.emit(ops.Pad(before, after), self.view(x.value, tuple(x.shape[i] for i in order)))
        shape = tuple(d + sum(pair) for d, pair in zip(x.shape, pads, strict=True))
        return FileTensor(value, TensorLayout.of(shape, order))

    def take(self, x: FileTensor, places: Mapping[int, Sequence[int]]) -> FileTensor:
        """Take the elements at places along some dimensions; other dimensions adjacent in memory count as one."""
        x, order = self._whole_dimensions(x, len(x.shape))
        every = [places.get(i, range(n)) for i, n in enumerate(x.shape)]
        check_places(x.shape, every)
        runs: list[list[int]] = []
        for i in order:
            if len(order) > MAX_RANK and runs and i not in places and runs[-1][-1] not in places:
                runs[-1].append(i)
            else:
                runs.append([i])
        refuse(len(runs) > MAX_RANK, f"it takes parts of {list(x.shape)} along {len(places)} dimensions; take fewer")
        view = self.view(x.value, tuple(math.prod(x.shape[i] for i in run) for run in runs))
        along = [every[run[0]] if len(run) == 1 else range(n) for run, n in zip(runs, view.type.shape, strict=True)]
        value = take(self.builder, view, along, self.name)
        return FileTensor(value, TensorLayout.of(tuple(len(p) for p in every), order))

    def select(self, x: FileTensor, axis: int, places: Sequence[int], keep: bool = True) -> FileTensor:
        """Take places along a dimension, negative ones counted from its end; without `keep` the dimension goes."""
        size = x.shape[axis]
        y = self.take(x, {axis: [n + size if n < 0 else n for n in places]})
        return y if keep else self.reshape(y, (*x.shape[:axis], *x.shape[axis + 1 :]))

    def repeat(self, x: FileTensor, times: Sequence[int]) -> FileTensor:
        """Repeat a tensor so many times along each dimension; those that it lacks come first."""
        x = self.reshape(x, (1,) * (len(times) - len(x.shape)) + x.shape)
        return self.take(x, {i: list(range(x.shape[i])) * n for i, n in enumerate(times) if n != 1})

    def bilinear(self, x: FileTensor, size: Shape, align_corners: bool, half_pixel: bool) -> FileTensor:
        """Resize a map bilinearly, with corners or pixel centres aligned."""
        op = ops.ResizeBilinear(_pair(size), align_corners, half_pixel)
        return self.from_map(self.emit(op, self.to_map(x)), len(x.shape))

    def split(self, x: FileTensor, axis: int, sizes: Sequence[int]) -> tuple[FileTensor, ...]:
        """Split a dimension into consecutive parts of these sizes."""
        rank = len(x.shape)
        if not -rank <= axis < rank or sum(sizes) != x.shape[axis] or min(sizes, default=0) < 1:
            raise ImportModelError(f"it splits dimension {axis} of {list(x.shape)} into {list(sizes)[:8]}")
        ends = np.cumsum(sizes)
        parts = zip(sizes, map(int, ends), strict=True)
        return tuple(self.take(x, {axis % rank: range(end - n, end)}) for n, end in parts)

    def concat(self, xs: Sequence[Operand], axis: int) -> FileTensor:
        """Concatenate along a dimension."""
        refuse(not xs, "it joins nothing")
        tensors = [x if isinstance(x, FileTensor) else self.real(x) for x in xs]
        if self.q is not None and all(t.value.type.dtype == "int8" for t in tensors):
            tensors = [self.quantized(t, self.q) for t in tensors]
        elif len({t.value.type.q for t in tensors}) > 1:
            tensors = [self.real(t) for t in tensors]
        rank = len(tensors[0].shape)
        if any(len(t.shape) != rank for t in tensors) or not -rank <= axis < rank:
            raise ImportModelError(f"it joins {[list(t.shape) for t in tensors]}, which do not fit, along {axis}")
        axis %= rank
        wholes = [self._whole_dimensions(t) for t in tensors]
        order = max(wholes, key=lambda whole: sum(n > 1 for n in whole[0].shape))[1]  # a vector has any
        values = []
        for x, _ in wholes:
            layout = x.layout.refined(tuple((d,) if d > 1 else () for d in x.shape)) or x.layout
            x = self.arranged(FileTensor(x.value, layout), layout.order(order))
            values.append(self.view(x.value, tuple(x.shape[i] for i in order)))
        value = self.emit(ops.Concat(order.index(axis)), *values)
        total, shape = sum(x.shape[axis] for x, _ in wholes), tensors[0].shape
        return FileTensor(value, TensorLayout.of((*shape[:axis], total, *shape[axis + 1 :]), order))

    def _whole_dimensions(self, x: FileTensor, most: int = MAX_RANK) -> tuple[FileTensor, Shape]:
        """Return the tensor with each of at most `most` dimensions whole in memory, and their order there."""
        rank = len(x.shape)
        refuse(rank > most, f"{list(x.shape)} has {rank} dimensions; up to {most} are supported here")
        order = _order(x.layout)
        if order is None:
            x, order = FileTensor(self.in_order(x).value, TensorLayout.of(x.shape)), tuple(range(rank))
        return x, order


def _pair(numbers: Shape) -> tuple[int, int]:
    """Return the numbers for rows and columns; a signal is a map of one row."""
    rows, columns = (1, *numbers)[-2:]
    return rows, columns


def _order(layout: TensorLayout) -> Shape | None:
    """Return the order of whole dimensions in memory; None where the factors of one are apart."""
    runs = {i: layout.places(i) for i, dim in enumerate(layout.dims) if dim}
    at = {i: layout.memory.index(places[0]) for i, places in runs.items()}
    if any(layout.memory[at[i] : at[i] + len(places)] != places for i, places in runs.items()):
        return None
    long = sorted(at, key=lambda i: at[i])
    for order in (channels_last(len(layout.dims)), tuple(range(len(layout.dims)))):
        if [i for i in order if i in at] == long:
            return order
    return tuple(i for i in range(len(layout.dims)) if i not in at) + tuple(long)


def _end_padding(size: int, k: int, stride: int, pad: tuple[int, int], ceil: bool, behind: int) -> int:
    """Return the padding behind the map that windows reach into; the last `behind` of its size are padding already."""
    refuse(stride < 1 or k < 1, f"a window of {k} with stride {stride} is not possible")
    room = size + sum(pad) - k
    windows = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (windows - 1) * stride >= size - behind + pad[0]:
        windows -= 1  # the last would begin behind the map
    return max(0, (windows - 1) * stride + k - size - pad[0])
