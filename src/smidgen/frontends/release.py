"""The paper's release: its `.pkl` files, read without unpickling, and the same networks repacked as `.npz`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from smidgen.data.files import MEMORY, Budget, read_npz, read_whole, read_zip
from smidgen.data.pickles import read_pickle
from smidgen.errors import GraphError, ImportModelError, refuse
from smidgen.frontends.fields import Record
from smidgen.frontends.network import Block, Conv, Network, build
from smidgen.ir import Array, Graph, QParams

NPZ_RESOLUTION = 128  # not stated in the repacked files; all were calibrated on 128×128 images
X, Y = ("x_scale", "x_zero"), ("y_scale", "y_zero")  # entries that quantize a layer's input and its output


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer as it is stored: what describes it, what quantizes it, and its arrays."""

    record: Record
    params: Record
    kernel: str  # the entry with its size
    w: Array
    b: Array
    scales: Array


# The layers of a block and, where its input is added, the sum with the entries that quantize its output and inputs.
_Stages = tuple[list[_Layer], tuple[Record, tuple[tuple[str, str], ...]] | None]


def read_pkl(path: Path, memory: int = MEMORY) -> Graph:
    """Read a network as the release ships it: nested dicts of arrays in a torch.save archive or a bare pickle."""
    data = read_whole(path, memory)
    if data[:4] == b"PK\x03\x04":
        members = read_zip(path, Budget(memory), lambda name: name.endswith("data.pkl"))
        refuse(len(members) != 1, f"{path.name} should hold one data.pkl, it holds {len(members)}")
        (data,) = members.values()
    root = Record.of(read_pickle(data, path.name), path.name)
    if root.optional("feature_mix") is not None:
        raise ImportModelError(f"{path.name} has a feature_mix convolution, which is not supported")
    stem, blocks = root.record("first_conv"), [_pkl_block(block) for block in root.records("blocks")]
    return _graph(path, stem.integer("in_shape"), _pkl_layer(stem), blocks, _pkl_layer(root.record("classifier")))


def _pkl_layer(record: Record) -> _Layer:
    params, kinds = record.record("params"), (("weight", "int8"), ("bias", "int32"), ("w_scales", "float32"))
    return _Layer(record, params, "kernel_size", *(params.array(key, dtype) for key, dtype in kinds))


def _pkl_block(record: Record) -> _Stages:
    refuse(record.optional("se") is not None, f"{record.where} has squeeze-and-excitation, which is not supported")
    expand, residual = record.optional("pointwise1"), record.optional("residual")
    layers = [*([] if expand is None else [expand]), record.record("depthwise"), record.record("pointwise2")]
    return [*map(_pkl_layer, layers)], None if residual is None else (residual.record("params"), (Y, X))


def read_release_npz(path: Path, memory: int = MEMORY) -> Graph:
    """Read a network repacked as `.npz`: `meta` describes the arrays `c0_w`, `c0_b`, `c0_ws`, … in JSON."""
    budget = Budget(memory)
    arrays = read_npz(path, budget)
    meta = Record.from_json(str(_array(arrays, "meta", path.name)).encode(), f"{path.name}, meta", budget)
    convs = [_npz_layer(arrays, record, f"c{i}") for i, record in enumerate(meta.records("convs"))]
    refuse(not convs, f"{path.name} describes no convolutions")
    blocks, head = [_npz_block(block, convs) for block in meta.records("blocks")], meta.record("classifier")
    return _graph(path, NPZ_RESOLUTION, convs[0], blocks, _npz_layer(arrays, head, "fc"))


def _npz_layer(arrays: Mapping[str, Array], record: Record, name: str) -> _Layer:
    parts = (_array(arrays, f"{name}_{part}", record.where) for part in ("w", "b", "ws"))
    return _Layer(record, record, "k", *parts)


