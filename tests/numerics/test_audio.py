"""The front end for sound: as it is defined, as others compute it, and the same bytes in numpy, in C and on a chip."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.compiler import find_compiler
from smidgen.data import as_input, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, QParams, Type
from smidgen.ir.log_mel import MFCC, YAMNET, LogMel
from smidgen.numerics.log_mel import feature_sums, log_mel, triangles, unit
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host, HostDevice
from tests.support.audio_signals import CASES, definition, listener, signals, slack, sounds
from tests.support.native import SANITIZE
from tests.support.tiers import examples

NEAR = 0.005  # of a feature, from its definition: a hundredth of a step of MLPerf Tiny's input


def features(samples: Array, spec: LogMel) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(samples, spec.window)[:: spec.hop]
    return feature_sums(windows, spec) * unit(spec)


def rounded(numbers: Array, q: QParams) -> Array:
    steps: Array = np.clip(np.floor(numbers / q.scale[0] + 0.5) + q.zero, -128, 127)
    return steps


@pytest.mark.parametrize("case", CASES)
def test_features_are_as_defined_on_sound_of_every_kind(case: str) -> None:
    spec, shape, q = CASES[case]
    for name, samples in signals(spec.samples(shape)).items():
        wanted, lost = definition(samples, spec), slack(samples, spec)
        off = np.abs(features(samples, spec) - wanted) - lost
        assert off.max() < NEAR, (name, off.max())
        made = log_mel(samples, spec, Type(shape, "int8", q)).reshape(wanted.T.shape if spec.across else wanted.shape)
        steps = np.abs((made.T if spec.across else made) - rounded(wanted, q)) - np.floor(lost / q.scale[0])
        assert steps.max() <= 1, (name, steps.max())
    assert case == "large" or slack(signals(spec.samples(shape))["vowel"], spec).max() < NEAR


@given(sounds(MFCC.samples((49, 10))))
def test_features_are_a_step_at_most_from_their_definition(samples: Array) -> None:
    spec, shape, q = CASES["mfcc"]
    made = log_mel(samples, spec, Type(shape, "int8", q)).reshape(49, 10)
    steps = np.abs(made - rounded(definition(samples, spec), q)) - np.floor(slack(samples, spec) / q.scale[0])
    assert steps.max() <= 1


def test_magnitudes_are_those_of_pytorch() -> None:
    """PyTorch's Hann window and transform under the same triangles."""
    samples = signals(16_000)["vowel"]
    curve = torch.nn.functional.pad(torch.hann_window(YAMNET.window, dtype=torch.float64), (0, 112))
    found = torch.stft(
        torch.from_numpy(samples / 32768), 512, YAMNET.hop, window=curve, center=False, return_complex=True
    )
    wanted = np.log(np.abs(found.numpy()[:-1]).T @ triangles(YAMNET).T + YAMNET.offset)
    assert np.abs(features(samples, YAMNET)[: len(wanted)] - wanted).max() < 1e-3


