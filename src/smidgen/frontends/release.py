"""The paper's release: its `.pkl` files, read without unpickling, and the same networks repacked as `.npz`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from smidgen.data.files import MEMORY, Budget, read_npz, read_whole, read_zip
from smidgen.data.pickles import read_pickle
from smidgen.errors import GraphError, ImportModelError
from smidgen.frontends.fields import Record
from smidgen.frontends.network import Block, Classifier, Conv, Network, build
from smidgen.ir import Array, Graph, QParams

NPZ_RESOLUTION = 128  # not stated in the repacked files; all were calibrated on 128×128 images


def read_pkl(path: Path, memory: int = MEMORY) -> Graph:
    """Read a network as the release ships it: nested dicts of arrays in a torch.save archive or a bare pickle."""
    data = read_whole(path, memory)
    if data[:4] == b"PK\x03\x04":
        members = read_zip(path, Budget(memory), lambda name: name.endswith("data.pkl"))
        if len(members) != 1:
            raise ImportModelError(f"{path.name} should hold one data.pkl, it holds {len(members)}")
        (data,) = members.values()
    root = Record.of(read_pickle(data, path.name), path.name)
    if root.optional("feature_mix") is not None:
        raise ImportModelError(f"{path.name} has a feature_mix convolution, which is not supported")
    stem = root.record("first_conv")
    network = Network(
        resolution=stem.integer("in_shape"),
        image=stem.record("params").qparams("x_scale", "x_zero"),
        stem=_pkl_conv(stem),
        blocks=tuple(_pkl_block(block) for block in root.records("blocks")),
        classifier=_classifier(root.record("classifier"), *_pkl_layer(root.record("classifier"))),
    )
    _check_pkl(root, network)
    return _graph(network, path)


def _pkl_layer(record: Record) -> tuple[Array, Array, Array, QParams]:
    """Return a layer's weights, bias, scales and output quantization."""
    params = record.record("params")
    w, b, scales = (params.array(k, d) for k, d in (("weight", "int8"), ("bias", "int32"), ("w_scales", "float32")))
    return w, b, scales, params.qparams("y_scale", "y_zero")


def _pkl_conv(record: Record) -> Conv:
    return _conv(record, *_pkl_layer(record), record.integers("kernel_size"))


def _pkl_block(record: Record) -> Block:
    if record.optional("se") is not None:
        raise ImportModelError(f"{record.where} has squeeze-and-excitation, which is not supported")
    expand, residual = record.optional("pointwise1"), record.optional("residual")
    return Block(
        expand=None if expand is None else _pkl_conv(expand),
        depthwise=_pkl_conv(record.record("depthwise")),
        project=_pkl_conv(record.record("pointwise2")),
        add=None if residual is None else residual.record("params").qparams("y_scale", "y_zero"),
    )


def _check_pkl(root: Record, network: Network) -> None:
    """Raise unless every layer reads its input with the quantization that the layer before writes."""
    x = network.stem.y
    for record, block in zip(root.records("blocks"), network.blocks, strict=True):
        residual = record.optional("residual")
        if residual is not None:
            _check_input(residual.record("params"), x)
        for key, conv in (("pointwise1", block.expand), ("depthwise", block.depthwise), ("pointwise2", block.project)):
            if conv is not None:
                _check_input(record.record(key).record("params"), x)
                x = conv.y
        x = block.add or x
    _check_input(root.record("classifier").record("params"), x)


def read_release_npz(path: Path, memory: int = MEMORY) -> Graph:
    """Read a network repacked as `.npz`: `meta` describes the arrays `c0_w`, `c0_b`, `c0_ws`, … in JSON."""
    budget = Budget(memory)
    arrays = read_npz(path, budget)
    meta = Record.from_json(str(_array(arrays, "meta", path.name)).encode(), f"{path.name}, meta", budget)
    records, head = meta.records("convs"), meta.record("classifier")
    convs = [
        _conv(record, *_npz_layer(arrays, record, f"c{i}"), record.integers("k")) for i, record in enumerate(records)
    ]
    if not convs:
        raise ImportModelError(f"{path.name} describes no convolutions")
    network = Network(
        resolution=NPZ_RESOLUTION,
        image=records[0].qparams("x_scale", "x_zero"),
        stem=convs[0],
        blocks=tuple(_npz_block(block, convs) for block in meta.records("blocks")),
        classifier=_classifier(head, *_npz_layer(arrays, head, "fc")),
    )
    _check_npz(meta, network)
    return _graph(network, path)


