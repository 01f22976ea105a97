"""A network for whoever has none: what is tried and kept, what it costs, and what is refused before any work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.errors import SmidgenError
from smidgen.fitting import networks
from smidgen.fitting.networks import Found, Limits, NetworkMade, NetworkRow, find_network
from smidgen.ir import Array, evaluate
from smidgen.ir.text import fingerprint
from smidgen.records import from_plain, to_plain
from smidgen.selection.ladder import Effort
from smidgen.targets import find
from smidgen.training import Options
from smidgen.training.head import layers
from tests.support.shapes import draw_shapes
from tests.support.tiers import first
from tests.support.windows import as_rows, draw_windows

DATA = draw_windows(24, 24)
BOARD = find("cortex-m7")


def found_in(data: Data, budget: int = 32 * 1024, effort: Effort = "quick", seed: int = 0) -> Found:
    return find_network(data, Limits(budget, BOARD, effort, workers=1), Options(seed=seed))


@pytest.fixture(scope="module", autouse=True)
def short_trials() -> Iterator[None]:
    """Trials of fewer samples: these tasks are easy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "SEEN", dict.fromkeys(networks.SEEN, 2_000))
        yield


@pytest.fixture(scope="module")
def found() -> Found:
    return found_in(DATA)


def right(found: Found, data: Data) -> float:
    """The share of test samples that the int8 network is right on, by the reference."""
    encoding = pixel_encoding(found.graph)
    answers = [int(evaluate(found.graph, as_input(x, encoding))[0].argmax()) for x in data.test.images]
    return float(np.mean(np.array(answers) == data.test.labels))


def test_it_learns_from_channels_whose_units_differ_by_eight_orders(found: Found) -> None:
    assert right(found, DATA) > 0.9
    assert found.graph.classes == DATA.classes
    assert found.graph.image.type.dtype == "float32"


def test_the_layer_that_standardizes_has_no_number_in_schemes(found: Found) -> None:
    numbered = layers(found.graph)
    assert numbered
    assert all(node.out.type.dtype == "int8" for node in numbered)


def test_rows_get_dense_networks_that_learn() -> None:
    rows = as_rows(DATA)
    found = found_in(rows)
    assert all(row.name.startswith("auto-dense-") for row in found.made.rows)
    assert right(found, rows) > 0.8


def test_numbers_come_out_in_their_own_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "SEEN", dict.fromkeys(networks.SEEN, 8_000))

    def numbered(part: Samples) -> Samples:
        targets = tuple(np.array([500 + 100 * label], np.float32) for label in part.labels)
        return replace(part, labels=(0,) * len(part), targets=targets)

    data = replace(DATA, classes=(), train=numbered(DATA.train), test=numbered(DATA.test))
    found = found_in(data)
    encoding = pixel_encoding(found.graph)
    given = np.array([evaluate(found.graph, as_input(x, encoding))[0][0, 0] for x in data.test.images])
    q, wanted = found.graph.scores.type, np.concatenate(data.test.targets)
    errors = q.scale * (given.astype(float) - q.zero) - wanted
    assert (errors**2).mean() < 0.2 * wanted.var()
    assert found.made.kept.score is not None
    assert found.made.kept.score < 0  # minus an error


@pytest.mark.parametrize("effort", first("quick", "normal"))
def test_the_same_data_give_the_same_network_however_many_workers(effort: Effort) -> None:
    one, two = (find_network(DATA, Limits(12_000, BOARD, effort, count), Options()) for count in (1, 2))
    assert fingerprint(one.graph) == fingerprint(two.graph)
    assert one.made == two.made


def test_the_test_samples_decide_nothing(found: Found) -> None:
    other = replace(DATA, test=draw_windows(1, 8, seed=5).test)
    assert fingerprint(found_in(other).graph) == fingerprint(found.graph)


