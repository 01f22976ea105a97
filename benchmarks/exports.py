"""A learned model in other runtimes: first choices that stay, those that are right, and what an image takes.

`smidgen demo -o demo` makes such a model, demo/learned.smg; images are the 500 test images of the CIFAR-10 sample,
or those of `--data`, which has to be what the model learned.
Times are medians, on one thread, of runtimes that take turns image by image: they compare within one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import add_data, arguments_of, images_of, report, start
from smidgen.data import Samples, as_input, pixel_encoding
from smidgen.frontends import export_model
from smidgen.ir import Array, Graph

Run = Callable[[Array], Array]


@dataclass(frozen=True)
class Outcome:
    """What a runtime makes of a model's images, beside ours."""

    runtime: str
    file: str
    bytes: int
    images: int
    same: int  # first choices
    top1: float  # percent of them that are right
    difference: float  # of an output, mean
    milliseconds: float  # an image, median


def litert(file: Path, kernels: OpResolverType) -> Run:
    interpreter = Interpreter(str(file), experimental_op_resolver_type=kernels, num_threads=1)
    interpreter.allocate_tensors()
    (x,), (y,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(image: Array) -> Array:
        interpreter.set_tensor(x["index"], image)
        interpreter.invoke()
        return np.asarray(interpreter.get_tensor(y["index"]))

    return run


def onnx_runtime(file: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda image: np.asarray(session.run(None, {name: image})[0])


def timed(run: Run, image: Array) -> tuple[Array, float]:
    start = time.perf_counter()
    result = run(image)
    return result, time.perf_counter() - start


def outcomes(graph: Graph, test: Samples) -> list[Outcome]:
    """Our own C first, then the others."""
    images = [as_input(image, pixel_encoding(graph)) for image in test.images]
    with TemporaryDirectory() as folder, sm.compile(graph).start() as device:
        smg, tflite, onnx, plain = (Path(folder) / name for name in ("a.smg", "a.tflite", "a.onnx", "plain.onnx"))
        for file in (smg, tflite, onnx, plain):
            export_model(graph, file, plain=file is plain)
        runs: dict[tuple[str, str, Path], Run] = {
            ("Smidgen, C on this machine", ".smg", smg): lambda x: device.run(x)[0],
            ("LiteRT, reference kernels", ".tflite", tflite): litert(tflite, OpResolverType.BUILTIN_REF),
            ("LiteRT, XNNPACK", ".tflite", tflite): litert(tflite, OpResolverType.AUTO),
            ("ONNX Runtime", ".onnx", onnx): onnx_runtime(onnx),
            ("ONNX Runtime", ".onnx, plain", plain): onnx_runtime(plain),
        }
        turns = [[timed(run, image) for run in runs.values()] for image in images]
        names = [(runtime, kind, file.stat().st_size) for runtime, kind, file in runs]
    outputs = [np.concatenate([turn[place][0] for turn in turns]).astype(np.float64) for place in range(len(runs))]
    tops = [output.argmax(1) for output in outputs]
    return [
        Outcome(
            runtime, kind, size, len(images),
            same=int((tops[place] == tops[0]).sum()),
            top1=100 * float(np.mean(tops[place] == np.array(test.labels))),
            difference=float(np.abs(outputs[place] - outputs[0]).mean()),
            milliseconds=1e3 * float(np.median([turn[place][1] for turn in turns])),
        )
        for place, (runtime, kind, size) in enumerate(names)
    ]  # fmt: skip


def show(results: list[Outcome]) -> None:
    table = Table("runtime", "file", "bytes", "same first choice", "top-1 %", "mean difference", "ms per image")
    for o in results:
        same = f"{o.same} of {o.images}"
        table.add_row(
            o.runtime, o.file, f"{o.bytes:,}", same, f"{o.top1:.1f}", f"{o.difference:.2g}", f"{o.milliseconds:.1f}"
        )
    Console(width=120).print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("model", type=Path, help="a learned model, .smg")
    add_data(parser, kept=None)
    given = parser.parse_args()
    results = outcomes(sm.load(given.model), images_of(given, kept=None).test)
    report(results, show, given.json)


if __name__ == "__main__":
    start(main)
