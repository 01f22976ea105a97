"""A program's memory in pictures: the arena over time, what is alive at each node, what learning each layer costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from smidgen.pipeline import Program
from smidgen.results.lifecycle import KINDS, ArenaTensor, Kind, LifeCycle, life_cycle
from smidgen.training.scheme import AnalyticMemory

LABELS: dict[Kind, str] = {
    "state": "state: what learns",
    "saved": "saved for the backward pass",
    "activation": "activations",
    "gradient": "gradients",
    "scratch": "working memory",
}
COLOURS: dict[Kind, str] = {
    "state": "#8c7fb8",
    "saved": "#e69f00",
    "activation": "#56a0d3",
    "gradient": "#009e73",
    "scratch": "#9a9a9a",
}
STREAMED = "#f0e442"
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif; margin: 1.5rem auto; max-width: 1400px; }} p {{ max-width: 60rem; }}
th {{ text-align: left; vertical-align: top; padding-right: 1.5rem; }} td {{ padding-bottom: 0.4rem; }}</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
{figures}
</body>
</html>
"""


def draw_memory(program: Program) -> str:
    """The pictures as a page that needs nothing else."""
    cycle = life_cycle(program)
    return page_of(f"Memory of {cycle.model} for {program.target.name}", _summary(cycle), memory_figures(cycle))


def memory_figures(cycle: LifeCycle) -> list[go.Figure]:
    """The arena over time, and what learning each layer costs."""
    return [_over_time(cycle), *([_by_layer(cycle)] if cycle.layers else [])]


def page_of(title: str, summary: str, figures: Sequence[go.Figure], rows: Sequence[tuple[str, str]] = ()) -> str:
    """Pictures under a heading, a sentence and a table, as a page that needs nothing else; same input, same bytes."""
    parts = [
        figure.to_html(
            full_html=False, include_plotlyjs=index == 1, config={"displaylogo": False}, div_id=f"picture-{index}"
        )
        for index, figure in enumerate(figures, start=1)
    ]
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>\n" for name, said in rows)
    table = f"<table>\n{cells}</table>\n" if rows else ""
    return PAGE.format(title=escape(title), summary=escape(summary), figures=table + "\n".join(parts))


def _summary(cycle: LifeCycle) -> str:
    learns = f" and {cycle.state:,} for what outlives a run" if cycle.state else ""
    bound = f"no plan for this order of nodes can have an arena below {cycle.lower_bound:,}"
    held = f"The arena at its peak: {cycle.at_peak}."
    return f"{cycle.arena + cycle.state:,} bytes of SRAM: an arena of {cycle.arena:,}{learns}; {bound}. {held}"


def _over_time(cycle: LifeCycle) -> go.Figure:
    """The arena above, the bytes alive below, over the same nodes."""
    titles = ("The arena: where each tensor lies, and when", "Bytes alive at each node")
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.09, subplot_titles=titles)
    for kind in KINDS:
        tensors = [tensor for tensor in cycle.tensors if tensor.kind == kind]
        if tensors:
            figure.add_trace(_rectangles(cycle, kind, tensors), row=1, col=1)
    for kind in KINDS:
        if any(step.alive[kind] for step in cycle.nodes):
            figure.add_trace(_area(cycle, kind), row=2, col=1)
    _mark(figure, cycle)
    legend, margin = {"orientation": "h", "y": -0.08}, {"t": 60}
    figure.update_layout(height=900, template="plotly_white", legend=legend, margin=margin)
    figure.update_yaxes(range=[0, 1.15 * (cycle.arena + cycle.state)], row=2, col=1)
    figure.update_xaxes(title_text="node", row=2, col=1)
    figure.update_xaxes(range=[0, len(cycle.nodes) + 1], showticklabels=True, showgrid=False)
    figure.update_yaxes(title_text="bytes from the arena's start", tickformat=",d", row=1, col=1)
    figure.update_yaxes(title_text="bytes of SRAM", tickformat=",d", row=2, col=1)
    return figure


