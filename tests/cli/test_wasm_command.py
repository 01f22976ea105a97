"""WebAssembly from the command line: compiled, measured, packed for npm, trained; what cannot be ends in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from smidgen.data import Samples
from smidgen.frontends.native import write_smg
from smidgen.ir import evaluate
from tests.cli.test_cli import fail, invoke
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.wasm import wasm_target

LEARNS = ("small.smg", "--scheme", "last:3", "--classes", "4")


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small network, or a skip where no module can run."""
    wasm_target(cache, simd=True)
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    return tmp_path


def test_compile_writes_both_modules_beside_their_sources(folder: Path) -> None:
    printed = json.loads(invoke("compile", *LEARNS, "--target", "wasm", "-o", "out", "--json"))
    assert printed["target"] == "wasm"
    assert {"model.wasm", "model.simd.wasm", "Makefile", "board/wasm.c", "model/model.c"} <= set(printed["files"])
    invoke("compile", *LEARNS, "--target", "wasm", "-o", "out", "--force")  # a project that was written is replaced


def test_export_npm_is_for_wasm_whether_it_is_named_or_not(folder: Path) -> None:
    named = invoke("compile", *LEARNS, "--target", "wasm", "--export", "npm", "-o", "named")
    assert "for wasm: 8 files" in named
    invoke("compile", *LEARNS, "--export", "npm", "-o", "unnamed")
    for name in ("model.wasm", "model.simd.wasm", "index.js", "package.json"):
        assert Path("named", name).read_bytes() == Path("unnamed", name).read_bytes()


def test_npm_refuses_a_board(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = fail(capsys, monkeypatch, "compile", *LEARNS, "--target", "cortex-m7", "--export", "npm", "-o", "out")
    assert said == ("npm takes WebAssembly, and this program was compiled for cortex-m7; compile it for wasm")
    assert not Path("out").exists()


def test_profile_measures_both_modules(folder: Path) -> None:
    printed = json.loads(invoke("profile", *LEARNS, "--target", "wasm", "--runs", "2", "--json"))
    assert printed["exact"] == {"steps": 3, "equal": True, "differs": None}
    assert [module["simd"] for module in printed["modules"]] == [True, False]
    for module in printed["modules"]:
        assert 0 < module["gzip_bytes"] < module["bytes"]
        assert module["forward_ms"] > 0
        assert module["step_ms"] > 0
    assert printed["memory_bytes"] % 65536 == 0
    shown = invoke("profile", "small.smg", "--target", "wasm", "--runs", "2", "--layers")
    assert "3 of 3 steps give the bytes of the reference" in shown
    assert "no node is timed by itself" in shown


def test_profile_refuses_what_is_for_boards(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fail(capsys, monkeypatch, "profile", *LEARNS, "--target", "wasm", "--sram", "64KB")
    assert said == "--sram applies to boards, and wasm is none; leave it out, or name a board"


def test_run_computes_what_the_reference_does(folder: Path) -> None:
    x = np.random.default_rng(0).integers(-128, 128, (1, 32, 32, 3)).astype(np.int8)
    np.save("x.npy", x)
    invoke("run", "small.smg", "--input", "x.npy", "-o", "y.npy", "--target", "wasm")
    assert np.load("y.npy").tobytes() == evaluate(sm.load("small.smg"), x)[0].tobytes()


def test_train_learns_the_hosts_model(folder: Path) -> None:
    data = draw_shapes(6, 2)

    def stacked(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        return np.stack(samples.images), np.array(samples.labels)

    (x, y), (x_test, y_test) = stacked(data.train), stacked(data.test)
    np.savez("data.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    learns = ("small.smg", "--scheme", "last:3", "--data", "data.npz", "--lr", "0.01", "--epochs", "2", "--json")
    found = {}
    for target in ("host", "wasm"):
        printed = json.loads(invoke("train", *learns, "--target", target, "-o", target))
        assert printed["target"] == target
        found[target] = Path(target, "small.smg").read_bytes()
    assert found["wasm"] == found["host"]
