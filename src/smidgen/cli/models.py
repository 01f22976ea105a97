"""The verbs info, run, import, quantize, test and predict."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np

from smidgen.cli import verbs
from smidgen.cli.shared import check_file, given_pixels, load_model, memory_bytes, read_data, read_model
from smidgen.cli.terminal import print_rich, progress, say, show, spinner, warn
from smidgen.data import load_images, load_labelled
from smidgen.data.audio import with_front_end
from smidgen.data.files import parse_npy, read_whole, write_whole
from smidgen.errors import InputError
from smidgen.frontends import check_writable, export_model
from smidgen.inference import predict, test
from smidgen.ir import check_inputs, evaluate
from smidgen.learning.sums import measuring
from smidgen.pipeline import compile
from smidgen.quantization import Recipe, labels_for, quantize
from smidgen.results.inspection import describe
from smidgen.results.report.learned import draw_tested
from smidgen.results.summaries import QuantizedFile, RunSummary, WrittenModel, largest

TESTED = 256  # labelled samples at most


def info_(asked: verbs.Info) -> None:
    graph = load_model(asked, asked.model)
    show(describe(graph, given_pixels(asked, graph)), asked.as_json)


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
        if asked.target == "reference":
            results = evaluate(graph, *arrays)
        else:
            with compile(graph, target=asked.target).start() as device:
                results = device.run(*arrays)
    shown = []
    for value, array, file in zip(graph.outputs, results, files, strict=True):
        if file:
            np.save(data := BytesIO(), array, allow_pickle=False)
            write_whole(file, data.getvalue())
        shown.append(largest(value, array, str(file) if file else None))
    show(RunSummary(graph.name, asked.target, tuple(shown)), asked.as_json)


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
    for note in known.notes if known else ():
        warn(note)
    tried, labelled = (labels_for(graph, known, part) for part in (known.train, known.test)) if known else (None, None)
    with progress() as bar:
        result = quantize(
            graph, images, recipe, labelled=labelled, preprocessing=given_pixels(asked, graph), tried=tried,
            on_progress=lambda at: bar.update(at.done, at.total, at.doing),
        )  # fmt: skip
    export_model(result.graph, asked.output)
    if asked.layers and not asked.as_json:
        print_rich(result.report.table())
    size = asked.output.stat().st_size
    made = QuantizedFile(str(asked.output), size, result.graph.preprocessing, result.pixels, result.report)
    show(made, asked.as_json)


def test_(asked: verbs.Test) -> None:
    check_file(asked.output, asked.force)
    with spinner(f"reading {asked.source}"):
        graph, data = load_model(asked, asked.model), read_data(asked, asked.source)
        graph = measuring(graph, Path(asked.model))
    with progress(f"testing {graph.name}") as bar:
        tested = test(
            graph, data, target=asked.target, images=asked.images, audio=asked.audio,
            preprocessing=given_pixels(asked, graph),
            on_progress=lambda at: bar.update(at.done, at.total, at.doing or f"testing {graph.name}"),
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
            audio=asked.audio, memory=memory_bytes(asked.memory), preprocessing=given_pixels(asked, graph),
            on_progress=lambda at: bar.update(at.done, at.total, at.doing or f"running {graph.name}"),
        )  # fmt: skip
    show(found, asked.as_json)
