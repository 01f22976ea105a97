"""The forward pass on this machine: our C against LiteRT with XNNPACK, one thread each, in one run.

    python benchmarks/forward.py [--runs 200] [--isa avx2] [--json]

The two take turns, image by image, so that a busy machine slows both by the same amount. Times are processor time of
the thread, without waiting; medians are compared. With `--isa avx2` neither side uses AVX-512 where the machine has it:
our C is built without, and XNNPACK is made to believe that there is none (`masking.py`).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from rich.console import Console
from rich.table import Table

import smidgen as sm
from masking import hide_avx512
from shared import NETWORKS, arguments_of, released
from smidgen.compiler import FLAGS, NATIVE, cross, find_compiler
from smidgen.frontends.tflite import write_tflite
from smidgen.ir import Array, Graph
from smidgen.targets.host import Host

WARM_UP = 10  # runs of each before the clock starts


@dataclass(frozen=True)
class Timing:
    """Medians of one backbone, in microseconds; `ratio` is the median of ours over theirs, pair by pair."""

    model: str
    macs: int
    smidgen: float
    xnnpack: float
    ratio: float


def measure(name: str, runs: int, host: Host) -> Timing:
    """Run both in turns on the same images."""
    graph = released(name)
    rng = np.random.default_rng(0)
    images = rng.integers(-128, 128, (8, *graph.inputs[0].type.shape)).astype(np.int8)
    theirs = litert(graph)
    with sm.compile(graph, target=host).start() as device:
        pairs = []
        for index in range(WARM_UP + runs):
            image = images[index % len(images)]
            pairs.append((seconds(device.predict, image), seconds(theirs, image)))
    ours, xnnpack = zip(*pairs[WARM_UP:], strict=True)
    ratio = statistics.median(a / b for a, b in pairs[WARM_UP:])
    macs = sum(node.op.macs(node) for node in graph.nodes)
    return Timing(name, macs, 1e6 * statistics.median(ours), 1e6 * statistics.median(xnnpack), ratio)


def litert(graph: Graph) -> Callable[[Array], object]:
    """LiteRT's optimized kernels, XNNPACK first, on one thread."""
    interpreter = Interpreter(model_content=write_tflite(graph), num_threads=1)
    interpreter.allocate_tensors()
    (source,), (sink,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(image: Array) -> int:
        interpreter.set_tensor(source["index"], image)
        interpreter.invoke()
        return int(interpreter.get_tensor(sink["index"]).argmax())

    return run


def seconds(run: Callable[[Array], object], image: Array) -> float:
    start = time.thread_time()
    run(image)
    return time.thread_time() - start


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--runs", type=int, default=200, help="timed runs of each")
    parser.add_argument("--isa", choices=("native", "avx2"), default="native", help="what both sides may use")
    options = parser.parse_args()
    host = Host()
    if options.isa == "avx2":
        hide_avx512()
        host = Host(cross(find_compiler().command, (*FLAGS, NATIVE, "-mno-avx512f")))
    timings = [measure(name, options.runs, host) for name in NETWORKS]
    if options.json:
        print(json.dumps({"runs": options.runs, "isa": options.isa, "timings": [asdict(t) for t in timings]}))
        return
    table = Table(title=f"One forward pass, median of {options.runs} runs, one thread, {options.isa}")
    for column in ("model", "MMACs", "Smidgen C (µs)", "XNNPACK (µs)", "ratio"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for t in timings:
        table.add_row(t.model, f"{t.macs / 1e6:.1f}", f"{t.smidgen:,.0f}", f"{t.xnnpack:,.0f}", f"{t.ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
