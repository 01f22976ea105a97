"""A toy to learn without pictures: what an accelerometer records of someone who rests, runs or walks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from smidgen.ir import Array

MOTIONS = ("rest", "run", "walk")
ROWS, AXES = 64, 3
PACE = {"rest": (0.3, 0.2), "run": (3.5, 2.5), "walk": (1.5, 1.0)}  # steps per second, and how much they shake
PER_SECOND = 25


def draw_motion(kind: str, rng: np.random.Generator) -> Array:
    """So many rows of three axes, of which the last one feels gravity."""
    pace, shake = PACE[kind]
    at = 2 * np.pi * (pace * rng.uniform(0.9, 1.1) * np.arange(ROWS) / PER_SECOND + rng.uniform())
    felt = np.stack([np.sin(at), 0.5 * np.cos(at), 0.3 * np.sin(2 * at)], axis=1) * shake * rng.uniform(0.8, 1.2)
    moved: Array = felt + np.array([0, 0, 9.8]) + rng.normal(0, 0.3, (ROWS, AXES))
    return moved.astype(np.float32)


def draw_motions(count: int, seed: int = 0, axes: Sequence[int] = (0, 1, 2)) -> tuple[Array, Array]:
    """So many of each kind in turn, [n, rows, axes], the axes in some order, and their classes."""
    rng, classes = np.random.default_rng(seed), np.arange(len(MOTIONS) * count) % len(MOTIONS)
    return np.stack([draw_motion(MOTIONS[k], rng)[:, list(axes)] for k in classes]), classes


def write_rows(path: Path, x: Array, classes: Array) -> Path:
    """A table with a row for each recording, time by time, and its motion behind."""
    return _write_table(path, x, ("motion",), [(MOTIONS[k],) for k in classes])


def write_speeds(path: Path, x: Array) -> Path:
    """The same with two numbers behind: how much it shakes, and a number that falls with it."""
    shakes = np.abs(x - x.mean(axis=1, keepdims=True)).mean(axis=(1, 2))
    return _write_table(path, x, ("speed", "rest"), [(f"{s:.4f}", f"{1 - s / 2:.4f}") for s in shakes])


def _write_table(path: Path, x: Array, columns: tuple[str, ...], words: Sequence[tuple[str, ...]]) -> Path:
    names = [f"{axis}{row}" for row in range(ROWS) for axis in "xyz"]
    lines = [",".join((*map(repr, map(float, one.ravel())), *row)) for one, row in zip(x, words, strict=True)]
    path.write_text("\n".join((",".join((*names, *columns)), *lines)) + "\n")
    return path


def write_recordings(folder: Path, x: Array, classes: Array) -> Path:
    """A file for each recording, in the folder of its motion."""
    for place, (one, k) in enumerate(zip(x, classes, strict=True)):
        path = folder / MOTIONS[k] / f"{place:03}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{1000 * row // PER_SECOND},{','.join(map(repr, map(float, felt)))}" for row, felt in enumerate(one)]
        path.write_text("\n".join(("timestamp,x,y,z", *lines)) + "\n")
    return folder


def trained(dense: bool = False) -> nn.Module:
    """A float network that knows the motions, by convolutions along time or by dense layers."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(ROWS * AXES, 16), nn.ReLU(), nn.Linear(16, len(MOTIONS)))
    if not dense:
        net = nn.Sequential(
            nn.Conv1d(AXES, 8, 5, stride=2, padding=2), nn.ReLU(), nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, len(MOTIONS)),
        )  # fmt: skip
    x, classes = draw_motions(40, seed=9)
    shown, wanted = torch.from_numpy(x), torch.from_numpy(classes)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(50):
        loss = nn.functional.cross_entropy(net(shown if dense else shown.transpose(1, 2)), wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return net.eval()


def write_onnx(path: Path, dense: bool = False) -> Path:
    """That network as PyTorch exports it, channels first or in a row."""
    return _export(path, trained(dense), (1, ROWS * AXES) if dense else (1, AXES, ROWS))


def write_autoencoder(path: Path) -> Path:
    """A network that is to give back what it sees, and has not learned it yet."""
    torch.manual_seed(0)
    whole = ROWS * AXES
    return _export(path, nn.Sequential(nn.Linear(whole, 16), nn.ReLU(), nn.Linear(16, whole)).eval(), (1, whole))


def _export(path: Path, net: nn.Module, shape: tuple[int, ...]) -> Path:
    torch.onnx.export(net, (torch.zeros(shape),), str(path), dynamo=False, opset_version=17)
    return path
