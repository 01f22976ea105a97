"""Pre-trained float weights → the zoo's int8 file, and the figures of its model card.

    python tools/ship.py mcunet-5fps.safetensors --data DIR -o src/smidgen/zoo/weights

Ranges come from training images; both accuracies are of all validation images, enlarged as images are everywhere in
Smidgen, the int8 one on the generated C.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import smidgen as sm
from backbone import TorchNetwork, read_network
from smidgen.data import Samples, centre, pixel_encoding
from smidgen.frontends.native import write_smg
from smidgen.frontends.torch.reader import from_torch
from smidgen.ir import Graph, Node, Value
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import top1
from smidgen.quantization import quantize
from smidgen.zoo import build_zoo
from tiny_imagenet import read_images

RESOLUTION, CLASSES = 128, 200
CALIBRATION = 500  # training images that set ranges
BATCH = 250


def named(graph: Graph, name: str) -> Graph:
    """The graph with the zoo's names: both run the same ops in the same order."""
    model = build_zoo(name, classes=CLASSES)
    if [type(n.op) for n in graph.nodes] != [type(n.op) for n in model.nodes]:
        raise SystemExit(f"{name} was quantized into other ops than the zoo's network has")
    names = {old: replace(old, name=new.name) for old, new in zip(_values(graph), _values(model), strict=True)}
    nodes = tuple(Node(n.op, tuple(names[v] for v in n.ins), tuple(names[v] for v in n.outs)) for n in graph.nodes)
    return replace(
        graph,
        name=name,
        inputs=tuple(names[v] for v in graph.inputs),
        outputs=tuple(names[v] for v in graph.outputs),
        nodes=nodes,
        constants={names[v]: data for v, data in graph.constants.items()},
    )


def _values(graph: Graph) -> list[Value]:
    """Every value, in the order in which nodes name them."""
    return list(dict.fromkeys(v for node in graph.nodes for v in (*node.ins, *node.outs)))


def float_top1(network: TorchNetwork, images: NDArray[np.uint8], labels: NDArray[np.int64], model: Graph) -> float:
    """Top-1 in percent of the float network, on the very numbers the int8 one stands for."""
    right = 0
    scale = model.inputs[0].type.scale
    with torch.no_grad():
        for i in range(0, len(images), BATCH):
            batch = np.concatenate([centre(image, pixel_encoding(model)) for image in images[i : i + BATCH]])
            x = torch.from_numpy(batch.astype(np.float32) * np.float32(scale)).permute(0, 3, 1, 2)
            right += int((network(x).argmax(1).numpy() == labels[i : i + BATCH]).sum())
    return 100 * right / len(images)


def int8_top1(model: Graph, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> float:
    """Top-1 in percent of the generated C."""
    with sm.compile(model).start() as device:
        return 100 * top1(device, Samples(tuple(images), tuple(int(k) for k in labels)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="what tools/pretrain.py wrote")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder of the .smg files")
    given = parser.parse_args()
    network, said = read_network(given.weights, CLASSES)
    name = said["name"]
    graph = from_torch(network, torch.zeros(1, 3, RESOLUTION, RESOLUTION))
    images, _ = read_images([given.data / "train_0.npz"])
    chosen = images[np.linspace(0, len(images) - 1, CALIBRATION).astype(int)]
    quantized = quantize(graph, list(chosen), preprocessing=Preprocessing())
    model = named(quantized.graph, name)
    write_smg(model, given.output / f"{name}.smg")
    pixels, labels = read_images([given.data / "val.npz"])
    figures = {
        "name": name,
        "recipe": json.loads(said["recipe"]),
        "float_top1": float_top1(network, pixels, labels, model),
        "int8_top1": int8_top1(model, pixels, labels),
    }
    print(quantized)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
