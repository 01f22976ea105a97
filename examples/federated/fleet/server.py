"""The server: one round in which integers are added, devices that leave are subtracted, and the rest get the head."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

import smidgen as sm
from smidgen.learning.sums import KeptSums, with_head, write_taught

from .adding import Ask, Content, Part, gather, leave

WAITS = 300.0  # seconds, for devices to come and for their answers
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    model, output = str(context.run_config["model"]), Path(str(context.run_config["output"]))
    ask = asking(grid)
    whole, there = gather(ask, devices(grid, int(context.run_config["devices"])))
    write_taught(taught(model, whole), whole, output / "whole.smg")
    leaving = [device for device, answer in there.items() if answer["leaves"]]
    rest = whole
    for device in leaving:
        rest = leave(ask, rest, device)
    write_taught(taught(model, rest), rest, output / "rest.smg")
    head = Part.plain(rest).content
    answers = ask("evaluate.adopt", {device: head for device in there if device not in leaving})
    adopted = {there[device]["number"]: answer for device, answer in answers.items()}
    (output / "adopted.json").write_text(json.dumps(adopted))


def devices(grid: Grid, count: int) -> list[int]:
    """Wait until so many devices are there."""
    end = time.monotonic() + WAITS
    while len(found := list(grid.get_node_ids())) < count:
        if time.monotonic() > end:
            raise sm.InputError(f"{len(found)} of {count} devices came within {WAITS:g} seconds; start the others")
        time.sleep(0.2)
    return found


def asking(grid: Grid) -> Ask:
    """Return what asks devices over Flower; those that fail say why in the log, and are left out."""

    def ask(what: str, of: Mapping[int, Content]) -> dict[int, Content]:
        messages = [
            Message(RecordDict({"content": ConfigRecord(content)}), device, what) for device, content in of.items()
        ]
        answers = {}
        for reply in grid.send_and_receive(messages, timeout=WAITS):
            if reply.has_error():
                print(f"device {reply.metadata.src_node_id} failed at {what}: {reply.error.reason}")
            else:
                answers[reply.metadata.src_node_id] = dict(reply.content["content"])
        return answers

    return ask


def taught(name: str, kept: KeptSums) -> sm.Graph:
    """Return the network with the head that sums give."""
    program = sm.compile(
        sm.load(name), one_pass=True, options=sm.Options(len(kept.sums.m)), class_names=kept.classes
    )  # fmt: skip
    assert program.training is not None
    forward = program.training.forward
    model = sm.learned_graph(program.training, {v.name: first for v, first in forward.state.items()})
    return with_head(model, kept)
