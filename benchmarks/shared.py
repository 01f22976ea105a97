"""What the benchmarks share: their arguments, and the networks and images they measure on.

Without `--data` and `--model` these are the photographs and the released backbones beside the checkout, or where there
are none the sample and the weights that come with Smidgen.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

import smidgen as sm
from smidgen.cli.options import MEMORY
from smidgen.cli.shared import memory_bytes
from smidgen.data import Data, Samples, as_input, load_data, pixel_encoding
from smidgen.data.images import SHORT_SIDE
from smidgen.data.layouts.cifar import SAMPLE
from smidgen.errors import SmidgenError
from smidgen.ir import Array, Graph, Value, evaluate_all, roles_of
from smidgen.ir.rewriting import prune
from smidgen.numerics import stochastic
from smidgen.ops.update import Step, StepInputs
from smidgen.training import Training
from smidgen.training.published import published_for

SHARED = Path(__file__).parents[2] / "shared"
NETWORKS = ("mbv2-w0.35", "proxyless-w0.3", "mcunet-5fps")
FLOWERS = "flowers102.zip"
PLAIN = ("last:6",)  # schemes of networks that none was published for

Result = TypeVar("Result")


def arguments_of(page: str | None) -> argparse.ArgumentParser:
    """A benchmark's arguments: `--json` and, for help, the first line of its docstring."""
    parser = argparse.ArgumentParser(description=page.splitlines()[0] if page else None)
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    return parser


def start(main: Callable[[], None]) -> None:
    """Run a benchmark; what it cannot read or do ends it in one sentence."""
    try:
        main()
    except SmidgenError as error:
        sys.exit(str(error))


def report(result: Result, show: Callable[[Result], None], as_json: bool) -> None:
    """Dataclasses as JSON, or as they are shown."""
    if as_json:
        print(json.dumps(result, default=asdict, indent=2))
    else:
        show(result)


def add_data(parser: argparse.ArgumentParser, kept: str | None = FLOWERS) -> None:
    """`--data` and `--memory`; `kept` is the file beside the checkout that is read otherwise."""
    default = f"{SAMPLE} otherwise" if kept is None else f"{kept} beside the checkout otherwise, or {SAMPLE}"
    parser.add_argument(
        "--data", help=f"a folder, .zip or .npz of images, a published data set, or {SAMPLE} (docs/data.md); {default}"
    )
    parser.add_argument("--memory", default=MEMORY, help="most memory that the images may take, such as 8GB")
    parser.add_argument("--short-side", type=int, default=SHORT_SIDE, help="reduce larger images to this, in pixels")


def add_model(parser: argparse.ArgumentParser) -> None:
    """`--model`, in place of the released backbones."""
    parser.add_argument("--model", help="a model file, or a network of the zoo; the released backbones otherwise")


def images_of(given: argparse.Namespace, kept: str | None = FLOWERS) -> Data:
    """The images asked for, or those beside the checkout, or the sample."""
    source = given.data
    if source is None and kept is not None and (SHARED / "data" / kept).exists():
        source = SHARED / "data" / kept
    if source is None:
        if kept is not None:
            _say_skipped(f"{kept} beside the checkout", "the CIFAR-10 sample")
        source = SAMPLE
    return load_data(source, memory_bytes(given.memory), given.short_side)


def networks_of(given: argparse.Namespace, names: Sequence[str]) -> Iterator[Graph]:
    """The model asked for, or the backbones of these names."""
    return map(released, names) if given.model is None else iter([sm.load(given.model)])


@cache
def released(network: str) -> Graph:
    """One of the paper's backbones with its ImageNet weights, or where these are absent with those of the zoo."""
    path = SHARED / "models" / f"{network}.npz"
    if path.exists():
        return sm.import_model(path)
    _say_skipped(f"the released {network} beside the checkout", "the zoo's own")
    return sm.load(network)


def there(path: Path) -> Path:
    """A path that has to be there."""
    if not path.exists():
        sys.exit(f"there is no {path}: this benchmark measures on files that are not part of the repository")
    return path


def schemes_for(graph: Graph, names: Sequence[str]) -> Sequence[str]:
    """Those of these names that were published for a network, or a plain one."""
    return [name for name in names if name in published_for(graph)] or PLAIN


def _say_skipped(what: str, instead: str) -> None:
    print(f"SKIPPED: {what}; {instead} is measured instead", file=sys.stderr)


def inputs(samples: Samples, graph: Graph) -> Iterator[tuple[Array, Array]]:
    """Images and labels as a training graph takes them."""
    for image, label in zip(samples.images, samples.labels, strict=True):
        yield as_input(image, pixel_encoding(graph)), np.array([label], np.int32)


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
