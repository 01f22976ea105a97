"""Checkpoints whose digest is right and whose fields are not: refused in one sentence, never half-believed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from smidgen.data import examples, pixel_encoding
from smidgen.errors import SmidgenError
from smidgen.learning import CheckpointError, Course, learn
from smidgen.learning.checkpoint import HEADER, _digest
from smidgen.pipeline import Program, compile
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

DATA = draw_shapes(2, 1)
COURSE = Course(2, 0.01)
WRONG: tuple[Any, ...] = (
    None, True, -1, 3, 10**30, 0.5, -1e300, float("nan"), float("inf"), "", "2", [], [1], [[]], {}, {"a": 1},
)  # fmt: skip


@pytest.fixture(scope="module")
def program(host: Host) -> Program:
    graph = small_network()
    return compile(graph, "last:1", host, options=Options(4), images=examples(DATA.train, pixel_encoding(graph)))


@pytest.fixture(scope="module")
def whole(program: Program, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The checkpoint after both epochs of the course."""
    path = tmp_path_factory.mktemp("run") / "run.ckpt"
    learn(program, DATA, COURSE, checkpoint=path)
    return path.read_bytes()


def described(data: bytes) -> dict[str, object]:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found: dict[str, object] = json.loads(json.loads(header["__metadata__"][HEADER])["run"])
    return found


def signed(data: bytes, run: object) -> bytes:
    """The checkpoint with another description, and the digest that belongs to it."""
    state, text = load(data), json.dumps(run)
    return save(state, {HEADER: json.dumps({"digest": _digest(text, state), "run": text})})


def places(held: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every part of a JSON object."""
    if at:
        yield at
    items = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for key, value in items:
        yield from places(value, (*at, key))


def changed(run: dict[str, object], at: tuple[str | int, ...], value: object) -> object:
    copy = json.loads(json.dumps(run))
    held = copy
    for key in at[:-1]:
        held = held[key]
    held[at[-1]] = value
    return copy


def test_every_field_of_a_wrong_type_or_range_is_refused(program: Program, whole: bytes, tmp_path: Path) -> None:
    path, run = tmp_path / "run.ckpt", described(whole)
    said, taken = set(), []
    for at in places(run):
        for value in WRONG:
            other = changed(run, at, value)
            if json.dumps(other) == json.dumps(run):
                continue
            path.write_bytes(signed(whole, other))
            try:
                learn(program, DATA, COURSE, resume=path)
            except CheckpointError as error:
                said.add(str(error))
            else:
                taken.append((at, value))
    assert len(said) > 20
    assert not any("\n" in sentence for sentence in said)
    # Figures of the past may be other numbers: nothing follows from them. A run may go on to other epochs.
    assert all(type(value) in (int, float) and math.isfinite(value) for _, value in taken)
    assert {at[-1] for at, value in taken if not 0 <= value <= 1} <= {"losses", "loss", "epochs"}
    assert {at[-1] for at, _ in taken} <= {"losses", "loss", "before", "saturated", "accuracy", "epochs", "skipped"}
    assert [value for at, value in taken if at[-1] == "epochs"] == [3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", True])
def test_figures_of_the_past_are_finite_numbers(program: Program, whole: bytes, tmp_path: Path, value: object) -> None:
    path, run = tmp_path / "run.ckpt", described(whole)
    for at in (("place", "before"), ("place", "losses"), ("place", "record", 1, "accuracy")):
        path.write_bytes(signed(whole, changed(run, at, value)))
        with pytest.raises(CheckpointError, match="is damaged"):
            learn(program, DATA, COURSE, resume=path)


def test_state_of_another_shape_or_type_is_refused(program: Program, whole: bytes, tmp_path: Path) -> None:
    path, state = tmp_path / "run.ckpt", load(whole)
    text = json.dumps(described(whole))
    for name, array in state.items():
        for other in (array[:0], array.reshape(-1)[:1], array[None], array.astype(np.uint8)):
            held = {**state, name: np.ascontiguousarray(other)}
            path.write_bytes(save(held, {HEADER: json.dumps({"digest": _digest(text, held), "run": text})}))
            if other.shape == array.shape and other.dtype == array.dtype:
                continue
            with pytest.raises(SmidgenError, match="belongs to another program"):
                learn(program, DATA, COURSE, resume=path)
