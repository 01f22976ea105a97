"""A fleet under way: the frozen front for many images ahead, then step after step for all devices in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smidgen import numerics
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Value, roles_of
from smidgen.numerics import stochastic
from smidgen.ops.conv_grad import DenseGradInput, WindowGrad
from smidgen.ops.gradient import FromFloat, GradOp, Mask, SumGrads
from smidgen.ops.maximum import Compare
from smidgen.ops.update import DenseStep
from smidgen.ops.weighted import Weighted
from smidgen.simulate.fleet import head, integers
from smidgen.simulate.fleet.backward import BACKWARD, sums_by_reference
from smidgen.simulate.fleet.forward import FORWARD, by_reference
from smidgen.simulate.fleet.layout import Setting, as_weights, setting, to_lanes, zero_of
from smidgen.simulate.fleet.merging import Fleet, FleetNode, FleetValue, Slotted, merge
from smidgen.simulate.fleet.steps import HeadStep, IntegerStep

Values = dict[FleetValue, Tensor]
FRONT_BYTES = 1 << 28  # of the largest map while the front runs: how many images at once
CHUNK_BYTES = 1 << 30  # of what the front gives for the images of one chunk
MOST_IMAGES = 2048
DIFFERENCES = {False: (-0.5, np.inf), True: (-np.inf, -0.5)}  # of whole numbers: not below 0, and below


@dataclass(frozen=True, eq=False)
class _Rounding:
    """How the sums of a gradient node are rounded."""

    multiplier: Tensor
    mask: FleetValue | None
    limits: Tensor | None


class Simulation:
    """Devices that learn in lockstep, one for each training step given: the same image and label for all.

    Device d computes what graph d says, byte for byte.
    """

    def __init__(self, graphs: Sequence[Graph], device: str | torch.device = "cpu") -> None:
        self.merged: Fleet = merge(graphs)
        self.s: Setting = setting(device, len(graphs))
        self.parameters: Values = {}
        self.constants: Values = {}
        self._place()
        self._nodes = [n for n in self.merged.nodes if any(v.lanes for v in n.outs)]
        self._front_nodes = [n for n in self.merged.nodes if not any(v.lanes for v in n.outs)]
        self._gradients = [n for n in self._nodes if isinstance(n.node.op, Slotted) and n.node.op.slots]
        self._functions = {id(n): self._function(n) for n in self.merged.nodes}
        self._steps = [self._step(step) for step in self.merged.steps]
        self._roundings = {id(n): self._rounding(n) for n in self._gradients}
        self._tables()
        self.boundary = self._boundary()
        self._predicts = self._forward_nodes()
        self._loop = _Loop(self)

    # --- building ---------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        """Constants and parameters where the fleet runs, as weights or as maps, by who reads them."""
        read = [n for n in self.merged.nodes if isinstance(n.node.op, Weighted | WindowGrad | DenseGradInput)]
        weights = {v for n in read for v in n.ins[1:3]}
        ranks = {v: len(n.ins[0].type.shape) for n in self.merged.nodes for v in n.ins[1:]}
        for value, data in self.merged.constants.items():
            self.constants[value] = self._laid(value, data, value in weights, ranks).to(self.s.device)
        for value, parameter in self.merged.parameters.items():
            arrays = [parameter.whole.get(d, next(iter(parameter.whole.values()))) for d in range(self.s.devices)]
            lanes = torch.cat([self._laid(value, a, value in weights, ranks) for a in arrays])
            self.parameters[value] = lanes.to(self.s.device)

    @staticmethod
    def _laid(value: FleetValue, data: Array, weight: bool, ranks: Mapping[FleetValue, int]) -> Tensor:
        if weight:
            return as_weights(data, value.type)
        lead = max(0, ranks.get(value, data.ndim) - data.ndim)
        return to_lanes(data.reshape((1,) * lead + data.shape), value.type)

    def _function(self, node: FleetNode) -> Callable[..., Tensor | tuple[Tensor, ...]]:
        op, kind = node.node.op, type(node.node.op)
        if isinstance(op, GradOp) and op.slots:
            return BACKWARD.get(kind, sums_by_reference)(node.node, self.s)
        return FORWARD.get(kind, by_reference)(node.node, self.s)

    def _step(self, step) -> IntegerStep | HeadStep:  # type: ignore[no-untyped-def]
        weights = tuple(self.parameters[p.value] for p in step.parameters)
        if isinstance(step.node.op, DenseStep):
            return HeadStep(step, (weights[0], weights[1]), self.s)
        return IntegerStep(step, self.merged, weights[0], self.s)

    def _rounding(self, node: FleetNode) -> _Rounding:
        op = node.node.op
        if isinstance(op, FromFloat):
            return _Rounding(self.s.whole([1 << 31]), None, None)
        assert isinstance(op, GradOp)
        multiplier, _ = op.multipliers()
        lifted = self.s.whole(multiplier.astype(np.int64) << op.lift(node.node))
        if not op.masked:
            return _Rounding(lifted, None, None)
        mask_value = op.parts(node.ins).mask
        assert mask_value is not None
        of, mask = self.merged.masked[mask_value]
        if isinstance(mask.op, Compare):
            return _Rounding(lifted, of, self.s.real(DIFFERENCES[mask.op.less]))
        assert isinstance(mask.op, Mask)
        low, high = numerics.activation_range(mask.op.activation, of.type)
        return _Rounding(lifted, of, self.s.real([low - zero_of(of.type), high - zero_of(of.type)]))

    def _tables(self) -> None:
        """Exponents, streams and offsets of all gradients and steps, so that a step reads them at once."""
        s, merged, count = self.s, self.merged, len(self._gradients)
        self._peak_slots: list[int] = []
        first, second, out, offset = [], [], [], []
        streams = np.zeros((s.devices, count + 2 * len(self._steps)), np.int64)
        for i, node in enumerate(self._gradients):
            graph, op = next(iter(node.ops.items()))
            assert isinstance(op, Slotted)
            slots = [merged.slots[graph][slot] for slot in op.slots]
            out.append(slots[-1])
            if isinstance(op, FromFloat):
                first.append(slots[-1])
                second.append(slots[-1])
                offset.append(op.BITS)
            else:
                first.append(slots[0])
                second.append(slots[1] if isinstance(op, SumGrads) else slots[0])
                offset.append(op.lift(node.node) - op.multipliers()[1])
            for d, own in node.ops.items():
                streams[d, i] = own.stream  # type: ignore[attr-defined]
        for i, step in enumerate(self._steps):
            streams[:, count + 2 * i : count + 2 * i + 2] = step.streams()
        self._first, self._second, self._out = s.whole(first), s.whole(second), s.whole(out)
        self._offset, self._streams = s.whole(offset), s.whole(streams).to(torch.int32)
        widths = [n.outs[0].type.shape[-1] for n in self._gradients]
        self._columns = s.whole(np.repeat(out, widths)).expand(s.devices, -1)
        self._start_levels()

    def _start_levels(self) -> None:
        """The step's number, the seed and the levels, as each graph starts; levels in the fleet's places."""
        s, places = self.s, 1 + max((p for m in self.merged.slots for p in m.values()), default=0)
        levels, step, seed = np.zeros((s.devices, places), np.int64), np.zeros((s.devices, 1)), np.zeros((s.devices, 1))
        for d, graph in enumerate(self.merged.graphs):
            state = graph.state[roles_of(graph).step_state]
            step[d], seed[d] = state[stochastic.STEP], state[stochastic.SEED]
            for own, place in self.merged.slots[d].items():
                levels[d, place] = state[stochastic.FIRST_LEVEL + own]
        self.levels, self.step_number, self.seed = s.whole(levels), s.whole(step), s.whole(seed)

    def _boundary(self) -> tuple[FleetValue, ...]:
        """What all devices share and some lane reads: the image, or what the front gives."""
        shared = {v for n in self._front_nodes for v in n.outs} | {self.merged.image}
        read = [v for n in self._nodes for v in n.ins]
        read += [of for of, _ in self.merged.masked.values()]
        read += [v for step in self.merged.steps for v in step.sources]
        return tuple(sorted({v for v in read if v in shared}, key=lambda v: v.number))

    def _forward_nodes(self) -> list[FleetNode]:
        wanted, kept = set(self.merged.logits), []
        for node in reversed(self._nodes):
            if wanted & set(node.outs):
                kept.append(node)
                wanted |= set(node.ins)
        return kept[::-1]

    # --- running ----------------------------------------------------------------------------------------------------

    def front(self, images: Tensor) -> list[Tensor]:
        """int8 images [n, height, width, colours] → what the front gives, each [n, channels, …]."""
        largest = max((v.type.size for n in self._front_nodes for v in n.outs), default=images[0].numel())
        at_once = max(1, min(len(images), FRONT_BYTES // (8 * largest)))
        parts = [self._front(part) for part in images.split(at_once)]
        return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]

    def _front(self, images: Tensor) -> list[Tensor]:
        type_ = self.merged.image.type
        shifted = images.to(self.s.device, torch.float32) - zero_of(type_)
        values = {**self.constants, self.merged.image: shifted.permute(3, 0, 1, 2).unsqueeze(0).contiguous()}
        for node in self._front_nodes:
            self._run(node, values)
        return [values[v][0].transpose(0, 1).contiguous() for v in self.boundary]

    def _run(self, node: FleetNode, values: Values) -> None:
        outs = self._functions[id(node)](*(values[v] for v in node.ins))
        values.update(zip(node.outs, outs if isinstance(outs, tuple) else (outs,), strict=True))

    def step(self, shared: Sequence[Tensor], label: Tensor, rates: Tensor) -> Tensor:
        """One step on the image of which the front gave `shared` (each [1, channels, …]); the loss of each device."""
        values: Values = {**self.constants, **self.parameters}
        values.update({v: t.transpose(0, 1).unsqueeze(0) for v, t in zip(self.boundary, shared, strict=True)})
        values[self.merged.label], values[self.merged.rate] = label, rates
        exponents = integers.exponents(self.levels)
        first, second = exponents[:, self._first], exponents[:, self._second]
        floor = torch.maximum(first, second) - SumGrads.REACH
        reference = torch.maximum(torch.minimum(first, second), floor)
        own = exponents[:, self._out]
        t = own - reference + self._offset
        key = integers.keys(self.step_number.to(torch.int32), self.seed.to(torch.int32), self._streams)
        peaks: list[Tensor] = []
        places = {id(n): i for i, n in enumerate(self._gradients)}
        for node in self._nodes:
            if (i := places.get(id(node))) is None:
                self._run(node, values)
                continue
            by = (first[:, i] - reference[:, i], second[:, i] - reference[:, i])
            made, peak = self._gradient(node, values, by, own[:, i], t[:, i], key[:, i])
            values[node.outs[0]] = made
            peaks.append(peak)
        for i, step in enumerate(self._steps):
            at = len(self._gradients) + 2 * i
            rate = values[step.step.rate]
            step.run(values.__getitem__, exponents, rate, key[:, at : at + 2], self.step_number)
        self._advance(peaks)
        return self._losses(values)

    def _gradient(
        self, node: FleetNode, values: Values, by: tuple[Tensor, Tensor], exponent: Tensor, t: Tensor, key: Tensor
    ) -> tuple[Tensor, Tensor]:
        op, rounding, run = node.node.op, self._roundings[id(node)], self.s.run
        shape = node.outs[0].type.shape
        if isinstance(op, FromFloat):
            summed = head.from_float(node.node, values[node.ins[0]], values[node.ins[1]], exponent)
        elif isinstance(op, SumGrads):
            a, b = (values[v].flatten(2) for v in node.ins[:2])
            summed = run.aligned(a, b, *by)
        else:
            assert isinstance(op, GradOp)
            summed = self._functions[id(node)](*(values[v] for v in node.ins[: op.operands]))
        if rounding.mask is None:
            made, peak = run.rounded(summed, rounding.multiplier, t, key)
        else:
            y = values[rounding.mask].flatten(2)
            made, peak = run.rounded_inside(summed, y, rounding.limits, rounding.multiplier, t, key)
        return made.unflatten(2, (1, *shape[1:-1])), peak

    def _advance(self, peaks: list[Tensor]) -> None:
        """Levels as their tensors showed, and one step on."""
        if peaks:
            seen = torch.cat(peaks, dim=1)
            largest = torch.zeros_like(self.levels).scatter_reduce_(1, self._columns, seen, "amax")
            self.levels.copy_(integers.next_levels(self.levels, largest))
        self.step_number.add_(1)

    def _losses(self, values: Values) -> Tensor:
        """[devices]; each device's own head tells it."""
        losses = self.merged.losses
        if len(set(losses)) == 1:
            return values[losses[0]].expand(self.s.devices, -1)[:, 0]
        return torch.stack([values[v].expand(self.s.devices, -1)[d, 0] for d, v in enumerate(losses)])

    def scores(self, shared: Sequence[Tensor]) -> Tensor:
        """The logits of every device for n images of which the front gave `shared`: [devices, n, classes]."""
        values: Values = {**self.constants, **self.parameters}
        values.update({v: t.transpose(0, 1).unsqueeze(0) for v, t in zip(self.boundary, shared, strict=True)})
        for node in self._predicts:
            self._run(node, values)
        made = {v: values[v].expand(self.s.devices, -1, -1) for v in set(self.merged.logits)}
        if len(made) == 1:
            (only,) = made.values()
            return only.transpose(1, 2)
        return torch.stack([made[v][d] for d, v in enumerate(self.merged.logits)]).transpose(1, 2)

    def predict(self, shared: Sequence[Tensor]) -> Tensor:
        """The class of n images by every device, the first among equals: [devices, n]."""
        largest = max((v.type.size for n in self._predicts for v in n.outs), default=1)
        at_once = max(1, FRONT_BYTES // (8 * largest * self.s.devices))
        found = []
        for part in zip(*(t.split(at_once) for t in shared), strict=True):
            scores = self.scores(part)
            classes = torch.arange(scores.shape[2], device=self.s.device)
            best = torch.where(scores == scores.amax(2, keepdim=True), classes, scores.shape[2])
            found.append(best.amin(2))
        return torch.cat(found, dim=1)

    def train(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        """Steps one after another: labels [n], rates [n, devices]; the losses, [n, devices]."""
        return self._loop.run(shared, labels, rates)

    def mutable(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        tensors = [self.levels, self.step_number, *self.parameters.values()]
        for step in self._steps:
            tensors += step.besides()
        return tensors

    def state(self, device: int) -> dict[str, Array]:
        """All that outlives a step on one device, by name, as its own program would have it."""
        graph = self.merged.graphs[device]
        found: dict[Value, Array] = {}
        for step in self._steps:
            if device in step.step.ops:
                found |= step.states(device)
        own = roles_of(graph).step_state
        state = graph.state[own].copy()
        state[stochastic.STEP] = int(self.step_number[device, 0]) & 0x7FFFFFFF
        levels = self.levels[device].cpu().numpy()
        for slot, place in self.merged.slots[device].items():
            state[stochastic.FIRST_LEVEL + slot] = levels[place]
        found[own] = state
        if missing := set(graph.state) - set(found):
            raise InputError(f"%{min(v.name for v in missing)} of {graph.name} learns in a way no fleet can")
        return {v.name: found[v] for v in graph.state}


class _Loop:
    """Steps over a chunk of images; on a GPU one step is recorded as a CUDA graph and played back."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.recorded: torch.cuda.CUDAGraph | None = None
        self.buffers: tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor] | None = None

    def run(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        if self.simulation.s.device.type == "cpu":
            losses = [
                self.simulation.step([t[i : i + 1] for t in shared], labels[i : i + 1], rates[i].unsqueeze(1))
                for i in range(len(labels))
            ]
            return torch.stack(losses)
        return self._replayed(shared, labels, rates)

    def _replayed(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        count = len(labels)
        if self.buffers is None or len(self.buffers[1]) < count:
            self._record(shared, labels, rates)
        assert self.buffers is not None and self.recorded is not None
        kept, label, rate, losses, cursor = self.buffers
        for to, tensor in zip(kept, shared, strict=True):
            to[:count].copy_(tensor)
        label[:count].copy_(labels)
        rate[:count].copy_(rates)
        cursor.zero_()
        for _ in range(count):
            self.recorded.replay()
        return losses[:count].clone()

    def _record(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> None:
        """Warm up on copies of the state, put it back, and record."""
        sim, device = self.simulation, self.simulation.s.device
        kept = [t.clone() for t in shared]
        losses = torch.zeros_like(rates)
        self.buffers = kept, labels.clone(), rates.clone(), losses, torch.zeros(1, dtype=torch.int64, device=device)
        before = [t.clone() for t in sim.mutable()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._one()
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, was in zip(sim.mutable(), before, strict=True):
            tensor.copy_(was)
        self.recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.recorded):
            self._one()

    def _one(self) -> None:
        assert self.buffers is not None
        kept, label, rate, losses, cursor = self.buffers
        at = cursor.clamp(max=len(label) - 1)
        shared = [t.index_select(0, at) for t in kept]
        loss = self.simulation.step(shared, label.index_select(0, at), rate.index_select(0, at).reshape(-1, 1))
        losses.index_copy_(0, at, loss.unsqueeze(0))
        cursor.add_(1)
