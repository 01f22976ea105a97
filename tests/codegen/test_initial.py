"""State begins as its graph says, with no second copy of it in flash where there need not be one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from smidgen import codegen, memory
from smidgen.codegen.constants import Copied, Filled, Gathered, Widened, initial
from smidgen.ir import Array, Graph, Value
from smidgen.ops.rules import Momentum
from smidgen.targets.host import Host
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import Scheme
from tests.support.native import portable
from tests.support.networks import CLASSES, inverted_residual
from tests.support.plans import greedy


def step() -> Graph:
    """Some channels of two layers learn, with fractions and momentum."""
    scheme = Scheme("some", 4, ((4, Fraction(1, 2)), (6, Fraction(1, 2))))
    options = Options(CLASSES, weight_bits=12, rule=Momentum(0.5))
    return passes.run(build_training(inverted_residual(7), scheme, options).step)


def begins(graph: Graph, host: Host) -> tuple[dict[str, Array], int]:
    """The state of a program that has just been started, and the bytes of its constants."""
    sources = codegen.generate(graph, greedy(memory.buffers(graph, working=portable)))
    with host.start(graph, sources) as device:
        return device.state(), sources.constant_bytes


def same(found: dict[str, Array], state: dict[Value, Array]) -> bool:
    return all(found[value.name].tobytes() == array.tobytes() for value, array in state.items())


def test_state_begins_as_the_graph_says_however_it_is_loaded(host: Host) -> None:
    graph = step()
    kinds = {type(start) for start in initial(graph)}
    assert kinds == {Copied, Filled, Gathered, Widened}
    found, _ = begins(graph, host)
    assert same(found, dict(graph.state))


def test_what_can_be_gathered_or_filled_takes_no_flash(host: Host) -> None:
    graph = step()
    spared = [start.value for start in initial(graph) if isinstance(start, Filled | Gathered)]
    changed = dict(graph.state)
    for value in spared:  # one byte unlike what it would begin as
        data = np.frombuffer(changed[value].tobytes(), np.uint8).copy()
        data[-1] ^= 1
        changed[value] = np.frombuffer(data.tobytes(), value.type.dtype).reshape(value.type.shape)
    other = replace(graph, state=changed)
    assert {type(start) for start in initial(other) if start.value.type.size > 1} == {Copied, Widened}
    (found, smaller), (moved, larger) = begins(graph, host), begins(other, host)
    assert same(moved, changed)
    assert not same(found, changed)
    taken = {
        one.value: one.narrow.nbytes if isinstance(one, Widened) else one.value.type.bytes for one in initial(other)
    }
    assert larger - smaller == sum(taken[value] for value in spared if value.type.size > 1)


def test_numbers_of_32_bits_take_16_of_flash_where_few_need_more(host: Host) -> None:
    graph = step()
    value = next(start.value for start in initial(graph) if isinstance(start, Widened) and start.value.type.size > 4)
    numbers = graph.state[value].copy()
    numbers[:3] = -32768, 32767, -(2**31)
    few = replace(graph, state={**graph.state, value: numbers})
    (start,) = (one for one in initial(few) if one.value == value)
    assert isinstance(start, Widened)
    assert [number for _, number in start.listed] == [-(2**31)]
    assert same(begins(few, host)[0], dict(few.state))
    many = replace(graph, state={**graph.state, value: numbers // 2**16 * 2**16 + 2**20})
    (start,) = (one for one in initial(many) if one.value == value)
    assert isinstance(start, Copied)
    assert same(begins(many, host)[0], dict(many.state))
