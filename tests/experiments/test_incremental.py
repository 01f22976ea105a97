"""Streams of classes and runs that skip: how examples are kept and shown, and that pages tell what was measured."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smidgen as sm
from experiments.appended import Appended, AppendedError
from experiments.incremental import (
    Cut,
    Followed,
    HeadGrowth,
    Latents,
    Memory,
    Stream,
    arrivals,
    chosen_images,
    cut,
    follow,
    lessons,
    order_of,
)
from experiments.incremental_page import LATENTS, MEMORIES, SEEDS, SETS, markdown, picture, rows, streams
from experiments.paper.sources import network_of
from experiments.skipping import Skipped, SkippingRun, StepCost, run
from experiments.skipping_page import BELOW, COURSES, trials
from experiments.skipping_page import SEEDS as SKIPPING_SEEDS
from experiments.skipping_page import rows as skipping_rows
from smidgen.data import Data, as_input, pixel_encoding
from smidgen.results.svg import svg
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.training.head import ending_of
from tests.support.house import TOP
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

RESULTS = TOP / "benchmarks" / "results"
STREAM = Stream("shapes", 8, 0, 6, 2, 20.0, scheme="last:3")


@given(st.integers(0, 40), st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 999))
def test_memory_keeps_no_more_than_its_room_and_as_many_of_each_class(room: int, sizes: list[int], seed: int) -> None:
    memory = Memory(room, np.random.default_rng(seed))
    for number, size in enumerate(sizes):
        memory.begin(number + 1)
        for example in range(size):
            memory.offer(number, 100 * number + example)
        assert sum(map(len, memory.held)) <= room
        whole, over = divmod(room, number + 1)
        for one, held in enumerate(memory.held):
            assert len(held) <= whole + (one < over)
            assert len(held) >= min(sizes[one], whole), "no room is left empty while examples are there"
            assert len(set(held)) == len(held)
            assert all(example // 100 == one for example in held)


def test_every_example_of_a_class_has_the_same_chance_to_be_kept() -> None:
    kept = Counter[int]()
    for seed in range(2000):
        memory = Memory(6, np.random.default_rng(seed))
        memory.begin(1)
        for example in range(20):
            memory.offer(0, example)
        memory.begin(2)
        kept.update(memory.held[0])
    assert sum(kept.values()) == 6000
    assert max(abs(kept[example] - 300) for example in range(20)) < 5 * 300**0.5


def test_a_pass_shows_new_images_once_and_every_older_class_as_often() -> None:
    rng = np.random.default_rng(0)
    memory = Memory(5, rng)
    memory.begin(2)
    for number in range(2):
        for example in range(6):
            memory.offer(number, 10 * number + example)
    memory.begin(3)
    new = [20, 21, 22, 23, 24, 25]
    steps = list(lessons(STREAM, [new], memory, rng))
    assert Counter(number for number, _ in steps) == {0: 12, 1: 12, 2: 12}
    assert Counter(place for number, place in steps if number == 2) == dict.fromkeys(new, 2)
    for number in range(2):
        shown = Counter(place for one, place in steps if one == number)
        assert set(shown) == set(memory.held[number])
        assert max(shown.values()) - min(shown.values()) <= 1
    memory = Memory(0, rng)
    memory.begin(3)
    assert Counter(lessons(STREAM, [new], memory, rng)) == {(2, place): 2 for place in new}


def test_classes_arrive_two_first_and_then_one_by_one() -> None:
    assert list(arrivals(5)) == [(0, 2), (2, 3), (3, 4), (4, 5)]


def latents_of(parts: Cut, data: Data, host: Host) -> Latents:
    return Latents(data, parts.front, sm.compile(parts.front, target=host).start())


def test_a_latent_teaches_the_bytes_that_its_image_teaches(host: Host) -> None:
    model, data = small_network(), draw_shapes(12, 4)
    parts = cut(model, "last:3")
    assert parts.latent_bytes < model.image.type.bytes
    latents, encoding = latents_of(parts, data, host), pixel_encoding(model)
    images = [as_input(image, encoding) for image in data.train.images]
    whole = sm.compile(model, "last:3", host, options=Options(4), images=tuple(images[:4]))
    tail = sm.compile(parts.tail, parts.scheme, host, options=Options(4), images=tuple(map(latents.train, range(4))))
    with whole.start() as a, tail.start() as b:
        for place, (image, label) in enumerate(zip(images, data.train.labels, strict=True)):
            assert a.train(image, label, 0.02) == b.train(latents.train(place), label, 0.02)
        state = b.state()
        assert {name: array.tobytes() for name, array in a.state().items()} == {
            name: array.tobytes() for name, array in state.items()
        }


@pytest.mark.parametrize("head", get_args(HeadGrowth))
def test_a_stream_is_followed_class_by_class_and_the_same_again(host: Host, head: HeadGrowth) -> None:
    data, parts = draw_shapes(12, 4), cut(small_network(), "last:3")
    stream = Stream("shapes", 8, 0, 6, 2, 2.0, scheme="last:3", head=head)
    said: list[str] = []
    found = follow(stream, parts, data, latents_of(parts, data, host), said.append)
    assert [len(right) for right in found.right] == [2, 3, 4]
    assert found.steps == 2 * 6 * (2 + 3 + 4)
    assert sum(found.tests) == len(data.test)
    assert len(said) == 3
    again = follow(stream, parts, data, latents_of(parts, data, host), said.append)
    assert again == found


def test_classes_observed_one_by_one_end_as_all_at_once(host: Host) -> None:
    data, parts = draw_shapes(12, 4), cut(small_network(), "last:3")
    stream, latents = Stream("shapes", 0, 0, 6, 0, 0.0, "last:3", "one pass"), latents_of(parts, data, host)
    found = follow(stream, parts, data, latents, list[str]().append)
    program = sm.compile(parts.tail, parts.scheme, host, options=Options(4), one_pass=True)
    order = order_of(stream, data)
    with program.start() as device:
        for label in range(4):
            for place in chosen_images(stream, data.train, label):
                device.observe(latents.train(place), order.index(label))
        device.solve()
        guesses = [(device.predict(latents.test(i)), order.index(label)) for i, label in enumerate(data.test.labels)]
    assert found.steps == 0
    assert found.right[-1] == tuple(sum(a == b == number for a, b in guesses) for number in range(4))


def test_figures_of_a_stream_are_their_formulas() -> None:
    found = Followed((10, 20, 10), ((8, 14), (6, 16, 9)), 7)
    assert found.accuracies == pytest.approx((22 / 30, 31 / 40))
    assert found.average == pytest.approx((22 / 30 + 31 / 40) / 2)
    assert found.forgotten == pytest.approx((0.2 + 0.0) / 2)


def test_results_go_on_where_they_were_cut_short(tmp_path: Path) -> None:
    path, outcome = tmp_path / "results.jsonl", Followed((1, 2), ((1, 2),), 3)
    other = Stream("shapes", None, 1, 6, 2, 2.0)
    kept = Appended(path, Stream, Followed)
    kept.add(STREAM, outcome)
    path.write_text(path.read_text() + '{"arithmetic": "1", "tri')
    again = Appended(path, Stream, Followed)
    assert again.found == {STREAM: outcome}
    assert again.missing([other, STREAM]) == [other]
    again.add(other, outcome)
    assert Appended(path, Stream, Followed).found == {STREAM: outcome, other: outcome}
    path.write_text(path.read_text().replace('"arithmetic": "1"', '"arithmetic": "0"', 1))
    assert Appended(path, Stream, Followed).found == {other: outcome}
    path.write_text("{}\n")
    with pytest.raises(AppendedError, match=r"line 1 of .* is not a result"):
        Appended(path, Stream, Followed)


def test_the_page_of_streams_tells_what_was_measured() -> None:
    wanted = streams(SETS, SEEDS)
    kept = Appended(RESULTS / "incremental.jsonl", Stream, Followed)
    assert not [stream for stream in kept.missing(wanted) if stream.head != "extended"]
    table, model = markdown(rows(kept.found, wanted)), network_of("mcunet-5fps")
    latents = {scheme: cut(model, scheme).latent_bytes for scheme in LATENTS if scheme != "head"}
    assert {**latents, "head": ending_of(model).features.type.bytes} == LATENTS
    assert table.strip() in (TOP / "docs" / "results" / "incremental.md").read_text()


def test_the_picture_of_streams_shows_every_memory_of_both_data_sets() -> None:
    kept = Appended(RESULTS / "incremental.jsonl", Stream, Followed)
    figure = picture(rows(kept.found, streams(SETS, SEEDS)))
    assert [len(panel.traces) for panel in figure.panels] == [len(MEMORIES)] * len(SETS)
    assert svg(figure).count('class="line"') == len(SETS) * len(MEMORIES)


def test_the_page_of_skipping_tells_what_was_measured() -> None:
    wanted = trials(tuple(COURSES), SKIPPING_SEEDS)
    kept = Appended(RESULTS / "skipping.jsonl", SkippingRun, Skipped)
    assert not kept.missing(wanted)
    page = (TOP / "docs" / "internals" / "skipping.md").read_text()
    found = skipping_rows(kept.found, wanted)
    assert len(found) == len(COURSES) * len(BELOW)
    for one in found:
        assert f"| {' | '.join(one.cells())} |" in page


def test_a_network_learns_with_what_it_knows_skipped(host: Host) -> None:
    data, parts = draw_shapes(12, 4), cut(small_network(), "last:3")
    latents = latents_of(parts, data, host)
    never, some = (run(SkippingRun("shapes", b, 0, 40, 3, 10.0, "last:3"), parts, data, latents) for b in (0.0, 0.7))
    assert never.skipped == (0.0, 0.0, 0.0)
    assert 0 < some.skipped[-1] < 1
    assert some.whole == pytest.approx(sum(some.skipped) / 3)


def test_what_skipping_saves_is_its_formula() -> None:
    assert StepCost("board", 58, 100, 60).saved(0.5) == pytest.approx(0.2)
