"""What the benchmarks share: their arguments, the released backbones and the photographs beside the checkout."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

import smidgen as sm
from smidgen.data import Data, Samples, centre, load_data, pixel_encoding
from smidgen.ir import Array, Graph, Value, evaluate_all, roles_of
from smidgen.ir.rewriting import prune
from smidgen.numerics import stochastic
from smidgen.ops.update import Step, StepInputs
from smidgen.training import Training

SHARED = Path(__file__).parents[2] / "shared"
NETWORKS = ("mbv2-w0.35", "proxyless-w0.3", "mcunet-5fps")

Result = TypeVar("Result")


def arguments_of(page: str | None) -> argparse.ArgumentParser:
    """A benchmark's arguments: `--json` and, for help, the first line of its docstring."""
    parser = argparse.ArgumentParser(description=page.splitlines()[0] if page else None)
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    return parser


def report(result: Result, show: Callable[[Result], None], as_json: bool) -> None:
    """Dataclasses as JSON, or as they are shown."""
    if as_json:
        print(json.dumps(result, default=asdict, indent=2))
    else:
        show(result)


def released(network: str) -> Graph:
    """One of the paper's backbones with its ImageNet weights."""
    return sm.import_model(there(SHARED / "models" / f"{network}.npz"))


def flowers() -> Data:
    """Oxford Flowers-102 in the official split."""
    return load_data(there(SHARED / "data" / "flowers102.zip"))


def there(path: Path) -> Path:
    if not path.exists():
        sys.exit(f"there is no {path}: this benchmark measures on the released networks and real photographs")
    return path


def inputs(samples: Samples, graph: Graph) -> Iterator[tuple[Array, Array]]:
    """Images and labels as a training graph takes them."""
    for image, label in zip(samples.images, samples.labels, strict=True):
        yield centre(image, pixel_encoding(graph)), np.array([label], np.int32)


def steps_of(step: Graph) -> Iterator[tuple[Step, StepInputs[Value]]]:
    """The steps of tensors that learn in int8, and what each reads."""
    return ((node.op, node.op.parts(node.ins)) for node in step.nodes if isinstance(node.op, Step))


class Int8Gradients:
    """The gradients a training step learns from, as real numbers; exponents are carried on, weights stay."""

    def __init__(self, training: Training) -> None:
        step = training.step
        self.steps = {parts.states[0]: op for op, parts in steps_of(step)}
        self._sums = {parts.states[0]: parts.sources[0] for _, parts in steps_of(step)}
        self._carry, self._unit = roles_of(step).step_state, training.unit
        wanted = (*self._sums.values(), self._unit)
        kept = {self._carry: step.updates[self._carry]}
        self._graph = prune(replace(step, outputs=wanted, updates=kept, roles=None))
        self._state = dict(step.state)

    def next(self, image: Array, label: Array) -> dict[Value, Array]:
        """The gradient of every tensor that learns, from one sample."""
        rate = np.zeros(1, np.float32)
        values = evaluate_all(self._graph, self._state, image, label, rate)
        step_state, unit = self._state[self._carry], float(values[self._unit][0])
        self._state[self._carry] = values[self._graph.updates[self._carry]]
        return {
            w: values[self._sums[w]] * (2.0 ** stochastic.exponent(step_state, op.slot) * unit)
            for w, op in self.steps.items()
        }
