"""Hostile PyTorch archives: none of them runs code, and each is refused in one sentence or read harmlessly."""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from torch import nn

from smidgen.errors import ImportModelError, SmidgenError
from smidgen.frontends import import_model
from smidgen.frontends.torch.program import find_operator

Members = dict[str, bytes]
ROOT = "model/"
MODEL, WEIGHTS = ROOT + "models/model.json", ROOT + "data/weights/model_weights_config.json"
CONSTANTS, SAMPLES = ROOT + "data/constants/model_constants_config.json", ROOT + "data/sample_inputs/model.pt"


class Net(nn.Module):
    """A convolution, a buffer that is saved as a constant, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.classify = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)
        self.factor: torch.Tensor
        self.register_buffer("factor", torch.arange(1.0, 5.0).reshape(1, 4, 1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.classify((torch.relu(self.conv(x)) * self.factor).mean((2, 3)))
        return y


@pytest.fixture(scope="module")
def benign(tmp_path_factory: pytest.TempPathFactory) -> Members:
    path = tmp_path_factory.mktemp("benign") / "model.pt2"
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 8, 8),)), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


class Runs:
    """Pickles as a shell command that leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def saved(mark: Path) -> bytes:
    data = io.BytesIO()
    torch.save({"x": Runs(mark)}, data)
    return data.getvalue()


