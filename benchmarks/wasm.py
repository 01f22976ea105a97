"""WebAssembly against this machine's C: time of a prediction and of a step, with vectors and without, and sizes.

    python benchmarks/wasm.py [--runs 60] [--steps 30] [--node] [--json]

All take turns on the same images in one run, one thread each, so that a busy machine slows them by the same amount:
this machine's C, the same without AVX-512, and both modules in wasmtime. Times are processor time of the thread;
ratios are medians of pairs, of a module over C. With `--node` the modules are timed in Node as well, by its process.
"""

from __future__ import annotations

import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import NETWORKS, arguments_of, report, schemes_for, start
from smidgen.compiler import FLAGS, NATIVE, cross, find_compiler
from smidgen.errors import InputError
from smidgen.ir import Array
from smidgen.pipeline import Program
from smidgen.targets.device import Device
from smidgen.targets.host import Host
from smidgen.targets.wasm import Wasm
from smidgen.training import Options

WARM_UP, CLASSES, RATE = 5, 10, 0.01
SCHEMES = ("99kb", "98kb")
MODULES = ("simd", "portable")
NODE = """
const { readFileSync } = require("fs");
const [file, bytes, runs, steps] = process.argv.slice(1);
WebAssembly.instantiate(readFileSync(file)).then(({ instance: { exports } }) => {
  exports.init();
  const median = (run, count) => {
    const taken = [];
    for (let i = 0; i < Number(count) + 20; i++) {
      const image = new Int8Array(exports.memory.buffer, exports.input(0), Number(bytes));
      for (let at = 0; at < image.length; at++) image[at] = at * 7919 + i;
      const start = process.cpuUsage();
      run(i);
      const { user, system } = process.cpuUsage(start);
      taken.push((user + system) / 1000);
    }
    return taken.slice(20).sort((a, b) => a - b)[Math.floor(count / 2)];
  };
  const forward = median(() => exports.predict(), runs);
  console.log(JSON.stringify([forward, median((i) => exports.train(i % CLASSES, RATE), steps)]));
});
"""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one kind of run, and how many times as long a module takes as C: with AVX-512, and without."""

    native: float
    no_avx512: float
    module: Mapping[str, float]
    ratio: Mapping[str, float]
    ratio_no_avx512: Mapping[str, float]
    node: Mapping[str, float]  # milliseconds; empty without --node


@dataclass(frozen=True)
class Measured:
    """A network under a scheme."""

    model: str
    scheme: str
    forward: Timing
    step: Timing
    bytes: Mapping[str, int]
    gzip_bytes: Mapping[str, int]


def measure(name: str, runs: int, steps: int, node: bool) -> Measured:
    """Run C and both modules in turns."""
    graph = sm.load(name)
    (scheme,) = schemes_for(graph, SCHEMES)
    program = sm.compile(graph, scheme, "host", options=Options(CLASSES))
    plain = Host(cross(find_compiler().command, (*FLAGS, NATIVE, "-mno-avx512f")))
    targets = {"native": Host(), "no_avx512": plain, "simd": Wasm(), "portable": Wasm(simd=False)}
    programs = {key: replace(program, target=target) for key, target in targets.items()}
    devices = {key: one.start() for key, one in programs.items()}
    rng = np.random.default_rng(0)
    images = rng.integers(-128, 128, (8, *program.graph.image.type.shape)).astype(np.int8)
    forward = turns(devices, lambda device, image, _: device.predict(image), images, runs)
    step = turns(devices, lambda device, image, i: device.train(image, i % CLASSES, RATE), images, steps)
    for device in devices.values():
        device.close()
    files = {key: built(programs[key]) for key in MODULES}
    there = {key: in_node(file, images[0].nbytes, runs, steps) for key, file in files.items()} if node else {}
    sizes = {key: file.read_bytes() for key, file in files.items()}
    timings = (replace(t, node={key: both[i] for key, both in there.items()}) for i, t in enumerate((forward, step)))
    return Measured(
        name, scheme, next(timings), next(timings), {key: len(octets) for key, octets in sizes.items()},
        {key: len(gzip.compress(octets, mtime=0)) for key, octets in sizes.items()},
    )  # fmt: skip


def built(program: Program) -> Path:
    assert isinstance(program.target, Wasm)
    return program.target.build(program.graph, program.sources)


def turns(
    devices: Mapping[str, Device], run: Callable[[Device, Array, int], object], images: Array, runs: int
) -> Timing:
    """Return the medians of all devices, which run one after the other, image by image."""
    taken: dict[str, list[float]] = {key: [] for key in devices}
    for index in range(WARM_UP + runs):
        for key, device in devices.items():
            begun = time.thread_time()
            run(device, images[index % len(images)], index)
            taken[key].append(1000 * (time.thread_time() - begun))
    kept = {key: times[WARM_UP:] for key, times in taken.items()}

    def over(other: str) -> dict[str, float]:
        return {key: statistics.median(a / b for a, b in zip(kept[key], kept[other], strict=True)) for key in MODULES}

    medians = {key: statistics.median(times) for key, times in kept.items()}
    modules = {key: medians[key] for key in MODULES}
    return Timing(medians["native"], medians["no_avx512"], modules, over("native"), over("no_avx512"), {})


def in_node(file: Path, size: int, runs: int, steps: int) -> tuple[float, float]:
    """Return the milliseconds of a prediction and of a step in Node."""
    if shutil.which("node") is None:
        raise InputError("node is not installed; leave out --node, or: apt install nodejs")
    with tempfile.TemporaryDirectory() as folder:
        script = f"const CLASSES = {CLASSES}, RATE = {RATE};{NODE}"
        command = ("node", "-e", script, str(file), str(size), str(runs), str(steps))
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    forward, step = json.loads(result.stdout)
    return forward, step


def show(measured: list[Measured]) -> None:
    table = Table(title="Milliseconds, one thread; in brackets: times C's, and times C's without AVX-512")
    for column in (
        "model",
        "run",
        "C",
        "C, no AVX-512",
        "wasm, vectors",
        "wasm, portable",
        "Node, vectors",
        "Node, portable",
    ):
        table.add_column(column, justify="left" if column in ("model", "run") else "right")
    for one in measured:
        for what, t in (("forward", one.forward), (f"step, {one.scheme}", one.step)):
            cells = (f"{t.module[k]:.2f} ({t.ratio[k]:.1f}, {t.ratio_no_avx512[k]:.1f})" for k in MODULES)
            there = (f"{t.node[k]:.2f}" if k in t.node else "" for k in MODULES)
            table.add_row(one.model, what, f"{t.native:.2f}", f"{t.no_avx512:.2f}", *cells, *there)
    sizes = Table(title="Bytes of a module that learns, and gzipped")
    for column in ("model", "with vectors", "gzipped", "portable", "gzipped"):
        sizes.add_column(column, justify="left" if column == "model" else "right")
    for one in measured:
        sizes.add_row(one.model, *(f"{part[key]:,}" for key in MODULES for part in (one.bytes, one.gzip_bytes)))
    Console(width=140).print(table, sizes)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--runs", type=int, default=60, help="timed predictions")
    parser.add_argument("--steps", type=int, default=30, help="timed steps")
    parser.add_argument("--node", action="store_true", help="time the modules in Node as well")
    given = parser.parse_args()
    if min(given.runs, given.steps) < 1:
        sys.exit(f"{given.runs} runs and {given.steps} steps cannot be timed; give 1 or more of each")
    report([measure(name, given.runs, given.steps, given.node) for name in NETWORKS], show, given.json)


if __name__ == "__main__":
    start(main)
