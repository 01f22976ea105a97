"""Whoever has only a clone can run the benchmarks of accuracy, on the images that come along or on their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from smidgen.frontends.native import write_smg
from smidgen.frontends.tflite import write_tflite
from tests.support import layout_trees as trees
from tests.support.house import TOP
from tests.support.small_network import small_network
from tests.support.streams import streaming_network
from tests.support.tiers import first

ACCURACY = ("exports", "flowers", "gradients", "pixels", "quantization", "ratios", "step", "zoo")
ON_BACKBONES = ("flowers", "gradients", "ratios", "step")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The benchmarks with nothing beside the checkout."""
    folder = tmp_path_factory.mktemp("alone") / "clone"
    for part in ("benchmarks", "experiments"):
        shutil.copytree(TOP / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    write_smg(small_network(), folder / "small.smg")
    trees.write(folder / "flowers", trees.flowers())
    return folder


def run(clone: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TOP / "src"), "COLUMNS": "200"}
    command = [sys.executable, f"benchmarks/{name}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=clone, env=environment)


@pytest.mark.parametrize("name", first(*ACCURACY))
def test_every_benchmark_of_accuracy_takes_data_and_models(clone: Path, name: str) -> None:
    told = run(clone, name, "--help")
    assert told.returncode == 0, told.stderr[-400:]
    assert "--data" in told.stdout
    assert "--memory" in told.stdout
    assert name not in ON_BACKBONES or "--model" in told.stdout


def test_a_published_layout_is_learned_with_nothing_beside_the_checkout(clone: Path) -> None:
    options = ("--model", "small.smg", "--scheme", "last:1", "--epochs", "1", "--learner", "8", "--learner", "fp32")
    done = run(clone, "flowers", "--data", "flowers", *options, "--json")
    assert done.returncode == 0, done.stderr[-400:]
    found = json.loads(done.stdout)
    assert (found["network"], found["data"], found["train"], found["test"]) == ("small", "flowers", 3, 3)
    assert [outcome["learner"][:5] for outcome in found["outcomes"]] == ["8-bit", "fp32 "]
    assert "SKIPPED" not in done.stderr


@pytest.mark.slow
def test_without_data_the_sample_is_measured_and_that_is_said(clone: Path) -> None:
    options = ("--model", "small.smg", "--scheme", "last:1", "--images", "2")
    done = run(clone, "ratios", *options, "--json")
    assert done.returncode == 0, done.stderr[-400:]
    assert "SKIPPED: flowers102.zip beside the checkout; the CIFAR-10 sample is measured instead" in done.stderr
    assert json.loads(done.stdout)["images"] == 2


@pytest.mark.slow
def test_without_released_weights_those_of_the_zoo_are_measured_and_that_is_said(clone: Path) -> None:
    done = run(clone, "flowers", "--data", "flowers", "--scheme", "head", "--epochs", "1", "--learner", "8", "--json")
    assert done.returncode == 0, done.stderr[-400:]
    assert "SKIPPED: the released mcunet-5fps beside the checkout; the zoo's own is measured instead" in done.stderr
    assert json.loads(done.stdout)["network"] == "mcunet-5fps"


@pytest.mark.slow
def test_a_folder_of_models_is_tried_whatever_is_in_it(clone: Path) -> None:
    folder = clone / "models"
    folder.mkdir()
    (folder / "small.tflite").write_bytes(write_tflite(small_network()))
    (folder / "damaged.tflite").write_bytes(b"no model")
    (folder / "net.keras").write_bytes(b"")
    (folder / "notes.txt").write_text("no model either")
    done = run(clone, "wild", "models", "--json")
    assert done.returncode == 0, done.stderr[-400:]
    assert "SKIPPED: real inputs, vww.zip is not beside the checkout" in done.stderr
    damaged, keras, small = json.loads(done.stdout)
    assert "not a TFLite model" in damaged["refused"]
    assert "net.keras is not a complete archive" in keras["refused"]
    assert (small["refused"], small["computes"], small["random"]) == (
        "", "int8", {"inputs": 20, "equal": 20, "apart": 0.0}
    )  # fmt: skip
    assert "1 of 3 are read" in run(clone, "wild", "models").stdout
    assert "is not a folder" in run(clone, "wild", "absent").stderr


@pytest.mark.parametrize("name", first("flowers", "zoo"))
def test_data_that_cannot_be_read_ends_a_benchmark_in_one_sentence(clone: Path, name: str) -> None:
    done = run(clone, name, "--data", "absent")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("there is no absent; give a folder of images")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_layers_of_a_model_are_measured_on_a_board(clone: Path) -> None:
    (clone / "stream.tflite").write_bytes(write_tflite(streaming_network()))
    done = run(clone, "odd_shapes", "stream.tflite", "--json")
    assert done.returncode == 0, done.stderr[-400:]
    rows = json.loads(done.stdout)
    assert [row["layer"].split()[0] for row in rows] == ["Conv2D", "Depthwise", "Conv2D", "Dense"]
    assert all(row["exact"] and 0 < row["per_mac"] < 100 for row in rows)
