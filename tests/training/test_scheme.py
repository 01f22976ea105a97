"""Schemes: the published ones take the memory their names say, files round-trip, and what does not fit is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.frontends import import_model
from smidgen.frontends.network import build
from smidgen.ir import Graph
from smidgen.ops import Conv2D, Depthwise
from smidgen.selection import estimate, search
from smidgen.training import Options
from smidgen.training.head import layers
from smidgen.training.published import PUBLISHED, LayerShape, PublishedNetwork, published_for
from smidgen.training.scheme import (
    RANKINGS,
    AnalyticMemory,
    MadeFor,
    Scheme,
    SchemeError,
    Trained,
    analytic_memory,
    layer_memory,
    load_scheme,
    resolve,
)
from smidgen.zoo import build_zoo, find_table, load
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import MCUNET_5FPS, BlockTable
from tests.support.house import TOP
from tests.support.networks import inverted_residual, one_scale_hidden
from tests.support.release_files import SHARED
from tests.support.small_network import small_network
from tests.support.tiers import examples

NAMED = tuple((network.name, scheme) for network in PUBLISHED for scheme in network.schemes)


def released(network: str) -> Graph:
    path = SHARED / "models" / f"{network}.npz"
    if not path.exists():
        pytest.skip(f"the released networks are not beside the checkout: no {path.name}")
    return import_model(path)


def kilobytes(memory: AnalyticMemory) -> float:
    return memory.total / 1024


def test_there_are_five_published_schemes_for_each_network() -> None:
    assert len(NAMED) == 15


@pytest.mark.parametrize(("network", "scheme"), NAMED)
def test_a_published_scheme_takes_what_its_name_says_on_the_zoo(network: str, scheme: str) -> None:
    graph = build_zoo(network)
    assert abs(kilobytes(analytic_memory(load_scheme(scheme, graph), graph)) - int(scheme.removesuffix("kb"))) <= 1


@pytest.mark.parametrize(("network", "scheme"), NAMED)
def test_a_published_scheme_takes_what_its_name_says_on_the_release(network: str, scheme: str) -> None:
    graph = released(network)
    assert abs(kilobytes(analytic_memory(load_scheme(scheme, graph), graph)) - int(scheme.removesuffix("kb"))) <= 1


@pytest.mark.parametrize("network", PUBLISHED, ids=lambda network: network.name)
def test_a_network_with_weights_has_the_layers_that_the_zoo_draws(network: PublishedNetwork) -> None:
    assert network.layers == tuple(map(LayerShape.of, layers(build_zoo(network.name))))


def kernel_changed(block: int) -> Graph:
    """mcunet-5fps with another kernel in one block."""
    blocks = list(MCUNET_5FPS.blocks)
    blocks[block] = replace(blocks[block], kernel=blocks[block].kernel + 2)
    return build(draw(BlockTable(MCUNET_5FPS.stem, tuple(blocks)), 128, 10, 0), "changed")


REFUSED = {
    "width": (
        lambda: build_zoo("mbv2-w1.0"),
        r"layer 0 of mbv2-w1.0 is Conv2D with weights 32×3×3×3, .* of mbv2-w0.35 is Conv2D with weights 16×3×3×3",
    ),
    "resolution": (
        lambda: build_zoo("mcunet-5fps", resolution=96),
        "layer 0 of mcunet-5fps is .* and a map of 48×48, .* and a map of 64×64",
    ),
    "kernel": (
        lambda: kernel_changed(13),
        r"layer 40 of changed is Depthwise with weights 1×5×5×576, .* is Depthwise with weights 1×3×3×576",
    ),
    "fewer layers": (
        lambda: build(draw(BlockTable(MCUNET_5FPS.stem, MCUNET_5FPS.blocks[:-1]), 128, 10, 0), "short"),
        "short has 39 layers, mcunet-5fps has 42",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("network", "difference"), REFUSED.values(), ids=REFUSED)
def test_a_published_name_is_refused_for_another_network(network: Callable[[], Graph], difference: str) -> None:
    graph = network()
    assert not published_for(graph)
    for _, name in NAMED:
        with pytest.raises(SchemeError, match=rf"'{name}' was published for .*; give full, last:K, bias:K, head, or"):
            load_scheme(name, graph)
    with pytest.raises(SchemeError, match=difference):
        load_scheme("49kb", graph)


def test_a_name_of_another_network_is_refused_with_the_names_that_apply() -> None:
    with pytest.raises(SchemeError, match=r"'98kb' was published for proxyless-w0.3 .* give 49kb, 73kb, .*, full, "):
        load_scheme("98kb", build_zoo("mbv2-w0.35"))


@given(st.integers(10, 200), st.sampled_from((96, 112, 128, 160)))
@settings(max_examples=examples(10))
def test_published_names_apply_to_one_width_and_resolution_alone(hundredths: int, resolution: int) -> None:
    name = f"mbv2-w{hundredths / 100:g}"
    same = find_table(name) == find_table("mbv2-w0.35") and resolution == 128
    assert bool(published_for(build_zoo(name, resolution=resolution, classes=2))) == same


def test_the_parts_of_one_scheme_are_the_published_ones() -> None:
    graph = build_zoo("mcunet-5fps")
    memory = analytic_memory(load_scheme("99kb", graph), graph)
    parts = [round(part / 1024, 1) for part in (memory.saved, memory.masks, memory.weights, memory.biases)]
    assert parts == [12.1, 17.7, 51.2, 18.7]


def test_a_layer_that_learns_as_a_whole_keeps_its_input_and_moves_all_of_its_weights() -> None:
    found = layers(inverted_residual(0))
    for index, node in enumerate(found):
        x, w, b = (v.type for v in node.ins)
        memory = layer_memory(Trained(index, node, True, tuple(range(w.shape[-1]))))
        assert memory == AnalyticMemory(x.size, -(-node.out.type.size // 8), w.size, 4 * b.size)
    assert {type(node.op) for node in found} == {Conv2D, Depthwise}


shares = st.fractions(min_value=Fraction(1, 64), max_value=1, max_denominator=64)
named = st.sets(st.integers(0, 999), min_size=1, max_size=9).map(lambda channels: tuple(sorted(channels)))
schemes = st.builds(
    Scheme,
    st.text(min_size=1, max_size=20),
    st.integers(0, 60),
    st.dictionaries(st.integers(0, 59), shares | named).map(lambda weights: tuple(sorted(weights.items()))),
    st.sampled_from(RANKINGS),
)


@given(schemes)
@settings(max_examples=examples(50))
def test_a_scheme_survives_json(scheme: Scheme) -> None:
    assert Scheme.from_json(scheme.to_json()) == scheme


def test_a_scheme_is_read_from_a_file(tmp_path: Path) -> None:
    graph = inverted_residual(0)
    scheme = Scheme("mine", 3, ((6, Fraction(1, 2)),), "smallest")
    file = tmp_path / "mine.json"
    file.write_text(scheme.to_json())
    assert load_scheme(str(file), graph) == scheme


def test_the_short_forms_mean_what_they_say() -> None:
    graph = inverted_residual(0)
    count = len(layers(graph))
    for text, biases, learning in (
        ("full", count, range(count)), ("last:2", 2, range(count - 2, count)), ("bias:3", 3, ()), ("head", 0, ()),
    ):  # fmt: skip
        scheme = load_scheme(text, graph)
        assert (scheme.biases, scheme.weights) == (biases, tuple((i, Fraction(1)) for i in learning))


def test_the_share_of_channels_is_what_ranks_first() -> None:
    graph = inverted_residual(0)
    layer = len(layers(graph)) - 1
    chosen = {
        ranking: resolve(Scheme("half", 1, ((layer, Fraction(1, 2)),), ranking), graph)[0].channels
        for ranking in RANKINGS
    }
    assert {len(channels) for channels in chosen.values()} == {3}
    assert not set(chosen["largest"]) & set(chosen["smallest"])
    assert all(channels == tuple(sorted(channels)) for channels in chosen.values())


def test_channels_that_are_named_learn_whatever_their_rank() -> None:
    graph = inverted_residual(0)
    layer = len(layers(graph)) - 1
    for ranking in RANKINGS:
        (trained,) = resolve(Scheme("named", 1, ((layer, (1, 4)),), ranking), graph)
        assert trained.channels == (1, 4)
        assert trained.partial


def test_naming_the_channels_that_rank_first_is_giving_their_share() -> None:
    graph = inverted_residual(0)
    layer = len(layers(graph)) - 1
    ranked = Scheme("s", 1, ((layer, Fraction(1, 2)),))
    chosen = replace(ranked, weights=((layer, resolve(ranked, graph)[0].channels),))
    assert resolve(chosen, graph) == resolve(ranked, graph)
    assert analytic_memory(chosen, graph) == analytic_memory(ranked, graph)


def test_part_of_a_dense_layer_is_refused_by_share_and_by_channels() -> None:
    graph = one_scale_hidden(0)
    last = len(layers(graph)) - 1
    for part, said in ((Fraction(1, 2), "1/2"), ((0, 1), "2 channels")):
        with pytest.raises(SchemeError, match=f"trains {said} of layer {last}, which is dense"):
            resolve(Scheme("s", 1, ((last, part),)), graph)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (Scheme("s", 9), "trains 9 biases, net0 has 8 layers"),
        (Scheme("s", -1), "trains -1 biases"),
        (Scheme("s", 3, ((99, Fraction(1)),)), r"names layer 99; net0 has 0 to"),
        (Scheme("s", 3, ((-1, Fraction(1)),)), "names layer -1"),
        (Scheme("s", 3, ((6, Fraction(3, 2)),)), "trains 3/2 of layer 6's channels"),
        (Scheme("s", 3, ((6, Fraction(0)),)), "trains 0 of layer 6's channels"),
        (Scheme("s", 3, ((6, Fraction(-1, 2)),)), "trains -1/2 of layer 6's channels"),
        (Scheme("s", 3, ((6, ()),)), r"trains channels \[\] of layer 6; give at least one of 0 to"),
        (Scheme("s", 3, ((6, (0, 999)),)), r"trains channels \[0, 999\] of layer 6"),
        (Scheme("s", 3, ((6, (-1, 0)),)), r"trains channels \[-1, 0\] of layer 6"),
        (Scheme("s", 3, ((6, (1, 1)),)), r"trains channels \[1, 1\] of layer 6; .* each once, in ascending order"),
        (Scheme("s", 3, ((6, (1, 0)),)), r"trains channels \[1, 0\] of layer 6"),
        (Scheme("s", 2, ((1, Fraction(1)),)), r"weights of layer 1 but only the last 2 biases .*needs biases"),
    ],
)
def test_a_scheme_that_does_not_fit_is_refused_with_the_numbers(scheme: Scheme, message: str) -> None:
    with pytest.raises(SchemeError, match=message):
        resolve(scheme, inverted_residual(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a scheme"),
        ("[]", "not a scheme"),
        ("{}", "name"),
        ("[" * 100_000, "not a scheme"),
        ('{"name": "s", "biases": "many", "weights": {}, "channels": "largest"}', "many"),
        ('{"name": "s", "biases": 1e999, "weights": {}, "channels": "largest"}', "not a scheme"),
        ('{"name": "s", "biases": 2.5, "weights": {}, "channels": "largest"}', r"2\.5"),
        ('{"name": "s", "biases": "1_0", "weights": {}, "channels": "largest"}', "'1_0' is not a whole number"),
        ('{"name": "s", "biases": true, "weights": {}, "channels": "largest"}', "True"),
        ('{"name": "s", "biases": 1, "weights": {"0": "1e999999999"}, "channels": "largest"}', "1e999999999"),
        ('{"name": "s", "biases": 1, "weights": {"a": "1"}, "channels": "largest"}', "'a'"),
        ('{"name": "s", "biases": 1, "weights": {"0": "1/0"}, "channels": "largest"}', "not a scheme"),
        ('{"name": "s", "biases": 1, "weights": {"0": "half"}, "channels": "largest"}', "half"),
        ('{"name": "s", "biases": 1, "weights": {"0": [0, 1.5]}, "channels": "largest"}', "1.5"),
        ('{"name": "s", "biases": 1, "weights": {"0": [0, true]}, "channels": "largest"}', "True"),
        ('{"name": "s", "biases": 1, "weights": [1, 2], "channels": "largest"}', "not a scheme"),
        ('{"name": "s", "biases": 1, "weights": {}, "channels": "best"}', "'best'; known are largest"),
    ],
)
def test_a_file_that_is_no_scheme_is_refused_with_its_name(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(text)
    with pytest.raises(SchemeError, match=message) as error:
        load_scheme(str(file), inverted_residual(0))
    assert "broken.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "99kb", "last:", "last:x", "bias:²", "last:" + "9" * 5000, "no/such/file.json"])
def test_an_unknown_scheme_lists_those_there_are(text: str) -> None:
    with pytest.raises(SchemeError, match=r"full, last:K, bias:K, head"):
        load_scheme(text, inverted_residual(0))


@pytest.mark.parametrize("text", ["last:99", "bias:99", "bias:-1"])
def test_more_or_fewer_layers_than_there_are_is_refused_with_both_numbers(text: str) -> None:
    with pytest.raises(SchemeError, match=r"trains (99|-1) biases, net0 has 8"):
        load_scheme(text, inverted_residual(0))


def test_a_searched_scheme_is_refused_for_a_network_it_was_not_made_for(tmp_path: Path) -> None:
    graph, file = inverted_residual(0), tmp_path / "scheme.json"
    scheme = Scheme("searched", 2, ((7, Fraction(1)),), made_for=MadeFor.of(graph))
    file.write_text(scheme.to_json())
    assert load_scheme(str(file), graph) == scheme
    assert load_scheme(str(file), replace(graph, name="renamed")) == scheme
    other = small_network()
    with pytest.raises(SchemeError, match="searched was made for net0, whose layers are not those of small; search"):
        load_scheme(str(file), other)
    plain = json.loads(file.read_text())
    del plain["made_for"]
    file.write_text(json.dumps(plain))
    assert resolve(load_scheme(str(file), other), other)  # the numbers alone fit
    wrongs: tuple[object, ...] = (3, "net0", {}, {"network": "net0"}, [])
    for wrong in wrongs:
        with pytest.raises(SchemeError, match="is not a scheme"):
            Scheme.from_json(json.dumps({**plain, "made_for": wrong}))


def test_what_a_search_finds_says_for_which_network() -> None:
    graph = small_network()
    found = search(graph, estimate(graph), "48KB", "cortex-m7", options=Options(4))
    assert found.scheme.made_for == MadeFor.of(graph)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(anything, anything, anything)
@settings(max_examples=examples(50))
def test_any_json_is_a_scheme_or_a_scheme_error(biases: object, weights: object, channels: object) -> None:
    for plain in (biases, {"name": "s", "biases": biases, "weights": weights, "channels": channels}):
        with suppress(SchemeError):
            Scheme.from_json(json.dumps(plain))


def test_the_scheme_in_the_documentation_is_one_that_can_be_given(tmp_path: Path) -> None:
    page = (TOP / "docs" / "internals" / "schemes.md").read_text()
    (written,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "scheme.json").write_text(written)
    graph = load("mcunet-5fps")
    learned = resolve(load_scheme(str(tmp_path / "scheme.json"), graph), graph)
    assert [one.layer for one in learned] == list(range(34, 42))
    assert [(one.layer, len(one.channels)) for one in learned if one.channels] == [(36, 24), (39, 96), (40, 3)]
