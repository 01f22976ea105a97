"""One arithmetic: random graphs compute the same bytes in numpy, in C on this machine, and in LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smidgen.frontends.tflite import read_tflite, write_tflite
from smidgen.frontends.tflite.write.operators import LOWERINGS
from smidgen.ir import Graph, Op, evaluate
from smidgen.ops import Normalize, Project
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.litert import run_litert
from tests.support.tiers import examples

# A quarter of the graphs a run of this file checks: xdist gives each part to a worker.
PARTS = 4
EXAMPLES = 75


def test_random_graphs_hold_every_op_of_an_int8_network() -> None:
    grown: set[type[Op]] = set()

    @given(int8_graphs(beyond=True))
    @settings(max_examples=400, database=None, suppress_health_check=list(HealthCheck))
    def grow(graph: Graph) -> None:
        grown.update(type(node.op) for node in graph.nodes)

    grow()
    assert grown == {*LOWERINGS, Normalize, Project}  # which TFLite has no operators for


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS))
def test_numpy_c_and_litert_agree_on_random_graphs(
    part: int, host: Host, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("exports")

    @given(int8_graphs(), st.integers(0, 2**32 - 1))
    @settings(max_examples=examples(EXAMPLES), suppress_health_check=list(HealthCheck))
    def agree(graph: Graph, seed: int) -> None:
        arrays = random_inputs(graph, np.random.default_rng(seed))
        expected = evaluate(graph, *arrays)
        with compile(graph, target=host).start() as device:
            on_host = device.run(*arrays)
        exported = write_tflite(graph)
        on_litert = run_litert(exported, *arrays)
        file = Path(folder / "graph.tflite")
        file.write_bytes(exported)
        again = evaluate(read_tflite(file), *arrays)
        for results in (on_host, on_litert, again):
            for want, got in zip(expected, results, strict=True):
                assert want.dtype == got.dtype
                np.testing.assert_array_equal(want, got)

    agree()
