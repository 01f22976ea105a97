"""One table of small graphs for every op that trains, on which its kernel must agree with `evaluate_step`.

Everything a kernel reads is an input, drawn again for each run; what it updates is state that goes on from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Builder, Op, QParams, Type, Value
from smidgen.ops.conv import ConvGradInput, ConvGradWeight, DepthwiseGradInput, DepthwiseGradWeight
from smidgen.ops.dense import DenseGradInput, DenseGradWeight
from smidgen.ops.elementwise import MulGrad, RepeatGrad
from smidgen.ops.gradient import GradOp
from smidgen.ops.pool import AvgPoolGrad, MaxPoolGrad, MeanGrad
from smidgen.ops.resize import PickGrad, ResizeBilinearGrad
from smidgen.ops.rules import SGD, Momentum, Sgd, UpdateRule
from smidgen.ops.update import FusedBiasStep, FusedWeightStep, Step, pack
from smidgen.ops.weighted import WeightGrad
from tests.support.attention_cases import ATTENTION_CASES
from tests.support.case_parts import Rng
from tests.support.one_pass_cases import one_pass_cases
from tests.support.recurrent_steps import recurrent_steps
from tests.support.training_inputs import (
    CONVS,
    DEPTHWISES,
    SHIFTS,
    Feed,
    Shape,
    TrainingCase,
    activation,
    case,
    cells,
    channel_factors,
    every_way,
    gradient,
    gradients,
    integers,
    label,
    mask,
    plain,
    rate,
    reals,
    step_state,
    wholes,
)


def conv_grad(shape: Shape) -> tuple[GradOp, Feed, Feed]:
    op = ConvGradInput(
        stride=shape.stride, pad=shape.pad, dilation=shape.dilation, size=shape.size[:2], groups=shape.groups
    )
    return op, shape.dy, activation(shape.out, *shape.k, shape.size[2] // shape.groups, zero=0)


def depthwise_grad(shape: Shape) -> tuple[GradOp, Feed, Feed]:
    times = shape.out // shape.size[2]
    op = DepthwiseGradInput(
        stride=shape.stride, pad=shape.pad, dilation=shape.dilation, size=shape.size[:2], multiplier=times
    )
    return op, shape.dy, activation(1, *shape.k, shape.out, zero=0)


def pool_grad(op: type[AvgPoolGrad] | type[MaxPoolGrad], shape: Shape, **fields: object) -> tuple[GradOp, Feed, Feed]:
    made = op(size=shape.k, stride=shape.stride, pad=shape.pad, **fields)  # type: ignore[arg-type]
    return made, shape.dy, activation(1, *shape.size)


def _windows() -> Iterator[TrainingCase]:
    for name, shape in CONVS.items():
        yield gradients(f"conv-grad-{name}", *conv_grad(shape))
    for name, shape in DEPTHWISES.items():
        yield gradients(f"depthwise-grad-{name}", *depthwise_grad(shape))
    yield from every_way("conv-grad", *conv_grad(Shape((4, 5, 11), 6)))
    yield from every_way("conv-grad-aligned", *conv_grad(Shape((4, 5, 24), 6)))
    yield from every_way("depthwise-grad", *depthwise_grad(Shape((4, 5, 19), 19, k=(3, 3))))
    for shift in SHIFTS:
        yield gradients(f"conv-grad-by-{shift}", *conv_grad(Shape((4, 4, 17), 30)), shift=shift)
        yield gradients(f"depthwise-grad-by-{shift}", *depthwise_grad(Shape((4, 4, 17), 17, k=(3, 3))), shift=shift)
    pools = {
        "2x2": Shape((6, 8, 9), 9, k=(2, 2), stride=(2, 2)),
        "overlapping": Shape((5, 6, 24), 24, k=(3, 3)),
        "gaps": Shape((9, 9, 5), 5, k=(2, 2), stride=(3, 4), same=False),
        "whole": Shape((5, 4, 130), 130, k=(5, 4), same=False),
    }
    for name, shape in pools.items():
        average, dy, _ = pool_grad(AvgPoolGrad, shape, map=shape.size[:2])
        yield from every_way(f"avg-pool-grad-{name}", average, dy)
        yield from every_way(f"max-pool-grad-{name}", *pool_grad(MaxPoolGrad, shape))


def _elements() -> Iterator[TrainingCase]:
    yield from every_way("through", ops.RequantizeGrad(), gradient(1, 4, 5, 13))
    yield from every_way("through-aligned", ops.RequantizeGrad(), gradient(1, 4, 5, 16))
    yield from every_way("through-many", ops.RequantizeGrad(), gradient(1, 2, 2, 300))
    yield from every_way("sum", ops.SumGrads(), gradient(1, 4, 5, 13), gradient(1, 4, 5, 13))
    for shift in SHIFTS:
        yield gradients(f"through-by-{shift}", ops.RequantizeGrad(), gradient(3, 50), shift=shift)
        yield gradients(f"sum-by-{shift}", ops.SumGrads(), gradient(3, 50), gradient(3, 50), shift=shift)
    for apart in (0, 5, 16, 17, 40, -3, -30):
        exponents = step_state(-apart // 2, apart - apart // 2, 4)
        op = ops.SumGrads((0.5,), slots=(0, 1, 2), stream=4)
        yield plain(f"sum-{apart}-apart", op, gradient(1, 70), gradient(1, 70), exponents)
    yield from every_way("mean-grad", MeanGrad(size=(3, 5)), gradient(1, 37))
    yield from every_way("mean-grad-aligned", MeanGrad(size=(3, 5)), gradient(1, 136))
    yield from every_way("mul-grad", MulGrad(), gradient(1, 4, 5, 13), activation(1, 4, 5, 13, zero=-128))
    yield from every_way("mul-grad-channels", MulGrad(), gradient(1, 4, 5, 13), activation(13, zero=127))
    yield from every_way("repeat-grad", RepeatGrad(repeated=(1, 1, 1, 13)), gradient(1, 4, 5, 13))
    yield from every_way("repeat-grad-rows", RepeatGrad(repeated=(5, 70)), gradient(1, 4, 5, 70))
    yield gradients("repeat-grad-scalar", RepeatGrad(repeated=(1,)), gradient(1, 20, 20, 7))
    for name, how in (("", (False, False)), ("-corners", (True, False)), ("-centres", (False, True))):
        bilinear = ResizeBilinearGrad(map=(3, 4), align_corners=how[0], half_pixel=how[1])
        yield from every_way(f"bilinear-grad{name}", bilinear, gradient(1, 7, 8, 13))
    smaller = ResizeBilinearGrad(map=(5, 9), half_pixel=True)
    yield from every_way("bilinear-grad-smaller", smaller, gradient(1, 1, 3, 130))
    twice = PickGrad(rows=(0, 0, 1, 1, 2, 2), columns=(0, 0, 1, 1), map=(3, 2))
    yield from every_way("pick-grad", twice, gradient(1, 6, 4, 13))
    yield from every_way("pick-grad-rows", PickGrad(rows=(3, 1, 1), map=(4, 5)), gradient(1, 3, 5, 7))
    yield from every_way("pick-grad-columns", PickGrad(columns=(4, 0, 0), map=(2, 5)), gradient(1, 2, 3, 130))
    for rows, c, n in ((1, 40, 10), (1, 300, 3), (3, 17, 9)):
        yield from every_way(f"dense-grad-{rows}-{c}", DenseGradInput(), gradient(rows, n), activation(n, c, zero=0))
    edges = (np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-42, 0.0)
    for name, e in (("", -8), ("-vanishes", 20), ("-saturates", -40)):
        unit = reals(1, spread=0.5, edges=(0.0, 2.0**-41, 1.0))
        yield plain(f"from-float{name}", ops.FromFloat(0.031, (0,), 6), reals(1, 200, edges=edges), unit, step_state(e))


PEAK_BITS = (0, 1, 5, 64, 127, 128, 2**20, 2**30)


def _moves() -> Iterator[TrainingCase]:
    for size in (1, 7, 8, 100):
        for limited in ("none", "relu6"):
            yield plain(f"mask-{size}-{limited}", ops.Mask(limited), activation(1, size, zero=-100))
    for size, repeated in ((1, 1), (15, 15), (16, 4), (105, 7)):
        for less in (False, True):
            pair = activation(size // repeated, repeated), activation(repeated)
            yield plain(f"compare-{size}-{repeated}-{less}", ops.Compare(less), *pair)
    yield plain("gather", ops.Gather((0, 3, 4, 8)), activation(1, 3, 4, 9))
    yield plain("gather-one", ops.Gather((16,)), activation(1, 3, 4, 17))
    yield plain("channel-sum", ops.ChannelSum(), gradient(1, 7, 9, 13))
    yield plain("channel-sum-vector", ops.ChannelSum(), gradient(1, 130))
    peak_bits = Feed(Type((1,), "int32"), lambda rng: rng.choice(np.array(PEAK_BITS, np.int32), 1))
    yield plain("step_state", ops.AdvanceStepState(), step_state(-67, -3, 0, 20, 53), *[peak_bits] * 5)
    wild = Feed(Type((5,), "int32"), lambda rng: rng.integers(-(2**31), 2**31, 5).astype(np.int32))
    yield plain("step_state-restored-wild", ops.AdvanceStepState(), wild, *[peak_bits] * 3)
    yield case("step_state-in-place", ops.AdvanceStepState, (peak_bits, peak_bits), _carry_in_place)
    for size in (1, 37):
        yield case(f"assign-{size}", ops.Assign, (activation(1, size),), _assign)


def _assign(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
    """A variable that each run reads before it is replaced."""
    type_ = x[0].type
    variable = g.persistent("variable", rng.integers(-128, 128, type_.shape).astype(np.int8), type_.q)
    seen = g.emit(ops.Add(), x[0], variable, q=QParams.per_tensor(0.11, 4))
    after = g.emit(ops.Assign(), variable, x[0])
    g.update((variable,), (after,))
    return seen, after


def _overlays() -> Iterator[TrainingCase]:
    """Weights some of whose channels are trained, under every kernel that reads such weights."""
    yield masked_overlay("overlay-conv-masked", *conv_grad(Shape((4, 5, 24), 10)), (0, 5, 6, 7, 8, 20))
    yield masked_overlay("overlay-depthwise-masked", *depthwise_grad(Shape((4, 5, 24), 24, k=(3, 3))), (1, 2, 17))
    for name, shape in CONVS.items():
        width = shape.size[2] // shape.groups
        yield from overlaid(f"overlay-conv-{name}", *conv_grad(shape), _conv(shape), shape, tuple(range(0, width, 3)))
    for name, shape in DEPTHWISES.items():
        every = tuple(range(shape.out - 1, -1, -2))[::-1]
        yield from overlaid(f"overlay-depthwise-{name}", *depthwise_grad(shape), _depthwise(shape), shape, every)


def _conv(shape: Shape) -> Op:
    return ops.Conv2D(shape.stride, shape.pad, shape.dilation, shape.groups)


def _depthwise(shape: Shape) -> Op:
    return ops.Depthwise(shape.stride, shape.pad, shape.dilation)


def overlaid(
    name: str, grad: GradOp, dy: Feed, w: Feed, forward: Op, shape: Shape, channels: tuple[int, ...]
) -> Iterator[TrainingCase]:
    trained = activation(*w.type.shape[:-1], len(channels), zero=0)
    overlay = ops.Overlay(channels)
    x, b = activation(1, *shape.size), integers(shape.out, most=5000)
    q = QParams.per_tensor(0.4, 5)
    yield case(
        name, ops.Overlay, (x, w, trained, b),
        lambda g, _, v: (g.emit(forward, v[0], g.emit(overlay, v[1], v[2]), v[3], q=q),),
    )  # fmt: skip
    lowered = replace(grad, slots=(0, 1), stream=len(name))
    yield case(
        f"{name}-grad", ops.Overlay, (dy, w, trained, step_state(3, 12)),
        lambda g, _, v: g.emit_all(lowered, v[0], g.emit(overlay, v[1], v[2]), v[3]),
    )  # fmt: skip


def masked_overlay(name: str, grad: GradOp, dy: Feed, w: Feed, channels: tuple[int, ...]) -> TrainingCase:
    """A gradient behind a mask, one factor a channel, of weights some of whose channels are trained."""
    out = grad.shape(dy.type, w.type)
    lowered = replace(grad, slots=(0, 1), stream=len(name), masked=True, factors=channel_factors(out[-1]))
    trained, overlay = activation(*w.type.shape[:-1], len(channels), zero=0), ops.Overlay(channels)
    return case(
        name, ops.Overlay, (dy, w, trained, mask(int(np.prod(out))), step_state(3, 9)),
        lambda g, _, v: g.emit_all(lowered, v[0], g.emit(overlay, v[1], v[2]), v[3], v[4]),
    )  # fmt: skip


def _carry_in_place(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
    state = g.persistent("step_state", step_state(-3, 10).draw(rng))
    after = g.emit(ops.AdvanceStepState(), state, *x)
    g.update((state,), (after,))
    return (after,)


def _losses() -> Iterator[TrainingCase]:
    edges = (np.inf, -np.inf, np.nan, 1e38, -200.0, 0.0)
    for classes in (2, 10, 103):
        logits, probabilities = reals(1, classes, spread=9.0), reals(1, classes, spread=0.3)
        yield plain(f"cross-entropy-{classes}", ops.SoftmaxCrossEntropy(), logits, label(classes))
        yield plain(f"cross-entropy-grad-{classes}", ops.CrossEntropyGrad(), probabilities, label(classes))
    yield plain("cross-entropy-edges", ops.SoftmaxCrossEntropy(), reals(1, 9, edges=edges), label(9))
    for n in (1, 5, 64):
        logits, target = reals(1, n, spread=9.0, edges=edges), reals(1, n, edges=(0.0, 1.0, *edges))
        yield plain(f"sigmoid-{n}", ops.SigmoidCrossEntropy(), logits, target)
        yield plain(f"squares-{n}", ops.MeanSquaredError(), logits, target)
    yield plain("reconstruction-12", ops.ReconstructionError(), reals(1, 12, edges=edges), activation(1, 12))
    yield plain("reconstruction-map", ops.ReconstructionError(), reals(1, 36, spread=5.0), activation(1, 3, 4, 3))
    for h, w, c in ((1, 1, 2), (3, 4, 5), (7, 2, 256)):
        logits = reals(1, h, w, c, spread=9.0, edges=edges)
        yield plain(f"cells-{h}-{w}-{c}", ops.CellCrossEntropy(), logits, cells(h, w, c))
    yield plain("max-abs", ops.MaxAbs(), reals(1, 33, edges=(-0.0, np.nan, -np.inf)))
    sizes = (0.0, -1.0, np.nan, np.inf, 1e-38, 1e38, 2.0**-86, 2.0**-87, 2.0**127)
    for i in range(4):
        yield plain(f"rate-{i}", ops.Rate(), reals(1, spread=0.01, edges=sizes), reals(1, edges=(1.0,)))
    for rows, c, n in ((1, 7, 3), (1, 160, 10), (2, 33, 5)):
        feeds = reals(rows, c), reals(n, c), reals(n)
        yield case(f"dense-f32-{c}", ops.Dense, feeds, lambda g, _, x: (g.emit(ops.Dense(), *x),))
        yield plain(f"dense-grad-f32-{c}", DenseGradInput(), reals(rows, n), reals(n, c))


def conv_weights(shape: Shape) -> tuple[ConvGradWeight, Feed, Feed]:
    op = ConvGradWeight(shape.stride, shape.pad, shape.dilation, shape.k, shape.groups)
    return op, activation(1, *shape.size, zero=-7), shape.dy


def depthwise_weights(shape: Shape) -> tuple[DepthwiseGradWeight, Feed, Feed]:
    op = DepthwiseGradWeight(shape.stride, shape.pad, shape.dilation, shape.k)
    return op, activation(1, *shape.size, zero=127), shape.dy


def _weight_gradients() -> Iterator[TrainingCase]:
    for name, shape in CONVS.items():
        yield plain(f"conv-weights-{name}", *conv_weights(shape))
    for name, shape in DEPTHWISES.items():
        yield plain(f"depthwise-weights-{name}", *depthwise_weights(shape))
    for rows, c, n in ((1, 40, 10), (3, 130, 3), (7, 17, 9)):
        yield plain(f"dense-weights-{rows}-{c}", DenseGradWeight(), activation(rows, c, zero=-128), gradient(rows, n))


@dataclass(frozen=True)
class How:
    """How a step is taken."""

    bits: int = 12
    rule: UpdateRule = SGD


PLAIN = How()
HOWS = {
    "8": How(8), "10": How(10), "12": PLAIN,
    "8-momentum": How(8, Momentum(0.9)), "10-momentum": How(10, Momentum(0.5)),
    "12-momentum": How(12, Momentum(0.999999)), "12-accumulate": How(12, Sgd(accumulate=3)),
    "8-both": How(8, Momentum(0.7, accumulate=2)), "12-every-step": How(12, Momentum(0.9)),
}  # fmt: skip


def step_factors(c: int) -> tuple[float, ...]:
    """Near each other, but for a dead channel's, which is huge, and one that vanishes."""
    return tuple(2.0**60 if i % 11 == 4 else 2.0**-90 if i % 11 == 7 else 1.3 ** (i % 5) for i in range(c))


