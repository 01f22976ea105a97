"""Hostile training graphs by the thousand: refused in a sentence, or run by C inside its buffers as numpy runs them.

python -m tests.support.hostile_graphs 100000        # this many graphs, in processes of their own
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from smidgen.codegen import check_kernels
from smidgen.errors import SmidgenError
from smidgen.ir import Array, Graph, Type
from smidgen.ir.text import parse_graph
from smidgen.pipeline import compile
from tests.support.mutations import mutate
from tests.support.native import Kernels
from tests.support.sanitized import Memory, Run, environment, sanitized_kernels

LARGEST = 2**20  # bytes of all tensors: larger graphs are accepted, but not run
COMPILED = 16  # one of every 16 graphs that run is also planned and written as C
CHUNK = 1000  # graphs per process
OUTCOMES = ("run", "refused", "without a kernel", "refused when run", "too large to run", "exception", "crash")


def draw(type_: Type, rng: np.random.Generator) -> Array:
    """An input: anything of its type, but that gradients lie within ±127."""
    if type_.dtype == "float32":
        return np.asarray(rng.normal(0, rng.choice([1e-20, 1, 1, 1e20]), type_.shape), np.float32)
    limits = np.iinfo(type_.dtype)
    if type_.dtype == "int32" and rng.random() < 0.7:
        return rng.integers(-40, 41, type_.shape).astype(np.int32)
    low = -127 if type_.dtype == "int8" and type_.q is None else limits.min
    return rng.integers(low, limits.max, type_.shape, endpoint=True).astype(type_.dtype)


def outcome(seed: int, kernels: Kernels) -> tuple[str, str]:
    """The fate of a mutated graph, and the sentence it was refused with."""
    text = mutate(seed)
    try:
        graph = parse_graph(str(text), text.data)
    except SmidgenError as error:
        return "refused", str(error)
    try:
        check_kernels(graph)
        sizes = sum(v.type.bytes for v in (*graph.inputs, *graph.state, *(v for n in graph.nodes for v in n.outs)))
        if sizes > LARGEST:
            return "too large to run", ""
        _run(graph, kernels, np.random.default_rng(seed))
        if seed % COMPILED == 0:
            compile(graph)
    except SmidgenError as error:
        return ("without a kernel" if "no C kernel" in str(error) else "refused when run"), str(error)
    return "run", ""


def _run(graph: Graph, kernels: Kernels, rng: np.random.Generator) -> None:
    arrays = tuple(draw(v.type, rng) for v in graph.inputs)
    with Memory() as memory, np.errstate(all="ignore"):
        Run(kernels, memory, graph, arrays).all()


def work(first: int, count: int, cache: Path) -> None:
    """Run some graphs in this process; each is named before it runs, so that a crash names it."""
    kernels, counts = sanitized_kernels(cache), Counter[str]()
    for seed in range(first, first + count):
        print(f"seed {seed} {json.dumps(counts)}", file=sys.stderr, flush=True)
        try:
            result, _ = outcome(seed, kernels)
        except Exception as error:
            result = "exception"
            print(f"FAILED seed {seed}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
        counts[result] += 1
    print(json.dumps(counts))


def spawn(first: int, count: int, cache: Path) -> tuple[Counter[str], list[str]]:
    """Some graphs in a process of their own: what became of them, and what failed."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.support.hostile_graphs",
        "work",
        str(first),
        str(count),
        str(cache),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    lines = done.stderr.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    if done.returncode == 0:
        return Counter(json.loads(done.stdout)), failed
    last = next((line.split(" ", 2) for line in reversed(lines) if line.startswith("seed ")), ["", str(first), "{}"])
    why = next((line for line in lines if "AddressSanitizer" in line or "runtime error" in line), "".join(lines[-1:]))
    at, counts = int(last[1]), Counter(json.loads(last[2])) + Counter(crash=1)
    failed.append(f"FAILED seed {at}: {why[:300]}")
    if left := first + count - at - 1:
        more, others = spawn(at + 1, left, cache)
        return counts + more, failed + others
    return counts, failed


def main(total: int, first: int = 0, processes: int = 2) -> int:
    counts, failed = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        sanitized_cache = Path(folder)
        spawn(first, 1, sanitized_cache)  # builds the kernels
        starts = range(first, first + total, CHUNK)
        for found, why in pool.map(lambda at: spawn(at, min(CHUNK, first + total - at), sanitized_cache), starts):
            counts += found
            failed += why
            print(f"{sum(counts.values()):,} graphs", *why, sep="\n", file=sys.stderr, flush=True)
    print("\n".join(f"{name:18}{counts[name]:>10,}" for name in OUTCOMES))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        sys.exit(main(*map(int, sys.argv[1:])))
