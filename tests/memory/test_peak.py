"""What is said to stand at the peak adds up to it: held against an arena painted byte by byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli, memory
from smidgen.frontends.native import write_smg
from smidgen.ir import Graph
from smidgen.memory import Buffer, PeakParts, Plan, peak_parts
from tests.memory.test_streaming import grouped
from tests.support.graphs import int8_graphs
from tests.support.native import portable
from tests.support.plans import greedy
from tests.support.small_network import small_network
from tests.support.tiers import examples


def painted(plan: Plan, node: int) -> int:
    """Bytes of the arena that something uses at a node."""
    arena = np.zeros(plan.peak, bool)
    for buffer, offset in plan.placed:
        if buffer.start <= node < buffer.end:
            arena[offset : offset + buffer.padded] = True
    return int(arena.sum())


def check_parts(plan: Plan, found: PeakParts) -> None:
    used = max((painted(plan, buffer.start) for buffer in plan.buffers), default=0)
    assert found.bytes == plan.peak
    assert found.unused_bytes == plan.peak - used
    assert sum(part.bytes for part in found.parts) - found.shared_bytes + found.padding_bytes == used
    numbers = [int(n.replace(",", "")) for n in re.findall(r"(?<=[ (])\d[\d,]*(?= |$)", str(found))]
    assert not found.parts or numbers[-1] == plan.peak


@given(int8_graphs(), st.data())
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_the_parts_are_what_a_painted_arena_holds_with_and_without_overlaps(graph: Graph, data: st.DataObject) -> None:
    schedule = grouped(graph, data)
    buffers = memory.buffers(graph, schedule, working=portable)
    for plan in (greedy(buffers), memory.overlapping(buffers, decisions=2000)):
        check_parts(plan, peak_parts(plan))


def test_overlaps_padding_and_what_lies_unused_are_said() -> None:
    alone = Plan((Buffer("a", 10, 0, 2), Buffer("b", 20, 1, 3)), (0, 32))
    assert str(peak_parts(alone)) == "b 20 + a 10 + padding 2 + unused 20 = 52"
    many = Plan(tuple(Buffer(f"t{i}", 100 - i, 0, 1) for i in range(0, 28, 4)), tuple(range(0, 700, 100)))
    assert str(peak_parts(many)).startswith("t0 100 + t4 96 + t8 92 + t12 88 + 3 smaller 240 + unused ")
    assert str(peak_parts(Plan((), ()))) == "nothing"


def total(sentence: str) -> tuple[int, int]:
    """What the terms of a sentence add up to, and what it says they do."""
    terms, _, said = sentence.rpartition(" = ")
    added = 0
    for sign, number in re.findall(r"(?:^|([+-]) )(?:[^+]*? )??(\d[\d,]*)(?= [+(-]| that|$)", terms):
        added += int(number.replace(",", "")) * (-1 if sign == "-" else 1)
    return added, int(said.replace(",", ""))


@pytest.mark.parametrize("scheme", [None, "last:3", "full"])
def test_the_command_shows_terms_that_add_up_to_the_arena(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    image = "buffered" if scheme == "full" else "streamed"
    learns = ["--scheme", scheme, "--classes", "4"] if scheme else []
    words = ["compile", "small.smg", "--target", "cortex-m7", "--input", image, *learns, "-o"]
    text = CliRunner().invoke(cli.app, [*words, "a"], catch_exceptions=False).stdout
    shown = json.loads(CliRunner().invoke(cli.app, [*words, "b", "--json"], catch_exceptions=False).stdout)
    (line,) = (line for line in text.splitlines() if line.startswith("at the peak: "))
    added, said = total(line.removeprefix("at the peak: "))
    assert added == said == shown["peak_bytes"]
    parts = shown["at_peak"]
    whole = sum(part["bytes"] for part in parts["parts"]) - parts["shared_bytes"]
    assert whole + parts["padding_bytes"] + parts["unused_bytes"] == shown["peak_bytes"]
    assert any(part["name"].startswith("working memory of ") and part["tensors"] == [] for part in parts["parts"])


def test_a_profile_shows_parts_that_add_up_to_all_of_its_memory() -> None:
    from smidgen.results.profile import profile

    found = profile(sm.compile(small_network(), "last:2", "cortex-m7", options=sm.Options(4)), 1)
    assert found.plan.at_peak.bytes == found.plan.peak == found.sram.arena
    s = found.sram
    assert s.arena + s.state + s.other + s.stack == found.sram_bytes
    assert found.flash.code + found.flash.constants == found.flash_bytes
