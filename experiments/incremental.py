"""Classes that arrive one after another, and what a device that learns them knows of all it has seen.

Two classes come first, then one after the other. While a class is learned, its images are shown; of the classes before
it only what memory holds. Memory keeps as many examples of each class, drawn by a reservoir of its own, so that every
image of a class has had the same chance. What is kept of an image is its latent: what the layers before the first that
learns make of it, which a device learns the same bytes from. Here, too, all steps and tests start from latents.

A pass shows every image of the new classes once, and of each class before them as many examples out of memory as the
new ones have images, all in random order: every class has the same share in what is learned. Without memory a pass is
the new classes' images. With all examples kept it is the joint upper bound, of as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Literal

import numpy as np

import smidgen as sm
from smidgen.data import Data, Samples, as_input, examples, pixel_encoding
from smidgen.ir import Array, Graph, Value
from smidgen.ir.rewriting import prune
from smidgen.learning import extend, learned_graph
from smidgen.pipeline import Program
from smidgen.targets.device import Device
from smidgen.training import Options
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, load_scheme, resolve

FIRST = 2  # classes that arrive together, before the others
BATCH = 256  # samples of the step that rates are given for
HeadGrowth = Literal["whole", "extended", "one pass"]


@dataclass(frozen=True)
class Stream:
    """Classes in an order drawn by the seed, and how a device learns from them."""

    data: str
    memory: int | None  # examples of all classes together that are kept; None: all
    seed: int
    examples: int  # of each class
    passes: int
    rate: float  # of a batch of 256
    scheme: str = "99kb"
    head: HeadGrowth = "whole"  # all rows from the start; one more where a class arrives; or made of sums


@dataclass(frozen=True)
class Followed:
    """How many test images of each class, in the order of arrival, are told right after each arrival."""

    tests: tuple[int, ...]
    right: tuple[tuple[int, ...], ...]
    steps: int

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The share that is right of all classes seen so far, after each arrival."""
        return tuple(sum(right) / sum(self.tests[: len(right)]) for right in self.right)

    @property
    def average(self) -> float:
        """The mean of these shares, the average incremental accuracy."""
        return float(np.mean(self.accuracies))

    @property
    def forgotten(self) -> float:
        """What was lost of each class but the last, from its best to the end, on average."""
        last = self.right[-1]
        lost = [
            max(right[i] for right in self.right if i < len(right)) - last[i] for i in range(len(self.right[-2]))
        ]  # fmt: skip
        return float(np.mean([one / count for one, count in zip(lost, self.tests, strict=False)]))


class Memory:
    """Examples of classes by number, each class's a reservoir; all classes share the room evenly."""

    def __init__(self, room: int | None, rng: np.random.Generator) -> None:
        self.room, self._rng = room, rng
        self.held: list[list[int]] = []
        self._offered: list[int] = []

    def begin(self, classes: int) -> None:
        """Make room for so many classes: those there are give up examples by lot."""
        while len(self.held) < classes:
            self.held.append([])
            self._offered.append(0)
        for number, held in enumerate(self.held):
            while len(held) > self.share(number):
                del held[int(self._rng.integers(len(held)))]

    def share(self, number: int) -> float:
        """How many examples a class may have; the first classes take what is left over."""
        if self.room is None:
            return np.inf
        whole, over = divmod(self.room, len(self.held))
        return whole + (number < over)

    def offer(self, number: int, example: int) -> None:
        """Keep an example of a class, or not: each that was offered has the same chance."""
        self._offered[number] += 1
        held, share = self.held[number], self.share(number)
        if len(held) < share:
            held.append(example)
        elif (at := int(self._rng.integers(self._offered[number]))) < len(held):
            held[at] = example


@dataclass(frozen=True, eq=False)
class Cut:
    """A network in two: what never changes while it learns, and the rest, with its scheme."""

    front: Graph
    tail: Graph
    scheme: Scheme

    @property
    def latent_bytes(self) -> int:
        """What an example takes where it is stored."""
        return self.tail.image.type.bytes


