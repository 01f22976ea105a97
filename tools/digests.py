"""Record digests of everything a user can get out of Smidgen, to show that a refactoring changed no byte.

    python tools/digests.py record before.json           # run with the old sources on PYTHONPATH
    python tools/digests.py record after.json --only compile
    python tools/digests.py compare before.json after.json

C sources are digested without comments, JSON without durations and paths, HTML not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

ROOT = Path(__file__).parents[1]
MODELS = ROOT.parent / "shared" / "models"
COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*comment[^\n]*$", re.DOTALL | re.MULTILINE)
VARYING = re.compile(r"second|time|took|version|command|^ms$|_ms$|path|folder|file|output|report", re.IGNORECASE)
COURSE = "--data cifar10 --epochs 1 --learning-rate 0.01"
PROGRAMS = {
    "m7": "mcunet-5fps --scheme 49kb --classes 10 --weight-bits 8 --target cortex-m7 --input streamed",
    "nrf": "mbv2-w0.35 --scheme 99kb --classes 10 --target nrf52840 --input streamed",
    "u575": "proxyless-w0.3 --scheme head --classes 10 --weight-bits 8 --target stm32u575 --momentum 0.9",
    "c3": "mcunet-5fps --scheme last:3 --classes 10 --target esp32-c3 --input streamed",
    "host": "mcunet-5fps --scheme full --classes 10 --accumulate 4 --head-dtype int8 --target host",
    "m55": "mcunet-5fps --scheme 99kb --classes 10 --bias-bits 16 --skip-below 0.1 --target cortex-m55",
    "replay": "mcunet-5fps --scheme 99kb --classes 10 --target cortex-m7 --replay 256KB",
    "infer": "mcunet-5fps --target cortex-m0plus",
}
EXPORTS = ("arduino", "zephyr", "platformio", "esp-idf", "cmsis-pack", "cmake")


def commands() -> Iterator[tuple[str, str]]:
    """Yield every command as its group and its words; later ones use files that earlier ones of the group wrote."""
    for name in ("mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3"):
        yield "info", f"info {name} --json"
    for name, words in PROGRAMS.items():
        yield "compile", f"compile {words} -o compile/{name} --json"
    for kind in EXPORTS:
        board = "esp32-c3" if kind == "esp-idf" else "cortex-m7"
        words = f"mcunet-5fps --scheme 49kb --classes 10 --target {board}"
        yield "export", f"compile {words} --export {kind} -o export/{kind} --json"
    for name in ("m7", "c3", "replay", "infer"):
        if name != "replay":
            yield "profile", f"profile {PROGRAMS[name].replace('--input streamed', '')} --steps 2 --json"
    yield "profile", "profile mcunet-5fps --scheme 49kb --classes 10 --target host --steps 2 --runs 1 --json"
    for words in ("", "--estimate", "--analytic", "--pareto --points 5", "--method evolutionary --evaluations 50"):
        yield "search", f"search mcunet-5fps --classes 10 --budget 128KB {words} --json -o search/a.json --force"
    for suffix in ("tflite", "onnx", "smg"):
        yield "import", f"import mcunet-5fps -o import/model.{suffix} --json"
    yield "import", "import mcunet-5fps -o import/plain.onnx --plain --json"
    for path in sorted(MODELS.rglob("*")):
        if path.suffix in (".tflite", ".onnx", ".h5", ".npz", ".pkl"):
            yield "import", f"import {path} -o import/{path.stem}{path.suffix[1:]}.smg --json"
            yield "import", f"info import/{path.stem}{path.suffix[1:]}.smg --json"
    yield "quantize", "quantize net.onnx --data cifar10 --images 64 --mean 0.5 --std 0.5 --pixels 0,1 -o q/a.smg --json"
    yield "quantize", "quantize net.onnx --data cifar10 --images 64 --method mse --pixels 0,255 -o q/b.tflite --json"
    yield "quantize", "test q.smg --data few.npz --json"
    yield "train", f"train mcunet-5fps --scheme 49kb {COURSE} -o train/a --json"
    yield "train", "test train/a/mcunet-5fps.smg --data cifar10 --images 50 --json"
    yield "train", "test train/a/mcunet-5fps.smg --data cifar10 --images 5 --target cortex-m7 --json"
    yield "train", "predict train/a/mcunet-5fps.smg rows.npy --top 3 --json"
    yield "train", "run mcunet-5fps -i tensor.npy -o train/out.npy --json"
    yield "train", f"train train/a/mcunet-5fps.smg --scheme last:2 {COURSE} --momentum 0.9 -o train/b --json"
    yield "analyze", "analyze q.smg --data few.npz --epochs 1 --workers 1 -o analyze/a.json --json"
    yield "analyze", "search q.smg --budget 128KB --contributions analyze/a.json -o analyze/s.json --json"
    yield "fit", "fit q.smg --data few.npz --epochs 2 --budget 64KB -o fit/a --json"
    yield "fit", "fit q.smg --data few.npz --epochs 2 --budget 64KB --target esp32-c3 -o fit/b --json"
    yield "demo", "demo -o demo/out --json"


def make_inputs(folder: Path) -> None:
    """Write the small float model and arrays that the commands use."""
    for name in ("import", "search", "q", "train", "analyze"):
        (folder / name).mkdir()
    rng = np.random.default_rng(7)
    few = rng.integers(0, 256, (60, 32, 32, 3), np.uint8)
    few[np.arange(60), :, :, np.arange(60) % 3] //= 3
    np.savez(folder / "few.npz", x=few, y=np.arange(60) % 3)
    np.save(folder / "rows.npy", rng.integers(0, 256, (3, 128, 128, 3), np.uint8))
    np.save(folder / "tensor.npy", rng.integers(-128, 128, (1, 128, 128, 3), np.int8))
    shapes = {"a": (8, 3, 3, 3), "ab": (8,), "b": (16, 8, 3, 3), "bb": (16,), "c": (3, 16), "cb": (3,)}
    weights = [
        numpy_helper.from_array((rng.normal(size=s) / np.sqrt(np.prod(s[1:]) or 1)).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a", "ab"], ["h"], pads=[1] * 4, strides=[2, 2], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "b", "bb"], ["k"], pads=[1] * 4, strides=[2, 2], name="second"),
        helper.make_node("Relu", ["k"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "c", "cb"], ["y"], transB=1, name="head"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    save(helper.make_model(helper.make_graph(nodes, "net", [x], [y], weights), opset_imports=[
        helper.make_opsetid("", 17)], ir_version=9), folder / "net.onnx")  # fmt: skip
    run("quantize net.onnx --data few.npz --pixels 0,255 -o q.smg", folder)


def run(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one command of the command line in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "smidgen", *words.split()], cwd=folder, capture_output=True, text=True, check=False
    )


def without_varying(value: Any) -> Any:
    """Drop durations, versions and paths from a JSON value."""
    if isinstance(value, dict):
        return {k: without_varying(v) for k, v in value.items() if not VARYING.search(k)}
    return [without_varying(v) for v in value] if isinstance(value, list) else value


def digest_file(path: Path) -> str:
    """Digest a file's bytes; of C without comments and blank lines, of JSON without what varies."""
    raw = path.read_bytes()
    if path.suffix in (".c", ".h", ".S", ".inc", ".cpp", ".ino"):
        bare = COMMENTS.sub("", raw.decode())
        raw = "\n".join(line.rstrip() for line in bare.splitlines() if line.strip()).encode()
    elif path.suffix == ".json":
        raw = json.dumps(without_varying(json.loads(raw)), sort_keys=True).encode()
    return hashlib.sha256(raw).hexdigest()[:16]


