"""What becomes of gradients as they are lowered to int8."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from smidgen.ir import Graph
from smidgen.ops.gradient import GradOp
from smidgen.training import Options, build_training
from smidgen.training.scheme import load_scheme
from tests.support.networks import CLASSES, NETWORKS


@pytest.mark.parametrize("network", NETWORKS, ids=[n.__name__ for n in NETWORKS])
def test_no_gradient_is_computed_that_nobody_reads(network: Callable[[int], Graph]) -> None:
    model = network(3)
    for scheme in (load_scheme(name, model) for name in ("last:3", "full")):
        step = build_training(model, scheme, Options(CLASSES)).step
        read = {v for node in step.nodes for v in node.ins}
        assert all(node.outs[0] in read for node in step.nodes if isinstance(node.op, GradOp))
