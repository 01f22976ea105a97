"""Steps of the tensors of all devices: each device has its channels, rate, rule and random bits."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from smidgen.ir import Array, Node, Value
from smidgen.numerics import stochastic
from smidgen.ops.conv import ConvGradWeight, DepthwiseGradWeight
from smidgen.ops.dense import DenseGradWeight
from smidgen.ops.gradient import GRADIENT_MOST, ChannelSum
from smidgen.ops.rules import LIMITS, STEP_LIMIT
from smidgen.ops.state import MOST_DIFFERENCE, units
from smidgen.ops.update import BUFFER_BITS, BiasStep, DenseStep, Step, WeightStep, pack, unpack
from smidgen.simulation import sums
from smidgen.simulation.fleet import Fleet, FleetStep
from smidgen.simulation.forward import INPUT_MOST
from smidgen.simulation.integers import LARGEST_STEP
from smidgen.simulation.layout import Setting, unflatten

Summed = Callable[..., Tensor]


class IntegerStep:
    """A step of int8 weights, int32 biases or int16 differences to them, with their own state.

    It is computed for the devices from the first to the last that takes it. Where each device trains a layer of its
    own, those of one layer side by side, no device pays for the others' steps.
    """

    def __init__(self, step: FleetStep, fleet: Fleet, weights: Tensor, s: Setting) -> None:
        op = step.node.op
        assert isinstance(op, Step)
        self.step, self.op, self.s = step, op, s
        self.first, self.devices = min(step.ops), max(step.ops) + 1 - min(step.ops)
        own = self._own_lanes(weights)
        self.weights = own if own.dim() == 4 else own[..., None, None]  # a bias has one tap of one channel
        self.is_weight = isinstance(op, WeightStep)
        self.fraction_bits = op.bits - 8 if isinstance(op, WeightStep) else 0
        (parameter,) = step.parameters
        self.held = {d: parameter.held[d] for d in step.ops}
        self.union = self._union()
        self.places = None if self.union is None else s.whole(self.union)
        self.sums = _summed(step.gradient, self.places, s)
        self._lanes()
        self._factors()
        span = range(self.first, self.first + self.devices)
        self.slots = s.whole([fleet.slots[d][one.slot] if (one := self._own(d)) else 0 for d in span])
        shape = (self.devices, *self._shape())
        kind = torch.uint8 if self.is_weight else torch.int32
        start = (1 << self.fraction_bits) >> 1
        self.fraction = torch.full(shape if self.is_weight else (1,), start, dtype=kind, device=s.device)
        self.buffer = torch.zeros(shape, dtype=torch.int32, device=s.device) if op.rule.buffered else None
        self.lift, self.bits = s.whole(op.lift), s.whole(self.fraction_bits)
        narrow = isinstance(op, BiasStep) and bool(op.shifts)
        self.most = s.whole(MOST_DIFFERENCE if narrow else LARGEST_STEP)
        self.unit_bits = BUFFER_BITS if op.rule.buffered and self.is_weight else self.fraction_bits
        if op.rule.buffered:
            dtype = op.rule.buffer(step.states[min(step.ops)][0].type).dtype
            self.limit, self.down = s.whole(LIMITS[dtype]), s.whole(self.unit_bits - self.fraction_bits)
            self.decay = s.whole(op.rule.params("int8")["rule.decay"])
        for device in step.ops:
            self.restore(device, {v.name: array for v, array in fleet.graphs[device].state.items()})

    def _own(self, device: int) -> Step | None:
        op = self.step.ops.get(device)
        assert op is None or isinstance(op, Step)
        return op

    def _own_lanes(self, x: Tensor) -> Tensor:
        """The lanes of the devices the step is computed for; one lane that all share stays."""
        return x[self.first : self.first + self.devices] if x.shape[0] == self.s.devices else x

    def _union(self) -> list[int] | None:
        """The channels that some device steps; None for all."""
        if not self.is_weight or any(channels is None for channels in self.held.values()):
            return None
        channels = sorted({c for held in self.held.values() for c in held or ()})
        return None if len(channels) == self.weights.shape[3] else channels

    def _shape(self) -> tuple[int, int, int]:
        """Outputs, taps and channels that are stepped."""
        _, outputs, taps, channels = self.weights.shape
        return outputs, taps, channels if self.union is None else len(self.union)

    def _lanes(self) -> None:
        """Return the channels each device steps, how many it keeps and the place of each among them."""
        s, count = self.s, self._shape()[2]
        wanted = self.union or list(range(count))
        active, rank = np.zeros((self.devices, count), bool), np.zeros((self.devices, count), np.int32)
        kept = np.ones(self.devices, np.int32)
        for device, channels in self.held.items():
            lane = device - self.first
            own = range(count) if channels is None else channels
            at = [wanted.index(c) for c in own] if self.union is not None else list(own)
            active[lane, at] = True
            rank[lane, at] = np.arange(len(at))
            kept[lane] = len(at)
        self.active_lanes = active
        self.active = torch.from_numpy(active).to(s.device).reshape(self.devices, 1, 1, count)
        self.rank, self.kept = torch.from_numpy(rank).to(s.device), torch.from_numpy(kept).to(s.device)

    def _factors(self) -> None:
        """Mantissas and exponents of the factors; one lane where all devices have the same."""
        s, (outputs, _, count) = self.s, self._shape()
        along = 3 if isinstance(self.op, WeightStep) and self.op.axis == 3 else 1
        multiplier = np.zeros((self.devices, count if along == 3 else outputs), np.int64)
        shift = np.zeros_like(multiplier)
        for device, op in self.step.ops.items():
            assert isinstance(op, Step)
            lane = device - self.first
            at = self.active_lanes[lane] if along == 3 else slice(None)
            multiplier[lane, at], shift[lane, at] = stochastic.mantissas(np.array(op.factors))
            if isinstance(op, BiasStep) and op.shifts:
                shift[lane] -= units(op.shifts)
        form = [-1, 1, 1, 1]
        form[along] = multiplier.shape[1]
        self.multiplier, self.shift = (s.whole(_one_lane(m)).reshape(form) for m in (multiplier, shift))

    def streams(self) -> list[tuple[int, int]]:
        """Each device's stream of the step and of its rule."""
        own = [self._own(d) for d in range(self.s.devices)]
        return [(op.stream, op.stream + 1) if op else (0, 0) for op in own]

    def run(self, values: Callable[..., Tensor], exponents: Tensor, rate: Tensor, key: Tensor, step: Tensor) -> None:
        """Move the tensor; `key` is [devices, 2]."""
        s, shape, mine = self.s, self._shape(), self._own_lanes
        total = self.sums(*(mine(values(v)) for v in self.step.sources))
        total = total.reshape(total.shape[0], *shape)
        exponents, rate, key, step = mine(exponents), mine(rate), mine(key), mine(step)
        exponent = exponents.gather(1, self.slots.unsqueeze(1)).flatten()
        t = self.lift - rate[:, 1] - exponent - self.unit_bits
        moves = s.run.delta(
            total, self.lift, self.multiplier, self.shift, rate[:, 0], t, key[:, 0], self.rank, self.kept
        )
        if self.buffer is not None:
            due = (step + 1) % self.op.rule.accumulate == 0
            moves, after = s.run.ruled(
                self.buffer, moves, due, self.decay, self.limit, self.down, key[:, 1], self.rank, self.kept
            )
            self.buffer.copy_(torch.where(self.active, after, self.buffer))
        self._move(moves)

    def _move(self, moves: Tensor) -> None:
        s = self.s
        if not self.is_weight:
            self.weights.copy_(s.run.moved_bias(self.weights, moves, self.active, self.most))
            return
        chosen = self.weights if self.places is None else self.weights.index_select(3, self.places)
        after, fraction = s.run.moved_weight(chosen, self.fraction, moves, self.bits, self.active)
        self.fraction.copy_(fraction)
        if self.places is None:
            self.weights.copy_(after)
        else:
            self.weights.index_copy_(3, self.places, after)

    def extra_state(self) -> list[Tensor]:
        """Return the state other than the weights."""
        return [self.fraction, *([] if self.buffer is None else [self.buffer])]

    def states(self, device: int) -> dict[Value, Array]:
        """Return a device's part of this step's tensors, as its graph keeps them."""
        found, lane = self.step.states[device], device - self.first
        at = torch.from_numpy(self.active_lanes[lane]).to(self.s.device)
        chosen = self.weights[lane] if self.places is None else self.weights[lane].index_select(2, self.places)
        arrays = [np.rint(chosen[:, :, at].cpu().numpy())]
        if self.fraction_bits:
            fraction = self.fraction[lane][:, :, at].cpu().numpy()
            arrays.append(pack(fraction.astype(np.uint8).ravel(), self.fraction_bits))
        if self.buffer is not None:
            arrays.append(self.buffer[lane][:, :, at].cpu().numpy())
        return {v: a.reshape(v.type.shape).astype(v.type.dtype) for v, a in zip(found, arrays, strict=True)}

    def restore(self, device: int, state: Mapping[str, Array]) -> None:
        """Put back what `states` gave, by name."""
        arrays = [torch.from_numpy(state[v.name].copy()).to(self.s.device) for v in self.step.states[device]]
        lane = device - self.first
        at = torch.from_numpy(self.active_lanes[lane]).to(self.s.device)
        outputs, taps, _ = self._shape()
        own = self.held[device]
        places = self.s.whole(range(self.weights.shape[3]) if own is None else own)
        self.weights[lane][:, :, places] = arrays[0].to(self.weights.dtype).reshape(outputs, taps, -1)
        if self.fraction_bits:
            size = outputs * taps * int(at.sum())
            fraction = unpack(state[self.step.states[device][1].name], self.fraction_bits, size)
            self.fraction[lane][:, :, at] = torch.from_numpy(fraction).to(self.s.device).reshape(outputs, taps, -1)
        if self.buffer is not None:
            kept = self.buffer[lane][:, :, at]
            self.buffer[lane][:, :, at] = arrays[-1].to(torch.int32).reshape(kept.shape)