def _npz_block(record: Record, convs: list[_Layer]) -> _Stages:
    indices, add = record.integers("convs"), record.optional("add")
    if len(indices) not in (2, 3) or not all(0 < i < len(convs) for i in indices):
        raise ImportModelError(f"{record.where} should list 2 or 3 of the {len(convs)} convolutions, not {indices}")
    entries = ("sy", "zy"), ("s1", "z1"), ("s2", "z2")
    return [convs[i] for i in indices], None if add is None else (add, entries)


def _array(arrays: Mapping[str, Array], name: str, where: str) -> Array:
    refuse(name not in arrays, f"{where} has no array '{name}'")
    return arrays[name]


def _graph(path: Path, resolution: int, first: _Layer, stored: Iterable[_Stages], last: _Layer) -> Graph:
    """Build the network; every layer must read its input with the quantization that the layer before writes."""
    image, stem, blocks = first.params.qparams(*X), _conv(first), list[Block]()
    x = stem.y
    for layers, total in stored:
        before, convs = x, [_conv(layer) for layer in layers]
        for layer, conv in zip(layers, convs, strict=True):
            _check_input(layer.params, x, X)
            x = conv.y
        if total is not None:
            record, (output, *inputs) = total
            for entries, written in zip(inputs, (before, x), strict=False):
                _check_input(record, written, entries)
            x = record.qparams(*output)
        *expand, depthwise, project = convs
        blocks.append(Block(expand[0] if expand else None, depthwise, project, x if total else None))
    _check_input(last.params, x, X)
    _check_arrays(last)
    if last.w.shape[2:] != (1, 1):
        raise ImportModelError(f"{last.record.where} needs weights [classes, channels, 1, 1], not {list(last.w.shape)}")
    head = Conv(last.w.transpose(0, 2, 3, 1), last.b, tuple(last.scales.tolist()), last.params.qparams(*Y))
    try:
        network = Network(resolution, image, stem, tuple(blocks), head)
        return build(network, re.sub(r"[^A-Za-z0-9_.+-]", "_", path.stem))
    except GraphError as error:
        raise ImportModelError(f"{path.name} does not describe a valid network: {error}") from None


def _check_input(record: Record, expected: QParams, entries: tuple[str, str]) -> None:
    found, one = record.qparams(*entries), f"the layer before writes {expected.one:g} and {expected.zero}"
    what = f"{record.where} reads its input with scale {found.one:g} and zero point {found.zero}"
    refuse(found != expected, f"{what}, {one}")


def _conv(layer: _Layer) -> Conv:
    """Transpose weights [out, in / groups, rows, columns] to [out, rows, columns, in] or [1, rows, columns, out]."""
    record, w, kernel = layer.record, layer.w, layer.record.integers(layer.kernel)
    groups = record.integer("groups")
    _check_arrays(layer)
    refuse(w.shape[2:] != kernel, f"{record.where} declares a kernel of {kernel}, its weights are {list(w.shape)}")
    if groups not in (1, w.shape[0]) or (groups > 1 and w.shape[1] != 1):
        what = f"{record.where} has {groups} groups over weights {list(w.shape)}"
        raise ImportModelError(f"{what}; only 1, or one per channel (depthwise), is supported")
    depthwise, scales = groups > 1, tuple(layer.scales.tolist())
    ours = w.transpose(1, 2, 3, 0) if depthwise else w.transpose(0, 2, 3, 1)
    return Conv(ours, layer.b, scales, layer.params.qparams(*Y), record.integer("stride"), depthwise)


def _check_arrays(layer: _Layer) -> None:
    arrays, w = (layer.w, layer.b, layer.scales), layer.w
    dtypes = tuple(a.dtype.name for a in arrays)
    if dtypes != ("int8", "int32", "float32") or w.ndim != 4 or {a.shape for a in arrays[1:]} != {w.shape[:1]}:
        raise ImportModelError(
            f"{layer.record.where} should have int8 weights of 4 dimensions, an int32 bias and a float32 scale per "
            f"channel, found {', '.join(f'{a.dtype.name}{list(a.shape)}' for a in arrays)}"
        )