def written(members: Members, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def changed(members: Members, member: str, *steps: tuple[tuple[str | int, ...], object]) -> Members:
    """The archive with entries of one description set."""
    found = json.loads(members[member])
    for (*way, last), value in steps:
        at: Any = found
        for key in way:
            at = at[key]
        at[last] = value
    return {**members, member: json.dumps(found).encode()}


def entries(members: Members, member: str) -> dict[str, Any]:
    return dict(json.loads(members[member])["config"])


def running(benign: Members, mark: Path) -> Iterator[tuple[str, Members]]:
    """Archives that ran a command when PyTorch's own loader read them, and their like."""
    evil, weight = saved(mark), next(iter(entries(benign, WEIGHTS)))
    yield "legacy weights", {**benign, ROOT + "data/weights/model.pt": evil}
    yield "legacy constants", {**benign, ROOT + "data/constants/model.pt": evil}
    pickled = (("config", weight, "use_pickle"), 1), (("config", weight, "path_name"), "evil")
    yield "1 for true", {**changed(benign, WEIGHTS, *pickled), ROOT + "data/weights/evil": evil}
    opaque = {**entries(benign, CONSTANTS)["factor"], "path_name": "opaque_obj_0"}
    objects = changed(benign, CONSTANTS, (("config", "zz"), opaque))
    yield "opaque object", {**objects, ROOT + "data/constants/opaque_obj_0": pickle.dumps(Runs(mark))}
    custom = changed(benign, CONSTANTS, (("config", "zz"), {**opaque, "path_name": "custom_obj_0"}))
    yield "custom object", {**custom, ROOT + "data/constants/custom_obj_0": evil}
    tables = {n.replace("model_", "evil_"): d for n, d in benign.items() if n.endswith("_config.json")}
    second = {ROOT + "models/evil.json": benign[MODEL], ROOT + "data/sample_inputs/evil.pt": evil}
    yield "second model", {**benign, **tables, **second}
    yield "decoy inside", {ROOT + "x/models/model.json": benign[MODEL], **benign, SAMPLES: evil}
    yield "decoy root", {"a/models/model.json": benign[MODEL], **benign, SAMPLES: evil}
    for name in (f"x=__import__('os').system('touch {mark}')", f"x);__import__('os').system('touch {mark}')#"):
        text = benign[MODEL].decode().replace('"name": "x"', f'"name": "{name}"').replace('"x": {', f'"{name}": {{')
        yield f"name {name[:3]}", {**benign, MODEL: text.encode()}
    spec = f'[1, {{"type": "builtins.tuple", "context": "__import__(\\"os\\").system(\\"touch {mark}\\")"}}]'
    tree = f'"in_spec": {json.dumps(spec)}, "a": "'.encode()
    yield "tree", {**benign, MODEL: benign[MODEL].replace(b'"in_spec": "', tree)}
    guards = (("guards_code",), [f"__import__('os').system('touch {mark}')"])
    yield "guards", changed(benign, MODEL, guards)
    size = {"as_expr": {"expr_str": f"__import__('os').system('touch {mark}')", "hint": {"as_int": 3}}}
    yield "expression", changed(benign, MODEL, (("graph_module", "graph", "tensor_values", "x", "sizes", 1), size))
    for target in ("torch.os.system", "torch.ops.aten.save.default", "_operator.call", "math.os", "torch.load"):
        yield target, changed(benign, MODEL, (("graph_module", "graph", "nodes", 0, "target"), target))
    yield "samples", {**benign, SAMPLES: evil}
    yield "library", {**benign, ROOT + "data/aotinductor/model/x.wrapper.so": b"\x7fELF"}


def test_no_archive_runs_a_command(benign: Members, tmp_path: Path) -> None:
    mark, refused = tmp_path / "pwned", {}
    for what, members in running(benign, mark):
        try:
            import_model(written(members, tmp_path / "model.pt2"))
        except ImportModelError as error:
            refused[what] = str(error)
        assert not mark.exists(), what
    harmless = {"tree", "guards", "samples", "name x=_", "name x);"}  # what they hold is never looked at
    assert {what for what, _ in running(benign, mark)} - refused.keys() == harmless
    assert not any("\n" in sentence for sentence in refused.values())


def test_nothing_is_unpickled_while_an_archive_is_read(
    benign: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(benign, tmp_path / "model.pt2")
    expected = import_model(path)

    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError("something was unpickled")

    for module in (pickle, pickle._Unpickler):
        monkeypatch.setattr(module, "load", never)
    for name in ("loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    for owner, name in (
        (torch, "load"), (torch.export, "load"), (torch._weights_only_unpickler, "Unpickler"),
        (torch._C, "_pickle_load_obj"), (torch.serialization, "_load"), (torch.serialization, "_legacy_load"),
        (torch._C, "PyTorchFileReader"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, never)
    assert import_model(path) == expected


def test_an_archive_gives_what_its_module_gives(benign: Members, tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = import_model(written(benign, tmp_path / "model.pt2"))
    import smidgen

    direct = smidgen.from_torch(Net(), torch.zeros(1, 3, 8, 8))
    assert [node.op for node in graph.nodes] == [node.op for node in direct.nodes]
    assert [value.name for value in graph.inputs] == ["x"]
    for ours, theirs in zip(graph.constants.values(), direct.constants.values(), strict=True):
        assert np.array_equal(ours, theirs)


def lists_damage(benign: Members) -> Iterator[tuple[str, Members, str]]:
    """Damaged archives and the error of each; "" for those that are read as if whole."""
    names = list(entries(benign, WEIGHTS))
    meta = ("config", names[0], "tensor_meta")

    def weight(key: str, value: object, *more: str | int) -> Members:
        return changed(benign, WEIGHTS, ((*meta, key, *more), value))

    yield "outside", weight("storage_offset", {"as_int": 1}), "reaches element 109 of float32"
    yield "far outside", weight("storage_offset", {"as_int": 2**30}), "reaches element"
    yield "negative offset", weight("storage_offset", {"as_int": -1}), "and offset -1"
    yield "long stride", weight("strides", {"as_int": 2**30}, 0), "reaches element"
    yield "negative stride", weight("strides", {"as_int": -1}, 0), "strides"
    yield "negative size", weight("sizes", {"as_int": -4}, 0), "has sizes"
    yield "overflow", weight("sizes", {"as_int": 2**31 - 1}, 0), "reaches element"
    huge = [{"as_int": 2**31 - 1}] * 4
    repeated = changed(benign, WEIGHTS, ((*meta, "sizes"), huge), ((*meta, "strides"), [{"as_int": 0}] * 4))
    yield "repeated", repeated, "would take .* bytes of memory"
    yield "fraction", weight("sizes", {"as_int": 1.5}, 0), "should be a whole number"
    yield "no number", weight("sizes", {"as_int": float("nan")}, 0), "should be a whole number"
    yield "open", weight("sizes", {"as_expr": {"expr_str": "s0"}}, 0), "leaves a dimension open"
    yield "dtype", weight("dtype", 13), "is of PyTorch's type 13"
    yield "sparse", weight("layout", 1), "sparse"
    yield "elsewhere", weight("device", {"type": "cuda:7", "index": 9}), ""
    for name in ("../../weight_0", "/etc/passwd", "weight_9", "Weight_0", "weight_0/", 7, None, "weight_٠"):
        yield f"path {name}", changed(benign, WEIGHTS, (("config", names[0], "path_name"), name)), "which is no tensor"
    shared = changed(benign, WEIGHTS, (("config", names[2], "path_name"), "weight_0"))
    yield "overlapping", shared, ""
    yield "absolute", {**benign, "/etc/evil": b""}, "holds 2 folders"
    yield "above", {**benign, ROOT + "../x": b""}, "which no archive of one plain model needs"
    yield "case", {**benign, ROOT + "Models/model.json": benign[MODEL]}, "which no archive of one plain model needs"
    yield "other byte order", {**benign, ROOT + "byteorder": b"big"}, "big-endian"
    yield "deep", {**benign, MODEL: b"[" * 100_000}, "cannot be read"
    yield "long number", {**benign, MODEL: b'{"a": ' + b"9" * 100_000 + b"}"}, "cannot be read"
    yield "constant NaN", {**benign, MODEL: b'{"a": NaN}'}, "has no entry 'graph_module'"
    yield "list", {**benign, WEIGHTS: b"[]"}, "should be a mapping"
    yield "no text", {**benign, MODEL: b"\xff\xfe{}"}, "cannot be read"
    nodes = ("graph_module", "graph", "nodes", 0)
    yield "no function", changed(benign, MODEL, ((*nodes, "target"), "torch.ops.aten.nothing.default")), "it calls"
    yield "list of text", changed(benign, MODEL, ((*nodes, "inputs", 0, "arg"), {"as_strings": ["a"]})), "not read"
    graph = {"as_graph": {"name": "g", "graph": {}}}
    yield "graph", changed(benign, MODEL, ((*nodes, "inputs", 0, "arg"), graph)), "'as_graph', which is not read"
    nowhere = {"as_tensor": {"name": "nowhere"}}
    yield "unknown", changed(benign, MODEL, ((*nodes, "inputs", 0, "arg"), nowhere)), "'nowhere' is read before"


def test_damaged_archives_are_refused_or_read_harmlessly(benign: Members, tmp_path: Path) -> None:
    for what, members, sentence in lists_damage(benign):
        path = written(members, tmp_path / "model.pt2")
        if not sentence:
            import_model(path)
            continue
        with pytest.raises(ImportModelError, match=sentence) as caught:
            import_model(path)
        assert "\n" not in str(caught.value), what


def test_a_member_that_stands_there_twice_is_refused(benign: Members, tmp_path: Path) -> None:
    path = written(benign, tmp_path / "model.pt2")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(WEIGHTS, b"{}")
    with pytest.raises(ImportModelError, match=r"holds 'model/data/weights/model_weights_config\.json' twice"):
        import_model(path)


def test_links_and_names_that_are_no_text_lead_nowhere(benign: Members, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    link = zipfile.ZipInfo(ROOT + "data/weights/weight_0")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    written({name: data for name, data in benign.items() if name != link.filename}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, b"/etc/passwd")
    with pytest.raises(ImportModelError, match="reaches element"):
        import_model(path)
    written({**benign, ROOT + "xxxx": b""}, path)
    path.write_bytes(path.read_bytes().replace(b"model/xxxx", b"model/\xff\xfe\xfd\xfc"))
    with pytest.raises(SmidgenError) as caught:
        import_model(path)
    assert "\n" not in str(caught.value)


def test_operators_that_read_or_write_anything_but_tensors_are_refused() -> None:
    others = ("from_file", "save", "_print", "warn", "item", "manual_seed", "__class__", "wait")
    for name in (*(f"{other}.default" for other in others), "set_.source_Storage", "relu.__class__"):
        with pytest.raises(ImportModelError, match="which is not one of PyTorch's own operators"):
            find_operator(f"torch.ops.aten.{name}")
    for name in (
        "conv2d.default",
        "conv2d.padding",
        "relu_.default",
        "_softmax.default",
        "chunk.default",
        "add.Tensor",
    ):
        find_operator(f"torch.ops.aten.{name}")


def test_a_tensor_is_not_cut_into_millions(benign: Members, tmp_path: Path) -> None:
    node = {
        "target": "torch.ops.aten.unbind.int", "metadata": {}, "outputs": [{"as_tensors": [{"name": "u"}]}],
        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
                   {"name": "dim", "arg": {"as_int": 1}, "kind": 1}],
    }  # fmt: skip
    graph = ("graph_module", "graph")
    many = changed(
        benign, MODEL, ((*graph, "nodes", 0), node), ((*graph, "tensor_values", "x", "sizes", 1), {"as_int": 2**20})
    )
    with pytest.raises(ImportModelError, match="cuts a tensor into 1,048,576 pieces"):
        import_model(written(many, tmp_path / "model.pt2"))
