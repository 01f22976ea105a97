"""The verbs test and predict."""

from __future__ import annotations

from smidgen.cli import verbs
from smidgen.cli.shared import check_file, load_model, memory_bytes, read_data
from smidgen.cli.terminal import progress, say, show, spinner
from smidgen.data.files import write_whole
from smidgen.inference import predict, test
from smidgen.results.testing import draw_tested


def test_(asked: verbs.Test) -> None:
    check_file(asked.output, asked.force)
    with spinner(f"reading {asked.source}"):
        graph, data = load_model(asked, asked.model), read_data(asked, asked.source)
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
    with spinner(f"reading {asked.model}"):
        graph = load_model(asked, asked.model)
    with progress(f"running {graph.name}") as bar:
        found = predict(
            graph, asked.source, target=asked.target, top=asked.top, numbers=asked.numbers, label=asked.label,
            audio=asked.audio, memory=memory_bytes(asked.memory),
            on_progress=lambda at: bar.update(at.done, at.total),
        )  # fmt: skip
    show(found, asked.as_json)
