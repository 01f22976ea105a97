"""Choosing what learns in pictures: contributions, searches, budgets, predictions, and a scheme over its network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from smidgen.ir import Graph
from smidgen.ops.update import initial_fraction
from smidgen.results.drawing import COLOURS, page_of
from smidgen.selection.contributions import Contributions, LayerShare
from smidgen.selection.found import Found, Method, Pareto
from smidgen.selection.predicting import Predictions
from smidgen.training import Options
from smidgen.training.head import layers
from smidgen.training.published import LayerShape
from smidgen.training.scheme import AnalyticMemory, Scheme, Trained, layer_memory, resolve

GAINS = ("#c6dbef", "#8ab8dd", "#4a90c4", "#174a7e")  # by share, pale for few channels
HARMS = ("#fcc5bf", "#f49a8f", "#dd5a4b", "#a31b12")
METHODS: Mapping[Method, str] = {"exact": "#174a7e", "evolutionary": "#e69f00", "random": "#9a9a9a"}
FROZEN = "#ececec"
LEGEND = {"orientation": "h", "y": -0.16}
TEMPLATE = "plotly_white"
BOUGHT = "%{customdata}<br>%{x:.1f} KB: %{y:+.2f} points<extra></extra>"


def draw_contributions(contributions: Contributions) -> go.Figure:
    """Gain over the depth of biases, and gain of each layer's weights at each share; what harms hangs below zero."""
    titles = ("biases: gain over the head alone", "weights: gain over biases, each layer by itself")
    figure = make_subplots(cols=2, column_widths=[0.28, 0.72], horizontal_spacing=0.06, subplot_titles=titles)
    depths = [one.biases for one in contributions.depths]
    figure.add_trace(
        go.Scatter(
            name="biases", x=depths, y=[_points(contributions.biases_gain(k)) for k in depths], mode="lines+markers",
            line={"color": COLOURS["state"]}, showlegend=False,
            hovertemplate="the last %{x} biases: %{y:+.1f} points<extra></extra>",
        ),
        row=1, col=1,
    )  # fmt: skip
    shares = sorted({one.share for one in contributions.shares})
    for place, share in enumerate(shares):
        figure.add_trace(_share_bars(contributions, share, place, len(shares)), row=1, col=2)
    figure.add_hline(y=0, line={"color": "black", "width": 1})
    figure.update_layout(
        title=f"What each part adds: {contributions.model} on {contributions.conditions.data}", height=480,
        template=TEMPLATE, legend=LEGEND, margin={"t": 90}, barmode="group", bargap=0.15,
    )  # fmt: skip
    figure.update_xaxes(title_text="last biases that learn", row=1, col=1)
    numbers = sorted({one.layer for one in contributions.shares})
    figure.update_xaxes(title_text="layer", tickvals=numbers, tickangle=0, row=1, col=2)
    figure.update_yaxes(title_text="points of top-1", row=1, col=1)
    return figure


def contributions_page(contributions: Contributions) -> str:
    """The contributions as a page that needs nothing else."""
    given = contributions.conditions
    said = (
        f"Learned from {given.learned_from:,} images of {given.data} and judged with {given.judged_with:,} others, "
        f"{given.epochs} epochs at a rate of {given.learning_rate:.4g} a sample; the head alone has a top-1 of "
        f"{contributions.depths[0].accuracy:.1%}. What hangs below zero harms."
    )
    left_out = f" Left out: {'; '.join(contributions.left_out)}." if contributions.left_out else ""
    title = f"What is worth training in {contributions.model}"
    return page_of(title, said + left_out, [draw_contributions(contributions)])


def _points(share: float) -> float:
    """Points of a hundred; rounded, so that a page is the same on every machine."""
    return round(100 * share, 6)


