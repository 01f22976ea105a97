"""What an analysis tries, on which images, and how it is told."""

from __future__ import annotations

import json
import re
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.data import Data, DataError
from smidgen.data.samples import Samples
from smidgen.frontends.native import write_smg
from smidgen.learning import Course
from smidgen.results.choices import summarize
from smidgen.selection import Contributions, analysis
from smidgen.selection.analysis import QUICK_STEPS
from smidgen.selection.contributions import BiasDepth, Conditions, LayerShare, layer_names, read_contributions
from smidgen.selection.launchers import FLEET
from smidgen.selection.trials import (
    FEWEST,
    SHARES,
    Agenda,
    Kind,
    Setup,
    Trial,
    agenda,
    hold_back,
    kind_of,
    limit_samples,
)
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, analytic_memory, resolve
from tests.support.analyses import PretendedLauncher, data, model
from tests.support.networks import one_scale_hidden
from tests.support.tiers import examples

EVERYTHING = 1 << 40
mcunet = sm.load("mcunet-5fps")


def numbered(counts: list[int], order: int, test: int = 5) -> Data:
    """So many training images of each class in some order; each image holds its own number, as those to test with."""
    rng = np.random.default_rng(order)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
    images = [np.array([[[i >> 8, i & 255, 7]]], np.uint8) for i in range(len(labels) + test)]
    train = Samples(tuple(images[: len(labels)]), tuple(labels))
    tested = Samples(tuple(images[len(labels) :]), tuple(i % len(counts) for i in range(test)))
    return Data("numbers", tuple(f"class {i}" for i in range(len(counts))), train, tested)


def numbers(samples: Samples) -> list[int]:
    return [int(image[0, 0, 0]) << 8 | int(image[0, 0, 1]) for image in samples.images]


COUNTS = st.lists(st.integers(2, 40), min_size=2, max_size=8).filter(
    lambda counts: sum(c // 4 or 1 for c in counts) > 7
)


@given(COUNTS, st.integers(0, 1000))
@settings(max_examples=examples(150))
def test_what_is_judged_with_is_never_learned_from_and_test_images_are_in_neither(
    counts: list[int], order: int
) -> None:
    whole = numbered(counts, order)
    held = hold_back(whole)
    learned, judged = numbers(held.train), numbers(held.test)
    assert sorted(learned + judged) == sorted(numbers(whole.train))
    assert not set(learned + judged) & set(numbers(whole.test))
    for label, count in enumerate(counts):
        assert held.test.labels.count(label) == max(1, count // 4)
        assert held.train.labels.count(label) >= 1
    for samples in (held.train, held.test):  # labels went along with their images
        assert [whole.train.labels[i] for i in numbers(samples)] == list(samples.labels)
    assert hold_back(whole).digest() == held.digest()


@given(COUNTS, st.integers(0, 1000), st.integers(1, 200))
@settings(max_examples=examples(150))
def test_of_limited_samples_every_class_keeps_its_share(counts: list[int], order: int, most: int) -> None:
    whole = numbered(counts, order).train
    chosen = limit_samples(whole, most, len(counts))
    taken = numbers(chosen)
    assert taken == sorted(set(taken))
    assert [whole.labels[i] for i in taken] == list(chosen.labels)
    share = min(1.0, most / len(whole))
    for label, count in enumerate(counts):
        assert max(1, count * share - 1) <= chosen.labels.count(label) <= max(1, count * share)
    assert len(chosen) <= most + sum(count * share < 1 for count in counts)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([9, 1, 9], "holds 1 training image of 'class 1'"),
        ([9, 9, 0], "holds 0 training images of 'class 2'"),
        ([3, 3], f"holds 6 training images, of which 2 can be held back to judge with; at least {FEWEST} are needed"),
    ],
)
def test_too_few_images_are_told_with_their_numbers(counts: list[int], said: str) -> None:
    with pytest.raises(DataError, match=said) as raised:
        hold_back(numbered(counts, 0))
    assert "add images" in str(raised.value)


