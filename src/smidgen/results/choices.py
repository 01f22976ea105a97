"""The choice of what learns, as tables and pictures: contributions, searches, budgets, a scheme over its network."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from smidgen.ir import Graph
from smidgen.ops.update import initial_fraction
from smidgen.results import figures as draw
from smidgen.results.figures import Axis, Bars, Figure, Panel, Polyline
from smidgen.results.report.page import page_of
from smidgen.selection.contributions import Contributions
from smidgen.selection.found import Found, Method, Pareto
from smidgen.selection.trials import kind_of
from smidgen.tables import Table, counted, measured, rows_of
from smidgen.training import Options
from smidgen.training.head import layers
from smidgen.training.published import LayerShape
from smidgen.training.scheme import AnalyticMemory, Scheme, Trained, layer_memory, resolve

METHOD_COLOURS: Mapping[Method, str] = {"exact": "#174a7e", "evolutionary": "#e69f00", "random": "#9a9a9a"}
GROUP = 0.85  # how wide the bars of a layer are together


def draw_contributions(contributions: Contributions) -> Figure:
    """Draw the gain over the depth of biases, and of each layer's weights at each share; harm hangs below zero."""
    depths = tuple(one.biases for one in contributions.depths)
    gains = tuple(in_points(contributions.biases_gain(k)) for k in depths)
    notes = tuple(f"the last {k} biases: {gain:+.1f} points" for k, gain in zip(depths, gains, strict=True))
    curve = Polyline("biases", depths, gains, notes, draw.BIASES, radius=3, legend=False)
    shares = sorted({one.share for one in contributions.shares})
    bars = [_share_bars(contributions, share, place, len(shares)) for place, share in enumerate(shares)]
    numbers = tuple(float(n) for n in sorted({one.layer for one in contributions.shares}))
    panels = (
        Panel(
            "biases: gain over the head alone", (draw.Rule("y", 0), curve), Axis("last biases that learn"),
            Axis("points of top-1"),
        ),
        Panel(
            "weights: gain over biases, each layer by itself", (*bars, draw.Rule("y", 0)), Axis("layer", ticks=numbers),
        ),
    )  # fmt: skip
    title = f"What each part adds: {contributions.model} on {contributions.conditions.data}"
    return Figure(title, panels, 480, (0.28, 0.72))


def contributions_page(contributions: Contributions) -> str:
    """Return a page with a picture of the contributions."""
    given = contributions.conditions
    lengths = dict.fromkeys(one.epochs for one in (given, *contributions.averaged))
    summary = (
        f"Learned from {given.learned_from:,} images of {given.data} and judged with {given.judged_with:,} others, "
        f"{' and '.join(map(str, lengths))} epochs at a rate of {given.learning_rate:.4g} a sample; the head alone has "
        f"a top-1 of {contributions.depths[0].accuracy:.1%}. What hangs below zero harms."
    )
    left_out = f" Left out: {'; '.join(contributions.left_out)}." if contributions.left_out else ""
    title = f"What is worth training in {contributions.model}"
    return page_of(title, summary + left_out, [draw_contributions(contributions)])


def in_points(share: float) -> float:
    """Return a share in percentage points; rounded, so that a page is the same on every machine."""
    return round(100 * share, 6)


def _share_bars(contributions: Contributions, share: Fraction, place: int, count: int) -> Bars:
    tried = [one for one in contributions.shares if one.share == share]
    gains = tuple(in_points(contributions.weights_gain(one.layer, share)) for one in tried)
    shade = len(draw.GAINS) - 1 if count == 1 else round(place * (len(draw.GAINS) - 1) / (count - 1))
    named = (
        f"layer {one.layer}: {contributions.layers[one.layer]}\n{one.share} of its channels, beside "
        f"{contributions.beside(one.layer)} biases"
        for one in tried
    )
    notes = (f"{name}: {gain:+.1f} points" for name, gain in zip(named, gains, strict=True))
    return Bars(
        f"{share} of the channels" if share < 1 else "all channels", tuple(one.layer for one in tried), gains,
        tuple(notes), tuple(draw.HARMS[shade] if gain < 0 else draw.GAINS[shade] for gain in gains), GROUP / count,
        GROUP * (place / count - 0.5), key=draw.GAINS[shade],
    )  # fmt: skip


