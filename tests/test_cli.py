"""Every verb shows its result as text or as one JSON object, and says what is wrong in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import smidgen as sm
from graphs import random_inputs
from release_files import npy, npz_members, pickled, tiny_network, zipped
from smidgen import cli
from smidgen.frontends.native import write_smg
from smidgen.frontends.network import build
from smidgen.ir import Builder, QParams, Type, evaluate
from smidgen.ops import Add, Requantize


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
    assert "y.npy" in invoke("run", "tiny.smg", "-i", "x.npy", "-o", "y.npy")


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


def test_import_reads_every_format_and_writes_smg_and_tflite(folder: Path) -> None:
    (folder / "tiny.npz").write_bytes(zipped(npz_members(tiny_network())))
    (folder / "tiny.pkl").write_bytes(pickled(tiny_network()))
    for source in ("tiny.npz", "tiny.pkl"):
        printed = json.loads(invoke("import", source, "-o", "tiny.smg", "--json"))
        assert printed["bytes"] == (folder / "tiny.smg").stat().st_size
        assert sm.load("tiny.smg") == build(tiny_network(), "tiny")
    invoke("import", "tiny.smg", "-o", "tiny.tflite")
    image = np.load("x.npy")
    assert np.array_equal(evaluate(sm.load("tiny.tflite"), image)[0], evaluate(sm.load("tiny.smg"), image)[0])


def test_compile_writes_a_project_and_says_what_it_takes(folder: Path) -> None:
    printed = json.loads(invoke("compile", "tiny.smg", "--target", "host", "-o", "out/c", "--json"))
    assert sorted(os.listdir("out/c")) == printed["files"]
    assert {"model.c", "model.h", "main.c", "README.md"} <= set(printed["files"])
    memory = sm.compile(sm.load("tiny.smg")).memory
    assert (printed["peak_bytes"], printed["constant_bytes"]) == (memory.peak, memory.constants)
    assert "bytes of SRAM" in invoke("compile", "tiny.smg", "-o", "out/d")


def test_the_demo_agrees_byte_for_byte_and_can_be_repeated(folder: Path) -> None:
    for _ in range(2):
        shown = json.loads(invoke("demo", "--json"))
        assert shown["same_after_file"]
        assert shown["equal_images"] == shown["images"] > 1
        assert (folder / shown["project"] / "model.h").exists()
    assert "out/demo/project" in invoke("demo")


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
        (("info", "bad.smg"), "bad.smg is no sound .smg file"),
        (("run", "tiny.smg", "-i", "absent.npy"), "absent.npy cannot be read"),
        (("run", "tiny.smg", "-i", "taken"), "taken is a folder"),
        (("run", "tiny.smg", "-i", "short.npy"), "declares int8"),
        (("run", "tiny.smg", "-i", "small.npy"), "int8[1, 4, 4, 3]"),
        (("run", "tiny.smg", "-i", "x.npy", "-i", "x.npy"), "takes 1 input tensors, 2 were given"),
        (("run", "tiny.smg", "-i", "x.npy", "-o", "a.npy", "-o", "b.npy"), "has 1 outputs, 2 files"),
        (("run", "tiny.smg", "-i", "x.npy", "-o", "absent/y.npy"), "absent/y.npy cannot be written"),
        (("run", "tiny.smg", "-i", "x.npy", "-o", "taken"), "taken cannot be written"),
        (("import", "tiny.smg", "-o", "tiny.onnx"), "should end in .smg or .tflite"),
        (("import", "tiny.smg", "-o", "absent/tiny.smg"), "cannot be written"),
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