def chosen_channels(todo: Agenda, graph: sm.Graph) -> dict[int, list[tuple[int, ...]]]:
    found: dict[int, list[tuple[int, ...]]] = {}
    for layer, share in todo.shares:
        trained = {one.layer: one.channels for one in resolve(todo.share(layer, share), graph)}
        found.setdefault(layer, []).append(trained[layer])
        assert [i for i, channels in trained.items() if channels] == [layer]
    return found


@pytest.mark.parametrize("graph", [mcunet, model(), one_scale_hidden(2)], ids=lambda graph: graph.name)
def test_every_layer_is_tried_at_every_share_and_no_choice_of_channels_twice(graph: sm.Graph) -> None:
    todo = agenda(graph, EVERYTHING)
    channels = chosen_channels(todo, graph)
    for layer, node in enumerate(layers(graph)):
        wished = (1,) if type(node.op).__name__ == "Dense" else (1 / 8, 1 / 4, 1 / 2, 1)
        total = node.ins[1].type.shape[-1]
        sizes = {max(1, round(total * share)) for share in wished}
        assert [len(one) for one in channels[layer]] == sorted(sizes)
    assert todo.depths[0] == 0
    assert todo.depths[-1] == len(layers(graph))
    assert {todo.base, *range(min(6, len(layers(graph))) + 1)} <= set(todo.depths)
    assert todo.left_out == ()


def test_on_mcunet_depths_reach_every_block_and_bits_are_compared_on_its_widening_layers() -> None:
    todo = agenda(mcunet, EVERYTHING)
    assert todo.base == 21
    assert todo.depths == (*range(7), *range(9, 43, 3))
    assert [layer for layer, _ in todo.reference.weights] == [21, 24, 27, 30, 33, 36, 39]
    kinds = [kind_of(node) for node in layers(mcunet)]
    assert kinds[21:24] == [Kind.expand, Kind.depthwise, Kind.project]
    assert kinds[0] == Kind.other


@given(st.integers(1_000, 250_000), st.sampled_from([None, 1, 5, 30]), st.booleans())
@settings(max_examples=examples(25))
def test_nothing_is_tried_that_takes_more_memory_than_allowed_and_what_is_left_out_is_said(
    most: int, reach: int | None, quick: bool
) -> None:
    todo = agenda(mcunet, most, reach, quick)
    count = len(layers(mcunet))
    assert all(analytic_memory(todo.depth(depth), mcunet).total <= most for depth in todo.depths)
    for layer, share in todo.shares:
        assert analytic_memory(Scheme("alone", count - layer, ((layer, share),)), mcunet).total <= most
    assert 0 in todo.depths
    assert todo.base in todo.depths
    assert all(max(todo.base, count - layer) <= todo.depths[-1] for layer, _ in todo.shares)
    tried = {layer for layer, share in todo.shares if share == 1}
    assert bool(todo.left_out) == (quick or len(tried) < count)
    if reach is not None:
        assert all(layer >= count - reach for layer, _ in todo.shares)


def test_a_quick_agenda_keeps_to_what_a_full_one_measures() -> None:
    quick, full = agenda(mcunet, EVERYTHING, quick=True), agenda(mcunet, EVERYTHING)
    assert set(quick.shares) < set(full.shares)
    assert set(quick.depths) < set(full.depths)
    assert {share for _, share in quick.shares} == {Fraction(1, 4), Fraction(1)} < set(SHARES)
    assert any("before 21" in line for line in quick.left_out)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_quick_analysis_is_bounded_in_steps_and_says_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, seeds: int
) -> None:
    launcher = PretendedLauncher()
    monkeypatch.setattr(analysis, "find_launcher", lambda *_: launcher)
    many = numbered([700, 900, 300], 1)
    found = sm.analyze(mcunet, many, quick=True, seeds=seeds)
    used = found.conditions
    assert 0.8 * QUICK_STEPS < used.epochs * used.learned_from * len(launcher.asked) <= QUICK_STEPS
    assert used.judged_with == 475
    assert any("images: it learned from" in line for line in found.left_out)
    longer = sm.analyze(mcunet, many, seeds=seeds).conditions
    assert (longer.learned_from, longer.epochs) == (1425, 17)