def test_what_is_over_the_budget_is_shown_and_never_trained(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = sorted(row.sram_bytes or 0 for row in found.made.rows)
    tried: list[Sequence[int]] = []
    real = networks._judged

    def judged(bench: networks._Bench, fitting: Sequence[int], *more: Any) -> dict[int, Array]:
        tried.append(fitting)
        return real(bench, fitting, *more)

    monkeypatch.setattr(networks, "_judged", judged)
    made = found_in(DATA, costs[2]).made
    assert [row.score is not None for row in made.rows] == [(row.sram_bytes or 0) <= costs[2] for row in made.rows]
    assert tried == [[place for place, row in enumerate(made.rows) if row.score is not None]]
    assert (made.kept.sram_bytes or 0) <= costs[2]
    assert "over the budget" in made.table()


def row(name: str, sram: int | None) -> NetworkRow:
    return NetworkRow(name, None, 0.0, 0, sram, 0, 0)


def test_a_smaller_network_is_kept_where_it_is_level() -> None:
    rows = (row("small", 10), row("large", 20), row("worse", 5))
    right = np.ones(200)
    nearly, bad = right.copy(), right.copy()
    nearly[0], bad[:60] = 0, 0
    assert networks._cheapest_of_best({0: nearly, 1: right, 2: bad}, rows, 0.01) == 0
    nearly[:16] = 0
    assert networks._cheapest_of_best({0: nearly, 1: right, 2: bad}, rows, 0.01) == 1


def test_what_was_made_is_read_back_from_the_ledger() -> None:
    made = NetworkMade((row("a", None), row("b", 7)), 1, True, 4, ("a note",))
    assert from_plain(NetworkMade, to_plain(made)) == made
    assert "no plan" in made.table()


@pytest.mark.slow
def test_pictures_get_the_network_of_the_zoo_that_does_best() -> None:
    made = found_in(draw_shapes(8, 2), 256 * 1024).made
    scores = [row.score for row in made.rows if row.score is not None]
    assert len(scores) == 3
    assert made.kept.score == max(scores)
    assert not made.trained


def of_class(data: Data, label: int, count: int) -> Data:
    """The data with so many training samples of a class."""
    places = [i for i, one in enumerate(data.train.labels) if one == label]
    left_out = set(places[count:])
    return replace(data, train=data.train.at(i for i in range(len(data.train)) if i not in left_out))


def with_first(data: Data, *numbers: float) -> Data:
    """The data with other numbers in the first channel of every training sample."""
    images = [x.copy() for x in data.train.images]
    for image in images:
        image[: len(numbers), 0] = numbers
    return replace(data, train=replace(data.train, images=tuple(images)))


SOUND = Samples(tuple(np.arange(i, i + 99, dtype=np.int16) for i in range(16)), (0, 1) * 8)
BOXES = Samples(tuple(np.full((4, 4, 4), i, np.float32) for i in range(16)), (0, 1) * 8)
MAPS = tuple(np.zeros((2, 2), np.uint8) for _ in DATA.train.labels)
REFUSED: dict[str, tuple[Data, int, str]] = {
    "no labels": (replace(DATA, classes=()), 32_768, "windows has no labels; a network is built for classes or"),
    "maps": (replace(DATA, train=replace(DATA.train, targets=MAPS)), 32_768, "windows has maps as labels"),
    "one class": (replace(DATA, classes=("calm",)), 32_768, "holds 1 class, 'calm'; learning needs at least two"),
    "one of a class": (of_class(DATA, 2, 1), 32_768, "holds 1 training samples of 'wild'; a network needs two or more"),
    "none of a class": (of_class(DATA, 1, 0), 32_768, "holds 0 training samples of 'brisk'"),
    "few": (replace(DATA, train=DATA.train.at(range(6))), 32_768, "holds 6 training samples; a network needs 8"),
    "a constant channel": (with_first(DATA, *[7.5] * 24), 32_768, "channel 1 of 2 in windows never changes from 7.5"),
    "not a number": (with_first(DATA, np.nan), 32_768, "sample 0 to learn from of windows holds a number that is not"),
    "a small budget": (DATA, 1_024, "a budget of 1,024 bytes is too small: auto-conv-8-16, the smallest of 6 networks"),
    "boxes": (Data("boxes", ("a", "b"), BOXES, BOXES), 32_768, "a sample of boxes is float32[4, 4, 4]; a network is"),
    "sound": (Data("words", ("a", "b"), SOUND, SOUND), 32_768, "words holds sound, and no network of the zoo takes it"),
    "pictures and no room": (draw_shapes(2, 1), 1_024, "a budget of 1,024 bytes is too small: "),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_network_can_learn_is_refused_in_a_sentence(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, budget, said = REFUSED[what]
    monkeypatch.setattr(networks, "train_network", None)
    monkeypatch.setattr(networks, "judge_network", None)
    with pytest.raises(SmidgenError, match=re.escape(said)) as raised:
        found_in(data, budget)
    assert "\n" not in str(raised.value)
