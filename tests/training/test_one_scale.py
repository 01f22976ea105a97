"""Layers whose weights have one scale for all channels learn; a step's factors run along its layer's channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from smidgen.errors import GraphError
from smidgen.ir import Graph, evaluate_step, verify
from smidgen.ops.conv import DepthwiseGradWeight
from smidgen.ops.update import FusedWeightStep
from smidgen.pipeline import compile
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.training import Options, build_training, passes
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme
from tests.support.networks import CLASSES, one_scale, one_scale_hidden, samples

RATE = 0.05


@pytest.mark.parametrize("network", [one_scale, one_scale_hidden], ids=lambda network: network.__name__)
def test_layers_with_one_scale_learn_alike_in_numpy_on_host_and_board(
    cache: Path, host: Host, network: Callable[[int], Graph]
) -> None:
    graph, options = network(1), Options(CLASSES, weight_bits=12)
    programs = [compile(graph, "full", target, options=options) for target in (BoardTarget(cache=cache), host)]
    step, state = programs[1].graph, programs[1].graph.state
    with programs[0].start() as board, programs[1].start() as machine:
        for image, label in samples(graph, 3):
            arrays = (image, np.array([label], np.int32), np.array([RATE], np.float32))
            (loss, _), state = evaluate_step(step, state, *arrays)
            assert board.train(image, label, RATE) == machine.train(image, label, RATE) == loss.item()
        kept, elsewhere = board.state(), machine.state()
        for value, array in state.items():
            assert kept[value.name].tobytes() == elsewhere[value.name].tobytes() == array.tobytes(), value.name


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2)], ids=["whole", "half"])
def test_every_channel_of_a_step_has_a_factor_and_no_graph_can_say_otherwise(share: Fraction) -> None:
    graph = one_scale(0)
    count = len(layers(graph))
    scheme = Scheme("all", count, tuple((layer, share) for layer in range(count)))
    step = passes.run(build_training(graph, scheme, Options(CLASSES, head="new")).step)
    found = [(i, node) for i, node in enumerate(step.nodes) if isinstance(node.op, FusedWeightStep)]
    assert any(isinstance(node.op.gradient, DepthwiseGradWeight) for _, node in found if hasattr(node.op, "gradient"))
    for index, node in found:
        op, shape = node.op, node.ins[0].type.shape
        assert isinstance(op, FusedWeightStep)
        assert op.axis == (3 if isinstance(op.gradient, DepthwiseGradWeight) else 0)
        assert len(op.factors) == shape[op.axis]
        wrong = (
            replace(op, axis=3 - op.axis, factors=op.factors[:1] * shape[3 - op.axis]),
            replace(op, factors=op.factors[1:] or (1.0, 1.0)),
            replace(op, factors=(-1.0, *op.factors[1:])),
            replace(op, factors=(float("inf"), *op.factors[1:])),
            replace(op, bound=op.bound // 2),
        )
        for other in wrong:
            nodes = (*step.nodes[:index], replace(node, op=other), *step.nodes[index + 1 :])
            with pytest.raises(GraphError):
                verify(replace(step, nodes=nodes))
