"""Data without pictures go the whole way, as a person runs the commands: file, int8, learning, board, firmware."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import smidgen as sm
from smidgen.data import examples, load_data, pixel_encoding
from smidgen.frontends import export_model
from smidgen.learning import Course, learn
from smidgen.pipeline import compile
from smidgen.simulation import simulate
from smidgen.training import Options
from tests.cli.test_cli import fail, invoke
from tests.support.motions import (
    MOTIONS,
    draw_motions,
    write_autoencoder,
    write_onnx,
    write_recordings,
    write_rows,
    write_speeds,
)
from tests.support.tiers import first

torch.set_num_threads(1)  # pytest's workers share the cores
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of PyTorch's exporter


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks as other tools write them, and the same recordings in every layout that is read."""
    folder = tmp_path_factory.mktemp("motions")
    write_onnx(folder / "net.onnx")
    write_onnx(folder / "dense.onnx", dense=True)
    export_model(sm.load(folder / "net.onnx"), folder / "net.tflite")
    x, classes = draw_motions(20)
    write_rows(folder / "rows.csv", x, classes)
    np.savez(folder / "x.npz", x=x, y=classes, classes=np.array(MOTIONS))
    np.save(folder / "x.npy", x)
    write_recordings(folder / "recordings", x, classes)
    with zipfile.ZipFile(folder / "recordings.zip", "w") as archive:
        for path in sorted((folder / "recordings").rglob("*.csv")):
            archive.write(path, path.relative_to(folder))
    write_rows(folder / "worn.csv", *draw_motions(20, seed=3, axes=(2, 0, 1)))  # the sensor is mounted another way
    write_autoencoder(folder / "auto.onnx")
    write_speeds(folder / "speeds.csv", x)
    np.savez(folder / "speed.npz", x=x, y=np.linspace(0, 1, len(x)))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in, as the working folder."""
    shutil.copytree(made, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize("model", first("net.tflite", "net.onnx"))
def test_a_float_network_is_quantized_with_a_table_and_learns_equal_bytes_on_a_board(folder: Path, model: str) -> None:
    report = json.loads(invoke("quantize", model, "--data", "rows.csv", "-o", "motions.smg", "--json"))
    assert report["pixels"] is None
    assert report["report"]["accuracy"]["images"] == 12
    assert report["report"]["accuracy"]["int8"] >= 0.9
    options = ("--data", "worn.csv", "--scheme", "full", "--epochs", "6", "--learning-rate", "3/256", "--json")
    kept = ("--head", "keep")  # worn otherwise the model guesses, and would get a new one
    here, board = (
        json.loads(invoke("train", "motions.smg", *options, *kept, "--target", target, "-o", target))
        for target in ("host", "cortex-m7")
    )
    assert here["classes"] == list(MOTIONS)
    assert here["accuracy"] >= max(0.8, here["before"] + 0.1)
    assert board["accuracy"] == here["accuracy"]
    for one, other in zip(here["files"], board["files"], strict=True):
        assert one != other
        assert Path(one).read_bytes() == Path(other).read_bytes()


def test_the_same_samples_give_the_same_model_wherever_they_lie(folder: Path) -> None:
    written = []
    for source in ("rows.csv", "x.npz", "x.npy"):
        invoke("quantize", "net.onnx", "--data", source, "-o", "net.smg", "--force")
        written.append(Path("net.smg").read_bytes())
    assert written[0] == written[1] == written[2]
    recorded, packed = (load_data(source) for source in ("recordings", "recordings.zip"))
    rows = load_data("rows.csv")
    assert recorded.digest() == packed.digest()
    in_order = sorted(range(len(rows.train)), key=lambda place: rows.train.labels[place])
    assert all(
        np.array_equal(one.ravel(), rows.train.images[place])
        for one, place in zip(recorded.train.images, in_order, strict=True)
    )


def test_accuracy_is_told_where_classes_are_and_nothing_of_pixels(folder: Path) -> None:
    text = invoke("quantize", "net.onnx", "--data", "recordings.zip", "-o", "net.smg")
    assert "top-1 on 12 labelled samples: " in text
    assert "pixels" not in text
    assert "labelled" not in invoke("quantize", "net.onnx", "--data", "speed.npz", "-o", "other.smg")


def test_a_dense_network_is_fitted_to_recordings_with_its_input_held_whole(folder: Path) -> None:
    fitted = json.loads(
        invoke("fit", "dense.onnx", "--data", "recordings", "--budget", "32KB", "--epochs", "2", "-o", "out", "--json")
    )
    assert fitted["board"]["exact"] is True
    assert fitted["board"]["sram_bytes"] <= 32 * 1024
    assert fitted["learned"]["train_images"] == 48
    invoke("quantize", "dense.onnx", "--data", "recordings", "-o", "dense.smg")
    options = ("--data", "recordings", "--budget", "32KB", "--epochs", "1", "--learning-rate", "1/256", "-o", "tried")
    assert "48 samples to learn from" in invoke("train", "dense.smg", *options)


def test_columns_of_numbers_are_learned_as_numbers_and_rows_without_any_as_themselves(folder: Path) -> None:
    invoke("quantize", "net.onnx", "--data", "speeds.csv", "--label", "speed,rest", "-o", "net.smg")
    options = ("--scheme", "last:1", "--epochs", "4", "--learning-rate", "0.4/256", "--json")
    told = ("--data", "speeds.csv", "--label", "speed,rest")
    speeds = json.loads(invoke("train", "net.smg", *told, *options, "-o", "speeds"))
    assert (speeds["loss"], speeds["classes"]) == ("mse", [])
    assert speeds["error"] < 0.2 < speeds["error_before"]
    invoke("quantize", "auto.onnx", "--data", "x.npy", "-o", "auto.smg")
    options = ("--scheme", "full", "--epochs", "3", "--learning-rate", "1/256", "--json")
    itself = json.loads(invoke("train", "auto.smg", "--data", "x.npy", *options, "-o", "itself"))
    assert itself["loss"] == "reconstruction"
    assert itself["error"] < 0.9 * itself["error_before"]


@pytest.mark.parametrize(("model", "data", "loss"), [("net.onnx", "speed.npz", "mse"), ("auto.onnx", "x.npy", "")])
def test_numbers_and_an_autoencoders_own_input_are_fitted_too(folder: Path, model: str, data: str, loss: str) -> None:
    options = ("--data", data, "--budget", "32KB", "--epochs", "3", "-o", "out", "--json")
    fitted = json.loads(invoke("fit", model, *options))
    assert fitted["board"]["exact"] is True
    assert fitted["learned"]["accuracy"] is None
    assert fitted["learned"]["error"] < fitted["learned"]["error_before"]
    assert f"loss {loss or 'reconstruction'}: error" in (folder / "out" / "report.html").read_text()
    header = (folder / "out" / "project" / "model" / "model.h").read_text()
    assert ("const float *target" in header) == (loss == "mse")


def test_contributions_are_measured_with_recordings(folder: Path) -> None:
    invoke("quantize", "dense.onnx", "--data", "x.npz", "-o", "dense.smg")
    options = ("--data", "rows.csv", "--label", "motion", "--epochs", "1", "--workers", "1")
    summary = json.loads(invoke("analyze", "dense.smg", *options, "-o", "known.json", "--json"))
    assert summary["conditions"]["classes"] == 3
    assert Path("known.json").exists()


def test_a_fleet_learns_from_tensors_what_the_host_learns(folder: Path) -> None:
    invoke("quantize", "net.onnx", "--data", "x.npz", "-o", "net.smg")
    graph, data = sm.load("net.smg"), load_data("worn.csv")
    images = examples(data.train, pixel_encoding(graph))
    program = compile(graph, "full", options=Options(len(data.classes)), images=images)
    course = Course(2, 2 / 256)
    alone, fleet = learn(program, data, course), simulate([program], data, course, device="cpu")
    assert fleet.accuracies == (alone.accuracy,)
    assert all(np.array_equal(alone.state[name], state) for name, state in fleet.states[0].items())


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("quantize net.onnx --data rows.csv --pixels 0,1 -o a.smg", "not pixels; leave out how pixels become numbers"),
        ("quantize net.onnx --data rows.csv --label x0 -o a.smg", "has 'rest' in column 'motion', which is no finite"),
        ("quantize net.onnx --data rows.csv --label speed -o a.smg", "line 1 of rows.csv names no column 'speed'"),
        ("quantize net.onnx --data x.npz --label y -o a.smg", "x.npz is no table, so column 'y' cannot be chosen"),
        ("quantize dense.onnx --data cifar10 -o a.smg", "float32[1, 192] is not an image; images need an input of"),
        (
            "quantize net.onnx --data turned.npz -o a.smg",
            "give samples of [1, 64, 3], channels last, or of 192",
        ),
        ("train mcunet-5fps --data rows.csv --scheme head -o a", "a sample is float32[192], the model's input int8[1,"),
        ("fit net.onnx --data speed.npz --analyze quick -o a", "speed.npz has vectors as labels, an analysis"),
        (
            "analyze mcunet-5fps --data x.npy -o a.json",
            "x.npy has no labels, what a part adds is",
        ),
        ("train mcunet-5fps --data notes.txt --scheme head -o a", "neither a folder nor a .zip, .npz, .npy or .csv"),
    ],
)
def test_data_that_do_not_fit_are_told_in_a_sentence_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, sentence: str
) -> None:
    np.savez("turned.npz", x=draw_motions(20)[0].transpose(0, 2, 1))
    Path("notes.txt").write_text("a")
    said = fail(capsys, monkeypatch, *command.split())
    assert sentence in said
    assert "\n" not in said
    assert not list(folder.glob("a")) + list(folder.glob("a.*"))