def _one_lane(numbers: Array) -> Array:
    return numbers[:1] if (numbers == numbers[:1]).all() else numbers


def _summed(gradient: Node | None, places: Tensor | None, s: Setting) -> Summed:
    """The sums a step follows; of a weight's channels those at some places."""
    assert gradient is not None
    op = gradient.op
    if isinstance(op, ChannelSum):
        return lambda dy: dy.flatten(2).sum(2)
    if isinstance(op, DenseGradWeight):
        return lambda x, dy: sums.product(dy, x.transpose(1, 2), INPUT_MOST * GRADIENT_MOST)
    assert isinstance(op, ConvGradWeight | DepthwiseGradWeight)
    if isinstance(op, ConvGradWeight):
        return _conv_sums(op, places)
    _, rows, columns, _ = gradient.ins[1].type.shape
    return _depthwise_sums(op, places, rows * columns, s)


def _conv_sums(op: ConvGradWeight, places: Tensor | None) -> Summed:
    def run(x: Tensor, dy: Tensor) -> Tensor:
        outs, each = dy.flatten(2), x.shape[1] // op.groups
        grouped = unflatten(x, 1, (op.groups, each))
        kept = grouped if places is None else grouped.index_select(2, places)
        parts = [
            sums.product(part, sums.patches(kept[:, g], op.window).transpose(1, 2), INPUT_MOST * GRADIENT_MOST)
            for g, part in enumerate(outs.chunk(op.groups, dim=1))
        ]
        return torch.cat(parts, dim=1)

    return run


