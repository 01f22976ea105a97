"""Quantization: ranges from real images, int8 that follows float, and one sentence for what cannot be done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen.data import centre, from_pixels, pixel_encoding
from smidgen.data.layouts.cifar import read_sample
from smidgen.data.pixels import PixelEncoding
from smidgen.ir import Array, Builder, Graph, QParams, Type, evaluate, evaluate_all
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ops import BatchNorm, Concat, Conv2D, Dense, Gather, Lookup, MaxPool, Mean, Requantize, Softmax
from smidgen.quantization import METHODS, Method, QuantizationError, QuantizationProgress, Recipe, quantize
from smidgen.quantization.batch import Passes, run_batch
from smidgen.quantization.calibration import calibrate, scale_of
from smidgen.quantization.folding import fold
from smidgen.quantization.int8 import correct_biases, input_scale, round_graph, share_scales, weight_scales
from smidgen.targets.host import Host
from tests.support.float_graphs import FloatNet, dequantized, float_graphs
from tests.support.small_network import small_network
from tests.support.tiers import examples

IMAGES = read_sample().train.images[::8]
IMAGENET = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def noise(graph: Graph, count: int = 16, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=graph.inputs[0].type.shape).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("method", METHODS)
def test_int8_follows_float_on_images_that_set_no_range(method: Method) -> None:
    result = quantize(dequantized(small_network(), Preprocessing()), IMAGES, Recipe(method))
    assert (result.report.calibrated, result.report.compared, result.report.held_out) == (100, 25, True)
    assert result.report.output is not None
    assert result.report.output > (12 if method == "average" else 20)  # an average cuts what few images reach
    assert all(v.type.dtype == "int8" for node in result.graph.nodes for v in node.outs)


def test_a_network_that_was_int8_comes_back_nearly_as_it_was() -> None:
    """Nothing is lost twice: the int8 network behind the float one, quantized anew, predicts the same."""
    whole = small_network()
    again = quantize(dequantized(whole, Preprocessing()), IMAGES).graph
    tops = [
        [int(evaluate(graph, centre(image, pixel_encoding(graph)))[0].argmax()) for image in IMAGES]
        for graph in (whole, again)
    ]
    assert np.mean(np.array(tops[0]) == np.array(tops[1])) >= 0.9


@given(float_graphs(), st.integers(0, 100))
@settings(max_examples=examples(25))
def test_any_graph_of_known_layers_quantizes_and_every_layer_alone_is_near(graph: Graph, seed: int) -> None:
    report = quantize(graph, noise(graph, 16, seed), Recipe("minmax")).report
    for layer in report.layers:
        assert layer.alone is None or layer.alone > 15, layer


@given(float_graphs(), st.integers(0, 100))
@settings(max_examples=examples(15))
def test_an_int8_batch_gives_the_bytes_its_samples_give_one_by_one(graph: Graph, seed: int) -> None:
    rounded = quantize(graph, noise(graph), Recipe("minmax")).graph
    xs = np.random.default_rng(seed).integers(-128, 128, (3, *graph.inputs[0].type.shape)).astype(np.int8)
    got: dict[str, Array] = {}
    run_batch(rounded, xs, lambda v, array: got.update({v.name: array}))
    for i, x in enumerate(xs):
        for value, array in evaluate_all(rounded, {}, x).items():
            assert value.name not in got or np.array_equal(got[value.name][i], array), value.name


def test_a_quantized_graph_computes_the_same_bytes_in_c(host: Host) -> None:
    graph = quantize(dequantized(small_network(), Preprocessing()), IMAGES).graph
    with sm.compile(graph, target=host).start() as device:
        for image in IMAGES[:4]:
            x = centre(image, pixel_encoding(graph))
            assert np.array_equal(device.run(x)[0], evaluate(graph, x)[0])


@pytest.mark.parametrize(
    "stated",
    [
        Preprocessing(), Preprocessing((0.0,), (1.0,)), Preprocessing((0.0,), (1.0,), range=(0.0, 255.0)),
        Preprocessing((127.5,), (127.5,), range=(0.0, 255.0)), Preprocessing((0.4,), (0.2,)),
    ],
)  # fmt: skip
def test_pixels_fall_on_int8_one_by_one_where_channels_are_alike(stated: Preprocessing) -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 256, 1).repeat(3, axis=2)
    type = Type((1, 1, 256, 3), "int8", input_scale(stated, 3))
    assert np.array_equal(from_pixels(pixels, PixelEncoding(type, stated))[0], pixels.astype(int) - 128)


@given(st.lists(st.floats(-2, 2), min_size=3, max_size=3), st.lists(st.floats(0.05, 2), min_size=3, max_size=3))
def test_an_image_input_holds_every_pixel_to_half_a_step_and_zero_exactly(mean: list[float], std: list[float]) -> None:
    stated = Preprocessing(tuple(mean), tuple(std))
    q = input_scale(stated, 3)
    numbers = stated.numbers(3)
    ends = q.one * (-128 - q.zero), q.one * (127 - q.zero)
    assert ends[0] - q.one <= min(numbers.min(), 0)
    assert ends[1] + q.one >= max(numbers.max(), 0)
    assert -128 <= q.zero <= 127


def test_the_preprocessing_given_is_kept_and_changes_what_the_network_sees() -> None:
    graph = dequantized(small_network())
    plain, stated = (quantize(graph, IMAGES, preprocessing=given) for given in (Preprocessing(), IMAGENET))
    assert plain.graph.preprocessing == Preprocessing()
    assert stated.graph.preprocessing == IMAGENET
    assert plain.graph.inputs[0].type.q == QParams.per_tensor(2 / 255, 0)
    assert stated.graph.inputs[0].type != plain.graph.inputs[0].type
    own = quantize(replace(graph, preprocessing=IMAGENET), IMAGES)
    assert own.graph == stated.graph


def test_relu6_is_left_to_saturation() -> None:
    n = FloatNet(0)
    y = n.conv(n.x, 8, k=3, pad=1, activation="relu6", spread=8)
    (node,) = quantize(n.g.graph(y), noise(n.g.graph(y))).graph.nodes
    assert isinstance(node.op, Conv2D)
    assert node.op.activation == "none"
    assert node.out.type.q == QParams.per_tensor(6 / 255, -128)


def test_what_a_concatenation_joins_has_one_quantization_and_fixed_ones_are_requantized() -> None:
    n = FloatNet(0)
    a = n.g.emit(MaxPool((2, 2), (1, 1), (0, 1, 0, 1)), n.conv(n.x, 4, activation="relu"))
    y = n.g.emit(Concat(3), a, n.conv(n.x, 4, spread=4), n.x)
    graph = n.g.graph(n.conv(y, 2))
    graph = replace(graph, preprocessing=Preprocessing())
    rng = np.random.default_rng(0)
    result = quantize(graph, [rng.integers(0, 256, (6, 6, 3)).astype(np.uint8) for _ in range(8)]).graph
    joined = next(node for node in result.nodes if isinstance(node.op, Concat))
    assert len({v.type.q for v in joined.ins}) == 1
    assert sum(isinstance(node.op, Requantize) for node in result.nodes) == 1
    assert result.inputs[0].type.q == QParams.per_tensor(2 / 255, 0)


def test_probabilities_keep_their_fixed_quantization() -> None:
    n = FloatNet(0)
    logits = n.g.emit(Dense(), n.g.emit(Mean(), n.conv(n.x, 4)), n.constant(5, 4), n.constant(5))
    graph = n.g.graph(n.g.emit(Softmax(), logits))
    assert quantize(graph, noise(graph)).graph.outputs[0].type.q == QParams.per_tensor(1 / 256, -128)


def test_dead_channels_and_layers_are_no_error() -> None:
    n = FloatNet(0)
    w = np.random.default_rng(0).normal(size=(6, 1, 1, 3)).astype(np.float32)
    w[0] = 0
    bias = np.array([0, -9e9, 0, 0, 0, 0], np.float32)  # one always silent behind its ReLU, one of zeros
    x = n.g.emit(Conv2D(activation="relu"), n.x, n.g.constant("w", w), n.g.constant("b", bias))
    x = n.g.emit(
        Conv2D(), x, n.g.constant("z", np.zeros((4, 1, 1, 6), np.float32)), n.g.constant("zb", np.zeros(4, np.float32))
    )
    graph = n.g.graph(n.conv(x, 3))
    result = quantize(graph, noise(graph))
    assert all(np.isfinite(v.type.scale) for node in result.graph.nodes for v in node.outs)
    assert all(np.abs(b).max() < 2**31 - 2**29 for v, b in result.graph.constants.items() if v.type.dtype == "int32")


@given(st.floats(1e-8, 1e8), st.floats(1e-6, 10))
def test_a_bias_always_fits_its_accumulator(bias: float, x_scale: float) -> None:
    scales = weight_scales(np.ones((1, 4), np.float32), np.array([bias], np.float32), 0, x_scale)
    assert bias / (x_scale * scales[0]) <= 2**29 * 1.0001


def test_percentiles_cut_outliers_and_the_least_error_lies_between() -> None:
    n = FloatNet(0, (1, 10, 10, 1))
    graph = n.g.graph(n.conv(n.x, 1))
    samples = np.stack(noise(graph, 20))
    samples[0, 0, 0, 0, 0] = 100.0
    widths = {}
    for method in METHODS:
        low, high = calibrate(graph, samples, method, 99.0, Passes())[graph.inputs[0]]
        widths[method] = high - low
    assert widths["percentile"] < widths["mse"] < widths["minmax"]
    assert widths["average"] < widths["minmax"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("op", "low", "high"),
    [
        (Lookup("hard_sigmoid", 1 / 6, 0.5), -3, 3), (Lookup("hard_swish"), -2.8, 90), (Lookup("sigmoid"), -6.9, 6.9),
        (Lookup("tanh"), -3.5, 3.5), (Lookup("leaky_relu", 0.1), -90, 90),
    ],
)  # fmt: skip
def test_what_a_function_alone_reads_has_the_range_in_which_it_tells_numbers_apart(
    op: Lookup, low: float, high: float, method: Method
) -> None:
    n = FloatNet(0, (1, 10, 10, 1))
    w, b = n.g.constant("w", np.full((1, 1, 1, 1), 60, np.float32)), n.g.constant("b", np.zeros(1, np.float32))
    wide = n.g.emit(Conv2D(), n.x, w, b)
    y = n.g.emit(op, wide)
    graph = n.g.graph(y)
    samples = np.stack(noise(graph, 20)).clip(-1.5, 1.5)
    samples[:, 0, 0, :2, 0] = -1.5, 1.5
    found = calibrate(graph, samples, method, 100.0, Passes())[wide]
    if method == "mse":  # which may cut further
        assert low * 1.01 <= found[0] < found[1] <= high * 1.01
    else:
        assert found == pytest.approx((low, high), rel=0.02)
    both = calibrate(n.g.graph(y, wide), samples, method, 100.0, Passes())
    assert both[wide] == (-90, 90)  # what others read, too, is wanted whole


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_a_range_becomes_a_scale_that_holds_it_and_zero(low: float, width: float) -> None:
    q = scale_of((low, low + width))
    assert -128 <= q.zero <= 127
    assert q.one * (127 - q.zero) >= min(low + width, 1e6) - q.one
    assert q.one * (-128 - q.zero) <= low + q.one


def test_correcting_biases_removes_the_mean_error_of_every_channel() -> None:
    graph = fold(dequantized(small_network(), Preprocessing()))
    samples = np.stack([centre(image, pixel_encoding(graph)) for image in IMAGES])
    scales = share_scales(graph, calibrate(graph, samples, "minmax", 100, Passes()), input_scale(Preprocessing(), 3))
    rounded = round_graph(graph, scales)
    integers = np.stack([centre(image, pixel_encoding(rounded)) for image in IMAGES])
    corrected = correct_biases(graph, rounded, samples, integers)

    def offset(other: Graph) -> float:
        """The mean error of the logits."""
        wanted, got = (np.stack([evaluate(g, x)[0] for x in xs]) for g, xs in ((graph, samples), (other, integers)))
        q = other.outputs[0].type
        return float(np.abs((q.scale * (got.astype(float) - q.zero) - wanted).mean(axis=(0, 1))).mean())

    assert offset(corrected) < 0.5 * offset(rounded)


def test_a_listener_hears_every_stage_to_its_end() -> None:
    heard: list[QuantizationProgress] = []
    quantize(dequantized(small_network(), Preprocessing()), IMAGES, on_progress=heard.append)
    doing = list(dict.fromkeys(progress.doing for progress in heard))
    assert doing == ["equalising", "calibrating", "counting", "correcting", "comparing"]
    last = {progress.doing: progress for progress in heard}
    assert all(last[stage].done == last[stage].total for stage in ("calibrating", "counting", "comparing"))


def broken(value: float) -> Graph:
    graph = dequantized(small_network())
    v, data = next(iter(graph.constants.items()))
    bad = data.copy()
    bad.flat[3] = value
    return replace(graph, constants={**graph.constants, v: bad})


def without_int8_form() -> Graph:
    n = FloatNet(0)
    return n.g.graph(n.g.emit(Gather((0, 2)), n.x))


def computed_weights() -> Graph:
    g = Builder("hyper")
    x = g.input("x", Type((1, 4), "float32"))
    w = g.emit(BatchNorm(), x, g.constant("s", np.ones(4, np.float32)), g.constant("t", np.ones(4, np.float32)))
    return g.graph(g.emit(Dense(), x, w, g.constant("b", np.zeros(1, np.float32))))


FLOAT = dequantized(small_network())
FLAT = [np.full((32, 32, 3), shade, np.uint8) for shade in range(10)]


@pytest.mark.parametrize(
    ("graph", "images", "message"),
    [
        (FLOAT, IMAGES[:3], "3 samples are too few to calibrate small with; give at least 8, better about 100"),
        (FLOAT, FLAT, "all 10 images show a single colour each; calibrate"),
        (FLOAT, [*IMAGES[:8], np.zeros((32, 32, 3), np.float32)], "8 of 9 samples are pictures, the others tensors"),
        (broken(np.nan), IMAGES, "holds 1 of 216 elements that are not finite"),
        (broken(np.inf), IMAGES, "not finite; fix the weights"),
        (small_network(), IMAGES, "small is int8 already"),
        (without_int8_form(), noise(without_int8_form()), "Gather, which gives %v0, has no int8 form"),
        (computed_weights(), noise(computed_weights()), "computes its weights; they must be constants"),
    ],
)
def test_what_cannot_be_quantized_is_said_in_one_sentence(graph: Graph, images: list[Array], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        quantize(graph, images)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (
            np.zeros((1, 32, 32, 1), np.float32),
            r"float32\[1, 32, 32, 1\], the model's input float32\[1, 32, 32, 3\]",
        ),
        (np.full((32, 32, 3), np.nan, np.float32), "a sample holds 3072 of 3,072 numbers that are not finite; leave"),
        (np.zeros((32, 32, 3), np.int8), "a sample is int8, .* but the model's input is float32"),
        (np.zeros((32, 32, 3), np.int64), "a sample is int64; give float32 numbers"),
    ],
)
def test_samples_that_do_not_fit_are_said_in_one_sentence(sample: Array, message: str) -> None:
    with pytest.raises(sm.DataError, match=message):
        quantize(FLOAT, [sample] * 8)


def test_a_model_of_other_channels_than_images_have_is_refused() -> None:
    n = FloatNet(0, (1, 8, 8, 4))
    with pytest.raises(sm.DataError, match=r"\[1, 8, 8, 4\] is not an image"):
        quantize(n.g.graph(n.conv(n.x, 2)), IMAGES)


@pytest.mark.parametrize("recipe", [Recipe("median"), Recipe(percentile=20)])  # type: ignore[arg-type]
def test_recipes_that_cannot_be_followed_are_refused(recipe: Recipe) -> None:
    with pytest.raises(sm.InputError):
        quantize(FLOAT, IMAGES, recipe)
