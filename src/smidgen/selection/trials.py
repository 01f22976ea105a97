"""The runs of an analysis (depths of biases, shares of weights, bits per weight): which, on what samples, and how."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from smidgen.data import Data, DataError, Samples, examples, pixel_encoding
from smidgen.data.samples import evenly
from smidgen.errors import InputError
from smidgen.ir import Graph, Node
from smidgen.learning import Course, LearningError, learn
from smidgen.learning.run import not_finite
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.weighted import weighted
from smidgen.pipeline import Program, compile
from smidgen.selection.launchers import FLEET, PartCallback, Results
from smidgen.selection.workers import share_out
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, analytic_memory, resolve


class Kind(StrEnum):
    """The role of a layer in an inverted residual block, which widens, filters each channel, and narrows."""

    expand = "expand"
    depthwise = "depthwise"
    project = "project"
    other = "other"


def kind_of(node: Node) -> Kind:
    """Return the kind of a layer."""
    out, *window, channels = node.ins[1].type.shape
    match node.op:
        case Depthwise():
            return Kind.depthwise
        case Conv2D(groups=1) if window == [1, 1] and out != channels:
            return Kind.expand if out > channels else Kind.project
        case Conv2D(groups=groups) if groups > 1 and channels == 1:
            return Kind.depthwise
    return Kind.other


SHARES = tuple(Fraction(1, part) for part in (8, 4, 2, 1))
QUICK_SHARES = (Fraction(1, 4), Fraction(1))
EVERY_DEPTH = 6  # up to here each depth of biases is measured, from here on every third
STRIDE = 3
QUICK_DEPTHS = 5
BITS = (8, 10, 12)
WEIGHT_BITS = 12  # of every trial but those that compare bits


@dataclass(frozen=True)
class Trial:
    """One run: its scheme, the bits per weight, and the seed of the head and of all rounding."""

    scheme: Scheme
    weight_bits: int
    seed: int


@dataclass(frozen=True)
class Agenda:
    """The schemes to measure of a network, each once per seed."""

    depths: tuple[int, ...]  # ascending, from 0
    base: int  # biases that learn beside a layer's weights
    shares: tuple[tuple[int, Fraction], ...]  # layers with shares of their channels, ascending
    bits: tuple[int, ...]
    reference: Scheme  # what the bits are compared with
    count: int  # layers of the network
    left_out: tuple[str, ...]

    def depth(self, biases: int) -> Scheme:
        return Scheme(f"bias:{biases}", biases)

    def share(self, layer: int, share: Fraction) -> Scheme:
        """Return the scheme of a share of a layer's weights beside the base biases, or as many as reach the layer."""
        return Scheme(f"layer {layer}, {share}", max(self.base, self.count - layer), ((layer, share),))

    def schemes(self) -> tuple[tuple[Scheme, int], ...]:
        """Return every scheme to run, with its bits."""
        depths = [(self.depth(biases), WEIGHT_BITS) for biases in self.depths]
        shares = [(self.share(*one), WEIGHT_BITS) for one in self.shares]
        return (*depths, *shares, *((self.reference, bits) for bits in self.bits))

    def trials(self, seeds: int) -> tuple[Trial, ...]:
        """Return every scheme with every seed: schemes that start alike differ less by chance."""
        return tuple(Trial(scheme, bits, seed) for scheme, bits in self.schemes() for seed in range(seeds))


def agenda(graph: Graph, most: int, reach: int | None = None, quick: bool = False) -> Agenda:
    """Choose what to measure: everything whose analytic memory, with the biases that reach it, is at most `most` bytes.

    `reach` keeps only that many last layers; a quick agenda keeps to the second half, to fewer depths and to the shares
    1/4 and 1, of depthwise layers and projections 1 alone.
    """
    numbered = layers(graph)
    count = len(numbered)
    if not count:
        raise InputError(f"{graph.name} has no layer before its classifier; there is nothing to choose from")
    if reach is not None and not 1 <= reach <= count:
        raise InputError(f"the last {reach} layers cannot be tried: {graph.name} has {count}; give 1 to {count}")
    taken = [analytic_memory(Scheme("biases", depth), graph).total for depth in range(count + 1)]
    deepest = max(depth for depth in range(count + 1) if taken[depth] <= most)
    if not deepest:
        raise InputError(
            f"{graph.name} has nothing to try within {most:,} bytes: its last bias alone takes {taken[1]:,}; allow more"
        )
    within = deepest if reach is None else min(deepest, reach)
    kinds = [kind_of(node) for node in numbered]
    depths = _depths(kinds, within)
    base = next((d for d in depths if 2 * d >= count), within)
    left_out = []
    if reach is not None and within < deepest:
        left_out.append(f"layers before {count - within}: the last {within} were asked for")
    if quick:
        within, depths = base, evenly([d for d in depths if d <= base], QUICK_DEPTHS)
        left_out += _left_out_by_quick(count - base, depths)
    tried = [(i, s) for i in range(count - within, count) for s in _shares(graph, i, kinds[i], most, quick)]
    left_out += _left_out(graph, deepest, within, tried, most)
    reference = _reference(kinds, base, tried)
    bits = BITS if reference.weights else ()
    return Agenda(tuple(depths), base, tuple(tried), bits, reference, count, tuple(left_out))


