"""Make .npz files of sensor data in public repositories, for benchmarks/auto.py.

`python -m experiments.sensor_sets gestures CLONE/gesture60_8.csv OUTPUT` takes AyishaR/iot_gesture: 100 moments of an
accelerometer and a gyroscope, 8 gestures. `… gases CLONE OUTPUT` takes batches 1 to 3 of
HakanKARASU/Gas-Sensor-Array-Drift-Dataset (Vergara et al. 2012): 128 features of 16 sensors, 6 gases; `… drift CLONE
OUTPUT` learns from batch 1 and tests with batch 2. `… motions CLONE/export.zip OUTPUT` takes
Gokhan-Ergul/TinyML-Motion-Classification-and-Anomaly-Detection-Dataset: windows of two seconds of an accelerometer and
a gyroscope, 4 motions, in its own split.
"""

from __future__ import annotations

import csv
import json
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from smidgen.ir import Array

CHANNELS = 6  # three of an accelerometer, three of a gyroscope
WINDOW, HOP = 118, 59  # moments, 59 to a second
Arrays = dict[str, Array]


def gestures(table: Path) -> Arrays:
    """Return gestures as windows [moments, channels]."""
    with table.open() as file:
        rows = list(csv.reader(file))[1:]
    x = np.array([row[:-1] for row in rows], np.float32)
    return {"x": x.reshape(len(rows), -1, CHANNELS), "y": np.array([row[-1] for row in rows])}


def gas_batch(folder: Path, batches: Sequence[int]) -> tuple[Array, Array]:
    """Return the features and the gas of each measurement, from lines of `gas;concentration 1:feature 2:feature …`."""
    lines = [line.split() for batch in batches for line in (folder / f"batch{batch}.dat").read_text().splitlines()]
    x = np.array([[cell.split(":")[1] for cell in line[1:]] for line in lines], np.float32)
    return x, np.array([f"gas {line[0].split(';')[0]}" for line in lines])


def gases(folder: Path) -> Arrays:
    """Return three batches, to be divided."""
    x, y = gas_batch(folder, (1, 2, 3))
    return {"x": x, "y": y}


def drift(folder: Path) -> Arrays:
    """Return a batch to learn from, and the next, of later months, to test with."""
    (x, y), (x_test, y_test) = gas_batch(folder, (1,)), gas_batch(folder, (2,))
    return {"x": x, "y": y, "x_test": x_test, "y_test": y_test}


def motions(archive: Path) -> Arrays:
    """Return windows of recordings in training/ and testing/ whose names begin with a motion."""
    x: dict[str, list[Array]] = {"training": [], "testing": []}
    y: dict[str, list[str]] = {"training": [], "testing": []}
    with zipfile.ZipFile(archive) as packed:
        for name in sorted(one for one in packed.namelist() if one.endswith(".json")):
            split, file = name.split("/")
            motion = file.split(".")[0]
            if motion == "testing":  # of no known motion
                continue
            rows = np.array(json.loads(packed.read(name))["payload"]["values"], np.float32)
            for at in range(0, len(rows) - WINDOW + 1, HOP):
                x[split].append(rows[at : at + WINDOW])
                y[split].append(motion)
    parts = {"": "training", "_test": "testing"}
    return {f"{kind}{end}": np.array(held[part]) for end, part in parts.items() for kind, held in (("x", x), ("y", y))}


MAKERS: dict[str, Callable[[Path], Arrays]] = {"gestures": gestures, "gases": gases, "drift": drift, "motions": motions}


def main() -> None:
    if len(sys.argv) != 4 or sys.argv[1] not in MAKERS:
        sys.exit(f"usage: python -m experiments.sensor_sets {'|'.join(MAKERS)} SOURCE OUTPUT")
    what, source, output = sys.argv[1:]
    np.savez_compressed(output, **MAKERS[what](Path(source)))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
