"""Networks that hear learn words: from the command line, in C, and on a board, whose own front end hears them."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from experiments.hearing import learn_alike, measure_front_end
from smidgen.data import as_input, load_data, load_images, pixel_encoding
from smidgen.data.audio import with_front_end
from smidgen.errors import TargetError
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import evaluate
from smidgen.ir.log_mel import MFCC, LogMel
from smidgen.ir.text import fingerprint, parse_graph, print_graph
from smidgen.pipeline import compile
from smidgen.selection.searching import Planner
from smidgen.targets import find_board
from smidgen.targets.firmware import BoardDevice, BoardTarget
from smidgen.targets.host import HostDevice
from smidgen.training import Options
from tests.cli.test_cli import fail, invoke
from tests.support.audio_signals import listener
from tests.support.networks import inverted_residual
from tests.support.release_files import SHARED
from tests.support.wav_files import spoken, wav, write_words

KEYWORDS = SHARED / "models" / "mlperf-tiny" / "kws_ref_model.tflite"
YAMNET = SHARED / "models" / "wild" / "st-yamnet256.onnx"


@pytest.fixture
def keywords() -> str:
    if not KEYWORDS.exists():
        pytest.skip("MLPerf Tiny's keyword spotting is not beside the checkout")
    return str(KEYWORDS)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("sound") / "words", 30, 22_050)


def test_a_model_carries_its_front_end(tmp_path: Path) -> None:
    for spec in (MFCC, LogMel(low=125, high=7_500.5, offset=0.001)):
        graph = replace(listener(), preprocessing=spec)
        write_smg(graph, tmp_path / "x.smg")
        assert read_smg(tmp_path / "x.smg").preprocessing == spec
        assert parse_graph(print_graph(graph), graph.constants).preprocessing == spec
    assert "sound: first 10 coefficients of the DCT of 40 log-mel bands" in invoke("info", str(tmp_path / "x.smg"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sound bands=299", "cannot be had"),
        ("sound bands=40.0", "expected int"),
        ("sound coefficients=7", "does not fill an input"),
        ("sound low=nan", "not a literal"),
        ("sound colour=1", "has no attribute colour"),
        ("sound of music", "is not a preprocessing"),
    ],
)
def test_a_front_end_that_cannot_be_is_refused_in_a_file(line: str, said: str) -> None:
    graph = listener()
    text = print_graph(graph).replace("\nsound\n", f"\n{line}\n")
    assert line in text
    with pytest.raises(sm.SmidgenError, match=said):
        parse_graph(text, graph.constants)


def test_what_is_learned_belongs_to_the_front_end() -> None:
    graph = listener()
    other = replace(graph, preprocessing=LogMel(offset=2e-6))
    deaf = replace(graph, preprocessing=None)
    assert len({fingerprint(one) for one in (graph, other, deaf)}) == 3


@pytest.mark.slow
def test_words_are_learned_from_the_command_line(
    keywords: str, words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "learned"
    given = ("--data", str(words), "--scheme", "last:2", "--epochs", "2", "--lr", "4/256", "-o", str(out), "--json")
    printed = json.loads(invoke("train", keywords, *given))
    assert printed["accuracy"] >= 0.9 > printed["before"]
    learned = read_smg(out / "kws_ref_model.smg")
    assert learned.preprocessing == MFCC
    data = load_data(words)
    with compile(learned).start() as device:
        right = [
            device.predict(device.audio_features(_second(i, word))) == data.classes.index(word)
            for i, word in _unheard()
        ]
    assert np.mean(right) >= 0.9
    said = fail(capsys, monkeypatch, "train", keywords, *given[:-2], str(tmp_path / "no"), "--audio", "yamnet")
    assert "sound of 64 features a frame does not fill an input [1, 49, 10, 1]" in said
    assert not (tmp_path / "no").exists()


def _unheard() -> list[tuple[int, str]]:
    return [(seed, word) for seed in range(500, 510) for word in ("high", "low", "rising")]


def _second(seed: int, word: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    samples = np.rint(spoken(word, seed)[:15_840] * 32767).astype(np.int16)
    return np.pad(samples, (0, 15_840 - samples.size))


def test_a_board_that_hears_learns_the_bytes_of_this_machine(keywords: str, words: Path) -> None:
    data = load_data(words)
    graph = with_front_end(sm.load(keywords), data.train.images)
    found = learn_alike(graph, data, "last:2", 24, 4 / 256)
    assert found.exact
    assert found.steps == 24
    assert found.last_loss < found.first_loss


def test_recordings_are_predicted_and_tested(keywords: str, words: Path, tmp_path: Path) -> None:
    """By a file that does not say how it hears, and by one that learned and does."""
    spoken_low = str(words / "low" / "004.wav")
    printed = json.loads(invoke("predict", keywords, spoken_low, "--json"))
    graph = with_front_end(sm.load(keywords), [np.zeros(9, np.int16)])
    (sound,) = load_images(words / "low", 1)
    first = int(evaluate(graph, as_input(sound, pixel_encoding(graph)))[0].argmax())
    again = json.loads(invoke("predict", keywords, str(words / "low"), "--audio", "mfcc", "--json"))
    assert again["predictions"][0]["classes"][0]["index"] == first
    assert again["predictions"][4] == {**printed["predictions"][0], "sample": again["predictions"][4]["sample"]}
    given = ("--data", str(words), "--scheme", "last:2", "--epochs", "2", "--lr", "4/256", "-o", str(tmp_path / "out"))
    invoke("train", keywords, *given)
    learned = str(tmp_path / "out" / "kws_ref_model.smg")
    tested = json.loads(invoke("test", learned, "--data", str(words), "--json"))
    assert tested["accuracy"] >= 0.9
    named = json.loads(invoke("predict", learned, spoken_low, "--json"))
    assert named["predictions"][0]["classes"][0]["name"] == "low"


def test_a_float_network_is_quantized_on_sound(words: Path, tmp_path: Path) -> None:
    if not YAMNET.exists():
        pytest.skip("ST's YAMNet is not beside the checkout")
    out = tmp_path / "yamnet.smg"
    printed = json.loads(
        invoke("quantize", str(YAMNET), "--data", str(words), "--images", "24", "-o", str(out), "--json")
    )
    assert printed["preprocessing"]["across"]
    graph = read_smg(out)
    samples = _second(1, "low")
    with compile(graph).start() as device:
        heard = device.audio_features(samples[: graph.preprocessing.samples(graph.image.type.shape)])  # type: ignore[union-attr]
        assert np.array_equal(heard, as_input(samples[:15_600], pixel_encoding(graph)))
        assert device.predict(heard) in range(10)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_program_that_streams_its_input_hears_row_by_row(streamed: bool, keywords: str) -> None:
    graph = with_front_end(sm.load(keywords), [np.zeros(9, np.int16)])
    samples = _second(3, "rising")
    with compile(graph, streamed_input=streamed).start() as device:
        assert isinstance(device, HostDevice)
        wanted = device.run(as_input(samples, pixel_encoding(graph)))[0]
        device.run(np.zeros((1, 49, 10, 1), np.int8))
        device._function("audio_reset")()
        device._function("audio_push")(ctypes.c_void_p(samples.ctypes.data), samples.size)
        device._function("audio_show")()
        device._function("run")()
        assert np.array_equal(device.outputs()[0], wanted)


def test_a_project_that_hears_builds_and_says_how(tmp_path: Path) -> None:
    write_smg(listener(), tmp_path / "x.smg")
    invoke("compile", str(tmp_path / "x.smg"), "-o", str(tmp_path / "out"), "--prefix", "kws")
    page = (tmp_path / "out" / "README.md").read_text()
    assert "kws_audio_push(block, 256);" in page
    assert "takes\n3518 bytes of SRAM" in page
    make = shutil.which("make") or pytest.fail("make is not installed")
    subprocess.run([make, "-s", "CFLAGS=-O1 -Wall -Wextra -Wconversion -Werror"], cwd=tmp_path / "out", check=True)
    deaf = replace(listener(), preprocessing=None)
    write_smg(deaf, tmp_path / "deaf.smg")
    invoke("compile", str(tmp_path / "deaf.smg"), "-o", str(tmp_path / "silent"))
    assert "audio" not in (tmp_path / "silent" / "README.md").read_text()
    invoke("compile", str(tmp_path / "deaf.smg"), "-o", str(tmp_path / "told"), "--audio", "mfcc")
    assert "model_audio_push" in (tmp_path / "told" / "model" / "model.h").read_text()


def test_a_board_without_room_for_the_front_end_says_so() -> None:
    board = find_board("cortex-m7", sram="8KB", stack="6KB")
    with pytest.raises(TargetError, match="stack 6,144, sound 3,518"):
        compile(listener(), target=board)
    compile(replace(listener(), preprocessing=None), target=board)


def test_a_budget_of_sram_counts_the_front_end(keywords: str) -> None:
    graph = with_front_end(sm.load(keywords), [np.zeros(9, np.int16)])
    planned = [
        Planner(one, BoardTarget(), Options(3), True, lambda _: None).biases(0, 12)
        for one in (graph, replace(graph, preprocessing=None))
    ]
    assert planned[0].sram - planned[1].sram == 3_518
    with compile(graph, "head", "cortex-m7", options=Options(3), streamed_input=True).start() as device:
        assert isinstance(device, BoardDevice)
        device.audio_features(_second(1, "low"))
        device.train(np.zeros((1, 49, 10, 1), np.int8), 0, 0.1)
        assert device.memory().bytes <= planned[0].sram


def test_the_front_end_is_measured_on_a_board() -> None:
    cost = measure_front_end("mfcc", "cortex-m7")
    assert cost.exact
    assert 1_000_000 < cost.instructions < 8_000_000
    assert cost.sram == 3_518


def test_pictures_are_refused_by_a_model_that_hears(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_smg(listener(), tmp_path / "x.smg")
    given = ("train", str(tmp_path / "x.smg"), "--data", "cifar10", "--scheme", "head", "-o", str(tmp_path / "out"))
    assert "the model expects audio, but a sample is a picture" in fail(capsys, monkeypatch, *given)


def test_one_damaged_recording_is_named(
    words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(words, tmp_path / "words")
    (tmp_path / "words" / "low" / "003.wav").write_bytes(wav(np.zeros(9))[:30])
    write_smg(inverted_residual(0), tmp_path / "x.smg")
    given = ("train", str(tmp_path / "x.smg"), "--data", str(tmp_path / "words"), "--scheme", "head")
    said = fail(capsys, monkeypatch, *given, "-o", str(tmp_path / "out"))
    assert "low/003.wav cannot be read as a .wav file" in said