def _share_bars(contributions: Contributions, share: Fraction, place: int, count: int) -> go.Bar:
    measured = [one for one in contributions.shares if one.share == share]
    gains = [_points(contributions.weights_gain(one.layer, share)) for one in measured]
    shade = len(GAINS) - 1 if count == 1 else round(place * (len(GAINS) - 1) / (count - 1))
    return go.Bar(
        name=f"{share} of the channels" if share < 1 else "all channels", x=[one.layer for one in measured], y=gains,
        marker_color=[HARMS[shade] if gain < 0 else GAINS[shade] for gain in gains],
        customdata=[_measured(contributions, one) for one in measured],
        hovertemplate="%{customdata}: %{y:+.1f} points<extra></extra>",
    )  # fmt: skip


def _measured(contributions: Contributions, one: LayerShare) -> str:
    beside = f"beside {contributions.beside(one.layer)} biases"
    return f"<b>layer {one.layer}</b>: {contributions.layers[one.layer]}<br>{one.share} of its channels, {beside}"


def draw_search(searches: Sequence[Found]) -> go.Figure:
    """The best predicted gain over evaluations, within one budget: exact as a line, the others as they went."""
    figure = go.Figure()
    last = max((search.evaluations for search in searches if search.improvements), default=1)
    for search in searches:
        went = [(one.evaluations, one.gain) for one in search.improvements] or [(1, search.gain)]
        points = [*went, (last, search.gain)]
        figure.add_trace(
            go.Scatter(
                name=f"{search.method}: {100 * search.gain:+.2f}",
                x=[count for count, _ in points], y=[_points(gain) for _, gain in points], mode="lines",
                line={"color": METHODS[search.method], "shape": "hv", "dash": "solid" if len(went) > 1 else "dash"},
                hovertemplate=search.method + ", %{x:,} evaluations: %{y:+.2f} points<extra></extra>",
            )
        )  # fmt: skip
    budgets = " and ".join(f"{budget:,}" for budget in dict.fromkeys(search.budget for search in searches))
    figure.update_layout(
        title=f"Best predicted gain within {budgets} bytes", height=420, template=TEMPLATE, legend=LEGEND,
        margin={"t": 60}, showlegend=True,
    )  # fmt: skip
    figure.update_xaxes(title_text="schemes evaluated", type="log")
    figure.update_yaxes(title_text="points of top-1, predicted")
    return figure


def draw_pareto(pareto: Pareto, chosen: Found | None = None) -> go.Figure:
    """What each amount of memory buys: the predicted gain of the best scheme that fits, and where `chosen` lies."""
    figure = go.Figure(
        go.Scatter(
            name="best scheme that fits", x=[_kilobytes(one) for one in pareto.points],
            y=[_points(one.gain) for one in pareto.points],
            mode="lines+markers", line={"shape": "hv", "color": COLOURS["activation"]},
            customdata=[_described(one) for one in pareto.points],
            hovertemplate=BOUGHT,
        )
    )  # fmt: skip
    if chosen is not None:
        figure.add_trace(
            go.Scatter(
                name=f"chosen: {chosen.cost:,} bytes", x=[_kilobytes(chosen)], y=[_points(chosen.gain)],
                mode="markers", marker={"size": 14, "symbol": "star", "color": "crimson"},
                customdata=[_described(chosen)], hovertemplate=BOUGHT,
            )
        )  # fmt: skip
    what = f"SRAM on {pareto.target}, everything counted" if pareto.target else "analytic memory"
    figure.update_layout(
        title=f"What memory buys: {pareto.model}", height=420, template=TEMPLATE, legend=LEGEND, margin={"t": 60},
        showlegend=True,
    )  # fmt: skip
    figure.update_xaxes(title_text=f"KB of {what} (1,024 bytes each)")
    figure.update_yaxes(title_text="points of top-1 over the head, predicted")
    return figure


def search_page(graph: Graph, searches: Sequence[Found], options: Options) -> str:
    """The scheme that the first of some searches found, over its network, and how the searches went."""
    found = searches[0]
    figures = [draw_scheme(graph, found.scheme, options), draw_search(searches)]
    return page_of(f"What {found.model} is to learn", _sentence(found), figures)


