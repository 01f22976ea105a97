"""Candidates that a budget allows are offered, and no others."""

from __future__ import annotations

import smidgen as sm
from smidgen.selection.estimates import estimate
from smidgen.selection.proposals import propose
from smidgen.targets import find_board
from tests.support.networks import single_layer


def test_a_network_of_one_layer_is_offered_one_pass() -> None:
    graph, options = single_layer(0), sm.Options(3, head="new")
    found = propose(graph, estimate(graph), 16 * 1024, find_board("cortex-m7"), options, streamed_input=False)
    assert [one.name for one in found.candidates] == ["head", "one pass, then head", "one pass"]
    assert all(one.on_board and one.sram_bytes <= 16 * 1024 for one in found.candidates)