def _depthwise_sums(op: DepthwiseGradWeight, places: Tensor | None, pixels: int, s: Setting) -> Summed:
    long = pixels * INPUT_MOST * GRADIENT_MOST >= sums.EXACT

    def run(x: Tensor, dy: Tensor) -> Tensor:
        times = dy.shape[1] // x.shape[1]
        if places is not None:
            x, dy = x.index_select(1, places // times), dy.index_select(1, places)
        elif times > 1:
            x = x.repeat_interleave(times, dim=1)
        seen = sums.views(x.to(torch.float64) if long else x, op.window)
        made: Tensor = s.run.windowed(seen, dy)
        return made

    return run


class HeadStep:
    """A step of the float32 head; nothing is fused, each product and sum is rounded by itself."""

    first = 0  # of the devices that it is computed for: all of them

    def __init__(self, step: FleetStep, fleet: Fleet, weights: tuple[Tensor, Tensor], s: Setting) -> None:
        assert isinstance(step.node.op, DenseStep)
        self.step, self.op, self.weights, self.s = step, step.node.op, weights, s
        learns = [d in step.ops for d in range(s.devices)]
        self.active = None if all(learns) else torch.tensor(learns, device=s.device)
        self.buffers = tuple(torch.zeros_like(w) for w in weights) if self.op.rule.buffered else ()
        self.decay = float(np.float32(self.op.rule.decay))
        for device in step.ops:
            self.restore(device, {v.name: array for v, array in fleet.graphs[device].state.items()})

    def streams(self) -> list[tuple[int, int]]:
        return [(0, 0)] * self.s.devices

    def run(self, values: Callable[..., Tensor], exponents: Tensor, rate: Tensor, key: Tensor, step: Tensor) -> None:
        x, dy = (values(v) for v in self.step.sources)
        scaled = (dy.flatten(1) * rate).clamp(-STEP_LIMIT, STEP_LIMIT)
        deltas = [scaled[:, :, None, None] * x.flatten(1)[:, None, None], scaled]
        if self.buffers:
            due = (step + 1) % self.op.rule.accumulate == 0
            deltas = [self._follow(*pair, due) for pair in zip(self.buffers, deltas, strict=True)]
        for weights, moves in zip(self.weights, deltas, strict=True):
            self._set(weights, weights - moves)

    def _follow(self, buffer: Tensor, moves: Tensor, due: Tensor) -> Tensor:
        full = buffer + moves
        now = due.reshape(-1, *[1] * (full.dim() - 1))
        self._set(buffer, torch.where(now, full * self.decay, full))
        return torch.where(now, full, 0.0)

    def _set(self, tensor: Tensor, after: Tensor) -> None:
        if self.active is not None:
            after = torch.where(self.active.reshape(-1, *[1] * (after.dim() - 1)), after, tensor)
        tensor.copy_(after)

    def extra_state(self) -> list[Tensor]:
        return list(self.buffers)

    def states(self, device: int) -> dict[Value, Array]:
        arrays = [t[device].cpu().numpy() for t in (*self.weights, *self.buffers)]
        found = self.step.states[device]
        return {v: a.reshape(v.type.shape).astype(v.type.dtype) for v, a in zip(found, arrays, strict=True)}

    def restore(self, device: int, state: Mapping[str, Array]) -> None:
        for tensor, value in zip((*self.weights, *self.buffers), self.step.states[device], strict=True):
            array = torch.from_numpy(state[value.name].copy()).to(self.s.device)
            tensor[device] = array.reshape(tensor.shape[1:])