@given(st.lists(st.tuples(st.integers(0, 42), st.integers(0, 9)), min_size=1, max_size=200, unique=True))
@settings(max_examples=examples(50))
def test_fleets_hold_every_trial_once_and_learn_from_about_the_same_layer_on(drawn: list[tuple[int, int]]) -> None:
    trials = [Trial(Scheme("some", biases), 12, seed) for biases, seed in drawn]
    grouped = Setup(mcunet, data(), Course(1, 0.1)).fleets(trials)
    assert sorted(t for fleet in grouped for t in map(trials.index, fleet)) == list(range(len(trials)))
    assert max(map(len, grouped)) <= FLEET
    depths = [[trial.scheme.biases for trial in fleet] for fleet in grouped]
    assert all(max(one) <= min(next_) for one, next_ in pairwise(depths))


def contributions(graph: sm.Graph, gains: dict[int, float]) -> Contributions:
    """Made-up ones: biases reach 60 %, and each layer named adds so much with all its channels."""
    count = len(layers(graph))
    conditions = Conditions("made up", "0" * 64, 4, 300, 1000, 9, 1 / 256, (0,), 12)
    depths = (BiasDepth(0, 0.5), BiasDepth(count, 0.6))
    shares = tuple(LayerShare(layer, Fraction(1), 0.6 + gain) for layer, gain in sorted(gains.items()))
    return Contributions(graph.name, layer_names(graph), conditions, depths, count, shares, (), ("the rest",))


def test_the_summary_says_what_adds_and_what_harms_beyond_chance() -> None:
    summary = summarize(contributions(mcunet, {21: 0.1, 22: -0.01, 23: -0.1}), mcunet, "c.json")
    assert {layer: (summary.kinds[layer], verdict) for layer, _, verdict in summary.layers()} == {
        21: ("expand", "adds"),
        22: ("depthwise", ""),
        23: ("project", "harms"),
    }
    assert summary.noise == pytest.approx((0.6 * 0.4 / 1000) ** 0.5)
    text = str(summary)
    assert "training these layers harms: 23 (project)" in text
    assert "left out: the rest" in text
    assert "+10.0%" in text
    assert "-10.0%" in text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small model and images of shapes."""
    monkeypatch.chdir(tmp_path)
    write_smg(model(), tmp_path / "small.smg")
    train, test = data().train, data().test
    np.savez(
        tmp_path / "shapes.npz", x=np.array(train.images), y=np.array(train.labels),
        x_test=np.array(test.images), y_test=np.array(test.labels),
    )  # fmt: skip
    return tmp_path


ANALYZE = ("analyze", "small.smg", "--data", "shapes.npz", "-o", "c.json", "--quick", "--epochs", "2", "--reach", "2")


def test_the_verb_writes_the_file_and_shows_it_as_text_or_json(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "find_launcher", lambda *_: PretendedLauncher())
    shown = CliRunner().invoke(cli.app, [*ANALYZE, "--learning-rate", "0.4/256"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "written to c.json" in shown.stdout
    assert "left out: weights and biases of the layers before 6" in shown.stdout
    found = read_contributions(Path("c.json"))
    assert found.conditions.learning_rate == 0.4 / 256
    printed = CliRunner().invoke(cli.app, [*ANALYZE, "--force", "--json"], catch_exceptions=False)
    plain = json.loads(printed.stdout)
    assert [one["biases"] for one in plain["depths"]] == [one.biases for one in found.depths]
    assert [one["layer"] for one in plain["layers"]] == [7, 6]
    assert sorted(path.name for path in folder.iterdir()) == ["c.json", "shapes.npz", "small.smg"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("-o", "."), "is a folder"),
        (("-o", "nowhere/c.json"), "there is no folder nowhere"),
        (("--ray", "127.0.0.1:1"), "127.0.0.1:1|install 'smidgen.ray.'"),
        (("--learning-rate", "fast"), "rate of fast"),
        (("--target", "tpu"), "host or cuda"),
        (("--limit", "2"), "cannot show 4 classes"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_leaves_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["smidgen", *ANALYZE, *change])
    with pytest.raises(SystemExit) as raised:
        cli.main()
    written = capsys.readouterr()
    assert raised.value.code == 2
    assert written.out == ""
    assert len(written.err.splitlines()) == 1
    assert re.search(said, written.err)
    assert sorted(path.name for path in folder.iterdir()) == ["shapes.npz", "small.smg"]
