"""One pass in a program's C: the frozen network and solving joined to the step, and the sizes of sums."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from smidgen.ir import Array, Graph, Node, Value
from smidgen.memory import Plan
from smidgen.memory.layout import unused_state
from smidgen.memory.phases import Phases
from smidgen.memory.rows import Schedule
from smidgen.training.one_pass import features_fingerprint, frozen_constants


@dataclass(frozen=True)
class Joined:
    """Everything that a program's C computes, one part behind another: the step, the frozen network, solving."""

    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array]
    plan: Plan  # by nodes of all parts
    schedule: Schedule
    arena_bytes: int
    added: tuple[Value, ...] = ()  # inputs that no caller sees
    frozen: Mapping[Value, Value] = field(default_factory=dict)  # the constant that a trained tensor begins as
    roots: Mapping[Value, Value] = field(default_factory=dict)  # what replaces the sums, and what is a view


def joined(graph: Graph, plan: Plan, schedule: Schedule, phases: Phases | None) -> Joined:
    """Return a program's parts as one; those of a program that does not learn in one pass are itself."""
    parts = graph.one_pass
    if parts is None or phases is None:
        return Joined(graph.nodes, graph.constants, plan, schedule, plan.peak)
    collect, at = phases.collect, len(graph.nodes)
    end = at + len(collect.graph.nodes)
    together = (plan, _later(collect.plan, at), _later(phases.solve, end))
    whole = Plan(tuple(b for one in together for b in one.buffers), tuple(o for one in together for o in one.offsets))
    moved = (replace(group, first=group.first + at, end=group.end + at) for group in collect.schedule.groups)
    groups = (*schedule.groups, *moved)
    views = {node.out: node.ins[0] for node in collect.graph.nodes if node.op.view}
    return Joined(
        (*graph.nodes, *collect.graph.nodes, *parts.solve.nodes),
        {**graph.constants, **collect.graph.constants},
        whole, replace(schedule, groups=groups), phases.arena_bytes,
        collect.graph.inputs, frozen_constants(graph),
        {view: source for view, source in views.items() if source in collect.graph.constants},
    )  # fmt: skip


def _later(plan: Plan, by: int) -> Plan:
    return Plan(tuple(replace(b, start=b.start + by, end=b.end + by) for b in plan.buffers), plan.offsets)


def steps_only(graph: Graph) -> frozenset[Value]:
    """Return the state that begins with the first step: none where a program does not learn in one pass."""
    parts = graph.one_pass
    return frozenset(v for v in graph.state if v not in (*parts.lasting, *parts.sums)) if parts else frozenset()


def one_pass_facts(graph: Graph) -> dict[str, object]:
    """Return the sizes of sums, and the fingerprint of what makes the features they are sums of."""
    parts = graph.one_pass
    assert parts is not None
    (classes, features), digits = parts.sums[1].type.shape, features_fingerprint(graph)
    return {
        "classes": classes, "features": features, "sums_bytes": sum(v.type.bytes for v in parts.sums),
        "fingerprint": f"0x{digits[:8]}u, 0x{digits[8:16]}u",
        "free": unused_state(graph),
    }  # fmt: skip
