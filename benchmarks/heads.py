"""Heads that are kept and heads that are extended: what they are worth, on networks and photographs that others made.

`kept`: MLPerf Tiny's person detector on Visual Wake Words, as it is and after learning from where it is; beside it
LiteRT's accuracy. `extended`: MCUNet-5FPS knows five flowers and a sixth is added from 5, 10 and 20 photographs: from
its prototype alone, after learning from these photographs alone, and with those of the five flowers. Each of some
flowers is the sixth in turn; figures are means over them. The extended head also learns on the emulated board, whose
bytes are held to this machine's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import SHARED, arguments_of, report, start, there
from smidgen.data import Data, Samples, as_input, examples, pixel_encoding
from smidgen.ir import Graph
from smidgen.learning import Extended, extend, learn, top1

sys.path.append(str(Path(__file__).parents[1]))
from experiments.paper.sources import some_classes

DETECTOR = SHARED / "models" / "mlperf-tiny" / "vww_96_int8.tflite"
FLOWERS = (45, 50, 72, 73, 76, 88)  # those with the most photographs
PHOTOGRAPHS = (5, 10, 20)
BATCH = 256  # samples of the step that rates are given for
KNOWN_EPOCHS, KNOWN_RATE = 30, 0.4
ALONE_EPOCHS, ALONE_RATE = 5, 0.02  # of the new flower's photographs alone: a few small steps
TOGETHER_EPOCHS, TOGETHER_RATE = 20, 0.4
BOARD, BOARD_STEPS, BOARD_RATE = "cortex-m7", 10, 1e-4


@dataclass(frozen=True)
class Kept:
    """Top-1 in percent before and after learning by a scheme; LiteRT's is that of the file."""

    scheme: str
    head: str
    before: float
    after: float
    litert: float


@dataclass(frozen=True)
class Added:
    """Top-1 in percent of the flowers known before and of the new one, mean over which is new."""

    photographs: int
    how: str
    known: float
    new: float
    on_board: str = ""


def say(words: object) -> None:
    print(words, file=sys.stderr, flush=True)