def draw_search(searches: Sequence[Found]) -> Figure:
    """Draw the best predicted gain over evaluations, within one budget: exact as a line, the others as they went."""
    last = max((search.evaluations for search in searches if search.improvements), default=1)
    lines = []
    for search in searches:
        went = [(one.evaluations, one.gain) for one in search.improvements] or [(1, search.gain)]
        counts, gains = zip(*went, (last, search.gain), strict=True)
        points = tuple(map(in_points, gains))
        notes = (f"{search.method}, {x:,} evaluations: {y:+.2f} points" for x, y in zip(counts, points, strict=True))
        lines.append(
            Polyline(
                f"{search.method}: {100 * search.gain:+.2f}", counts, points, tuple(notes),
                METHOD_COLOURS[search.method], "steps", dashed=len(went) <= 1,
            )
        )  # fmt: skip
    budgets = " and ".join(f"{budget:,}" for budget in dict.fromkeys(search.budget for search in searches))
    panel = Panel("", tuple(lines), Axis("schemes evaluated", log=True), Axis("points of top-1, predicted"))
    return Figure(f"Best predicted gain within {budgets} bytes", (panel,), 420)


def draw_pareto(pareto: Pareto, chosen: Found | None = None) -> Figure:
    """Draw what each amount of memory buys: the predicted gain of the best scheme that fits, and that of `chosen`."""
    lines = [_bought("best scheme that fits", pareto.points, draw.BLACK, 3)]
    if chosen is not None:
        lines.append(_bought(f"chosen: {chosen.cost:,} bytes", (chosen,), draw.CRIMSON, 7))
    what = f"SRAM on {pareto.target}, everything counted" if pareto.target else "analytic memory"
    x, y = Axis(f"KB of {what} (1,024 bytes each)"), Axis("points of top-1 over the head, predicted")
    return Figure(f"What memory buys: {pareto.model}", (Panel("", tuple(lines), x, y),), 420)


def _bought(name: str, points: Sequence[Found], colour: str, radius: float) -> Polyline:
    """Return the costs and gains of some schemes."""
    x, y = tuple(round(one.cost / 1024, 3) for one in points), tuple(in_points(one.gain) for one in points)
    notes = (f"{_described(one)}\n{kb:.1f} KB: {gain:+.2f} points" for one, kb, gain in zip(points, x, y, strict=True))
    return Polyline(name, x, y, tuple(notes), colour, "steps", radius=radius)


def search_page(graph: Graph, searches: Sequence[Found], options: Options) -> str:
    """Return a page with the scheme that the first of some searches found, and how the searches went."""
    found = searches[0]
    figures = [draw_scheme(graph, found.scheme, options), draw_search(searches)]
    return page_of(f"What {found.model} is to learn", _sentence(found), figures)


def pareto_page(graph: Graph, pareto: Pareto, options: Options) -> str:
    """Return a page with what memory buys, and the scheme at the curve's end over its network."""
    found = pareto.points[-1]
    figures = [draw_pareto(pareto), draw_scheme(graph, found.scheme, options)]
    return page_of(f"What memory buys {pareto.model}", f"At the end of the curve: {_sentence(found)}", figures)


def _sentence(found: Found) -> str:
    where = f"of SRAM on {found.target}, everything counted" if found.target else "by the analytic sum"
    gain = f"{100 * found.gain:+.2f} points of top-1 over the head alone, as predicted"
    return f"{_described(found)}: {found.cost:,} of at most {found.budget:,} bytes {where}; {gain}."