def pareto_page(graph: Graph, pareto: Pareto, options: Options) -> str:
    """What memory buys, and the scheme at the curve's end over its network."""
    found = pareto.points[-1]
    figures = [draw_pareto(pareto), draw_scheme(graph, found.scheme, options)]
    return page_of(f"What memory buys {pareto.model}", f"At the end of the curve: {_sentence(found)}", figures)


def _sentence(found: Found) -> str:
    where = f"of SRAM on {found.target}, everything counted" if found.target else "by the analytic sum"
    gain = f"{100 * found.gain:+.2f} points of top-1 over the head alone, as predicted"
    return f"{_described(found)}: {found.cost:,} of at most {found.budget:,} bytes {where}; {gain}."


def _kilobytes(found: Found) -> float:
    return round(found.cost / 1024, 3)


def _described(found: Found) -> str:
    """What a scheme trains, in a line."""
    weights = " ".join(f"{one.layer}:{one.share}" for one in found.layers) or "no weights"
    return f"the last {found.scheme.biases} biases, {found.weight_bits}-bit weights, {weights}"


def draw_predictions(predictions: Predictions) -> go.Figure:
    """Predicted gains against real ones, and what the sums of two layers miss."""
    paired = bool(predictions.interactions)
    said = f"predicted and real: r = {predictions.correlation:.2f}, of ranks {predictions.rank_correlation:.2f}"
    missed = f"pairs: the sum misses {100 * predictions.interaction_error:.1f} points on average" if paired else ""
    figure = make_subplots(cols=2 if paired else 1, subplot_titles=(said, missed)[: 1 + paired])
    figure.add_trace(_scattered(predictions), row=1, col=1)
    gains = [gain for one in predictions.schemes for gain in (_points(one.predicted), _points(one.real))]
    ends = [min(gains, default=0.0), max(gains, default=0.0)]
    figure.add_trace(
        go.Scatter(
            name="as predicted", x=ends, y=ends, mode="lines", line={"dash": "dot", "color": "black"}, hoverinfo="skip"
        ),
        row=1, col=1,
    )  # fmt: skip
    if paired:
        figure.add_trace(_pairs(predictions), row=1, col=2)
        figure.add_hline(y=0, line={"color": "black", "width": 1}, row=1, col=2)
        figure.update_yaxes(title_text="together less alone, points", row=1, col=2)
    title = f"Sums of contributions and what came: {predictions.model} on {predictions.data}"
    figure.update_layout(title=title, height=460, template=TEMPLATE, margin={"t": 90}, showlegend=False)
    figure.update_xaxes(title_text="predicted gain, points of top-1", row=1, col=1)
    figure.update_yaxes(title_text="real gain, points of top-1", row=1, col=1)
    return figure


def _scattered(predictions: Predictions) -> go.Scatter:
    return go.Scatter(
        name="schemes", x=[_points(one.predicted) for one in predictions.schemes],
        y=[_points(one.real) for one in predictions.schemes], mode="markers",
        marker={"color": COLOURS["activation"], "size": 9}, customdata=[one.scheme for one in predictions.schemes],
        hovertemplate="%{customdata}<br>predicted %{x:+.1f}, real %{y:+.1f}<extra></extra>",
    )  # fmt: skip


def _pairs(predictions: Predictions) -> go.Bar:
    errors = [_points(one.error) for one in predictions.interactions]
    return go.Bar(
        name="pairs", x=[" + ".join(map(str, one.layers)) for one in predictions.interactions], y=errors,
        marker_color=[HARMS[2] if error < 0 else GAINS[2] for error in errors],
        customdata=[
            f"alone {' and '.join(f'{100 * gain:+.1f}' for gain in one.alone)}, together {100 * one.together:+.1f}"
            for one in predictions.interactions
        ],
        hovertemplate="layers %{x}: %{customdata}<extra></extra>",
    )  # fmt: skip