def _depths(kinds: Sequence[Kind], deepest: int) -> list[int]:
    """Return all depths to EVERY_DEPTH, then every third, those that reach a block's first layer, and the deepest."""
    few = {d for d in range(deepest + 1) if d <= EVERY_DEPTH or d % STRIDE == 0}
    blocks = {len(kinds) - i for i, kind in enumerate(kinds) if kind is Kind.expand}
    return sorted(few | {d for d in blocks if d <= deepest} | {deepest})


def _shares(graph: Graph, layer: int, kind: Kind, most: int, quick: bool) -> list[Fraction]:
    """Return the shares of a layer to try: those that fit, and the smaller of two that choose the same channels."""
    node, found = layers(graph)[layer], dict[tuple[int, ...], Fraction]()
    whole = not weighted(node).learns_in_parts or (quick and kind in (Kind.depthwise, Kind.project))
    for share in SHARES[-1:] if whole else QUICK_SHARES if quick else SHARES:
        takes = analytic_memory(_alone(graph, layer, share), graph).total
        if takes <= most and (channels := _channels(graph, layer, share)):
            found.setdefault(channels, share)
    return list(found.values())


def _alone(graph: Graph, layer: int, share: Fraction) -> Scheme:
    """Return the scheme of part of one layer's weights and the biases that reach it."""
    return Scheme("one layer", len(layers(graph)) - layer, ((layer, share),))


def _channels(graph: Graph, layer: int, share: Fraction) -> tuple[int, ...]:
    """Return the channels of a layer that learn; none where its weights are not constants."""
    return resolve(_alone(graph, layer, share), graph)[0].channels


def _reference(kinds: Sequence[Kind], base: int, tried: Sequence[tuple[int, Fraction]]) -> Scheme:
    """Return the scheme of all channels of the widening layers that the base reaches, or of all layers there."""
    whole = [layer for layer, share in tried if share == 1 and layer >= len(kinds) - base]
    chosen = [layer for layer in whole if kinds[layer] is Kind.expand] or whole
    return Scheme("reference", base, tuple((layer, Fraction(1)) for layer in chosen))


def _left_out(
    graph: Graph, deepest: int, within: int, tried: Sequence[tuple[int, Fraction]], most: int
) -> Iterator[str]:
    """Describe what is not tried because of its memory."""
    count = len(layers(graph))
    if within == deepest < count:
        yield f"layers before {count - deepest}: their biases and those behind them take over {most:,} bytes"
    largest = dict(tried)
    for layer in range(count - within, count):
        whole = _channels(graph, layer, Fraction(1))
        if whole and (layer not in largest or _channels(graph, layer, largest[layer]) != whole):
            above = f" above {largest[layer]}" if layer in largest else ""
            yield f"shares of layer {layer}{above}: with the biases that reach it they take over {most:,} bytes"


def _left_out_by_quick(first: int, depths: Sequence[int]) -> Iterator[str]:
    if first:
        yield f"weights and biases of the layers before {first}"
    yield f"depths of biases other than {', '.join(map(str, depths))}"
    yield "shares other than 1/4 and 1, and of depthwise layers and projections all but 1"


HELD = 4  # one image of four is held back
FEWEST = 8  # images to judge with: with fewer, one image decides


