"""Candidates judged on the user's own samples: each learns from some of them and is scored on others it never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Literal

import numpy as np

from smidgen.callbacks import ignore
from smidgen.data import Samples, as_input, examples, pixel_encoding
from smidgen.ir import Array, Graph, Value, evaluate, roles_of
from smidgen.ir.rewriting import producers, prune
from smidgen.learning import Course
from smidgen.learning.run import not_finite
from smidgen.learning.testing import label_of, score_samples
from smidgen.numerics.one_pass import solve, total
from smidgen.pipeline import Program, compile
from smidgen.selection.cuts import Back, back_of, front_of
from smidgen.selection.folds import Fold
from smidgen.selection.launchers import FLEET, PartCallback, Results
from smidgen.selection.workers import share_out
from smidgen.targets.device import FEWEST, Device
from smidgen.targets.device import share_out as share_devices
from smidgen.threads import in_order, threads_for
from smidgen.training import Options, build_training
from smidgen.training.scheme import Scheme
from smidgen.training.weights import BIAS, WEIGHTS

if TYPE_CHECKING:
    from smidgen.simulation.courses import Lane

Start = Literal["new head", "kept head", "one pass"]
EXAMPLES = 4  # samples that set a program's first exponents
VIEWS = 12  # of a sample, augmented, that trials learn from by turns: each takes a pass through the frozen layers
VIEW_BYTES = 1 << 28  # of what frozen layers made of them, at most


@dataclass(frozen=True)
class Recipe:
    """A way to learn: what learns, what the head starts as, and the SRAM that it takes on the board."""

    scheme: Scheme
    start: Start
    sram_bytes: int
    steps: bool = True  # False: one pass is all, or with a kept head nothing is learned
    streamed: bool = True  # the board receives the image row by row
    most: bool = False  # its scheme was searched for the whole budget
    on_board: bool = True  # False: the board has no room for the sums of one pass, which this machine does

    @property
    def name(self) -> str:
        """The candidate in words."""
        if not self.steps:
            return self.once or "the model as it is"
        return f"{self.once}, then {self.scheme.name}" if self.once else self.scheme.name

    @property
    def once(self) -> str:
        """One pass in words, where the candidate begins with it."""
        return ("one pass" if self.on_board else "one pass here") if self.start == "one pass" else ""


@dataclass(frozen=True)
class Run:
    """One run of a candidate: its rate and steps, the samples it learns from, and those that judge it."""

    candidate: int
    learning_rate: float  # of one sample; 0 where no step is taken
    steps: int
    fold: int
    half: bool = False  # learns from every second sample of a class, to see what more of them are worth


Scores = tuple[float, ...] | None  # of each sample that judges, higher is better; None where the run diverged


@dataclass(frozen=True, eq=False)
class Latents:
    """Outputs of the frozen front of a cut, of every sample and of augmented views of those that are learned from."""

    plain: Array  # [samples, …]
    views: Array  # [views, samples that are learned from, …]


@dataclass(frozen=True, eq=False)
class Features:
    """The inputs of a head, above their zero point, and what one step of them counts."""

    x: Array  # [samples, features]
    scale: float


@dataclass(frozen=True, eq=False)
class Bench:
    """Everything that runs share."""

    model: Graph
    options: Options
    course: Course  # whose rate and epochs are those of no run
    candidates: tuple[Recipe, ...]
    samples: Samples
    folds: tuple[Fold, ...]
    backs: tuple[Back, ...]  # by candidate
    latents: Mapping[str, Latents]  # by the name of the value at the cut; none where nothing is cut off
    features: Features | None  # of every sample, where some candidate begins with one pass
    programs: dict[Scheme, Program] = field(default_factory=dict)
    _free: dict[Scheme, list[Device]] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all but the devices, which are of one process."""
        return Bench, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    def run(self, run: Run) -> Scores:
        """Learn, and score the samples that judge; threads may run several at once."""
        with self._device(run) as device:
            device.restore(self._start(run, device.graph))
            if not self._learn(device, run):
                return None
            return score_samples(device, self._held(self.backs[run.candidate], self.folds[run.fold].held))

    def on_cores(self, runs: Sequence[Run], workers: int) -> Results[Run, Scores]:
        """Yield the scores of each run, from threads, which share devices."""
        with closing(in_order(self.run, runs, workers)) as results:
            yield from zip(runs, results, strict=True)

    def fleets(self, runs: Sequence[Run]) -> list[list[Run]]:
        """Group runs of as many steps behind the same cut."""
        alike: dict[tuple[int, Value], list[Run]] = {}
        for run in runs:
            alike.setdefault((run.steps, self.backs[run.candidate].value), []).append(run)
        return [some[at : at + FLEET] for some in alike.values() for at in range(0, len(some), FLEET)]

    def run_fleet(self, runs: Sequence[Run], device: str, workers: int, on_part: PartCallback) -> list[Scores]:
        """Run a group on a fleet whose devices learn apart; in C what no fleet can."""
        if self.options.loss != "softmax" or self.model.variables:
            return [scores for _, scores in self.on_cores(runs, workers)]
        from smidgen.simulation.courses import learn_apart

        def report(done: int) -> None:
            on_part(len(runs) * done / max(runs[0].steps, 1))

        found = learn_apart([self._lane(run) for run in runs], device, report)
        return [
            None
            if classes is None
            else tuple(float(c == self.samples.labels[place]) for c, place in zip(classes, held, strict=True))
            for classes, held in zip(found, (self.folds[run.fold].held for run in runs), strict=True)
        ]

    def prepare(self, runs: Sequence[Run], workers: int) -> None:
        """Compile the programs of runs that have none yet, in so many processes."""
        wanted = {self.candidates[run.candidate].scheme: self.backs[run.candidate] for run in runs}
        parts = [
            _Part(scheme, back, self._examples(back)) for scheme, back in wanted.items() if scheme not in self.programs
        ]
        with closing(share_out(_compiled, self.options, parts, workers)) as compiled:
            self.programs.update((part.scheme, program) for part, program in compiled)

    def close(self) -> None:
        """Give the memory of all devices back."""
        for devices in self._free.values():
            for device in devices:
                device.close()

    def _start(self, run: Run, graph: Graph) -> dict[str, Array]:
        """Return the state that a run begins with."""
        first: dict[str, Array] = {v.name: array for v, array in graph.state.items()}
        once = self.candidates[run.candidate].start == "one pass"
        return first | self._head(run, graph.scores.type.shape[1]) if once else first

    def _learn(self, device: Device, run: Run) -> bool:
        """Take the steps of a run; return whether all numbers stayed finite."""
        roles, view = roles_of(device.graph), self._views(self.backs[run.candidate])
        for epoch, place, rate in self._steps(run):
            loss = device.train(view(epoch, place), label_of(roles, self.samples, place), rate)
            if not math.isfinite(loss):
                return False
        return not_finite(device.state()) is None

    def _steps(self, run: Run) -> Iterator[tuple[int, int, float]]:
        """Yield the epoch, the sample and the rate of each step."""
        places, taken = self._places(run), 0
        course = replace(self.course, epochs=1, learning_rate=run.learning_rate)
        for epoch in count():
            for index in course.order(epoch, len(places)):
                if taken == run.steps:
                    return
                yield epoch, places[index], course.rate(0, taken, run.steps)
                taken += 1

    def _lane(self, run: Run) -> Lane:
        """Return a run as a device of a fleet."""
        from smidgen.simulation.courses import Lane

        graph, back, steps = self._program(run).graph, self.backs[run.candidate], list(self._steps(run))
        view, held = self._views(back), self._held(back, self.folds[run.fold].held).images
        encoding = pixel_encoding(back.model)
        return Lane(
            graph,
            self._start(run, graph),
            np.array([self.samples.labels[place] for _, place, _ in steps], np.int64),
            np.array([rate for *_, rate in steps], np.float32),
            lambda some: np.concatenate([view(*steps[i][:2]) for i in some]),
            lambda some: np.concatenate([as_input(held[i], encoding) for i in some]),
            len(held),
        )

    def _views(self, back: Back) -> Callable[[int, int], Array]:
        """Return what gives a sample as an epoch shows it to the back of a cut."""
        if back.value == self.model.image:
            encoding = pixel_encoding(self.model)
            return lambda epoch, place: self.course.image(self.samples.images[place], encoding, epoch, place)
        views = self.latents[back.value.name].views
        return lambda epoch, place: views[epoch % len(views), self.learned[place]]

    def _places(self, run: Run) -> tuple[int, ...]:
        """Return the samples that a run learns from."""
        train = self.folds[run.fold].train
        if not run.half:
            return train
        of_class: dict[int, list[int]] = {}
        for place in train:
            of_class.setdefault(self.samples.labels[place], []).append(place)
        return tuple(sorted(place for some in of_class.values() for place in some[::2]))

    def _head(self, run: Run, classes: int) -> dict[str, Array]:
        """Return the head that one pass over the samples of a fold makes."""
        features, places = self.features, list(self._places(run))
        assert features is not None
        sums = total(features.x[places], np.array(self.samples.labels)[places], classes)
        first = np.zeros(sums.m.shape, np.float32), np.zeros(classes, np.float32)
        _, w, b = solve(sums, features.scale, *first)
        return {WEIGHTS: w, BIAS: b}

    @cached_property
    def learned(self) -> dict[int, int]:
        """The samples that some run learns from, each with its place among them."""
        return _numbered(self.folds)

    @contextmanager
    def _device(self, run: Run) -> Iterator[Device]:
        """Lend a device with a candidate's program: one that is free, or another."""
        scheme = self.candidates[run.candidate].scheme
        with self._lock:
            free = self._free.setdefault(scheme, [])
            device = free.pop() if free else self._program(run).start()
        try:
            yield device
        finally:
            free.append(device)

    def _program(self, run: Run) -> Program:
        """Return a candidate's program, compiled by `prepare` or now."""
        self.prepare((run,), 1)
        return self.programs[self.candidates[run.candidate].scheme]

    def _examples(self, back: Back) -> tuple[Array, ...]:
        some = range(0, len(self.samples), max(1, len(self.samples) // EXAMPLES))
        return examples(self._held(back, some[:EXAMPLES]), pixel_encoding(back.model))

    def _held(self, back: Back, places: Sequence[int]) -> Samples:
        """Return samples as the back of a cut takes them."""
        found = self.samples.at(places)
        if back.value == self.model.image:
            return found
        latents = self.latents[back.value.name].plain
        return replace(found, images=tuple(latents[place][0] for place in places))


@dataclass(frozen=True, eq=False)
class _Part:
    """A scheme behind a cut, and samples for its first exponents."""

    scheme: Scheme
    back: Back
    images: tuple[Array, ...]


def _compiled(options: Options, part: _Part) -> Program:
    return compile(part.back.model, part.back.scheme(part.scheme), options=options, images=part.images)


def _numbered(folds: tuple[Fold, ...]) -> dict[int, int]:
    learned = sorted({place for fold in folds for place in fold.train})
    return {place: row for row, place in enumerate(learned)}


def make_bench(
    model: Graph,
    options: Options,
    course: Course,
    candidates: tuple[Recipe, ...],
    samples: Samples,
    folds: tuple[Fold, ...],
    steps: int,
    on_progress: Callable[[int, int], None] = ignore,
) -> Bench:
    """Compute what frozen layers make of every sample, for runs of up to `steps` steps."""
    backs = tuple(back_of(model, one.scheme, options.loss) for one in candidates)
    values = tuple(dict.fromkeys(back.value for back in backs if back.value != model.image))
    epochs = max(1, math.ceil(steps / min(len(fold.train) for fold in folds)))
    learned = _numbered(folds)
    taken = len(learned) * sum(v.type.bytes for v in values)
    views = 0 if course.augment is None else max(1, min(epochs, VIEWS, VIEW_BYTES // max(taken, 1)))
    shown: list[tuple[int | None, int]] = [(None, place) for place in range(len(samples))]
    shown += [(view, place) for view in range(views) for place in learned]
    made = _through(model, values, shown, samples, course, on_progress) if values else {}
    latents = {}
    for name, found in made.items():
        plain = found[: len(samples)]
        seen = (
            found[len(samples) :].reshape(-1, len(learned), *found.shape[1:]) if views else plain[None, list(learned)]
        )
        latents[name] = Latents(plain, seen)
    once = any(one.start == "one pass" for one in candidates)
    head = next((i for i, one in enumerate(candidates) if once and not one.scheme.biases), None)
    features = None
    if head is not None:
        back = backs[head]
        encoding, cut = pixel_encoding(model), back.value.name in latents
        inputs = latents[back.value.name].plain if cut else [as_input(one, encoding) for one in samples.images]
        features = _features(back, candidates[head].scheme, options, inputs)
    return Bench(model, options, course, candidates, samples, folds, backs, latents, features)


def _features(back: Back, head: Scheme, options: Options, inputs: Iterable[Array]) -> Features:
    """Return what the head reads of every sample, as one pass counts it."""
    forward = build_training(back.model, back.scheme(head), options, None).forward
    made_by = producers(forward)
    flat = made_by[made_by[forward.scores].ins[0]].ins[0]
    pooled = prune(replace(forward, outputs=(flat,), state={}))
    found = [evaluate(pooled, x)[0] if pooled.nodes else x for x in inputs]
    return Features(np.concatenate(found).astype(np.int16) - flat.type.zero, flat.type.scale)


def _through(
    model: Graph,
    values: tuple[Value, ...],
    shown: Sequence[tuple[int | None, int]],
    samples: Samples,
    course: Course,
    on_progress: Callable[[int, int], None],
) -> dict[str, Array]:
    """Return what the front makes of views of samples, by the values' names; view None is the sample's middle."""
    encoding = pixel_encoding(model)

    def run(device: Device, one: tuple[int | None, int]) -> tuple[Array, ...]:
        view, place = one
        sample = samples.images[place]
        return device.run(as_input(sample, encoding) if view is None else course.image(sample, encoding, view, place))

    found = {v.name: np.empty((len(shown), *v.type.shape), v.type.dtype) for v in values}
    with (
        compile(front_of(model, values)).start() as device,
        closing(share_devices(device, run, shown, threads_for(len(shown), FEWEST))) as results,
    ):
        for at, made in enumerate(results):
            for v, array in zip(values, made, strict=True):
                found[v.name][at] = array
            on_progress(at + 1, len(shown))
    return found
