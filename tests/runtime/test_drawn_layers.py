"""Grouped, depthwise and partly trained layers have numpy's bytes on every core, whatever lies beside them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from smidgen import ops
from smidgen.errors import TargetError
from smidgen.ir import Builder, Graph, Type
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS, M55, Core
from smidgen.targets.firmware import BoardTarget
from smidgen.training import Options
from tests.support.case_parts import Q
from tests.support.cases import inputs
from tests.support.drawn_layers import CORES, differing, draw, roomy
from tests.support.guarded_boards import watched
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import examples, first
from tests.support.tools import need_emulator

KINDS = sorted(CORES.values(), key=lambda core: core.name not in ("cortex-m55", "cortex-m7"))  # the quick ones first


@pytest.mark.parametrize("core", first(*KINDS, quick=2), ids=lambda core: core.name)
def test_drawn_layers_have_numpys_bytes(core: Core, cache: Path) -> None:
    need_emulator(core)
    count = examples(1000 if core is M55 else 300, quick=40)
    assert differing(BoardTarget(roomy(core), cache=cache), range(count)) == []


def test_a_third_of_the_layers_is_grouped_a_third_depthwise_and_most_are_partly_trained() -> None:
    layers = [draw(number) for number in range(60)]
    last = [layer.nodes[-1].op for layer in layers]
    assert sum(isinstance(op, ops.Conv2D) and op.groups > 1 for op in last) == 20
    assert sum(isinstance(op, ops.Depthwise) for op in last) == 20
    assert sum(isinstance(layer.nodes[0].op, ops.Overlay) for layer in layers) >= 40


def rescaled(count: int = 13) -> Graph:
    g = Builder("rescaled")
    x = g.input("x", Type((1, count), "int8", Q(0.1)))
    return g.graph(g.emit(ops.Requantize(), x, q=Q(0.2, 5)))


def test_a_kernel_that_writes_a_byte_beside_its_output_is_trapped_by_name(cache: Path) -> None:
    program = watched(compile(rescaled(), target=BoardTarget(cache=cache)))
    text = program.sources.files["model.c"]
    for sound, spoiled in ((", 13);", ", 14);"), ("at_v0, 13", "at_v0 - 1, 1")):
        assert sound in text
        files = {**program.sources.files, "model.c": text.replace(sound, spoiled)}
        wrong = replace(program, sources=replace(program.sources, files=files))
        with wrong.start() as board, pytest.raises(TargetError, match="faulted in outside_of_v0"):
            board.run(*inputs(program.graph, 3))


def test_random_bytes_of_both_signs_lie_around_every_constant_and_state(cache: Path) -> None:
    learner = compile(
        inverted_residual(3), "full", BoardTarget(BOARDS["mps2-an500"], cache=cache), options=Options(CLASSES)
    )
    program = watched(learner)
    listed = re.findall(r"const (\w+) (\w+)\[", learner.sources.files["model_weights.c"])
    text = program.sources.files["model_weights.c"]
    assert len(listed) > 20
    for kind, name in listed:
        found = re.search(rf"guarded_{name} = {{{{([^}}]*)}}, {{[^}}]*}}, {{([^}}]*)}}}};", text)
        assert found is not None, name
        for guard in found.groups():
            numbers = [int(number) for number in re.sub(r"\(-2147483647 - 1\)", "-2147483648", guard).split(",")]
            middle = 0 if not kind.startswith("u") else 2 ** (int(kind[4:-2]) - 1)
            assert min(numbers) < middle < max(numbers), name
    plain, guarded = list(learner.graph.state), list(program.graph.state)
    assert guarded[1::2] == plain
    assert all(min(data) < 0 < max(data) for value, data in program.graph.state.items() if value not in plain)
