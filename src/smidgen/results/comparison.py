"""A program beside the numpy reference: are outputs, and everything that learns, the same bytes?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Type, Value, evaluate_step, roles_of
from smidgen.ops.losses import example_label
from smidgen.pipeline import Program
from smidgen.targets.device import Device

LEARNING_RATE = 0.01  # of the steps that are compared


@dataclass(frozen=True)
class Exactness:
    """A device compared with the numpy reference: outputs and everything that learns, after every step."""

    steps: int
    equal: bool
    differs: str | None  # the first tensor that does, and when

    def __str__(self) -> str:
        if self.equal:
            return f"exact         {self.steps} of {self.steps} steps give the bytes of the reference"
        return f"NOT EXACT     {self.differs} differs from the reference"


def check_request(steps: int, seed: int) -> None:
    """Raise InputError unless `steps` steps can be measured on noise of this seed."""
    if steps < 1:
        raise InputError(f"{steps} steps cannot be measured; give 1 or more")
    if seed < 0:
        raise InputError(f"a seed of {seed} cannot be used; give a number from 0 up")


def compare(program: Program, device: Device, steps: int, rng: np.random.Generator) -> Exactness:
    """Compare steps of a program that learns, or runs of one that does not, with the reference, on noise."""
    graph = program.training.step if program.training else program.graph
    state, found = graph.state, list[str]()
    for step in range(steps):
        arrays = random_inputs(graph.prediction_inputs, rng)
        if program.training:
            label, given = noise_label(graph, step)
            outputs, state = evaluate_step(graph, state, *arrays, *label, np.array([LEARNING_RATE], np.float32))
            device.train(arrays[0], given, LEARNING_RATE)
            found += _differences(graph.outputs, outputs, device.outputs(), step)
            kept = device.state()
            found += _differences(tuple(state), tuple(state.values()), tuple(kept[v.name] for v in state), step)
        else:
            outputs, state = evaluate_step(graph, state, *arrays)
            found += _differences(graph.outputs, outputs, device.run(*arrays), step)
    return Exactness(steps, not found, found[0] if found else None)


def check_learned(device: Device) -> None:
    """Raise InputError where the last step was skipped: its cost is not that of a step."""
    roles = roles_of(device.graph)
    loss = float(device.outputs()[device.graph.outputs.index(roles.loss)][0])
    if roles.skips(loss):
        raise InputError(
            f"a step on noise has a loss of {loss:.4g} and is skipped, as all below {roles.skip_below:.6g}; measure a "
            "program that skips none: its steps cost the same"
        )


def random_inputs(inputs: tuple[Value, ...], rng: np.random.Generator) -> tuple[Array, ...]:
    """Return noise for every input."""
    return tuple(_random_array(v.type, rng) for v in inputs)


def noise_label(graph: Graph, step: int) -> tuple[tuple[Array, ...], int | Array | None]:
    """Return the label of a step on noise, as the reference and as a device takes it."""
    roles = roles_of(graph)
    label = example_label(roles.label, roles.logits, step)
    if not label:
        return label, None
    return label, int(label[0][0]) if roles.label_kind == "classes" else label[0]


def _differences(
    values: Iterable[Value], expected: tuple[Array, ...], found: tuple[Array, ...], step: int
) -> Iterator[str]:
    for value, a, b in zip(values, expected, found, strict=True):
        if a.tobytes() != b.tobytes():
            yield f"%{value.name} after step {step + 1}"


def _random_array(type_: Type, rng: np.random.Generator) -> Array:
    if type_.dtype == "float32":
        return rng.normal(0, 1, type_.shape).astype(np.float32)
    limits = np.iinfo(type_.dtype)
    return rng.integers(limits.min, limits.max, type_.shape, type_.dtype, endpoint=True)
