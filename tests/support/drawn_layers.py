"""Grouped, depthwise and partly trained layers, drawn by number, which every core has to compute as numpy does.

python -m tests.support.drawn_layers 300 cortex-m7 rv32imc     # without a core: on all of them
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import numpy as np

from smidgen import ops
from smidgen.ir import Builder, Graph, Op, Type, Value, evaluate
from smidgen.ops.window import Pad
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS, Board, Core, resize
from smidgen.targets.firmware import BoardTarget
from tests.support.case_parts import Q, Rng, Weights
from tests.support.cases import inputs, together
from tests.support.guarded_boards import watched

CORES = {board.core.name: board.core for board in BOARDS.values()}
TOGETHER = 50  # layers of a program
RUNS = (2, 3)  # of their inputs: the ends of int8, and anything
WINDOWS = ((1, 1), (1, 1), (3, 3), (3, 3), (1, 3), (3, 1), (2, 2), (2, 5), (5, 5), (7, 7), (1, 4))
PAIRS = ((1, 1), (1, 1), (1, 1), (2, 2), (2, 1), (1, 2), (3, 2))  # strides and dilations


def roomy(core: Core) -> Board:
    """Return a board with this core and room for many layers at once."""
    board = BOARDS["riscv32" if core.isa == "riscv" else "mps3-an547" if core.helium else "mps2-an500"]
    return replace(resize(board, "4MB", "2MB", "64KB"), core=core)


def draw(number: int) -> Graph:
    """Return a layer: grouped, depthwise, or a convolution of which some weights learn, in turn."""
    rng = np.random.default_rng((number, 1))
    kind = ("grouped", "depthwise", "whole")[number % 3]
    k, stride, dilation = (choices[rng.integers(len(choices))] for choices in (WINDOWS, PAIRS, PAIRS))
    height, width = (int(rng.integers(1, 12)) for _ in range(2))
    pad = _pad(rng, (height, width), k, dilation)
    groups = int(rng.integers(2, 9)) if kind == "grouped" else 1
    channels = groups * int(rng.integers(1, 9 if groups > 1 else 37))
    y = Q(float(rng.choice([0.1, 0.1, 0.1, 1.0, 1e-3, 1e5, 1e-6])), int(rng.integers(-128, 128)))
    activation = str(rng.choice(["none", "none", "relu", "relu6"]))
    g = Builder("layer")
    x = g.input("x", Type((1, height, width, channels), "int8", Q(0.05, int(rng.integers(-128, 128)))))
    op: Op
    if kind == "depthwise":
        op, axis = ops.Depthwise(stride, pad, dilation, activation), 3
        shape: tuple[int, ...] = (1, *k, channels * int(rng.choice([1, 1, 1, 2, 3])))
    else:
        op, axis = ops.Conv2D(stride, pad, dilation, groups, activation), 0
        shape = (groups * int(rng.integers(1, 7 if groups > 1 else 19)), *k, channels // groups)
    limits = Weights(int(rng.choice([127, 1000])), int(rng.choice([3000, 3000, 2**31 - 1])))
    w, b = limits.draw(g, rng, shape, axis)
    w = _trained(g, rng, w, 0.0 if kind != "whole" and rng.random() < 0.3 else float(rng.choice([0.3, 0.7, 1.0])))
    return g.graph(g.emit(op, x, w, b, q=y))


def _pad(rng: Rng, size: tuple[int, int], k: tuple[int, int], dilation: tuple[int, int]) -> Pad:
    """Return borders less than a window wide, and wide enough for one window at least."""
    reaches = [over * (n - 1) for over, n in zip(dilation, k, strict=True)]
    before = [int(rng.integers(0, reach + 1)) for reach in reaches]
    least = [max(0, reach + 1 - n - b) for n, reach, b in zip(size, reaches, before, strict=True)]
    behind = [int(rng.integers(fewest, reach + 1)) for fewest, reach in zip(least, reaches, strict=True)]
    return before[0], behind[0], before[1], behind[1]


def _trained(g: Builder, rng: Rng, w: Value, share: float) -> Value:
    """Return weights of which about a share of the channels is held apart, as those that learn are."""
    shape = w.type.shape
    chosen = tuple(np.flatnonzero(rng.random(shape[3]) < share).tolist())
    if not chosen:
        return w
    overlay = ops.Overlay(chosen)
    kept = rng.integers(-128, 128, (*shape[:3], len(chosen))).astype(np.int8)
    return g.emit(overlay, w, g.constant("trained", kept, overlay.kept(w.type)))


def differing(target: BoardTarget, numbers: range) -> list[str]:
    """Return the layers of these numbers that a board computes otherwise than numpy."""
    found: list[str] = []
    for first in numbers[::TOGETHER]:
        some = range(first, min(first + TOGETHER * numbers.step, numbers.stop), numbers.step)
        graphs = {
            f"layer {number}: {graph.nodes[-1]}": graph for number, graph in zip(some, map(draw, some), strict=True)
        }
        program = watched(compile(together(graphs), target=replace(target, frugal=first // TOGETHER % 2 == 1)))
        runs = [[inputs(graph, run) for graph in graphs.values()] for run in RUNS]
        with program.start() as board:
            answers = [board.run(*(array for arrays in run for array in arrays)) for run in runs]
        for index, (name, graph) in enumerate(graphs.items()):
            pairs = [(evaluate(graph, *run[index])[0], out[index]) for run, out in zip(runs, answers, strict=True)]
            found += [name] if any(ours.tobytes() != its.tobytes() for ours, its in pairs) else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("cores", nargs="*", metavar="core", help=f"of {', '.join(CORES)}")
    given = parser.parse_args()
    total = 0
    for name in given.cores or CORES:
        found = differing(BoardTarget(roomy(CORES[name])), range(given.count))
        print(f"{name}: {given.count - len(found):,} of {given.count:,} layers have numpy's bytes", *found, sep="\n  ")
        total += len(found)
    sys.exit(bool(total))


if __name__ == "__main__":
    main()
