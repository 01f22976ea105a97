"""Every verb shows its result as text or as one JSON object, and says what is wrong in one sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.cli import start as demo
from smidgen.data import Data
from smidgen.data.layouts.cifar import read_sample
from smidgen.frontends.native import write_smg
from smidgen.frontends.network import build
from smidgen.ir import Builder, QParams, Type, evaluate
from smidgen.ops import Add, Requantize
from smidgen.training.scheme import load_scheme, resolve
from tests.support.float_graphs import dequantized
from tests.support.float_models import runtime
from tests.support.graphs import random_inputs
from tests.support.release_files import npy, npz_members, pickled, tiny_network, zipped
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small model and an input for it."""
    monkeypatch.chdir(tmp_path)
    graph = build(tiny_network(), "tiny")
    write_smg(graph, tmp_path / "tiny.smg")
    (image,) = random_inputs(graph, np.random.default_rng(0))
    np.save(tmp_path / "x.npy", image)
    return tmp_path


def invoke(*arguments: str) -> str:
    """What a command prints to stdout."""
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def fail(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The sentence on stderr of a command that fails as a program does."""
    monkeypatch.setattr(sys, "argv", ["smidgen", *arguments])
    with pytest.raises(SystemExit) as raised:
        cli.main()
    captured = capsys.readouterr()
    assert raised.value.code == 2
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err.removeprefix("smidgen: ").removesuffix("\n")


def test_info_shows_every_layer_and_the_totals(folder: Path) -> None:
    text = invoke("info", "tiny.smg")
    for word in ("b1.add", "Depthwise", "1×64×64×8", "per channel", "logits"):
        assert word in text
    summary = json.loads(invoke("info", "tiny.smg", "--json"))
    graph = sm.load(folder / "tiny.smg")
    assert [layer["name"] for layer in summary["layers"]] == [node.out.name for node in graph.nodes]
    numbers = {layer["number"]: layer["name"] for layer in summary["layers"] if layer["number"] is not None}
    learned = {one.layer: one.node.out.name for one in resolve(load_scheme("full", graph), graph)}
    assert numbers == learned
    assert "no. is the number by which a scheme names a layer" in text
    assert summary["macs"] == sum(layer["macs"] for layer in summary["layers"])
    assert summary["parameters"] == sum(value.type.size for value in graph.constants)
    assert summary["inputs"][0]["shape"] == [1, 128, 128, 3]


@pytest.mark.parametrize("target", ["reference", "host"])
def test_run_writes_what_the_reference_computes(folder: Path, target: str) -> None:
    printed = json.loads(invoke("run", "tiny.smg", "--input", "x.npy", "-o", "y.npy", "--target", target, "--json"))
    (expected,) = evaluate(sm.load("tiny.smg"), np.load("x.npy"))
    assert np.array_equal(np.load("y.npy"), expected)
    (output,) = printed["outputs"]
    assert output["shape"] == [1, 7]
    assert output["top"][0]["index"] == expected.argmax()
    assert "y.npy" in invoke("run", "tiny.smg", "-i", "x.npy", "-o", "y.npy", "--force")


def test_run_takes_an_input_and_an_output_file_for_each_tensor(folder: Path) -> None:
    g = Builder("pair")
    q = QParams.per_tensor(0.1, 3)
    a, b = g.input("a", Type((1, 4), "int8", q)), g.input("b", Type((1, 4), "int8", q))
    total = g.emit(Add(), a, b, q=q, name="total")
    write_smg(g.graph(total, g.emit(Requantize(), total, q=QParams.per_tensor(0.2, 0))), folder / "pair.smg")
    for name, values in (("a", (1, 2, 3, 4)), ("b", (5, 6, 7, 8))):
        np.save(folder / f"{name}.npy", np.array([values], np.int8))
    invoke("run", "pair.smg", "--input", "a.npy", "--input", "b.npy", "-o", "t.npy", "-o", "r.npy")
    assert np.load("t.npy").tolist() == [[3, 5, 7, 9]]
    assert np.load("r.npy").tolist() == [[0, 1, 2, 3]]


def test_import_reads_every_format_and_writes_smg_tflite_and_onnx(folder: Path) -> None:
    (folder / "tiny.npz").write_bytes(zipped(npz_members(tiny_network())))
    (folder / "tiny.pkl").write_bytes(pickled(tiny_network()))
    for source in ("tiny.npz", "tiny.pkl"):
        printed = json.loads(invoke("import", source, "-o", "tiny.smg", "--force", "--json"))
        assert printed["bytes"] == (folder / "tiny.smg").stat().st_size
        assert sm.load("tiny.smg") == build(tiny_network(), "tiny")
    invoke("import", "tiny.smg", "-o", "tiny.tflite")
    image = np.load("x.npy")
    assert np.array_equal(evaluate(sm.load("tiny.tflite"), image)[0], evaluate(sm.load("tiny.smg"), image)[0])
    invoke("import", "tiny.smg", "-o", "tiny.onnx")
    invoke("import", "tiny.smg", "-o", "plain.onnx", "--plain")
    assert np.array_equal(runtime(folder / "tiny.onnx", image)[0], evaluate(sm.load("tiny.smg"), image)[0])
    for name in ("tiny.onnx", "plain.onnx"):
        assert np.array_equal(evaluate(sm.load(name), image)[0], evaluate(sm.load("tiny.smg"), image)[0])


def test_compile_writes_a_project_and_says_what_it_takes(folder: Path) -> None:
    printed = json.loads(invoke("compile", "tiny.smg", "--target", "host", "-o", "out/c", "--json"))
    assert sorted(str(p.relative_to("out/c")) for p in Path("out/c").rglob("*") if p.is_file()) == printed["files"]
    assert {"model/model.c", "model/model.h", "board/main.c", "README.md"} <= set(printed["files"])
    memory = sm.compile(sm.load("tiny.smg")).memory
    assert (printed["peak_bytes"], printed["constant_bytes"]) == (memory.peak, memory.constants)
    assert "bytes of SRAM" in invoke("compile", "tiny.smg", "-o", "out/d")


def photographs(folder: Path) -> None:
    """Shapes as an image folder, and a small network for them."""
    write_smg(small_network(), Path("small.smg"))
    data = draw_shapes(5, 2)
    for split, samples in (("train", data.train), ("test", data.test)):
        for place, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
            file = folder / split / SHAPES[label] / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)


def train(*arguments: str) -> str:
    return invoke("train", "small.smg", "--scheme", "last:3", "--data", "photos", "--lr", "0.01", *arguments)


def test_train_writes_the_model_a_checkpoint_and_says_how_it_went(folder: Path) -> None:
    photographs(folder / "photos")
    printed = json.loads(train("--epochs", "2", "-o", "out/t", "--json"))
    assert [epoch["number"] for epoch in printed["epochs"]] == [1, 2]
    assert printed["accuracy"] == printed["epochs"][-1]["accuracy"]
    assert printed["classes"] == list(SHAPES)
    assert printed["files"] == ["out/t/small.smg", "out/t/small.tflite", "out/t/small.ckpt"]
    assert sorted(os.listdir("out/t")) == ["small.ckpt", "small.html", "small.smg", "small.tflite"]
    assert printed["report"] == "out/t/small.html"
    model, exported = sm.load("out/t/small.smg"), sm.load("out/t/small.tflite")
    image = np.zeros(model.inputs[0].type.shape, np.int8)
    np.testing.assert_allclose(evaluate(model, image)[0], evaluate(exported, image)[0], rtol=1e-5)
    text = train("--epochs", "1", "-o", "out/u")
    assert "8 to test" in text
    assert "before     top-1" in text
    assert "epoch 1    loss" in text


def test_train_goes_on_from_a_checkpoint_to_the_same_bytes(folder: Path) -> None:
    photographs(folder / "photos")
    options = (
        "--epochs",
        "2",
        "--weight-bits",
        "8",
        "--momentum",
        "0.9",
        "--head-dtype",
        "int8",
        "--no-qas",
        "--seed",
        "3",
    )
    first = train(*options, "-o", "a", "--crop", "0.5", "--warmup", "1")
    again = train(*options, "-o", "b", "--crop", "0.5", "--warmup", "1", "--resume", "a/small.ckpt")
    assert again == first.replace("a/small", "b/small")
    command = re.compile(rb"<code>smidgen train .*?</code>")
    for name in os.listdir("b"):
        whole, resumed = ((folder / run / name).read_bytes() for run in "ab")
        assert command.sub(b"", whole) == command.sub(b"", resumed)


def test_a_program_that_learns_compiles_to_an_example_that_learns(folder: Path) -> None:
    write_smg(small_network(), Path("small.smg"))
    options = ("--scheme", "last:3", "--classes", "2", "--weight-bits", "10", "-o", "out/c")
    printed = json.loads(invoke("compile", "small.smg", *options, "--json"))
    assert printed["state_bytes"] > 0
    command = ["make", "-s", "CFLAGS=-O1 -Werror"]
    built = subprocess.run(command, cwd="out/c", capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run(["out/c/example"], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    losses = [float(line.split()[-1]) for line in lines[:-1]]
    assert len(losses) == 20
    assert sum(losses[-6:]) < 0.8 * sum(losses[:6])
    assert lines[-1] == "class 1 is seen as 1, and as 1 after saving and loading"
    assert "what outlives a run" in invoke("compile", "small.smg", *options[:-1], "out/d")


BAD_REQUESTS: tuple[tuple[dict[str, str], str], ...] = (
    (
        {"--scheme": "99kb"},
        "'99kb' was published for mbv2-w0.35, mcunet-5fps with images of 128×128, but",
    ),
    ({"--scheme": "last:99"}, "trains 99 biases"),
    ({"--classes": "1"}, "1 classes cannot be learned"),
    ({"--classes": "3"}, "the program learns the 3 classes 0 to 2; compile it for 4"),
    ({"--data": "absent"}, "there is no absent"),
    ({"--data": "one"}, "holds 1 class, 'cat'"),
    ({"--lr": "-1"}, "a learning rate of -1.0"),
    ({"--lr": "nan"}, "a learning rate of nan"),
    ({"--lr": "0.1/0"}, "a learning rate of 0.1/0"),
    ({"--lr": "fast"}, "a learning rate of fast"),
    ({"--lr": "3e38"}, "a learning rate of 3e+38 cannot be used; give a number from 0 to 1,073,741,824"),
    ({"--weight-bits": "9"}, "weights of 9 bits"),
    ({"--momentum": "1"}, "momentum is 1.0"),
    ({"--accumulate": "0"}, "0 samples"),
    ({"--epochs": "0"}, "0 epochs"),
    ({"--crop": "0"}, "a crop of 0.0"),
    ({"--warmup": "9"}, "a warm-up of 9.0 epochs"),
    ({"--resume": "absent.ckpt"}, "absent.ckpt cannot be read"),
    ({"--resume": "cut.ckpt"}, "cut.ckpt is cut short or damaged"),
    ({"--resume": "out/small.ckpt", "--seed": "1"}, "out/small.ckpt belongs to another program"),
    ({"--resume": "out/small.ckpt", "--lr": "0.02"}, "a run with learning_rate 0.01, this one has 0.02"),
    ({"-o": "."}, "small.smg would be overwritten by the model learned from it"),
    ({"-o": "file"}, "file"),
)


def test_bad_requests_to_learn_are_answered_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    photographs(folder / "photos")
    train("--epochs", "1", "-o", "out")
    for shade, split in enumerate(("train", "test")):
        (folder / "one" / split / "cat").mkdir(parents=True)
        Image.new("RGB", (8, 8), (shade,) * 3).save(folder / "one" / split / "cat" / "1.png")
    (folder / "cut.ckpt").write_bytes((folder / "out" / "small.ckpt").read_bytes()[:-9])
    (folder / "file").write_text("")
    usual = {"--scheme": "last:3", "--data": "photos", "--lr": "0.01", "--epochs": "1", "-o": "out"}
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for changed, message in BAD_REQUESTS:
        arguments = [word for pair in (usual | changed).items() for word in pair]
        said = fail(capsys, monkeypatch, "train", "small.smg", *arguments, "--force")
        assert message in said
        assert "\n" not in said
    for options, message in (
        (("--scheme", "head", "--head", "extend"), "smidgen train --head extend"),
        (("--classes", "3"), "give --scheme"),
        (("--scheme", "head", "--classes", "0"), "0 classes cannot be learned"),
    ):
        assert message in fail(capsys, monkeypatch, "compile", "small.smg", "-o", "new", *options)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_the_demo_agrees_byte_for_byte_and_can_be_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = read_sample()
    small = Data(few.name, few.classes, demo.first_of_each_class(few.train, 2), demo.first_of_each_class(few.test, 1))
    monkeypatch.setattr(demo, "read_sample", lambda: small)
    monkeypatch.setattr(demo, "EPOCHS", 1)
    monkeypatch.setattr(demo, "BOARD_TRAIN", 1)
    monkeypatch.setattr(demo, "BOARD_TEST", 1)
    shown = json.loads(invoke("demo", "--json"))
    assert shown["board_equals_host"]
    assert shown["fitted"]["board"]["exact"]
    assert shown["fitted"]["board"]["sram_bytes"] <= 128 * 1024
    assert shown["board_steps"] == 10
    out = folder / shown["fitted"]["folder"]
    assert (out / "project" / "model" / "model.h").exists()
    assert (out / "learned.smg").exists()
    assert "b13.expand" in (out / "report.html").read_text()
    assert invoke("demo").count("(reused)") == 8


def test_bad_requests_are_answered_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "short.npy").write_bytes(npy(np.zeros((1, 128, 128, 3), np.int8))[:-5])
    np.save("small.npy", np.zeros((1, 4, 4, 3), np.int8))
    (folder / "taken").mkdir()
    (folder / "taken" / "file").touch()
    (folder / "dir.smg").mkdir()
    (folder / "bad.smg").write_bytes(b"not a model")
    cases = (
        (("info", "mcunet-6fps"), "did you mean mcunet-5fps"),
        (("info", "absent.smg"), "there is no file absent.smg"),
        (("info", "net.onnx"), "there is no file net.onnx"),
        (("info", "dir.smg"), "dir.smg is not a file"),
        (("info", "bad.smg"), "bad.smg is not a valid .smg file"),
        (("run", "tiny.smg", "-i", "absent.npy"), "absent.npy cannot be read"),
        (("run", "tiny.smg", "-i", "taken"), "taken is a folder"),
        (("run", "tiny.smg", "-i", "short.npy"), "declares int8"),
        (("run", "tiny.smg", "-i", "small.npy"), "int8[1, 4, 4, 3]"),
        (("run", "tiny.smg", "-i", "x.npy", "-i", "x.npy"), "takes 1 input tensors, 2 were given"),
        (("run", "tiny.smg", "-i", "x.npy", "-o", "a.npy", "-o", "b.npy"), "has 1 outputs, 2 files"),
        (("run", "tiny.smg", "-i", "x.npy", "-o", "absent/y.npy"), "absent/y.npy cannot be written"),
        (("run", "tiny.smg", "-i", "x.npy", "-o", "taken"), "taken is a folder; name a file to write"),
        (("import", "tiny.smg", "-o", "tiny.txt"), "should end in .smg, .tflite or .onnx"),
        (("import", "tiny.smg", "-o", "absent/tiny.smg"), "cannot be written"),
        (("import", "tiny.smg", "-o", "tiny.tflite", "--plain"), ".tflite has just one form; leave plain out"),
        (("compile", "tiny.smg", "-o", "taken"), "not an empty folder"),
        (("demo", "-o", "taken/file"), "taken/file"),
    )
    before = sorted(path.name for path in folder.rglob("*"))
    for arguments, message in cases:
        said = fail(capsys, monkeypatch, *arguments)
        assert message in said
        assert "\n" not in said
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_the_program_exits_with_2_and_no_traceback(folder: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from smidgen.cli import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    failed = run("info", "nothing-of-this-name")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("smidgen: there is no file nothing-of-this-name")
    assert len(failed.stderr.splitlines()) == 1
    assert run("run", "tiny.smg", "--target", "moon").returncode == 2
    printed = run("info", "tiny.smg", "--json")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert json.loads(printed.stdout)["name"] == "tiny"


def test_the_version_is_the_packages() -> None:
    assert invoke("--version") == f"smidgen {sm.__version__}\n"


@pytest.fixture
def floating(folder: Path) -> Path:
    """The same folder with a float model and images without labels."""
    write_smg(dequantized(small_network()), folder / "float.smg")
    (folder / "loose").mkdir()
    for index, image in enumerate(draw_shapes(4, 1).train.images):
        Image.fromarray(image).save(folder / "loose" / f"{index}.png")
    return folder


def test_quantize_writes_an_int8_model_that_carries_its_preprocessing(floating: Path) -> None:
    before = json.loads(invoke("info", "float.smg", "--json"))
    options = ("--data", "loose", "--mean", "0.4,0.5,0.6", "--std", "0.25", "--order", "bgr", "--fit", "stretch")
    result = json.loads(invoke("quantize", "float.smg", *options, "-o", "a.smg", "--json"))
    assert result["report"]["calibrated"] == 16
    assert len(result["report"]["layers"]) == len(before["layers"])
    after = json.loads(invoke("info", "a.smg", "--json"))
    assert (before["arithmetic"], after["arithmetic"]) == ("float32", "int8")
    assert after["preprocessing"] == result["preprocessing"]
    assert after["preprocessing"]["mean"] == [0.4, 0.5, 0.6]
    assert (after["preprocessing"]["order"], after["preprocessing"]["fit"]) == ("bgr", "stretch")
    assert "bgr pixels as 0 … 1, minus mean 0.4, 0.5, 0.6" in invoke("info", "a.smg")


def test_quantize_shows_what_it_lost_and_writes_tflite_too(floating: Path) -> None:
    options = ("--data", "loose", "--pixels", "-1,1", "--layers", "--method", "percentile")
    text = invoke("quantize", "float.smg", *options, "-o", "a.tflite")
    for word in ("b1.depthwise", "cumulative", "dB", "written to a.tflite", "top-1 agrees with float32"):
        assert word in text
    assert json.loads(invoke("info", "a.tflite", "--json"))["arithmetic"] == "int8"
    assert json.loads(invoke("import", "float.smg", "-o", "b.smg", "--json"))["parameters"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"--data": "nowhere"}, "there is no nowhere"),
        ({"--images": "3"}, "3 samples are too few"),
        ({"--images": "0"}, "0 images are too few"),
        ({"--mean": "a,b"}, "--mean a,b is not a list of numbers"),
        ({"--mean": "0.1,0.2"}, "2 numbers as mean for 3 channels"),
        ({"--std": "0"}, "std must be above 0"),
        ({"--pixels": "1"}, "the two numbers that pixels 0 and 255 stand for"),
        ({"--percentile": "10"}, "a percentile of 10.0 leaves no range"),
        ({"-o": "a.txt"}, "should end in .smg, .tflite or .onnx"),
    ],
)
def test_quantize_says_what_is_wrong(
    floating: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    message: str,
) -> None:
    usual = {"--data": "loose", "-o": "a.smg"} | options
    said = fail(capsys, monkeypatch, "quantize", "float.smg", *(word for pair in usual.items() for word in pair))
    assert message in said
    assert not (floating / "a.smg").exists()