def _rectangles(cycle: LifeCycle, kind: Kind, tensors: list[ArenaTensor]) -> go.Bar:
    return go.Bar(
        name=LABELS[kind], legendgroup=kind, showlegend=False, marker_color=COLOURS[kind],
        marker_line={"color": "white", "width": 0.5},
        x=[t.start for t in tensors], width=[t.end - t.start for t in tensors], offset=0,
        base=[t.offset for t in tensors], y=[t.bytes for t in tensors],
        customdata=[_described(cycle, t) for t in tensors], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _described(cycle: LifeCycle, tensor: ArenaTensor) -> str:
    """A tensor in words."""
    held = f" ({tensor.rows[0]} of {tensor.rows[1]} rows)" if tensor.rows else ""
    last = min(tensor.end, len(cycle.nodes)) - 1
    until = "the caller" if tensor.end > len(cycle.nodes) else f"node {last}, {cycle.nodes[last].name}"
    lines = [
        f"<b>{tensor.name}</b>: {LABELS[tensor.kind]}",
        f"{tensor.bytes:,} bytes{held} at {tensor.offset:,}",
        f"from node {tensor.start}, {cycle.nodes[tensor.start].name}, to {until}" if cycle.nodes else "",
        f"in turn: {', '.join(tensor.values)}" if len(tensor.values) > 1 else "",
    ]
    return "<br>".join(line for line in lines if line)


def _area(cycle: LifeCycle, kind: Kind) -> go.Scatter:
    steps = (*cycle.nodes, cycle.nodes[-1])  # once more, so that the last node is as wide as the others
    return go.Scatter(
        name=LABELS[kind], legendgroup=kind, stackgroup="alive", line={"shape": "hv", "width": 0},
        fillcolor=COLOURS[kind], x=list(range(len(steps))), y=[step.alive[kind] for step in steps],
        customdata=[f"{step.name} ({step.op}), {step.bytes:,} in all" for step in steps],
        hovertemplate="node %{x}, %{customdata}<br>" + LABELS[kind] + ": %{y:,}<extra></extra>",
    )  # fmt: skip


def _mark(figure: go.Figure, cycle: LifeCycle) -> None:
    """Streamed groups, the step from forward to backward, the peak, and how far plan and bound reach."""
    for first, end in cycle.groups:
        figure.add_vrect(x0=first, x1=end, fillcolor=STREAMED, opacity=0.3, line={"width": 1}, layer="below")
    if cycle.groups:
        first = cycle.groups[0][0]
        figure.add_annotation(
            x=first, y=1, yref="y domain", text="streamed row by row", xanchor="left", yanchor="bottom", showarrow=False
        )
    if cycle.backward is not None:
        figure.add_vline(x=cycle.backward, line={"color": "black", "width": 1})
        for text, anchor in (("forward ", "right"), (" backward", "left")):
            figure.add_annotation(
                x=cycle.backward, y=0, xref="x2", yref="y2 domain", text=text, xanchor=anchor, yanchor="bottom",
                showarrow=False,
            )  # fmt: skip
    for text, y in _levels(cycle):
        figure.add_hline(y=y, line={"color": "black", "width": 1, "dash": "dot"}, annotation_text=text, row=1, col=1)
    if cycle.nodes:
        step = cycle.nodes[cycle.peak]
        figure.add_vline(x=cycle.peak + 0.5, line={"color": "crimson", "width": 1, "dash": "dash"})
        right = cycle.peak < len(cycle.nodes) / 2  # of the peak is more room
        figure.add_annotation(
            x=cycle.peak + 0.5, y=step.bytes, text=f"peak: {step.bytes:,} bytes at node {cycle.peak}, {step.name}",
            xref="x2", yref="y2", font={"color": "crimson"}, arrowcolor="crimson", ax=30 if right else -30, ay=-32,
            xanchor="left" if right else "right", bgcolor="white",
        )  # fmt: skip


def _levels(cycle: LifeCycle) -> Iterator[tuple[str, int]]:
    yield f"arena {cycle.arena:,}", cycle.arena
    if cycle.lower_bound < cycle.arena:
        yield f"lower bound {cycle.lower_bound:,}", cycle.lower_bound


def _by_layer(cycle: LifeCycle) -> go.Figure:
    """What learning costs, layer by layer, counted as the paper does: pale for all of a layer, full for what learns."""
    figure = go.Figure()
    names = [f"{index}: {layer.name}" for index, layer in enumerate(cycle.layers)]
    whole = [_cost(layer.whole) for layer in cycle.layers]
    learned = [_cost(layer.trained) for layer in cycle.layers]
    for part, (what, colour) in enumerate((("activations", COLOURS["saved"]), ("weights", COLOURS["state"]))):
        for costs, how, opacity in ((whole, "all of the layer", 0.35), (learned, "what learns", 1.0)):
            if any(map(any, costs)):
                y = [cost[part] for cost in costs]
                figure.add_trace(_columns(f"{what}, {how}", names, y, colour, 0.4 * (part - 1), opacity))
    figure.update_layout(
        title="What learning a layer costs (analytic: inputs saved and mask bits; weights and biases that change)",
        height=500, template="plotly_white", barmode="overlay", legend={"orientation": "h", "y": -0.14},
        margin={"t": 60},
    )  # fmt: skip
    figure.update_xaxes(title_text="convolution")
    figure.update_yaxes(title_text="bytes", tickformat=",d")
    return figure


def _cost(memory: AnalyticMemory | None) -> tuple[int, int]:
    """Bytes for activations and for weights."""
    return (0, 0) if memory is None else (memory.saved + memory.masks, memory.weights + memory.biases)


def _columns(name: str, names: list[str], y: list[int], colour: str, side: float, opacity: float) -> go.Bar:
    return go.Bar(
        name=name, x=list(range(len(y))), y=y, offset=side, width=0.4, marker_color=colour, opacity=opacity,
        customdata=names, hovertemplate="%{customdata}<br>" + name + ": %{y:,}<extra></extra>",
    )  # fmt: skip
