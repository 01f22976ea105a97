"""Helpers for float models: inputs and outputs in the file's order and in ours, and oracles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from smidgen.ir import Array, Graph, evaluate

onnxruntime.set_default_logger_severity(4)


def channels_last(array: Array, shape: tuple[int, ...]) -> Array:
    """An array of a file, channels first, in the shape the graph has for it."""
    if array.ndim > 2 and array.shape != shape:
        array = np.moveaxis(array, 1, -1)
    return np.asarray(array.reshape(shape), order="C")


def run(graph: Graph, *arrays: Array) -> list[Array]:
    """The graph's outputs on inputs as a channels-first file takes them."""
    fed = [channels_last(a, v.type.shape) for a, v in zip(arrays, graph.inputs, strict=True)]
    return list(evaluate(graph, *fed))


def close(ours: Array, theirs: Array, tolerance: float = 1e-4) -> bool:
    """Return whether an output equals a file's, in its order or channels last, relative to its largest element."""
    last = np.moveaxis(theirs, 1, -1) if theirs.ndim > 2 else theirs
    small = tolerance * max(float(np.abs(theirs).max()), 1e-3)
    fits = [a for a in (theirs, last) if a.shape == ours.shape or (1, *a.shape) == ours.shape]
    return any(bool(np.abs(ours - expected).max() <= small) for expected in fits)


def runtime(model: Path | bytes, *arrays: Array, optimized: bool = True) -> list[Array]:
    """Return what ONNX Runtime computes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source: Any = model if isinstance(model, bytes) else str(model)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return [np.asarray(a) for a in session.run(None, dict(zip(names, arrays, strict=True)))]
