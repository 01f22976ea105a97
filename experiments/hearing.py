"""Sound measured: what the front end costs on a chip, and a network that learns words there as it does here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.data import Data, as_input, examples, pixel_encoding
from smidgen.data.audio import FRONT_ENDS, middle
from smidgen.errors import InputError
from smidgen.ir import Builder, Graph, QParams, Type
from smidgen.ir.log_mel import LogMel
from smidgen.learning import Course, top1
from smidgen.numerics.log_mel import log_mel, log_mel_tables
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardDevice, BoardTarget
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.training.scheme import Scheme

KEYWORDS = (  # what the network of MLPerf Tiny scores, in order
    "down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown",
)  # fmt: skip
SHAPES = {"mfcc": (1, 49, 10, 1), "yamnet": (1, 96, 64, 1)}  # of the networks that each is the front end of


@dataclass(frozen=True)
class FrontEndCost:
    """A front end on a chip."""

    name: str
    board: str
    instructions: int  # for a second of sound
    at_most: int  # instructions for one frame
    sram: int  # bytes: samples, features, working memory
    flash: int  # bytes of its tables
    exact: bool  # the bytes of numpy


def hearing_network(spec: LogMel, shape: tuple[int, ...]) -> Graph:
    """A front end, and one layer so that there is a network behind it."""
    g, size = Builder("hearing", spec), math.prod(shape)
    x = g.emit(ops.Reshape((1, size)), g.input("x", Type(shape, "int8", QParams.per_tensor(0.5, 40))))
    w = g.constant("w", np.ones((2, size), np.int8), QParams.per_tensor(0.01))
    b = g.constant("b", np.zeros(2, np.int32))
    return g.graph(g.emit(ops.Dense(), x, w, b, q=QParams.per_tensor(2.0)))


def measure_front_end(name: str, board: str, seed: int = 0) -> FrontEndCost:
    """What a front end costs on a board, by noise: the instructions hardly depend on what is heard."""
    spec, shape = FRONT_ENDS[name], SHAPES[name]
    program = compile(hearing_network(spec, shape), target=BoardTarget(BOARDS[board]))
    samples = np.random.default_rng(seed).integers(-9999, 9999, spec.samples(shape)).astype(np.int16)
    tables = vars(log_mel_tables(spec)).values()
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        exact = np.array_equal(device.audio_features(samples), log_mel(samples, spec, program.graph.image.type))
        frames, longest = spec.frames(shape), device.counts().total
        whole = device.front_end_instructions / frames * spec.rate / spec.hop
    flash = sum(table.nbytes for table in tables if isinstance(table, np.ndarray))
    return FrontEndCost(name, board, round(whole), longest, program.sources.audio_bytes, flash, exact)


@dataclass(frozen=True)
class Recognized:
    """How many recordings of each word a network takes for that word, as it came."""

    words: dict[str, tuple[int, int]]  # right, of so many

    @property
    def share(self) -> float:
        return sum(right for right, _ in self.words.values()) / sum(count for _, count in self.words.values())


def recognize(graph: Graph, data: Data, names: tuple[str, ...] = KEYWORDS) -> Recognized:
    """Recordings of a network's own words, by the names of what it scores."""
    if unknown := set(data.classes) - set(names):
        raise InputError(f"{min(unknown)!r} is not a word that {graph.name} knows; those are {', '.join(names)}")
    encoding, words = pixel_encoding(graph), dict.fromkeys(data.classes, (0, 0))
    with compile(graph).start() as device:
        for samples in (data.train, data.test):
            for sound, label in zip(samples.images, samples.labels, strict=True):
                word = data.classes[label]
                right, count = words[word]
                words[word] = right + (names[device.predict(as_input(sound, encoding))] == word), count + 1
    return Recognized(words)


@dataclass(frozen=True)
class LearnedAlike:
    """The same steps on this machine and on a board, which heard the sound itself."""

    steps: int
    before: float  # top-1 of the test recordings
    after: float
    first_loss: float  # mean of the first quarter of the steps
    last_loss: float  # and of the last
    heard: int  # instructions of the front end for one recording
    step: int  # instructions of the last step
    sram: int  # bytes on the board, all there is
    exact: bool  # features, losses and all that was learned


def learn_alike(graph: Graph, data: Data, scheme: Scheme | str, steps: int, rate: float, seed: int = 0) -> LearnedAlike:
    """Learn recordings here and on the emulated Cortex-M7, which is given samples, and compare every byte."""
    spec = graph.preprocessing
    assert isinstance(spec, LogMel)
    options, images = Options(len(data.classes), seed=seed), examples(data.train, pixel_encoding(graph))
    here, there = (compile(graph, scheme, target, options=options, images=images) for target in (Host(), BoardTarget()))
    course, exact, losses = Course(1, rate, schedule="constant", seed=seed), True, []
    with here.start() as host, there.start() as board:
        assert isinstance(board, BoardDevice)
        before = top1(host, data.test)
        for index in course.order(0, len(data.train))[:steps]:
            samples, label = middle(data.train.images[index], spec, graph.image.type.shape), data.train.labels[index]
            heard = board.audio_features(samples)
            exact &= np.array_equal(heard, as_input(samples, pixel_encoding(graph)))
            losses.append(host.train(as_input(samples, pixel_encoding(graph)), label, rate))
            exact &= board.train(heard, label, rate) == losses[-1]
        step, kept, learned = board.counts().total, host.state(), board.state()
        exact &= all(np.array_equal(kept[name], learned[name]) for name in kept)
        part = max(len(losses) // 4, 1)
        return LearnedAlike(
            len(losses), before, top1(host, data.test), float(np.mean(losses[:part])), float(np.mean(losses[-part:])),
            board.front_end_instructions, step, board.memory().bytes, exact,
        )  # fmt: skip
