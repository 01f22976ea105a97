"""The verbs info, run, import, quantize, test and predict."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np

from smidgen.cli import verbs
from smidgen.cli.shared import check_file, load_model, memory_bytes, read_data, read_model
from smidgen.cli.terminal import print_rich, progress, say, show, spinner
from smidgen.data import load_images, load_labelled
from smidgen.data.audio import with_front_end
from smidgen.data.files import parse_npy, read_whole, write_whole
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.inference import predict, test
from smidgen.ir import Array, Graph, check_inputs, evaluate
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning.sums import measuring
from smidgen.pipeline import compile
from smidgen.quantization import CONVENTIONS, Recipe, quantize, scored_classes
from smidgen.results.inspection import describe
from smidgen.results.report.learned import draw_tested
from smidgen.results.summaries import QuantizedFile, RunSummary, WrittenModel, largest

TESTED = 256  # labelled samples at most


def info_(asked: verbs.Info) -> None:
    show(describe(load_model(asked, asked.model)), asked.as_json)


def run_(asked: verbs.Run) -> None:
    for path in asked.outputs or ():
        check_file(path, asked.force)
    graph = load_model(asked, asked.model)
    files: list[Path] | list[None] = asked.outputs or [None] * len(graph.outputs)
    most = memory_bytes(asked.memory)
    arrays = tuple(parse_npy(read_whole(path, most), str(path)) for path in asked.inputs)
    check_inputs(graph, arrays)
    if len(files) != len(graph.outputs):
        raise InputError(
            f"{graph.name} has {len(graph.outputs)} outputs, {len(files)} files were given for them; give one per "
            "output, or none"
        )
    with spinner(f"running {graph.name} on {asked.target}"):
        results = _compute(graph, arrays, asked.target)
    shown = []
    for value, array, file in zip(graph.outputs, results, files, strict=True):
        if file:
            np.save(data := BytesIO(), array, allow_pickle=False)
            write_whole(file, data.getvalue())
        shown.append(largest(value, array, str(file) if file else None))
    show(RunSummary(graph.name, asked.target, tuple(shown)), asked.as_json)


def _compute(graph: Graph, arrays: tuple[Array, ...], target: str) -> tuple[Array, ...]:
    if target == "reference":
        return evaluate(graph, *arrays)
    with compile(graph, target=target).start() as device:
        return device.run(*arrays)


def import_(asked: verbs.Import) -> None:
    check_writable(asked.output, asked.plain)
    check_file(asked.output, asked.force)
    with spinner(f"importing {asked.source}"):
        graph = load_model(asked, asked.source)
        export_model(graph, asked.output, asked.plain)
    size, summary = asked.output.stat().st_size, describe(graph)
    result = WrittenModel(
        graph.name, str(asked.output), size, len(summary.layers), summary.macs, summary.parameters, graph.notes
    )
    show(result, asked.as_json)


def quantize_(asked: verbs.Quantize) -> None:
    check_writable(asked.output)
    check_file(asked.output, asked.force)
    if asked.images < 1:
        raise InputError(f"{asked.images} images are too few; give at least 8, better about 100")
    recipe = Recipe(asked.method, asked.percentile, asked.equalise, asked.correct).checked()
    with spinner(f"reading {asked.source}"):
        most = memory_bytes(asked.memory)
        graph = load_model(asked, asked.model)
        images = load_images(asked.source, asked.images, most, asked.label)
        graph = with_front_end(graph, images, asked.audio)
        known = load_labelled(asked.source, TESTED, most, asked.label)
    labelled = known.train if known is not None and len(known.classes) == scored_classes(graph) else None
    with progress() as bar:
        result = quantize(
            graph, images, recipe, labelled=labelled, preprocessing=_preprocessing(asked, graph),
            conventions={name: _arranged(asked, usual) for name, usual in CONVENTIONS.items()},
            on_progress=lambda at: bar.update(at.done, at.total, at.doing),
        )  # fmt: skip
    export_model(result.graph, asked.output)
    if asked.layers and not asked.as_json:
        print_rich(result.report.table())
    size = asked.output.stat().st_size
    made = QuantizedFile(str(asked.output), size, result.graph.preprocessing, result.pixels, result.report)
    show(made, asked.as_json)


def _preprocessing(asked: verbs.Quantize, graph: Graph) -> Preprocessing | None:
    """Return the preprocessing that the options and the model give together; None where neither gives pixel values."""
    was = graph.preprocessing if isinstance(graph.preprocessing, Preprocessing) else None
    if asked.pixels is not None:
        was = CONVENTIONS.get(asked.pixels) or Preprocessing((0.0,), (1.0,), range=_range(asked.pixels))
    elif was is None and (asked.mean is not None or asked.std is not None):
        was = Preprocessing()
    elif all(option is None for option in (asked.mean, asked.std, asked.order, asked.fit)):
        return None
    if was is None:
        return None
    mean = was.mean if asked.mean is None else _numbers("--mean", asked.mean)
    std = was.std if asked.std is None else _numbers("--std", asked.std)
    return _arranged(asked, replace(was, mean=mean, std=std))


def _arranged(asked: verbs.Quantize, was: Preprocessing) -> Preprocessing:
    """Return a preprocessing with the order of channels and the fit that the options ask for."""
    return replace(was, order=asked.order or was.order, fit=asked.fit or was.fit)


def _range(text: str) -> tuple[float, float]:
    ends = _numbers("--pixels", text)
    if len(ends) != 2:
        names = ", ".join(name for name in CONVENTIONS if name.isalpha())
        raise InputError(
            f"--pixels {text[:40]} must be the two numbers that pixels 0 and 255 stand for, such as 0,1, or one of "
            f"{names}"
        )
    return ends[0], ends[1]


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text[:40]} is not a list of numbers; write them like 0.5,0.4,0.4") from None


def test_(asked: verbs.Test) -> None:
    check_file(asked.output, asked.force)
    with spinner(f"reading {asked.source}"):
        graph, data = load_model(asked, asked.model), read_data(asked, asked.source)
        graph = measuring(graph, Path(asked.model))
    with progress(f"testing {graph.name}") as bar:
        tested = test(
            graph, data, target=asked.target, images=asked.images, audio=asked.audio,
            on_progress=lambda at: bar.update(at.done, at.total),
        )  # fmt: skip
    if asked.output:
        write_whole(asked.output, draw_tested(tested).encode())
    show(tested, asked.as_json)
    if asked.output and not asked.as_json:
        say(f"drawn in {asked.output}")


def predict_(asked: verbs.Predict) -> None:
    graph = measuring(read_model(asked, asked.model), Path(asked.model))
    with progress(f"running {graph.name}") as bar:
        found = predict(
            graph, asked.source, target=asked.target, top=asked.top, numbers=asked.numbers, label=asked.label,
            audio=asked.audio, memory=memory_bytes(asked.memory),
            on_progress=lambda at: bar.update(at.done, at.total),
        )  # fmt: skip
    show(found, asked.as_json)