def _npz_layer(arrays: Mapping[str, Array], record: Record, name: str) -> tuple[Array, Array, Array, QParams]:
    """Return a layer's weights, bias, scales and output quantization."""
    w, b, scales = (_array(arrays, f"{name}_{part}", record.where) for part in ("w", "b", "ws"))
    return w, b, scales, record.qparams("y_scale", "y_zero")


def _npz_block(record: Record, convs: list[Conv]) -> Block:
    indices, add = record.integers("convs"), record.optional("add")
    if len(indices) not in (2, 3) or not all(0 < i < len(convs) for i in indices):
        raise ImportModelError(f"{record.where} should list 2 or 3 of the {len(convs)} convolutions, not {indices}")
    *expand, depthwise, project = (convs[i] for i in indices)
    q = None if add is None else add.qparams("sy", "zy")
    return Block(expand[0] if expand else None, depthwise, project, q)


def _check_npz(meta: Record, network: Network) -> None:
    """Raise unless every layer reads its input with the quantization that the layer before writes."""
    convs, x = meta.records("convs"), network.stem.y
    for record, block in zip(meta.records("blocks"), network.blocks, strict=True):
        add = record.optional("add")
        if add is not None:
            _check_input(add, x, "s1", "z1")
            _check_input(add, block.project.y, "s2", "z2")
        layers = [conv for conv in (block.expand, block.depthwise, block.project) if conv is not None]
        for index, conv in zip(record.integers("convs"), layers, strict=True):
            _check_input(convs[index], x)
            x = conv.y
        x = block.add or x
    _check_input(meta.record("classifier"), x)


def _check_input(record: Record, expected: QParams, scale: str = "x_scale", zero: str = "x_zero") -> None:
    found = record.qparams(scale, zero)
    if found != expected:
        raise ImportModelError(
            f"{record.where} reads its input with scale {found.one:g} and zero point {found.zero}, "
            f"the layer before writes {expected.one:g} and {expected.zero}"
        )


def _conv(record: Record, w: Array, b: Array, scales: Array, y: QParams, kernel: tuple[int, ...]) -> Conv:
    """Transpose weights [out, in / groups, rows, columns] to [out, rows, columns, in] or [1, rows, columns, out]."""
    groups = record.integer("groups")
    _check_arrays(record, w, b, scales)
    if w.shape[2:] != kernel:
        raise ImportModelError(f"{record.where} declares a kernel of {kernel}, its weights are {list(w.shape)}")
    if groups not in (1, w.shape[0]) or (groups > 1 and w.shape[1] != 1):
        raise ImportModelError(
            f"{record.where} has {groups} groups over weights {list(w.shape)}; only 1, or one per channel "
            "(depthwise), is supported"
        )
    depthwise = groups > 1
    ours = w.transpose(1, 2, 3, 0) if depthwise else w.transpose(0, 2, 3, 1)
    return Conv(ours, b, tuple(scales.tolist()), y, record.integer("stride"), depthwise)


def _classifier(record: Record, w: Array, b: Array, scales: Array, y: QParams) -> Classifier:
    _check_arrays(record, w, b, scales)
    if w.shape[2:] != (1, 1):
        raise ImportModelError(f"{record.where} should have weights [classes, channels, 1, 1], not {list(w.shape)}")
    return Classifier(w[:, :, 0, 0], b, tuple(scales.tolist()), y)


def _check_arrays(record: Record, w: Array, b: Array, scales: Array) -> None:
    dtypes = (w.dtype.name, b.dtype.name, scales.dtype.name)
    if dtypes != ("int8", "int32", "float32") or w.ndim != 4 or b.shape != w.shape[:1] or scales.shape != w.shape[:1]:
        raise ImportModelError(
            f"{record.where} should have int8 weights of 4 dimensions, an int32 bias and a float32 scale per channel, "
            f"found {dtypes[0]}{list(w.shape)}, {dtypes[1]}{list(b.shape)} and {dtypes[2]}{list(scales.shape)}"
        )


def _array(arrays: Mapping[str, Array], name: str, where: str) -> Array:
    if name not in arrays:
        raise ImportModelError(f"{where} has no array '{name}'")
    return arrays[name]


def _graph(network: Network, path: Path) -> Graph:
    try:
        return build(network, re.sub(r"[^A-Za-z0-9_.+-]", "_", path.stem))
    except GraphError as error:
        raise ImportModelError(f"{path.name} does not describe a valid network: {error}") from None