def cut(model: Graph, scheme: str) -> Cut:
    """Before the first layer that learns, where a single value is handed on and that is the smallest.

    Of a head alone one layer is left before it, too.
    """
    whole = load_scheme(scheme, model)
    learns = {layer.node.out for layer in resolve(whole, model, 0)}
    first = next((place for place, node in enumerate(model.nodes) if node.out in learns), len(model.nodes) - 2)
    handed = {place: _handed_on(model, place) for place in range(1, first + 1)}
    place = min((p for p, values in handed.items() if len(values) == 1), key=lambda p: handed[p][0].type.bytes)
    (latent,), rest = handed[place], model.nodes[place:]
    read = {value for node in rest for value in node.ins}
    constants = {value: array for value, array in model.constants.items() if value in read}
    tail = replace(model, inputs=(latent,), nodes=rest, constants=constants, preprocessing=None)
    before = len(layers(model)) - len(layers(tail))
    weights = tuple((number - before, part) for number, part in whole.weights)
    front = prune(replace(model, outputs=(latent,), nodes=model.nodes[:place], classes=()))
    return Cut(front, tail, Scheme(whole.name, whole.biases, weights, whole.channels, whole.weight_bits))


def _handed_on(model: Graph, place: int) -> list[Value]:
    """What the nodes from a place on read of those before it."""
    made = {value for node in model.nodes[:place] for value in node.outs} | set(model.inputs)
    return list(dict.fromkeys(v for node in model.nodes[place:] for v in node.ins if v in made))


class Latents:
    """The samples of data as the tail takes them, by their places, each made once."""

    def __init__(self, data: Data, front: Graph, device: Device) -> None:
        encoding = pixel_encoding(front)

        def made(samples: Samples) -> Callable[[int], Array]:
            return cache(lambda place: device.run(as_input(samples.images[place], encoding))[0])

        self.train, self.test = made(data.train), made(data.test)


class Learner:
    """Gives the device that learns, as classes arrive: a program whose head has a row for each from the start."""

    def __init__(self, stream: Stream, parts: Cut, classes: int) -> None:
        self.stream, self.parts, self.classes = stream, parts, classes
        self.program: Program | None = None
        self.device: Device | None = None

    def meet(self, arrived: Data) -> Device:
        if self.device is not None:
            return self.device
        return self.begin(self.parts.tail, arrived, Options(self.classes, seed=self.stream.seed))

    def begin(self, model: Graph, arrived: Data, options: Options, names: tuple[str, ...] = ()) -> Device:
        """Make a program and start it, in place of the one before."""
        images = examples(arrived.train, pixel_encoding(model))
        self.close()
        self.program = sm.compile(
            model, self.parts.scheme, options=options, images=images, class_names=names,
            one_pass=self.stream.head == "one pass",
        )  # fmt: skip
        self.device = self.program.start()
        return self.device

    def close(self) -> None:
        if self.device is not None:
            self.device.close()


class Extending(Learner):
    """A program for the classes so far: one that arrives enters by its prototype, and the program is made anew."""

    def meet(self, arrived: Data) -> Device:
        seed = self.stream.seed
        if self.device is None or self.program is None or self.program.training is None:
            names = arrived.classes
            return self.begin(self.parts.tail, arrived, Options(len(names), seed=seed), names)
        grown = extend(learned_graph(self.program.training, self.device.state()), arrived)
        return self.begin(grown.model, arrived, Options(seed=seed), grown.model.classes)