def record(only: list[str]) -> dict[str, str]:
    """Run every command of the chosen groups and digest what it prints and what it leaves."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder)
        inputs = set(folder.rglob("*"))
        for group, words in commands():
            if only and group not in only:
                continue
            done = run(words, folder)
            print(f"{'ok' if done.returncode == 0 else done.stderr.strip()[-200:]}: {words}", file=sys.stderr)
            shown = words.replace(str(MODELS), "models")
            if done.returncode:
                found[shown] = f"exit {done.returncode}"
            elif done.stdout.strip():
                kept = json.dumps(without_varying(json.loads(done.stdout)), sort_keys=True)
                found[shown] = hashlib.sha256(kept.encode()).hexdigest()[:16]
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path not in inputs and path.suffix not in (".html", ".md", ".png", ".ckpt"):
                found[str(path.relative_to(folder))] = digest_file(path)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="groups of commands")
    given = parser.parse_args()
    if given.action == "record":
        given.files[0].write_text(json.dumps(record(given.only), indent=1) + "\n")
        return
    before, after = (json.loads(path.read_text()) for path in given.files)
    different = [name for name in after if before.get(name) != after[name]]
    print("\n".join(f"differs: {name}: {before.get(name)} -> {after[name]}" for name in different))
    sys.exit(f"{len(different)} of {len(after)} differ" if different else print(f"{len(after)} identical"))


if __name__ == "__main__":
    main()
