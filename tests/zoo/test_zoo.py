"""The zoo's networks have the published shapes, and random weights that keep signals alive."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from smidgen.errors import ImportModelError, InputError, SmidgenError
from smidgen.frontends import import_model
from smidgen.ir import Array, Graph, evaluate
from smidgen.ops import Conv2D, Depthwise
from smidgen.results.inspection import describe
from smidgen.zoo import NAMES, build_zoo, load
from smidgen.zoo.tables import mbv2, round_to_8
from tests.support.release_files import SHARED

CONVS_AND_MEGAMACS = {"mbv2-w0.35": (51, 16.6), "proxyless-w0.3": (60, 18.6), "mcunet-5fps": (42, 22.5)}
CRC = 4164478057  # of mcunet-5fps's constants


def smooth_image(size: int = 128) -> Array:
    """Waves and gradients, one a colour."""
    y, x = np.mgrid[0:size, 0:size] / (size - 1)
    waves = np.stack([np.sin(7 * x + 3 * y), 2 * x * y - 1, np.cos(9 * y) * x], axis=-1)
    image: Array = np.rint(110 * waves).astype(np.int8)[None]
    return image


def noise_image(size: int = 128) -> Array:
    return np.random.default_rng(0).integers(-128, 128, (1, size, size, 3)).astype(np.int8)


def activations(graph: Graph, image: Array) -> dict[str, Array]:
    values = dict(graph.constants) | {graph.inputs[0]: image}
    for node in graph.nodes:
        out = node.op.ref(node, *(values[v] for v in node.ins))
        assert not isinstance(out, tuple)
        values[node.out] = out
    return {node.out.name: values[node.out] for node in graph.nodes}


@pytest.mark.parametrize("name", NAMES)
def test_the_zoo_has_the_published_number_of_convolutions_and_macs(name: str) -> None:
    summary = describe(load(name))
    convs = [layer for layer in summary.layers if layer.op in ("Conv2D", "Depthwise")]
    count, megamacs = CONVS_AND_MEGAMACS[name]
    assert len(convs) == count
    assert sum(layer.macs for layer in convs) / 1e6 == pytest.approx(megamacs, abs=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_the_zoo_has_the_shape_stride_and_groups_of_every_released_layer(name: str) -> None:
    path = SHARED / "models" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the released networks are not beside the checkout: no {path.name}")
    mine, theirs = build_zoo(name), import_model(path)
    for a, b in zip(mine.nodes, theirs.nodes, strict=True):
        assert (a.op, a.out.name, a.out.type.shape) == (b.op, b.out.name, b.out.type.shape)
        assert [v.type.shape for v in a.ins] == [v.type.shape for v in b.ins]


def test_mobilenet_at_full_width_has_the_channels_of_its_paper() -> None:
    table = mbv2(1.0)
    assert table.stem == 32
    channels = [16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320]
    assert [stage.channels for stage in table.blocks] == channels
    assert [i for i, stage in enumerate(table.blocks) if stage.stride == 2] == [1, 3, 6, 13]


def test_channels_are_multiples_of_8_that_lose_at_most_a_tenth() -> None:
    for channels in range(1, 700):
        rounded = round_to_8(channels)
        assert rounded % 8 == 0
        assert 0.9 * channels <= rounded <= max(8, channels + 8)


@pytest.mark.parametrize("image", [smooth_image(), noise_image()], ids=["smooth", "noise"])
@pytest.mark.parametrize("name", NAMES)
def test_activations_neither_saturate_nor_die(name: str, image: Array) -> None:
    for layer, y in activations(build_zoo(name), image).items():
        channels = y.reshape(-1, y.shape[-1])
        still = np.all(channels == channels[0], axis=0).mean() if len(channels) > 1 else 0.0
        assert (y == 127).mean() < 0.05, f"{layer} saturates"
        assert still < 0.1, f"{layer} has {still:.0%} channels that say nothing"
        assert y.astype(float).std() > 8, f"{layer} uses few of its levels"


def test_different_images_give_different_logits() -> None:
    graph = build_zoo("mbv2-w0.35")
    (smooth,), (noise,) = evaluate(graph, smooth_image()), evaluate(graph, noise_image())
    assert np.count_nonzero(smooth != noise) > 500


def test_a_seed_gives_the_same_bytes_for_good() -> None:
    graph = build_zoo("mcunet-5fps")
    assert graph == build_zoo("mcunet-5fps")
    assert graph != build_zoo("mcunet-5fps", seed=1)
    assert zlib.crc32(b"".join(data.tobytes() for data in graph.constants.values())) == CRC


@pytest.mark.parametrize("width", ["0.1", "0.5", "1", "1.4"])
def test_mobilenet_comes_at_any_width_resolution_and_number_of_classes(width: str) -> None:
    graph = build_zoo(f"mbv2-w{width}", resolution=96, classes=10)
    assert graph.inputs[0].type.shape == (1, 96, 96, 3)
    assert graph.outputs[0].type.shape == (1, 10)
    assert sum(isinstance(node.op, Conv2D | Depthwise) for node in graph.nodes) == 51


def test_layers_have_names_people_recognise() -> None:
    names = [node.out.name for node in build_zoo("mcunet-5fps").nodes]
    assert names[:3] == ["stem", "b0.depthwise", "b0.project"]
    assert {"b2.expand", "b2.depthwise", "b2.project", "b2.add", "pool", "logits"} <= set(names)


def test_an_unknown_name_lists_the_zoo_and_the_nearest() -> None:
    with pytest.raises(ImportModelError, match=r"mbv2-w0\.35, mcunet-5fps, proxyless-w0\.3.*did you mean mcunet-5fps"):
        load("mcunet5fps")
    with pytest.raises(ImportModelError, match="there is no file"):
        load("something else entirely")


def test_sizes_out_of_range_are_refused() -> None:
    for name, resolution, classes in (("mbv2-w9", 128, 10), ("mbv2-w1", 8, 10), ("mbv2-w1", 128, 0)):
        with pytest.raises(InputError, match="it can be"):
            build_zoo(name, resolution=resolution, classes=classes)
    with pytest.raises(SmidgenError, match="width is 0"):
        load("mbv2-w0")