class OnePass(Learner):
    """A program that observes what arrives and makes its head of all sums, where steps begin again each time.

    Steps of layers end the sums on a device; here they are put back for the next class, as if flash had kept them.
    """

    def __init__(self, stream: Stream, parts: Cut, classes: int) -> None:
        super().__init__(stream, parts, classes)
        self._kept: Mapping[str, Array] = {}
        self._seen = 0  # classes

    def meet(self, arrived: Data) -> Device:
        device = super().meet(arrived)
        if self._kept:
            device.restore(self._kept)
        for latent, label in zip(arrived.train.images, arrived.train.labels, strict=True):
            device.observe(latent[None], self._seen + label)
        device.solve()
        self._kept, self._seen = device.state(), self._seen + len(arrived.classes)
        return device


LEARNERS: Mapping[HeadGrowth, type[Learner]] = {"whole": Learner, "extended": Extending, "one pass": OnePass}


def order_of(stream: Stream, data: Data) -> tuple[int, ...]:
    """The classes in the order in which they arrive."""
    return tuple(int(c) for c in np.random.default_rng((stream.seed, 0)).permutation(len(data.classes)))


def chosen_images(stream: Stream, samples: Samples, label: int) -> list[int]:
    """The images of a class that are shown, in the order in which they come."""
    places = [place for place, one in enumerate(samples.labels) if one == label]
    drawn = np.random.default_rng((stream.seed, 1, label)).permutation(len(places))
    return [places[i] for i in drawn[: stream.examples]]


def follow(stream: Stream, parts: Cut, data: Data, latents: Latents, say: Callable[[str], None]) -> Followed:
    """Run a stream on this machine's C."""
    rng, order = np.random.default_rng((stream.seed, 2)), order_of(stream, data)
    shown = [chosen_images(stream, data.train, label) for label in order]
    asked = [[i for i, one in enumerate(data.test.labels) if one == label] for label in order]
    names = [f"class {data.classes[label]}" for label in order]  # which no counting gives
    memory, right, steps = Memory(stream.memory, rng), list[tuple[int, ...]](), 0
    learner = LEARNERS[stream.head](stream, parts, len(order))
    for before, seen in arrivals(len(order)):
        device = learner.meet(_arrived(names[before:seen], shown[before:seen], latents))
        memory.begin(seen)
        for number, place in lessons(stream, shown[before:seen], memory, rng):
            device.train(latents.train(place), number, stream.rate / BATCH)
            steps += 1
        for number in range(before, seen):
            for place in shown[number]:
                memory.offer(number, place)
        right.append(tuple(sum(device.predict(latents.test(i)) == n for i in asked[n]) for n in range(seen)))
        say(f"{stream} after {seen} classes: {sum(right[-1]) / sum(map(len, asked[:seen])):.1%}")
    learner.close()
    return Followed(tuple(map(len, asked)), tuple(right), steps)


def arrivals(classes: int) -> Iterator[tuple[int, int]]:
    """The numbers of the classes that arrive together, [from, to)."""
    yield 0, min(FIRST, classes)
    yield from ((number, number + 1) for number in range(FIRST, classes))


def _arrived(names: Sequence[str], places: Sequence[Sequence[int]], latents: Latents) -> Data:
    """What is known of classes that arrive."""
    tensors = tuple(latents.train(place)[0] for some in places for place in some)
    samples = Samples(tensors, tuple(number for number, some in enumerate(places) for _ in some))
    return Data("classes that arrive", tuple(names), samples, samples)


def lessons(
    stream: Stream, new: Sequence[Sequence[int]], memory: Memory, rng: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """The steps while new classes are learned: the number of a class, and which image of it."""
    first, each = len(memory.held) - len(new), max(map(len, new))
    old = [_around(held, rng) for held in memory.held[:first]]
    for _ in range(stream.passes):
        steps = [(first + i, place) for i, places in enumerate(new) for place in places]
        steps += [(number, place) for number, draws in enumerate(old) for place in islice(draws, each)]
        yield from (steps[i] for i in rng.permutation(len(steps)))


def _around(held: Sequence[int], rng: np.random.Generator) -> Iterator[int]:
    """All examples in random order, again and again; none where nothing is held."""
    while held:
        yield from (held[i] for i in rng.permutation(len(held)))