def hold_back(data: Data) -> Data:
    """Split the training images: a quarter of each class, or of all without classes, to test with, the rest to learn.

    The data's own test images are in neither part.
    """
    classes = data.classes if data.label_kind == "classes" else ()  # those of maps are the cells'
    places = _by_class(data.train, max(len(classes), 1))
    for name, of_class in zip(classes, places, strict=False):  # without classes all samples are of one
        if len(of_class) < 2:
            raise DataError(
                f"{data.name} holds {len(of_class)} training image{'' if len(of_class) == 1 else 's'} of {name!r}; one "
                "to learn from and one to judge with are needed: add images, or leave the class out"
            )
    held = sorted(place for of_class in places for place in _spaced(of_class, max(1, len(of_class) // HELD)))
    if len(held) < FEWEST:
        raise DataError(
            f"{data.name} holds {len(data.train)} training images, of which {len(held)} can be held back to judge "
            f"with; at least {FEWEST} are needed: add images, about {HELD * FEWEST} in all"
        )
    kept = set(held)
    rest = (place for place in range(len(data.train)) if place not in kept)
    return replace(data, train=data.train.at(rest), test=data.train.at(held))


def limit_samples(samples: Samples, most: int, classes: int) -> Samples:
    """Return at most `most` of the samples, of each class its share; a class that would have none keeps one."""
    if len(samples) <= most:
        return samples
    chosen = (
        place
        for of_class in _by_class(samples, classes)
        for place in evenly(of_class, max(1, most * len(of_class) // len(samples)))
    )
    return samples.at(sorted(chosen))


def _by_class(samples: Samples, classes: int) -> list[list[int]]:
    places: list[list[int]] = [[] for _ in range(classes)]
    for place, label in enumerate(samples.labels):
        places[label].append(place)
    return places


def _spaced(places: list[int], count: int) -> list[int]:
    """Return `count` of them, each from the middle of a stretch of equal length."""
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]


EXAMPLES = 2  # images that set a program's first exponents, which learning soon corrects: each takes time
SMALL = 16  # devices: a fleet this large is closed where the next trial would slow it down


@dataclass(frozen=True)
class Outcome:
    """Top-1 on the images held back and the mean loss of the last epoch; 0 and None where the run diverged."""

    accuracy: float
    loss: float | None


DIVERGED = Outcome(0.0, None)


@dataclass(frozen=True, eq=False)
class Setup:
    """The model, data and course that all trials of an analysis share."""

    model: Graph
    data: Data  # its test images are those held back
    course: Course

    def run(self, trial: Trial) -> Outcome:
        """Train and test in C on one core, and remove what was built for it."""
        program = compile_trial(self, trial)
        built = Host().build(program.sources)
        try:
            learned = learn(program, self.data, self.course, threads=1)
        except LearningError:  # its loss is not a number
            return DIVERGED
        finally:
            shutil.rmtree(built.parent, ignore_errors=True)
        return Outcome(learned.accuracy, learned.record[-1].loss)

    def on_cores(self, trials: Sequence[Trial], workers: int) -> Results[Trial, Outcome]:
        """Run each in a process: planning a program takes a core as well."""
        yield from share_out(Setup.run, self, trials, workers)

    def fleets(self, trials: Sequence[Trial]) -> list[list[Trial]]:
        """Group trials that begin to learn at about the same layer: what none of them trains is computed once."""
        sizes = [node.out.type.size for node in layers(self.model)]
        grouped: list[list[Trial]] = []
        least = math.inf
        for trial in sorted(trials, key=lambda one: one.scheme.biases):
            behind = sum(sizes[len(sizes) - trial.scheme.biases :])
            if not grouped or len(grouped[-1]) == FLEET or (len(grouped[-1]) >= SMALL and behind > 2 * least):
                grouped.append([])
                least = behind
            grouped[-1].append(trial)
        return grouped

    def run_fleet(self, trials: Sequence[Trial], device: str, workers: int, on_part: PartCallback) -> list[Outcome]:
        """Train and test many programs at once, in PyTorch."""
        from smidgen.simulation import FleetProgress, simulate

        few = replace(self.data, train=self.data.train.spread(EXAMPLES), test=self.data.test.spread(1))
        slim = replace(self, data=few)  # all that compiling needs
        with closing(share_out(compile_trial, slim, trials, workers)) as compiled:
            programs = dict(compiled)

        def report(at: FleetProgress) -> None:
            on_part(at.devices * ((at.epoch - 1) * at.steps + at.step) / (at.epochs * at.steps))

        ordered = [programs[trial] for trial in trials]
        done = simulate(ordered, self.data, self.course, device=device, on_progress=report)
        ends = zip(done.accuracies, done.losses[-1], done.diverged, done.states, strict=True)
        return [
            DIVERGED if gone or not_finite(state) else Outcome(accuracy, loss) for accuracy, loss, gone, state in ends
        ]


def compile_trial(setup: Setup, trial: Trial) -> Program:
    """Compile the program of a trial for this machine."""
    options = Options(len(setup.data.classes), trial.weight_bits, seed=trial.seed)
    images = examples(setup.data.train, pixel_encoding(setup.model), EXAMPLES)
    return compile(setup.model, trial.scheme, Host(), options=options, images=images)
