"""The network and what of it learns, and what each part was measured to add, as sections of a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from smidgen.ir import Graph
from smidgen.results.choosing import draw_contributions, draw_pareto, draw_scheme
from smidgen.results.inspection import LayerSummary, describe
from smidgen.results.report.parts import Cell, Chart, Section, Table, counted, rows_of
from smidgen.selection.contributions import Contributions
from smidgen.selection.found import Pareto
from smidgen.training import Options
from smidgen.training.scheme import Scheme, Trained, layer_memory, resolve


def network_section(graph: Graph, scheme: Scheme, options: Options) -> Section:
    """The layers from the image to the classifier: which learn, how much of each, and what that takes."""
    summary = describe(graph)
    trained = {one.layer: one for one in resolve(scheme, graph, options.seed)}
    rows = rows_of(_layer(one, trained) for one in summary.layers)
    columns = ("Layer", "No.", "Computes", "Output", "MACs", "Parameters", "Learns", "Bytes to learn")
    partly = sum(bool(one.channels) for one in trained.values())
    said = (
        f"{graph.name} has {len(summary.layers)} nodes, {summary.macs:,} multiply-accumulates and "
        f"{summary.parameters:,} parameters. Of these the biases of the last {len(trained)} layers learn, weights in "
        f"{partly} of them, and the classifier."
    )
    seen = "A column for each layer: above how much of its weights learns, and a dot if biases do; below what it takes."
    figure = replace(draw_scheme(graph, scheme, options), title="Layer by layer, from the image to the classifier")
    chart = Chart(figure, seen, (Table("Every node of the network", columns, rows),))
    return Section("network", "What learns", said, (chart,))


def _layer(one: LayerSummary, trained: dict[int, Trained]) -> Iterator[Cell | str]:
    learns = trained.get(one.number) if one.number is not None else None
    yield one.name
    yield "" if one.number is None else counted(one.number)
    yield one.op
    yield "×".join(map(str, one.shape[1:] or one.shape))
    yield counted(one.macs) if one.macs else ""
    yield counted(one.parameters) if one.parameters else ""
    yield "" if learns is None else _learns(learns)
    yield "" if learns is None else counted(layer_memory(learns).total)


def _learns(one: Trained) -> str:
    every = one.node.ins[1].type.shape[-1]
    said = ["bias"] * one.bias + [f"{len(one.channels)} of {every} channels"] * bool(one.channels)
    return ", ".join(said)


def contributions_section(contributions: Contributions, pareto: Pareto | None = None) -> Section:
    """What each part adds, and what each amount of memory buys where that is known."""
    given = contributions.conditions
    how = (
        f"Measured on {given.data}, judged with {given.judged_with:,} images held back."
        if given.judged_with
        else "By rule, not measured: layers that do not narrow are taken to add something, later ones more."
    )
    seen = "To the left the last biases, more and more of them; to the right the weights of each layer, by their share."
    figure = replace(draw_contributions(contributions), title="Gain of each part, in points of top-1")
    charts = [Chart(figure, seen, (_gains(contributions),))]
    if pareto is not None:
        bought = "Each dot is the best scheme that fits the memory below it, by the gains above."
        charts.append(Chart(draw_pareto(pareto), bought, (_bought(pareto),)))
    return Section("contributions", "What each part adds", how, tuple(charts))


def _gains(contributions: Contributions) -> Table:
    depths = [
        (f"the last {one.biases} biases", "all", _points(contributions.biases_gain(one.biases)))
        for one in contributions.depths
    ]
    shares = [
        (f"weights of layer {one.layer}", str(one.share), _points(contributions.weights_gain(one.layer, one.share)))
        for one in contributions.shares
    ]
    return Table("What each part adds, in points of top-1", ("Part", "Share", "Gain"), rows_of((*depths, *shares)))


def _bought(pareto: Pareto) -> Table:
    rows = (
        (
            counted(one.cost), _points(one.gain), counted(one.scheme.biases), counted(one.weight_bits),
            " ".join(f"{gain.layer}:{gain.share}" for gain in one.layers),
        )
        for one in pareto.points
    )  # fmt: skip
    columns = ("Bytes", "Gain in points", "Biases", "Bits of a weight", "Weights, layer:share")
    return Table("What memory buys", columns, rows_of(rows))


def _points(gain: float) -> Cell:
    return Cell(f"{100 * gain:+.2f}", gain)