def draw_scheme(graph: Graph, scheme: Scheme, options: Options) -> go.Figure:
    """The network's layers in order: which learn their bias, what share of their weights, and what that costs."""
    numbered, trained = layers(graph), {one.layer: one for one in resolve(scheme, graph, options.seed)}
    names = [f"<b>layer {i}</b>: {LayerShape.of(node)}" for i, node in enumerate(numbered)]
    titles = ("what learns: share of each layer's input channels, and ● biases", "bytes that learning takes")
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.12, subplot_titles=titles)
    shares = [_share(trained.get(i)) for i in range(len(numbered))]
    whole = [1.0] * len(numbered)
    figure.add_trace(_layer_bars("frozen", whole, FROZEN, names, "all channels"), row=1, col=1)
    figure.add_trace(_layer_bars("weights learn", shares, COLOURS["state"], names, "%{y:.1%} learn"), row=1, col=1)
    biased = sorted(trained)
    figure.add_trace(
        go.Scatter(
            name="bias learns", x=biased, y=[1.08] * len(biased), mode="markers",
            marker={"color": COLOURS["gradient"], "size": 7}, hoverinfo="skip",
        ),
        row=1, col=1,
    )  # fmt: skip
    below = [0] * len(numbered)
    for what, colour, sizes in _costs(trained, len(numbered), options.bits(scheme)):
        figure.add_trace(
            _layer_bars(what, sizes, colour, names, what + ": %{customdata[1]:,} bytes", below), row=2, col=1
        )
        below = [base + size for base, size in zip(below, sizes, strict=True)]
    figure.update_layout(
        title=f"What {graph.name} learns by {scheme.name}: {_in_words(scheme, options)}", height=620, template=TEMPLATE,
        barmode="overlay", legend={**LEGEND, "y": -0.1}, margin={"t": 90},
    )  # fmt: skip
    figure.update_xaxes(range=[-0.7, len(numbered) - 0.3], dtick=max(1, len(numbered) // 40), showticklabels=True)
    figure.update_xaxes(title_text="layer, from the image to the classifier", row=2, col=1)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.16], row=1, col=1)
    figure.update_yaxes(title_text="bytes", tickformat=",d", row=2, col=1)
    return figure


def _in_words(scheme: Scheme, options: Options) -> str:
    return f"{len(scheme.weights)} layers' weights at {options.bits(scheme)} bits, the last {scheme.biases} biases"


def _share(trained: Trained | None) -> float:
    return 0.0 if trained is None else round(len(trained.channels) / trained.node.ins[1].type.shape[-1], 6)


def _layer_bars(
    what: str, y: Sequence[float], colour: str, names: Sequence[str], said: str, base: Sequence[int] = ()
) -> go.Bar:
    return go.Bar(
        name=what, x=list(range(len(y))), y=list(y), base=list(base) or None, marker_color=colour, width=0.8,
        customdata=list(zip(names, y, strict=True)), hovertemplate="%{customdata[0]}<br>" + said + "<extra></extra>",
    )  # fmt: skip


def _costs(trained: Mapping[int, Trained], count: int, bits: int) -> Iterator[tuple[str, str, list[int]]]:
    """Bytes of each layer, by what they are for; counted as the paper does, but with the bits that weights have."""
    memories = {layer: layer_memory(one) for layer, one in trained.items()}
    parts: tuple[tuple[str, str, Callable[[AnalyticMemory], int]], ...] = (
        ("weights in SRAM", COLOURS["state"], lambda m: _state_bytes(m.weights, bits)),
        ("biases in SRAM", COLOURS["gradient"], lambda m: m.biases),
        ("inputs saved, and masks", COLOURS["saved"], lambda m: m.saved + m.masks),
    )
    for what, colour, bytes_of in parts:
        yield what, colour, [bytes_of(memories[i]) if i in memories else 0 for i in range(count)]


def _state_bytes(weights: int, bits: int) -> int:
    """Bytes of so many weights, with what they have beyond int8."""
    return weights + (initial_fraction(weights, bits - 8).size if bits > 8 and weights else 0)
