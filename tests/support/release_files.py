"""Small networks written in the two formats of the paper's release, for tests that need no data."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

from smidgen.frontends.network import Block, Conv, Network
from smidgen.ir import Array, QParams
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import BlockTable, Stage

SHARED = Path(__file__).parents[3] / "shared"


@cache
def tiny_network() -> Network:
    """Three blocks: without expansion, with a residual, and with a larger kernel and stride."""
    return draw(BlockTable(8, (Stage(1, 3, 2, 8), Stage(2, 3, 1, 8), Stage(3, 5, 2, 16))), 128, 7, seed=5)


def oihw(conv: Conv) -> Array:
    return np.ascontiguousarray(conv.w.transpose(3, 0, 1, 2) if conv.depthwise else conv.w.transpose(0, 3, 1, 2))


@cache
def pickled(network: Network) -> bytes:
    """The bare pickle, as torch.save's protocol 2 has it."""
    blocks, x = [], network.stem.y
    for block in network.blocks:
        record, y = pickled_block(block, x)
        blocks.append(record)
        x = block.add or y
    head = network.classifier
    classifier = {
        "in_channel": head.w.shape[3],
        "out_channel": head.w.shape[0],
        "params": _params(oihw(head), head.b, head.w_scales, x, head.y),
        "kernel_size": (1, 1),
        "stride": 1,
        "groups": 1,
    }
    stem = pickled_conv(network.stem, network.image, network.resolution)
    return pickle.dumps({"first_conv": stem, "blocks": blocks, "feature_mix": None, "classifier": classifier}, 2)


def pickled_block(block: Block, x: QParams) -> tuple[dict[str, object], QParams]:
    residual = (
        {"params": {"x_scale": x.one, "x_zero": x.zero, "y_scale": block.add.one, "y_zero": block.add.zero}}
        if (block.add)
        else None
    )
    record: dict[str, object] = {"residual": residual, "se": None, "pointwise1": None}
    for key, conv in (("pointwise1", block.expand), ("depthwise", block.depthwise), ("pointwise2", block.project)):
        if conv is not None:
            record[key] = pickled_conv(conv, x, 0)
            x = conv.y
    return record, x


def pickled_conv(conv: Conv, x: QParams, resolution: int) -> dict[str, object]:
    w = oihw(conv)
    return {
        "in_shape": resolution,
        "kernel_size": w.shape[2:],
        "stride": conv.stride,
        "groups": w.shape[0] if conv.depthwise else 1,
        "params": _params(w, conv.b, conv.w_scales, x, conv.y),
    }


def _params(w: Array, b: Array, scales: tuple[float, ...], x: QParams, y: QParams) -> dict[str, object]:
    return {
        "weight": w,
        "bias": b,
        "x_scale": x.one,
        "x_zero": x.zero,
        "y_scale": y.one,
        "y_zero": y.zero,
        "w_scales": np.array(scales, np.float32),
    }


def archived(data: bytes) -> bytes:
    """A pickle in the archive torch.save wraps around it."""
    return zipped({"archive/data.pkl": data, "archive/version": b"3\n"})


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


@cache
def npz_members(network: Network) -> dict[str, bytes]:
    """The members of the repacked form, `meta.npy`, `c0_w.npy`, …"""
    convs: list[Conv] = [network.stem]
    records = [_npz_conv(network.stem, network.image)]
    blocks, x = [], network.stem.y
    for block in network.blocks:
        source, indices = x, []
        for conv in (block.expand, block.depthwise, block.project):
            if conv is not None:
                indices.append(len(convs))
                convs.append(conv)
                records.append(_npz_conv(conv, x))
                x = conv.y
        add = None
        if block.add is not None:
            add = {"z1": float(source.zero), "s1": source.one, "z2": float(x.zero), "s2": x.one}
            add |= {"zy": float(block.add.zero), "sy": block.add.one}
            x = block.add
        blocks.append({"convs": indices, "add": add})
    head = network.classifier
    classifier = {"x_scale": x.one, "x_zero": x.zero, "y_scale": head.y.one, "y_zero": head.y.zero}
    arrays: dict[str, Array] = {
        "meta": np.array(json.dumps({"convs": records, "blocks": blocks, "classifier": classifier})),
        "fc_w": oihw(head),
        "fc_b": head.b,
        "fc_ws": np.array(head.w_scales, np.float32),
    }
    for i, conv in enumerate(convs):
        arrays |= {f"c{i}_w": oihw(conv), f"c{i}_b": conv.b, f"c{i}_ws": np.array(conv.w_scales, np.float32)}
    return {f"{name}.npy": npy(array) for name, array in arrays.items()}


def _npz_conv(conv: Conv, x: QParams) -> dict[str, object]:
    w = oihw(conv)
    return {
        "x_scale": x.one, "x_zero": x.zero, "y_scale": conv.y.one, "y_zero": conv.y.zero,
        "k": list(w.shape[2:]), "stride": conv.stride, "groups": w.shape[0] if conv.depthwise else 1,
    }  # fmt: skip


def npy(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()