@pytest.mark.parametrize("spec", [MFCC, YAMNET])
def test_the_triangles_are_those_of_the_mel_scale(spec: LogMel) -> None:
    """By the scale's usual formula, 2595 · log10(1 + f / 700), band by band and bin by bin."""

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    step = (mel(spec.high) - mel(spec.low)) / (spec.bands + 1)
    heights = triangles(spec)
    for band in range(spec.bands):
        middle = mel(spec.low) + (band + 1) * step
        wanted = [max(0.0, 1 - abs(mel(k * spec.rate / spec.size) - middle) / step) for k in range(spec.size // 2)]
        assert np.allclose(heights[band], wanted, atol=1e-9)
        assert heights[band].max() > 0


def test_silence_is_the_logarithm_of_the_offset() -> None:
    silence = np.zeros(16_000, np.int16)
    assert np.allclose(features(silence, YAMNET), math.log(0.001), atol=1e-4)
    coefficients = features(silence, MFCC)
    assert np.allclose(coefficients[:, 0], math.sqrt(2 / 40) * 40 * math.log(1e-6), atol=1e-2)
    assert np.allclose(coefficients[:, 1:], 0, atol=1e-2)


def test_sound_twice_as_loud_moves_every_band_by_the_same() -> None:
    samples = signals(16_000)["noise"] // 4
    louder = features(2 * samples, YAMNET) - features(samples, YAMNET)
    assert np.allclose(louder, math.log(2), atol=5e-3)


def test_a_float_model_takes_the_features_before_they_are_rounded() -> None:
    samples = signals(15_840)["vowel"]
    made = log_mel(samples, MFCC, Type((1, 49, 10, 1), "float32"))
    assert made.dtype == np.float32
    assert np.abs(made.reshape(49, 10) - definition(samples, MFCC)).max() < NEAR


@pytest.fixture(scope="module", params=CASES)
def heard(request: pytest.FixtureRequest, host: Host) -> Iterator[tuple[Graph, HostDevice]]:
    graph = listener(request.param)
    with compile(graph, target=host).start() as device:
        assert isinstance(device, HostDevice)
        yield graph, device


@settings(max_examples=examples(25))
@given(st.data())
def test_c_gives_the_bytes_of_numpy(heard: tuple[Graph, HostDevice], data: st.DataObject) -> None:
    graph, device = heard
    spec = pixel_encoding(graph).audio
    assert spec is not None
    samples = data.draw(sounds(spec.samples(graph.image.type.shape)))
    assert np.array_equal(device.audio_features(samples), log_mel(samples, spec, graph.image.type))


def test_c_gives_the_bytes_of_numpy_on_sound_of_every_kind(heard: tuple[Graph, HostDevice]) -> None:
    graph, device = heard
    spec = pixel_encoding(graph).audio
    assert spec is not None
    for name, samples in signals(spec.samples(graph.image.type.shape)).items():
        assert np.array_equal(device.audio_features(samples), log_mel(samples, spec, graph.image.type)), name


@pytest.mark.parametrize(("board", "case"), [("cortex-m7", "mfcc"), ("cortex-m7", "across"), ("cortex-m4", "mfcc")])
def test_a_board_gives_the_bytes_of_numpy(board: str, case: str, host: Host) -> None:
    graph = listener(case)
    spec = pixel_encoding(graph).audio
    assert spec is not None
    with compile(graph, target=BoardTarget(BOARDS[board], cache=host.cache)).start() as device:
        for name, samples in signals(spec.samples(graph.image.type.shape)).items():
            assert np.array_equal(device.audio_features(samples), log_mel(samples, spec, graph.image.type)), name
            assert device.front_end_instructions > 0  # type: ignore[attr-defined]


MAIN = """
#include <stdio.h>
#include "model.h"
/* Samples from stdin in pieces of growing size; the features to stdout. */
int main(void) {
    static int16_t samples[40000];
    static int8_t features[MODEL_INPUT_0_BYTES];
    int count = (int)fread(samples, 2, 40000, stdin), size = 1;
    model_init();
    for (int at = 0; at < count; at += size++)
        model_audio_push(samples + at, at + size < count ? size : count - at);
    for (int i = 0; i < ROWS; i++) model_audio_row(0, features + i * (MODEL_INPUT_0_BYTES / ROWS), i);
    fwrite(features, 1, sizeof features, stdout);
    return 0;
}
"""


@pytest.mark.parametrize("case", CASES)
def test_c_stays_inside_its_buffers_and_its_integers(case: str, tmp_path: Path) -> None:
    graph = listener(case)
    spec, type_ = CASES[case][0], graph.image.type
    folder = tmp_path / "out"
    compile(graph).write(folder)
    (folder / "board" / "main.c").write_text(MAIN.replace("ROWS", str(spec.rows(type_.shape)[0])))
    files = [str(path) for place in ("model", "smidgen", "board") for path in sorted((folder / place).glob("*.c"))]
    find_compiler()(*SANITIZE, "-O1", "-Imodel", "-Ismidgen", *files, "-o", "heard", folder=folder)
    for name, samples in signals(spec.samples(type_.shape)).items():
        done = subprocess.run([folder / "heard"], input=samples.tobytes(), capture_output=True, check=False)
        assert done.returncode == 0, (name, done.stderr[-400:])
        assert done.stdout == log_mel(samples, spec, type_).tobytes(), name


@pytest.fixture(scope="module")
def keyword(host: Host) -> Iterator[HostDevice]:
    with compile(listener(), target=host).start() as device:
        assert isinstance(device, HostDevice)
        yield device


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=20), st.integers(0, 9))
def test_sound_may_come_in_pieces_of_any_size(keyword: HostDevice, pieces: list[int], seed: int) -> None:
    """After any number of samples the input holds the last frames, and silence before the first."""
    device, graph = keyword, keyword.graph
    samples = np.random.default_rng(seed).integers(-9999, 9999, sum(pieces)).astype(np.int16)
    device._function("audio_reset")()
    for piece in np.split(samples, np.cumsum(pieces)[:-1]):
        device._function("audio_push")(ctypes.c_void_p(np.ascontiguousarray(piece).ctypes.data), piece.size)
    made = np.zeros((49, 10), np.int8)
    for row in range(49):
        device._function("audio_row")(None, ctypes.c_void_p(made.ctypes.data + 10 * row), row)
    assert np.array_equal(made, _after(samples, graph))


def _after(samples: Array, graph: Graph) -> Array:
    whole = max(0, (samples.size - MFCC.window) // MFCC.hop + 1)
    silent = log_mel(np.zeros(15_840, np.int16), MFCC, graph.image.type).reshape(49, 10)
    if not whole:
        return silent
    one = Type((1, whole, 10, 1), "int8", graph.image.type.q)
    made = log_mel(samples[: MFCC.window + MFCC.hop * (whole - 1)], MFCC, one).reshape(whole, 10)
    return np.concatenate((silent, made))[-49:]


@pytest.mark.parametrize("case", ["mfcc", "across"])
def test_what_was_heard_is_what_a_prediction_sees(case: str, host: Host) -> None:
    graph = listener(case)
    spec = pixel_encoding(graph).audio
    assert spec is not None
    samples = signals(spec.samples(graph.image.type.shape))["vowel"]
    with compile(graph, target=host).start() as device:
        assert isinstance(device, HostDevice)
        wanted = device.run(as_input(samples, pixel_encoding(graph)))[0]
        device.audio_features(samples)
        device._inputs[graph.image][:] = 0
        device._function("audio_show")()
        device._function("run")()
        assert np.array_equal(device.outputs()[0], wanted)
        assert len(np.unique(wanted)) > 1


def test_a_program_that_does_not_hear_says_so(host: Host) -> None:
    graph = listener()
    deaf = Graph(graph.inputs, graph.outputs, graph.nodes, graph.constants, graph.name)
    with compile(deaf, target=host).start() as device:
        assert "audio" not in "".join(compile(deaf, target=host).sources.files.values())
        with pytest.raises(InputError, match="no front end for sound"):
            device.audio_features(np.zeros(16_000, np.int16))
    with compile(graph, target=host).start() as device, pytest.raises(InputError, match=r"int16\[samples\]"):
        device.audio_features(np.zeros(16_000, np.float32))
