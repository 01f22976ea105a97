"""A fleet under way: the frozen front for many images ahead, then step after step for all devices in lockstep."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Value, roles_of
from smidgen.ops.conv import WindowGrad
from smidgen.ops.dense import DenseGradInput
from smidgen.ops.gradient import FromFloat, GradOp, SumGrads
from smidgen.ops.state import LearnedBias
from smidgen.ops.update import DenseStep
from smidgen.ops.weighted import Weighted
from smidgen.simulation.backward import BACKWARD, from_float, sums_by_reference
from smidgen.simulation.fleet import Fleet, FleetNode, FleetStep, FleetValue, Slotted, merge
from smidgen.simulation.forward import FORWARD, by_reference
from smidgen.simulation.layout import Setting, as_weights, in_parts, setting, to_lanes, unflatten, zero_of
from smidgen.simulation.one_pass import Phase
from smidgen.simulation.steps import HeadStep, IntegerStep
from smidgen.simulation.tables import Looked, Tables, rounding
from smidgen.targets.device import check_state, phase_state

Values = dict[FleetValue, Tensor]
FRONT_BYTES = 1 << 28  # of the largest map while the front runs: how many images at once
CHUNK_BYTES = 1 << 30  # of what the front gives for the images of one chunk
MOST_IMAGES = 2048


class Simulation:
    """Devices that learn in lockstep, one for each training step given: the same image and label for all, or its own.

    Device d computes what graph d says, byte for byte. With `own_samples` images have a dimension of devices behind the
    first.
    """

    def __init__(self, graphs: Sequence[Graph], device: str | torch.device = "cpu", own_samples: bool = False) -> None:
        self.merged: Fleet = merge(graphs, own_samples)
        self.s: Setting = setting(device, len(graphs))
        self.parameters: Values = {}
        self.constants: Values = {}
        self._place()
        self._nodes = [n for n in self.merged.nodes if not self.merged.lanes.isdisjoint(n.outs)]
        self._front_nodes = [n for n in self.merged.nodes if self.merged.lanes.isdisjoint(n.outs)]
        self._gradients = [n for n in self._nodes if isinstance(n.node.op, Slotted) and n.node.op.slots]
        own = (FromFloat, SumGrads)  # they read exponents, and are computed where those are looked up
        self._functions = {
            id(n): self._function(n)
            for n in self.merged.nodes
            if n not in self._gradients or type(n.node.op) not in own
        }
        self._steps = [self._step(step) for step in self.merged.steps]
        self._roundings = {id(n): rounding(n, self.merged, self.s) for n in self._gradients}
        self._tables = Tables(self._gradients, [step.streams() for step in self._steps], self.merged, self.s)
        self.boundary = self._boundary()
        self._predicts = self._forward_nodes()
        below = [roles_of(graph).skip_below for graph in graphs]
        self._below = self.s.real(below) if any(below) else None
        classes = max(v.type.shape[1] for v in self.merged.logits)
        self.logits = torch.zeros((len(graphs), classes), device=self.s.device)  # of the last step
        self.place = self.s.device
        self.recordable = self.place.type == "cuda" and not self.s.by_reference
        self._phases = {d: Phase.first(graph) for d, graph in enumerate(graphs) if graph.one_pass}
        self._loop = Loop(self)

    def _place(self) -> None:
        """Constants and parameters where the fleet runs, as weights or as maps, by who reads them."""
        read = [n for n in self.merged.nodes if isinstance(n.node.op, Weighted | WindowGrad | DenseGradInput)]
        weights = {v for n in read for v in n.ins[1:3]}
        weights |= {v for n in self.merged.nodes if isinstance(n.node.op, LearnedBias) for v in n.ins}
        ranks = {v: len(n.ins[0].type.shape) for n in self.merged.nodes for v in n.ins[1:]}
        for value, data in self.merged.constants.items():
            self.constants[value] = self._laid(value, data, value in weights, ranks).to(self.s.device)
        for value, parameter in self.merged.parameters.items():
            # As they are before any step; nothing reads the lane of a device without such a tensor.
            some = next(iter(parameter.whole.values()))
            arrays = (parameter.whole.get(d, some) for d in range(self.s.devices))
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
            return BACKWARD.get(kind, sums_by_reference)(node.node.op, node.node, self.s)
        return FORWARD.get(kind, by_reference)(node.node.op, node.node, self.s)

    def _step(self, step: FleetStep) -> IntegerStep | HeadStep:
        weights = tuple(self.parameters[p.value] for p in step.parameters)
        if isinstance(step.node.op, DenseStep):
            return HeadStep(step, self.merged, (weights[0], weights[1]), self.s)
        return IntegerStep(step, self.merged, weights[0], self.s)

    def _boundary(self) -> tuple[FleetValue, ...]:
        """Return the values that all devices share and some lane reads: the image, or outputs of the front."""
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

    @property
    def boundary_bytes(self) -> int:
        """The bytes of the front's outputs for one image, or one of each device."""
        return sum(4 * v.type.size * (self.s.devices if v in self.merged.lanes else 1) for v in self.boundary)

    def chunk(self, images: int) -> int:
        """Return how many of `images` the front runs ahead for."""
        return max(1, min(images, MOST_IMAGES, CHUNK_BYTES // self.boundary_bytes))

    def front(self, images: Tensor) -> list[Tensor]:
        """int8 images [n, height, width, colours] → what the front gives, each [n, 1, channels, …].

        Of images [n, devices, height, width, colours] each [n, devices, channels, …].
        """
        largest = max((v.type.size for n in self._front_nodes for v in n.outs), default=images[0].numel())
        at_once = max(1, min(len(images), FRONT_BYTES // (8 * largest)))
        parts = [self._front(part) for part in in_parts(images, at_once)]
        return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]

    def _front(self, images: Tensor) -> list[Tensor]:
        values = self._seen(images)
        return [values[v].movedim(2, 0).contiguous() for v in self.boundary]

    def _seen(self, images: Tensor) -> Values:
        """Return what the front computes of images."""
        image = self.merged.image
        shifted = images.to(self.s.device, torch.float32) - zero_of(image.type)
        lanes = shifted if image in self.merged.lanes else shifted.unsqueeze(1)
        values = {**self.constants, image: lanes.movedim((1, -1), (0, 1)).contiguous()}
        for node in self._front_nodes:
            self._run(node, values)
        return values

    def features(self, images: Tensor, device: int) -> Array:
        """Return what the head of a device that learns in one pass reads of int8 images, above its zero point."""
        values, read = self._seen(images), self.merged.features[device]
        values.update(self.parameters)
        for node in self._predicts if read not in values else ():
            self._run(node, values)
        found: Array = values[read][min(device, len(values[read]) - 1)].T.cpu().numpy()
        return np.rint(found).astype(np.int64)

    def _run(self, node: FleetNode, values: Values) -> None:
        outs = self._functions[id(node)](*(values[v] for v in node.ins))
        values.update(zip(node.outs, outs if isinstance(outs, tuple) else (outs,), strict=True))

    def step(self, shared: Sequence[Tensor], label: Tensor, rates: Tensor) -> Tensor:
        """One step on the image of which the front gave `shared` (each [1, 1, channels, …]); the loss of each device.

        The label is [1]; where each device has its own sample, both have all devices in place of the last 1.
        """
        values: Values = {**self.constants, **self.parameters}
        values.update({v: t.movedim(0, 2) for v, t in zip(self.boundary, shared, strict=True)})
        values[self.merged.label], values[self.merged.rate] = label, rates
        looked, peaks = self._tables.look_up(), []
        before = [t.clone() for t in self.mutable()] if self._below is not None else []
        places = {id(n): i for i, n in enumerate(self._gradients)}
        for node in self._nodes:
            if (i := places.get(id(node))) is None:
                self._run(node, values)
                continue
            values[node.outs[0]], peak = self._gradient(node, i, values, looked)
            peaks.append(peak)
        for i, step in enumerate(self._steps, start=len(self._gradients)):
            at = 2 * i - len(self._gradients)
            keys = looked.keys[:, at : at + 2]
            step.run(values.__getitem__, looked.exponents, values[step.step.rate], keys, self._tables.step)
        self._tables.advance(peaks)
        self.logits.copy_(self._chosen(values, self.merged.logits)[:, :, 0])
        losses = self._chosen(values, self.merged.losses)[:, 0]
        if self._below is not None:
            self._put_back(before, losses < self._below)
        return losses

    def _put_back(self, before: Sequence[Tensor], skipped: Tensor) -> None:
        """Restore what a step has changed on devices that skip it."""
        firsts = [0] * (2 + len(self.parameters)) + [step.first for step in self._steps for _ in step.extra_state()]
        for tensor, was, first in zip(self.mutable(), before, firsts, strict=True):
            own = skipped[first : first + len(tensor)].reshape(-1, *[1] * (tensor.dim() - 1))
            tensor.copy_(torch.where(own, was, tensor))

    def _gradient(self, node: FleetNode, i: int, values: Values, looked: Looked) -> tuple[Tensor, Tensor]:
        """Gradient number i and the largest magnitudes in it."""
        op, how, run = node.node.op, self._roundings[id(node)], self.s.run
        if isinstance(op, FromFloat):
            summed = from_float(node.node, values[node.ins[0]], values[node.ins[1]], looked.own[:, i])
        elif isinstance(op, SumGrads):
            a, b = (values[v].flatten(2) for v in node.ins[:2])
            summed = run.aligned(a, b, looked.above[0][:, i], looked.above[1][:, i])
        else:
            assert isinstance(op, GradOp)
            made = self._functions[id(node)](*(values[v] for v in node.ins[: op.operands]))
            assert isinstance(made, Tensor)
            summed = made
        y = summed if how.mask is None else values[how.mask].flatten(2)  # where there is no mask, nothing is limited
        rounded, peak = run.rounded(summed, y, how.limits, how.multiplier, looked.t[:, i], looked.keys[:, i])
        return unflatten(rounded, 2, (1, *node.outs[0].type.shape[1:-1])), peak

    def _chosen(self, values: Values, wanted: tuple[FleetValue, ...]) -> Tensor:
        """A value with a lane for each device, taken from the one that is its own."""
        made = {v: values[v].expand(self.s.devices, *values[v].shape[1:]) for v in set(wanted)}
        if len(made) == 1:
            return next(iter(made.values()))
        return torch.stack([made[v][d] for d, v in enumerate(wanted)])

    def scores(self, shared: Sequence[Tensor]) -> Tensor:
        """The logits of every device for n images of which the front gave `shared`: [devices, n, classes]."""
        values: Values = {**self.constants, **self.parameters}
        values.update({v: t.movedim(0, 2) for v, t in zip(self.boundary, shared, strict=True)})
        for node in self._predicts:
            self._run(node, values)
        return self._chosen(values, self.merged.logits).transpose(1, 2)

    def predict(self, shared: Sequence[Tensor]) -> Tensor:
        """The class of n images by every device, the first among equals: [devices, n]."""
        largest = max((v.type.size for n in self._predicts for v in n.outs), default=1)
        at_once = max(1, FRONT_BYTES // (8 * largest * self.s.devices))
        found = []
        for part in zip(*(in_parts(t, at_once) for t in shared), strict=True):
            scores = self.scores(part)
            classes = torch.arange(scores.shape[2], device=self.s.device)
            best = torch.where(scores == scores.amax(2, keepdim=True), classes, scores.shape[2])
            found.append(best.amin(2))
        return torch.cat(found, dim=1)

    def train(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        """Steps one after another: labels [n] or [n, devices], rates [n, devices]; the losses, [n, devices]."""
        self._phases = {device: replace(phase, collecting=False) for device, phase in self._phases.items()}
        return self._loop.run(shared, labels.reshape(len(labels), -1), rates)

    def mutable(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        tensors = [self._tables.levels, self._tables.step, *self.parameters.values()]
        for step in self._steps:
            tensors += step.extra_state()
        return tensors

    def state(self, device: int) -> dict[str, Array]:
        """All that outlives a step on one device, by name, as its own program would have it."""
        graph = self.merged.graphs[device]
        found: dict[Value, Array] = {}
        for step in self._steps:
            if device in step.step.ops:
                found |= step.states(device)
        found[roles_of(graph).step_state] = self._tables.state(device)
        if graph.one_pass is not None:
            found |= self._phases[device].added(graph)
        there = phase_state(graph, graph.one_pass is not None and self._phases[device].collecting)
        if missing := set(there) - set(found):
            raise InputError(f"%{min(v.name for v in missing)} of {graph.name} learns in a way no fleet can")
        return {v.name: found[v] for v in there}

    def restore(self, device: int, state: Mapping[str, Array]) -> None:
        """Restore a device from what `state` returned."""
        graph = self.merged.graphs[device]
        check_state(graph, state)
        if graph.one_pass is not None:
            self._phases[device] = Phase.of(graph, state)
            state = {**{v.name: first for v, first in graph.state.items()}, **state}
        for step in self._steps:
            if device in step.step.ops:
                step.restore(device, state)
        self._tables.restore(device, state[roles_of(graph).step_state.name])


class Loop:
    """Steps over the images of a chunk; on a GPU one step is recorded as a CUDA graph and played back.

    Each image is copied to where the recorded step reads it.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.recorded: torch.cuda.CUDAGraph | None = None
        self.buffers: tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor] | None = None

    def run(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        if not self.simulation.recordable:
            losses = [
                self.simulation.step([t[i : i + 1] for t in shared], labels[i], rates[i].unsqueeze(1))
                for i in range(len(labels))
            ]
            return torch.stack(losses)
        return self._replayed(shared, labels, rates)

    def _replayed(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        count = len(labels)
        if self.buffers is None or len(self.buffers[1]) < count:
            self._record(shared, labels, rates)
        assert self.buffers is not None
        assert self.recorded is not None
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
        sim, device = self.simulation, self.simulation.place
        kept = [t.clone() for t in shared]
        losses = torch.zeros_like(rates)
        self.buffers = kept, labels.clone(), rates.clone(), losses, torch.zeros(1, dtype=torch.int64, device=device)
        before = [t.clone() for t in sim.mutable()]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
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
        labels, rates = label.index_select(0, at).flatten(), rate.index_select(0, at).reshape(-1, 1)
        loss = self.simulation.step(shared, labels, rates)
        losses.index_copy_(0, at, loss.unsqueeze(0))
        cursor.add_(1)