def _described(found: Found) -> str:
    """Describe what a scheme trains."""
    return f"the last {found.scheme.biases} biases, {found.weight_bits}-bit weights, {found.weights or 'no weights'}"


def draw_scheme(graph: Graph, scheme: Scheme, options: Options) -> Figure:
    """Draw the layers in order: which learn their bias, what share of their weights, and what that costs."""
    numbered, trained = layers(graph), {one.layer: one for one in resolve(scheme, graph, options.seed)}
    count = len(numbered)
    names = [f"layer {i}: {LayerShape.of(node)}" for i, node in enumerate(numbered)]
    learning = {i: round(len(one.channels) / one.node.ins[1].type.shape[-1], 6) for i, one in trained.items()}
    shares = [learning.get(i, 0.0) for i in range(count)]
    biased = tuple(sorted(trained))
    above: list[draw.Mark] = [
        _layer_bars("frozen", [1.0] * count, draw.FROZEN, [f"{name}\nall channels" for name in names]),
        _layer_bars("weights", shares, draw.COLOURS["state"], _notes(names, (f"{y:.1%} learn" for y in shares))),
        Polyline(
            "biases", biased, (1.08,) * len(biased), ("",) * len(biased), draw.BIASES, "none", radius=3.5
        ),
    ]  # fmt: skip
    below, under = list[draw.Mark](), [0] * count
    for what, colour, sizes in _costs(trained, count, options.bits(scheme)):
        notes = _notes(names, (f"{what}: {size:,} bytes" for size in sizes))
        below.append(_layer_bars(what, sizes, colour, notes, under))
        under = [base + size for base, size in zip(under, sizes, strict=True)]
    ends = Axis("", -0.7, count - 0.3, ticks=tuple(range(0, count, max(1, count // 40))))
    titled = Axis("layer, from the image to the classifier", ends.low, ends.high, ticks=ends.ticks)
    learns = "share of each layer's weights that learns, ● biases"
    panels = (
        Panel(learns, tuple(above), ends, Axis("", 0, 1.16, unit="percent")),
        Panel("bytes that learning takes", tuple(below), titled, Axis("bytes", 0, unit="bytes")),
    )
    what = f"{len(scheme.weights)} layers' weights at {options.bits(scheme)} bits, the last {scheme.biases} biases"
    return Figure(f"What {graph.name} learns by {scheme.name}: {what}", panels, 620)


def _notes(names: Sequence[str], texts: Iterator[str]) -> list[str]:
    return [f"{name}\n{text}" for name, text in zip(names, texts, strict=True)]


def _layer_bars(what: str, y: Sequence[float], colour: str, notes: Sequence[str], base: Sequence[int] = ()) -> Bars:
    return Bars(what, tuple(range(len(y))), tuple(y), tuple(notes), (colour,), base=tuple(base))


def _costs(trained: Mapping[int, Trained], count: int, bits: int) -> Iterator[tuple[str, str, list[int]]]:
    """Yield the bytes of each layer by purpose, counted as in the paper but with the bits that weights have."""
    memories = {layer: layer_memory(one) for layer, one in trained.items()}
    parts: tuple[tuple[str, str, Callable[[AnalyticMemory], int]], ...] = (
        ("weights", draw.COLOURS["state"], lambda m: _state_bytes(m.weights, bits)),
        ("biases", draw.BIASES, lambda m: m.biases),
        ("inputs saved, and masks", draw.COLOURS["saved"], lambda m: m.activations),
    )
    for what, colour, bytes_of in parts:
        yield what, colour, [bytes_of(memories[i]) if i in memories else 0 for i in range(count)]


def _state_bytes(weights: int, bits: int) -> int:
    """Return the bytes of weights, with their bits beyond int8."""
    return weights + (initial_fraction(weights, bits - 8).size if bits > 8 and weights else 0)


@dataclass(frozen=True)
class AnalysisSummary:
    """An analysis, the file it was written to, and the page it is drawn in."""

    contributions: Contributions
    kinds: Mapping[int, str]  # the role of each layer that was measured
    file: str
    picture: str | None = None

    @property
    def noise(self) -> float:
        """The standard deviation of a top-1 that is judged with these images."""
        known = self.contributions
        base = known.depths[0].accuracy + known.biases_gain(known.base)
        return math.sqrt(base * (1 - base) / known.conditions.judged_with / len(known.conditions.seeds))

    def layers(self) -> Iterator[tuple[int, dict[Fraction, float], str]]:
        """Yield each layer, the last first: what its weights add at each share, and whether that is more than noise."""
        for layer in sorted({one.layer for one in self.contributions.shares}, reverse=True):
            shares = [one.share for one in self.contributions.shares if one.layer == layer]
            gains = {share: self.contributions.weights_gain(layer, share) for share in shares}
            low, high = min(gains.values()), max(gains.values())
            yield layer, gains, "harms" if low < -self.noise else "adds" if high > self.noise else ""

    def as_plain(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        known = self.contributions
        return {
            "model": known.model, "file": self.file, "conditions": asdict(known.conditions),
            "head": known.depths[0].accuracy, "base": known.base, "noise": self.noise,
            "depths": [{"biases": k.biases, "gain": known.biases_gain(k.biases)} for k in known.depths],
            "layers": [
                {"layer": layer, "kind": self.kinds[layer], "verdict": verdict,
                 "gains": [{"share": share, "gain": gain} for share, gain in gains.items()]}
                for layer, gains, verdict in self.layers()
            ],
            "bits": [asdict(one) for one in known.bits], "left_out": known.left_out, "picture": self.picture,
        }  # fmt: skip

    def table(self) -> Table:
        """Return what the weights of each layer add."""
        shares = sorted({one.share for one in self.contributions.shares})
        rows = rows_of(
            (counted(layer), self.kinds[layer], *(measured(gains.get(share), "+.1%") for share in shares), verdict)
            for layer, gains, verdict in self.layers()
        )
        return Table("", ("layer", "kind", *map(str, shares), ""), rows)

    def __str__(self) -> str:
        known, given = self.contributions, self.contributions.conditions
        depths = (f"{one.biases}: {known.biases_gain(one.biases):+.1%}" for one in known.depths if one.biases)
        lines = [
            f"{known.model} on {given.data}: learned from {given.learned_from:,} training images and judged with "
            f"{given.judged_with:,} others",
            f"{_counted(given.epochs, 'epoch')} at a rate of {given.learning_rate:.4g} a sample, "
            f"{_counted(len(given.seeds), 'seed')}; gains within ±{self.noise:.1%} may be chance",
            f"head alone: top-1 {known.depths[0].accuracy:.1%}; the last k biases add {', '.join(depths)}",
            f"weights of one layer beside the last {known.base} biases, or as many as reach it, add",
        ]
        lines += str(self.table()).splitlines()
        if known.bits:
            more = ", ".join(f"{one.bits} bits {one.accuracy:.1%}" for one in known.bits)
            lines.append(f"bits of a weight, the same scheme: top-1 {more}")
        harmful = [f"{layer} ({self.kinds[layer]})" for layer, _, verdict in self.layers() if verdict == "harms"]
        if harmful:
            lines.append(f"training these layers harms: {', '.join(reversed(harmful))}")
        lines += [*(f"left out: {line}" for line in known.left_out), f"written to {self.file}"]
        return "\n".join([*lines, *([f"drawn in {self.picture}"] if self.picture else [])])


def summarize(contributions: Contributions, graph: Graph, file: str, picture: str | None = None) -> AnalysisSummary:
    """Summarize contributions as the command line shows them."""
    nodes = layers(graph)
    kinds = {one.layer: str(kind_of(nodes[one.layer])) for one in contributions.shares}
    return AnalysisSummary(contributions, kinds, file, picture)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
