"""Samples of a test as a report shows them: a small picture, what is true, and what the model said before and after."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

from smidgen.data import Data, Samples
from smidgen.inference import Prediction, predict
from smidgen.ir import Array, Graph
from smidgen.results.report.parts import Answer, Gallery, ShownSample

SHOWN = 12  # samples
SIDE = 176  # pixels of a picture's short side: twice what the page shows, for screens of many pixels
SMALL = 64  # pixels: up to this side a picture is kept as it is
QUALITY = 82  # of JPEG
LONGEST = 90  # letters of an answer


def show_samples(before: Graph, after: Graph, data: Data) -> Gallery:
    """The first samples of each class, in turn, as two models see them; of a stream its beginning."""
    streams = bool(after.variables)
    places = list(range(min(SHOWN, len(data.test))) if streams else _in_turn(data.test, len(data.classes)))
    samples = data.test.at(places)
    found = (predict(model, samples.images, top=1) for model in (before, after))
    first, last = (one.predictions for one in found)
    shown = tuple(_shown(data, samples, row, place, first[row], last[row]) for row, place in enumerate(places))
    said = "What the model said of samples that it did not learn from, before it learned and after."
    if data.label_kind == "classes":
        before_right, after_right = (sum(map(bool, answers)) for answers in _rights(shown))
        said += f" Of these {len(shown)}, {before_right} were right before and {after_right} are after."
    return Gallery(shown, said)


def _rights(shown: tuple[ShownSample, ...]) -> tuple[list[bool | None], list[bool | None]]:
    return [one.before.right for one in shown], [one.after.right for one in shown]


def _in_turn(samples: Samples, classes: int) -> Iterator[int]:
    """The first of each class, then the second of each, until there are enough."""
    if classes < 2 or samples.targets:
        yield from range(min(SHOWN, len(samples)))
        return
    seen: dict[int, int] = {}
    ranked = []
    for place, label in enumerate(samples.labels):
        seen[label] = seen.get(label, 0) + 1
        ranked.append((seen[label], label, place))
    yield from (place for _, _, place in sorted(ranked)[:SHOWN])


def _shown(data: Data, samples: Samples, row: int, place: int, before: Prediction, after: Prediction) -> ShownSample:
    label = samples.labels[row] if data.label_kind == "classes" else None
    truth = "" if label is None else data.classes[label]
    if data.label_kind == "vectors":
        truth = _shortened(", ".join(f"{number:.4g}" for number in samples.targets[row]))
    answers = (_answer(one, label) for one in (before, after))
    return ShownSample(f"test sample {place}", picture(samples.images[row]), truth, *answers)


def _answer(said: Prediction, label: int | None) -> Answer:
    right = said.classes[0].index == label if said.classes and label is not None else None
    return Answer(_shortened(said.said), right)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def picture(sample: Array) -> str:
    """The middle of a picture as a data address, small ones as they are; empty for a sample that is none."""
    if sample.dtype != np.uint8 or sample.ndim != 3 or sample.shape[2] not in (1, 3):
        return ""
    side = min(sample.shape[:2])
    top, left = ((length - side) // 2 for length in sample.shape[:2])
    image = Image.fromarray(np.squeeze(sample[top : top + side, left : left + side]))
    kept, kind = io.BytesIO(), "png" if side <= SMALL else "jpeg"
    if side > SIDE:
        image = image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    if kind == "png":
        image.save(kept, "PNG", optimize=True)
    else:
        image.save(kept, "JPEG", quality=QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(kept.getvalue()).decode()}"
