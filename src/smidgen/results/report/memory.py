"""What a program takes on its board, as sections of a report: SRAM and flash, the arena over time, instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from smidgen.results.drawing import LABELS, draw_arena, draw_layers
from smidgen.results.lifecycle import ArenaTensor, LayerCost, LifeCycle
from smidgen.results.profiling import NOTE, InstructionCost, Instructions, Profile
from smidgen.results.report.parts import Block, Cell, Chart, Part, Section, Stack, Table, counted, rows_of
from smidgen.targets.boards import Board

FLASH_TONES = ("activation", "state", "gradient", "saved", "scratch")
FLASH_PARTS = 4  # named beside the rest


def memory_section(
    cycle: LifeCycle, profile: Profile | None = None, board: Board | None = None, budget: int | None = None
) -> Section:
    """SRAM and flash beside what the board has, where one was measured; where each tensor lies, and when."""
    blocks: list[Block] = []
    if profile is not None and board is not None:
        blocks += [_sram(profile, board, budget), _flash(profile, board)]
    arena = replace(draw_arena(cycle), title="The arena over time")
    seen = (
        "Above, every tensor is a rectangle: its height is its bytes, its width the nodes during which it is needed. "
        "Below, the bytes alive at each node. The forward pass comes first, the backward pass after it."
    )
    blocks.append(Chart(arena, seen, (_tensors(cycle), _alive(cycle))))
    if cycle.layers:
        costs = replace(draw_layers(cycle), title="What learning a layer costs")
        pale = "Pale is all of the layer, full what learns here: inputs and masks that are saved, weights and biases."
        blocks.append(Chart(costs, pale, (_costs(cycle),)))
    return Section("memory", "Memory", f"{_peak(cycle)}.", tuple(blocks))


def _peak(cycle: LifeCycle) -> str:
    bound = (
        "no plan for this order of nodes can have a smaller one"
        if cycle.arena <= cycle.lower_bound
        else f"no plan for this order of nodes can have one below {cycle.lower_bound:,}"
    )
    return (
        f"An arena of {cycle.arena:,} bytes holds every tensor in turn, {bound}; what learns takes {cycle.state:,} more"
    )


def _sram(profile: Profile, board: Board, budget: int | None) -> Stack:
    used = profile.sram
    parts = (
        Part("arena", used.arena, "tone-activation"), Part("what learns", used.state, "tone-state"),
        Part("stack", used.stack, "tone-saved"), Part("other data", used.other, "tone-scratch"),
    )  # fmt: skip
    return Stack(f"SRAM on {board.name}", parts, board.sram.bytes, "of SRAM", budget)


def _flash(profile: Profile, board: Board) -> Stack:
    largest = sorted(profile.flash.parts, key=lambda part: -part.bytes)
    named = [(part.what, part.bytes) for part in largest[:FLASH_PARTS]]
    rest = sum(part.bytes for part in largest[FLASH_PARTS:])
    tones = (f"tone-{tone}" for tone in FLASH_TONES)
    parts = tuple(
        Part(what, size, tone) for (what, size), tone in zip([*named, ("all else", rest)], tones, strict=True)
    )
    return Stack(f"Flash on {board.name}", parts, board.flash.bytes, "of flash")


def _tensors(cycle: LifeCycle) -> Table:
    columns = ("Tensor", "Holds", "Bytes", "Offset", "First node", "Last node", "Rows held")
    return Table("Every tensor of the arena", columns, rows_of(_tensor(one) for one in cycle.tensors))


def _tensor(one: ArenaTensor) -> Iterator[Cell | str]:
    yield one.name
    yield LABELS[one.kind]
    yield from (counted(number) for number in (one.bytes, one.offset, one.start, one.end - 1))
    yield "" if one.rows is None else f"{one.rows[0]} of {one.rows[1]}"


def _alive(cycle: LifeCycle) -> Table:
    most = max((node.bytes for node in cycle.nodes), default=1)
    rows = rows_of(
        (f"{place} {node.name}", node.op, counted(node.bytes, node.bytes / most))
        for place, node in enumerate(cycle.nodes)
    )
    return Table("Bytes alive at each node", ("Node", "Op", "Bytes"), rows)


def _costs(cycle: LifeCycle) -> Table:
    columns = ("Layer", "Inputs saved, all", "Inputs saved, here", "Weights, all", "Weights, here")
    return Table("What learning each layer costs", columns, rows_of(_cost(one) for one in cycle.layers))


def _cost(one: LayerCost) -> Iterator[Cell | str]:
    yield one.name
    for parts in (("saved", "masks"), ("weights", "biases")):
        for memory in (one.whole, one.trained):
            yield counted(0 if memory is None else sum(int(getattr(memory, part)) for part in parts))


def instructions_section(profile: Profile) -> Section:
    """What takes the time, by op and node by node."""
    counts, time = profile.instructions, profile.time
    step = "" if counts.step is None else f", {counts.step:,} for a training step"
    said = f"{counts.forward:,} instructions for a prediction{step}: {time}, an estimate. {NOTE}"
    exact = (
        f" {profile.exact.steps} steps gave the bytes of the numpy reference."
        if profile.exact.equal
        else f" NOT the bytes of the numpy reference: {profile.exact.differs} differs."
    )
    what = "a prediction" if counts.step is None else "a training step"
    by_op = _counts(f"Instructions of {what}, by op", counts.by_op, counts, False)
    by_node = _counts(f"Instructions of {what}, node by node", counts.by_node, counts, True)
    return Section("instructions", "Instructions", said + exact, (by_op, by_node))


def _counts(caption: str, costs: tuple[InstructionCost, ...], whole: Instructions, folded: bool) -> Table:
    most = max((cost.instructions for cost in costs), default=1)
    rows = rows_of(
        (
            cost.op if cost.name == cost.op else f"{cost.name} {cost.op}",
            counted(cost.instructions, cost.instructions / most),
            Cell(f"{cost.instructions / max(whole.whole, 1):.1%}", cost.instructions), counted(cost.nodes),
            counted(cost.macs) if cost.macs else "",
            Cell(f"{cost.instructions / cost.macs:.2f}", cost.instructions / cost.macs) if cost.macs else "",
        )
        for cost in costs
    )  # fmt: skip
    return Table(caption, ("Op", "Instructions", "Share", "Nodes", "MACs", "Per MAC"), rows, folded)
