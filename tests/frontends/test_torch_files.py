"""PyTorch modules and archives that cannot be read: each is refused in one sentence."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import smidgen
from smidgen.errors import ImportModelError
from smidgen.frontends import import_model


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)


def nan_conv() -> nn.Module:
    conv = nn.Conv2d(3, 4, 1)
    with torch.no_grad():
        conv.weight[0, 0] = float("nan")
    return conv


BAD: dict[str, tuple[nn.Module, tuple[int, ...], str]] = {
    "enlarging": (nn.ConvTranspose2d(4, 4, 2, groups=2), (1, 4, 4, 4), "takes one group over one or two dimensions"),
    "normalized": (nn.GroupNorm(2, 4), (1, 4), r"\(native_group_norm\): .*give one or two dimensions of a map"),
    "batch": (nn.Linear(3, 2), (8, 3), r"is a batch of 8, \[8, 3\]; give a batch of 1"),
    "choice": (Of(lambda x: x.argmax(1)), (1, 3), "end the module at its logits"),
    "unknown": (Of(torch.sin), (1, 3), r"'sin' \(sin\) is not supported"),
    "several": (
        Of(lambda x: torch.sin(torch.sin(x)) + torch.cos(x).relu() + torch.cos(torch.ones(3))),
        (1, 3),
        r"not supported are 1 × cos, 2 × sin; the first is 'sin' \(sin\): .* what is read\)$",
    ),
    "near": (Of(lambda x: x.amax(1)), (1, 3), "is not supported"),
    "branch": (Of(lambda x: x if x.sum() > 0 else -x), (1, 3), "Of cannot be exported"),
    "divided": (Of(lambda x: x / x.exp()), (1, 3), r"\(div\): its argument 1 is computed"),
    "constant": (Of(lambda x: torch.ones(3)), (1, 3), "an output is not computed from the inputs"),
    "weights": (nan_conv(), (1, 3, 4, 4), "1 of the 12 numbers it reads are NaN"),
    "dilated": (nn.MaxPool2d(2, dilation=2), (1, 3, 8, 8), "dilated pooling is not supported"),
    "indivisible": (nn.AdaptiveAvgPool2d(3), (1, 2, 8, 8), r"a map of \[8, 8\] does not divide into \[3, 3\]"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_module_that_does_not_fit_is_refused_in_one_sentence(what: str) -> None:
    module, shape, sentence = BAD[what]
    with pytest.raises(ImportModelError, match=sentence) as caught:
        smidgen.from_torch(module, torch.randn(shape))
    assert "\n" not in str(caught.value)


def test_inputs_of_another_type_are_refused() -> None:
    with pytest.raises(ImportModelError, match=r"is torch\.float64; give only float32 tensors"):
        smidgen.from_torch(nn.ReLU(), torch.zeros(1, 3, dtype=torch.float64))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(3, 2).eval(), (torch.randn(1, 3),)), path)
    return path


def rewritten(path: Path, change: Callable[[str, bytes], bytes], extra: dict[str, bytes] | None = None) -> Path:
    """The archive with its members changed."""
    with zipfile.ZipFile(path) as source:
        members = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, "w") as target:
        for name, data in {**members, **(extra or {})}.items():
            target.writestr(name, change(name, data))
    return path


def ran(folder: Path) -> tuple[object, Path]:
    """An object whose unpickling leaves a mark."""
    mark = folder / "ran"

    class Mark:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (mark,)

    return Mark(), mark


def test_pickled_weights_and_samples_are_never_unpickled(archive: Path, tmp_path: Path) -> None:
    bomb, mark = ran(tmp_path)
    import_model(rewritten(archive, lambda name, data: pickle.dumps(bomb) if "sample_inputs" in name else data))
    assert not mark.exists()
    rewritten(archive, lambda name, data: data.replace(b'"use_pickle": false', b'"use_pickle": true'))
    with pytest.raises(ImportModelError, match="holds pickled objects, which could run code"):
        import_model(archive)


def test_functions_other_than_operators_are_never_called(archive: Path) -> None:
    rewritten(archive, lambda name, data: data.replace(b"torch.ops.aten.linear.default", b"torch.os.system"))
    with pytest.raises(
        ImportModelError, match=r"calls 'torch\.os\.system', which is not one of PyTorch's own operators"
    ):
        import_model(archive)


def test_an_open_dimension_in_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "open.pt2"
    dynamic = {"input": {0: torch.export.Dim("batch")}}
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes=dynamic), path)
    with pytest.raises(ImportModelError, match="leaves a dimension open; export it with fixed sizes"):
        import_model(path)


def test_damaged_archives_are_refused_in_one_sentence(archive: Path) -> None:
    whole = archive.read_bytes()
    damaged = {
        "cut": (whole[: len(whole) // 2], "is not a complete archive"),
        "no archive": (b"torch", "is not a complete archive"),
        "other": (None, "holds no models/model.json"),
        "graph": (None, "description cannot be read"),
        "weights": (None, "has no entry 'config'"),
    }
    for what, (data, sentence) in damaged.items():
        archive.write_bytes(whole if data is None else data)
        if what == "other":
            with zipfile.ZipFile(archive, "w") as empty:
                empty.writestr("model/data.pkl", b"")
        elif what == "graph":
            rewritten(archive, lambda name, data: b"{" if name.endswith("model.json") else data)
        elif what == "weights":
            rewritten(archive, lambda name, data: json.dumps({}).encode() if name.endswith("_config.json") else data)
        with pytest.raises(ImportModelError, match=sentence) as caught:
            import_model(archive)
        assert "\n" not in str(caught.value), what


def test_without_pytorch_the_error_names_the_way_out(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "smidgen.frontends.torch.reader", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportModelError, match=r"model\.pt2 needs PyTorch .* install smidgen\[torch\], or export"):
        import_model(archive)


def test_importing_smidgen_does_not_import_pytorch() -> None:
    import subprocess

    code = "import sys, smidgen; sys.exit(any(m in sys.modules for m in ('torch', 'onnx')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