def kept(epochs: int) -> Iterator[Kept]:
    """The detector with both heads, by itself and with the six layers before it."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    graph, data = sm.load(there(DETECTOR)), sm.load_data(there(SHARED / "data" / "vww.zip"))
    interpreter = Interpreter(str(DETECTOR), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    (taken,), (given,) = interpreter.get_input_details(), interpreter.get_output_details()
    right = 0
    for image, label in zip(data.test.images, data.test.labels, strict=True):
        interpreter.set_tensor(taken["index"], as_input(image, pixel_encoding(graph)))
        interpreter.invoke()
        right += int(interpreter.get_tensor(given["index"]).argmax()) == label
    for scheme, rate in (("head", 10.0), ("last:6", 2.0)):
        for dtype in ("int8", "float32"):
            options = sm.Options(len(data.classes), head_dtype=dtype)
            program = sm.compile(graph, scheme, options=options, images=examples(data.train, pixel_encoding(graph)))
            learned = learn(program, data, sm.Course(epochs, rate / BATCH, test_every=epochs))
            assert learned.before is not None
            assert learned.accuracy is not None
            one = Kept(scheme, dtype, 100 * learned.before, 100 * learned.accuracy, 100 * right / len(data.test))
            say(one)
            yield one


def extended(flowers: int) -> list[Added]:
    """Means over which flower is new."""
    whole = sm.load_data(there(SHARED / "data" / "flowers102.zip"))
    found: dict[tuple[int, str], list[Added]] = {}
    for sixth in FLOWERS[:flowers]:
        chosen = some_classes(whole, (*(f for f in FLOWERS if f != sixth), sixth))
        for one in _added(chosen):
            found.setdefault((one.photographs, one.how), []).append(one)
            say((sixth, one))
    return [
        Added(
            count, how, float(np.mean([one.known for one in some])), float(np.mean([one.new for one in some])),
            "equal" if all(one.on_board == "equal" for one in some) else some[0].on_board,
        )
        for (count, how), some in sorted(found.items())
    ]  # fmt: skip


def _added(data: Data) -> Iterator[Added]:
    """The last class added to the others, which a network has learned."""
    known = _of(data, range(5))
    graph = _learned(sm.load("mcunet-5fps"), known, "last:6", KNOWN_EPOCHS, KNOWN_RATE)
    yield Added(0, "five known flowers", 100 * _top1(graph, known.test), 0.0)
    for count in PHOTOGRAPHS:
        few = _first(_of(data, [5]).train, count)
        alone = extend(graph, Data(data.name, data.classes[5:], _numbered(few, 0), _numbered(few, 0)))
        yield _judged(alone.model, data, count, "prototype", _same_on_board(alone))
        learned = _learned(alone.model, alone.data, "head", ALONE_EPOCHS, ALONE_RATE)
        yield _judged(learned, data, count, "prototype, then these photographs")
        both = Samples((*known.train.images, *few.images), (*known.train.labels, *few.labels))
        together = extend(graph, Data(data.name, data.classes, both, data.test))
        learned = _learned(together.model, together.data, "head", TOGETHER_EPOCHS, TOGETHER_RATE)
        yield _judged(learned, data, count, "prototype, then all photographs")


def _learned(graph: Graph, data: Data, scheme: str, epochs: int, rate: float) -> Graph:
    images = examples(data.train, pixel_encoding(graph))
    options = sm.Options(len(data.classes))
    program = sm.compile(graph, scheme, options=options, images=images, class_names=data.classes)
    return learn(program, data, sm.Course(epochs, rate / BATCH, test_every=epochs)).model


def _judged(graph: Graph, data: Data, count: int, how: str, on_board: str = "") -> Added:
    known, new = (100 * _top1(graph, _of(data, which).test) for which in (range(5), [5]))
    return Added(count, how, known, new, on_board)


def _top1(graph: Graph, samples: Samples) -> float:
    with sm.compile(graph).start() as device:
        return top1(device, samples)


def _same_on_board(extended: Extended) -> str:
    """Whether some steps leave the same bytes on the board as here, and give the same losses."""
    samples, states = extended.data.train, []
    for target in ("host", BOARD):
        program = sm.compile(extended.model, "head", target, options=sm.Options(), streamed_input=False)
        with program.start() as device:
            encoding = pixel_encoding(device.graph)
            losses = [
                device.train(
                    as_input(samples.images[i % len(samples)], encoding), samples.labels[i % len(samples)], 1e-4
                )
                for i in range(BOARD_STEPS)
            ]
            states.append((losses, device.state()))
    (here, state), (there_, other) = states
    same = here == there_ and all(np.array_equal(state[name], other[name]) for name in state)
    return "equal" if same else "DIFFERENT"


def _of(data: Data, classes: range | list[int]) -> Data:
    """The samples of some classes, under the numbers they have."""
    parts = (part.at(i for i, label in enumerate(part.labels) if label in classes) for part in (data.train, data.test))
    return Data(data.name, data.classes[: max(classes) + 1], *parts)


def _first(samples: Samples, count: int) -> Samples:
    return samples.at(range(count))


def _numbered(samples: Samples, label: int) -> Samples:
    return Samples(samples.images, (label,) * len(samples))


def show_kept(results: list[Kept]) -> None:
    table = Table("learns", "head", "LiteRT %", "before %", "after %")
    for one in results:
        table.add_row(one.scheme, one.head, *(f"{x:.2f}" for x in (one.litert, one.before, one.after)))
    Console().print(table)


def show_added(results: list[Added]) -> None:
    table = Table("photographs", "how", "known flowers %", "new flower %", "board")
    for one in results:
        new = f"{one.new:.1f}" if one.photographs else ""
        table.add_row(str(one.photographs or ""), one.how, f"{one.known:.1f}", new, one.on_board)
    Console().print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("what", choices=("kept", "extended"))
    parser.add_argument("--epochs", type=int, default=4, help="of `kept`")
    parser.add_argument("--flowers", type=int, default=6, help="how many flowers are the new one in turn")
    given = parser.parse_args()
    if given.what == "kept":
        report(list(kept(given.epochs)), show_kept, given.json)
    else:
        report(extended(given.flowers), show_added, given.json)


if __name__ == "__main__":
    start(main)
