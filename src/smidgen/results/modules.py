"""The cost of a program as WebAssembly: the size of its modules, its memory, and its time in wasmtime."""

import gzip
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from smidgen.errors import InputError
from smidgen.ir import Array
from smidgen.memory import Memory
from smidgen.pipeline import Program
from smidgen.results import comparison
from smidgen.targets.device import Device, restart
from smidgen.targets.wasm import Wasm

WARM_UP = 5  # runs before the clock counts
NOTE = "Medians of a machine that does other things, too; a browser compiles modules by its own compiler."


@dataclass(frozen=True)
class ModuleCost:
    """One of a program's modules: its size, and the milliseconds that it takes here."""

    simd: bool
    bytes: int
    gzip_bytes: int
    forward_ms: float
    step_ms: float | None  # None where the program only infers


@dataclass(frozen=True)
class ModuleProfile:
    """A program measured as WebAssembly, one thread."""

    model: str
    target: str
    engine: str
    runs: int
    memory_bytes: int  # of a module: stack, constants, arena and state
    modules: tuple[ModuleCost, ...]
    plan: Memory
    exact: comparison.Exactness

    def __rich__(self) -> Group:
        table = Table(title=Text(f"{self.model} on {self.target}"), title_justify="left", box=None, pad_edge=False)
        table.add_column("module")
        for head in ("bytes", "gzipped", "forward ms", "step ms"):
            table.add_column(head, justify="right")
        for one in self.modules:
            step = "" if one.step_ms is None else f"{one.step_ms:.2f}"
            kind = "with vectors" if one.simd else "without"
            table.add_row(kind, f"{one.bytes:,}", f"{one.gzip_bytes:,}", f"{one.forward_ms:.2f}", step)
        lines = [
            f"memory        {self.memory_bytes:,} bytes, of which the arena takes {self.plan.peak:,}",
            f"time          medians of {self.runs} runs in {self.engine}",
            str(self.exact),
            NOTE,
        ]
        return Group(table, "", *map(Text, lines))

    def as_plain(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        plan = {"peak_bytes": self.plan.peak, "lower_bound_bytes": self.plan.lower_bound}
        return {**asdict(self), "plan": plan}

    def layers(self) -> Text:
        """Say why there are no costs of single nodes."""
        return Text("A module has no clock, so no node is timed by itself; give --target host for that.")


def profile_modules(program: Program, steps: int = 3, seed: int = 0, runs: int = 50) -> ModuleProfile:
    """Run both modules of a program here: `steps` steps beside the reference, then `runs` timed runs and steps."""
    comparison.check_request(steps, seed)
    if runs < 1:
        raise InputError(f"{runs} runs cannot be timed; give 1 or more")
    where = program.target
    if not isinstance(where, Wasm):
        raise InputError(f"{where.name} runs no modules; name wasm")
    found = [_measure(replace(program, target=replace(where, simd=simd)), steps, seed, runs) for simd in (True, False)]
    exact = next((exact for _, exact, _ in found if not exact.equal), found[0][1])
    return ModuleProfile(
        program.graph.name, where.name, f"wasmtime {version('wasmtime')}", runs, max(size for *_, size in found),
        tuple(cost for cost, _, _ in found), program.memory, exact,
    )  # fmt: skip


def _measure(program: Program, steps: int, seed: int, runs: int) -> tuple[ModuleCost, comparison.Exactness, int]:
    """Return a module's cost, whether it is exact, and the bytes of its memory."""
    where, rng = program.target, np.random.default_rng(seed)
    assert isinstance(where, Wasm)
    octets = where.build(program.graph, program.sources).read_bytes()
    with where.start(program.graph, program.sources) as device:
        exact = comparison.compare(program, device, steps, rng)
        restart(device)
        arrays = comparison.random_inputs(program.graph.prediction_inputs, rng)
        forward = median_ms(lambda: device.predict(*arrays), runs)
        step = median_ms(step_on_noise(program, device, arrays), runs) if program.training else None
        size = device.memory_bytes
    # The time of a file is part of gzip's header: none gives the same bytes each time.
    return ModuleCost(where.simd, len(octets), len(gzip.compress(octets, mtime=0)), forward, step), exact, size


def step_on_noise(program: Program, device: Device, arrays: tuple[Array, ...]) -> Callable[[], object]:
    """Return a step on one sample."""
    _, label = comparison.noise_label(program.graph, 0)
    return lambda: device.train(arrays[0], label, comparison.LEARNING_RATE)


def median_ms(run: Callable[[], object], runs: int) -> float:
    """Return the milliseconds of a call: the median over the runs."""
    taken = []
    for _ in range(WARM_UP + runs):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken[WARM_UP:])) * 1000
