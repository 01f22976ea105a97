"""The verbs merge and forget, and train where one pass is all that is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from smidgen import learning
from smidgen.cli import verbs
from smidgen.cli.shared import check_file, read_data
from smidgen.cli.terminal import progress, show, spinner, warn
from smidgen.data import Data, as_input, pixel_encoding
from smidgen.data.audio import with_front_end
from smidgen.data.files import made_folder
from smidgen.errors import InputError
from smidgen.fitting import training_target
from smidgen.frontends import export_model, import_model
from smidgen.ir import Graph
from smidgen.learning.sums import KeptSums, check_belongs, read_sums, with_head, write_taught
from smidgen.pipeline import compile
from smidgen.results.summaries import SumsSummary
from smidgen.targets.device import with_sums
from smidgen.training import Options


def teach(asked: verbs.Train, graph: Graph, data: Data, options: Options, files: tuple[Path, ...]) -> None:
    """Learn the data in one pass, and write the model, with its sums, as .smg and for others."""
    with spinner(f"compiling {graph.name} for {asked.target}"):
        named = data.names if options.classes in (None, len(data.classes)) else ()
        target = training_target(asked.target)
        program = compile(graph, None, target, options=options, one_pass=True, class_names=named)
    with progress() as bar:
        learned = learning.learn(program, data, on_progress=lambda at: bar.update(at.done, at.total, at.doing))
    assert learned.sums is not None
    with made_folder(asked.output):
        write_taught(learned.model, learned.sums, files[0])
        export_model(learned.model, files[1])
    for warning in learned.warnings:
        warn(warning)
    several = np.count_nonzero(learned.sums.sums.n[:-1]) > 1
    accuracy = learned.last.accuracy if several else None  # of one class all is right
    show(_summary(learned.model, learned.sums, tuple(map(str, files)), accuracy), asked.as_json)


def merge_(asked: verbs.Merge) -> None:
    if len(asked.models) < 2:
        raise InputError("one model alone cannot be merged; give two or more")
    _check_output(asked.output, asked.force)
    model, kept = _read(asked.models[0])
    for path in asked.models[1:]:
        other, sums = _read(path)
        check_belongs(other, sums)
        kept = kept.merged(sums)
    _write(model, kept, asked)


def forget_(asked: verbs.Forget) -> None:
    _check_output(asked.output, asked.force)
    with spinner(f"reading {asked.source}"):
        (model, kept), data = _read(Path(asked.model)), read_data(asked, asked.source)
        model = with_front_end(model, data.train.images, asked.audio)
        check_belongs(model, kept)
    data = learning.in_order_of(model, data)
    options = Options(len(kept.sums.m), head="keep", head_dtype="float32")
    program, encoding = compile(model, None, options=options, one_pass=True), pixel_encoding(model)
    with progress("forgetting") as bar, program.start() as device:
        device.restore(with_sums(program.graph, device.state(), kept.sums))
        parts = (data.train, data.test) if asked.all_samples else (data.train,)
        samples = [sample for part in parts for sample in zip(part.images, part.labels, strict=True)]
        for done, (image, label) in enumerate(samples, 1):
            device.forget(as_input(image, encoding), label)
            bar.update(done, len(samples))
        kept = replace(kept, sums=device.sums())
    _write(model, kept, asked)


def _check_output(output: Path, force: bool) -> None:
    if output.suffix != ".smg":
        raise InputError(f"{output} is not a .smg file, which alone keeps sums; name one")
    check_file(output, force, output.parent)


def _read(path: Path) -> tuple[Graph, KeptSums]:
    if not path.is_file():
        raise InputError(f"{path} is not a file; give a model that `smidgen train --one-pass` wrote")
    return import_model(path), read_sums(path)


def _write(model: Graph, kept: KeptSums, asked: verbs.Merge | verbs.Forget) -> None:
    """Make the head of what is left, and write the model with it."""
    model = with_head(model, kept)
    with made_folder(asked.output.parent):
        write_taught(model, kept, asked.output)
    show(_summary(model, kept, (str(asked.output),)), asked.as_json)


def _summary(model: Graph, kept: KeptSums, files: tuple[str, ...], accuracy: float | None = None) -> SumsSummary:
    counts = tuple(int(n) for n in kept.sums.n[:-1])
    return SumsSummary(model.name, kept.classes, counts, kept.digest, files, accuracy)