def shifts(c: int) -> tuple[int, ...]:
    """Of multipliers of all sizes: units of 1, larger ones, and the largest."""
    return tuple((-3, -7, -8, -9, -12, -22, -31)[i % 7] for i in range(c))


def step(name: str, op: Step, w: Type, how: How, sources: tuple[Feed, ...]) -> TrainingCase:
    """A step of a tensor of type w; its gradient, rate and step_state are drawn, its states evolve."""
    op = replace(op, rule=how.rule, slot=0, stream=6)
    unit = {"int32": 0, "int16": 0, "int8": 12 if how.rule.buffered else how.bits - 8}[w.dtype]
    power = op.lift - 26 - unit  # sums of 2^−4 of their bound then make steps of about one unit

    def build(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
        states = [g.persistent("w", _initial(rng, w), QParams.per_tensor(0.01) if w.dtype == "int8" else None)]
        if w.dtype == "int8" and how.bits > 8:
            fraction = rng.integers(0, 1 << (how.bits - 8), w.size).astype(np.uint8)
            states.append(g.persistent("fraction", pack(fraction, how.bits - 8)))
        if how.rule.buffered:
            states.append(g.persistent("buffer", _initial(rng, how.rule.buffer(w))))
        after = g.emit_all(op, *states, *x)
        g.update(states, after)
        return after

    return case(name, type(op), (*sources, rate(power), step_state(0)), build)


def _initial(rng: Rng, type: Type) -> Array:
    limits = np.iinfo(type.dtype)
    return rng.integers(limits.min, limits.max, type.shape, endpoint=True).astype(type.dtype)


def fused(name: str, kind: type[WeightGrad], shape: Shape, how: How = PLAIN) -> TrainingCase:
    """The weights of a layer learn; the channels of a depthwise one are their last axis."""
    gradient, x, dy = conv_weights(shape) if kind is ConvGradWeight else depthwise_weights(shape)
    w = Type(gradient.infer(x.type, dy.type).shape)
    axis = 0 if kind is ConvGradWeight else 3
    op = FusedWeightStep(
        step_factors(shape.out), 0, 0, 255 * 127 * shape.positions, axis=axis, bits=how.bits, gradient=gradient
    )
    return step(name, op, w, how, (x, dy))


def _steps() -> Iterator[TrainingCase]:
    for name, how in HOWS.items():
        c, most = 23, 127 * 64
        bias = ops.BiasStep(step_factors(c), 0, 0, most)
        yield step(f"bias-step-{name}", bias, Type((c,), "int32"), how, (integers(c, most=most),))
        bias = FusedBiasStep(step_factors(c), 0, 0, most, gradient=ops.ChannelSum())
        yield step(f"bias-sum-step-{name}", bias, Type((c,), "int32"), how, (gradient(1, 8, 8, c),))
        bias = replace(ops.BiasStep(step_factors(c), 0, 0, most), shifts=shifts(c))
        yield step(f"difference-step-{name}", bias, Type((c,), "int16"), how, (integers(c, most=most),))
        bias = FusedBiasStep(step_factors(c), 0, 0, most, shifts=shifts(c), gradient=ops.ChannelSum())
        yield step(f"difference-sum-step-{name}", bias, Type((c,), "int16"), how, (gradient(1, 8, 8, c),))
        for axis, w in ((0, (5, 3, 3, 7)), (0, (30, 1, 1, 1)), (3, (1, 3, 3, 13)), (0, (3, 150))):
            most = 255 * 127 * 64
            weight = ops.WeightStep(step_factors(w[axis]), 0, 0, most, axis=axis, bits=how.bits)
            what = f"weight-step-{'x'.join(map(str, w))}-{name}"
            yield step(what, weight, Type(w), how, (integers(*w, most=most),))
        yield fused(f"conv-step-{name}", ConvGradWeight, Shape((4, 4, 13), 9), how)
        yield fused(f"depthwise-step-{name}", DepthwiseGradWeight, Shape((5, 4, 21), 21, k=(3, 3)), how)
        dense = FusedWeightStep(step_factors(9), 0, 0, 255 * 127 * 2, bits=how.bits, gradient=DenseGradWeight())
        yield step(f"dense-step-{name}", dense, Type((9, 31)), how, (activation(2, 31), gradient(2, 9)))
        yield head_step(f"head-step-{name}", how)
    for name, shape in CONVS.items():
        yield fused(f"conv-step-{name}", ConvGradWeight, shape)
    for name, shape in DEPTHWISES.items():
        yield fused(f"depthwise-step-{name}", DepthwiseGradWeight, shape)
    base, difference = integers(60, most=2**31 - 1), wholes(60)
    yield plain("learned-bias", ops.LearnedBias(shifts(60)), base, difference)
    large = ops.WeightStep(step_factors(6), 0, 0, 2**31 - 1, bits=12)
    yield step("weight-step-largest", large, Type((6, 9)), PLAIN, (integers(6, 9, most=2**31 - 1),))
    bias = ops.BiasStep(step_factors(60), 0, 0, 2**31 - 1)
    yield step("bias-step-largest", bias, Type((60,), "int32"), PLAIN, (integers(60, most=2**31 - 1),))


def head_step(name: str, how: How) -> TrainingCase:
    op, n, c = ops.DenseStep(how.rule), 5, 37

    def build(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
        shapes = [(n, c), (n,)] * (1 + how.rule.buffered)
        states = [g.persistent(f"s{i}", rng.normal(0, 1, s).astype(np.float32)) for i, s in enumerate(shapes)]
        after = g.emit_all(op, *states, *x)
        g.update(states, after)
        return after

    return case(
        name, ops.DenseStep, (reals(1, c), reals(1, n), reals(1, spread=0.1, edges=(0.0,)), step_state()), build
    )


TRAINING_CASES: tuple[TrainingCase, ...] = (
    *_windows(), *_elements(), *_overlays(), *_moves(), *_losses(), *_weight_gradients(), *_steps(),
    *recurrent_steps(every_way),
    *ATTENTION_CASES,
    *one_pass_cases(),
)  # fmt: skip
TRAINING_GRAPHS = {case.name: case.build(np.random.default_rng(index)) for index, case in enumerate(TRAINING_CASES)}
