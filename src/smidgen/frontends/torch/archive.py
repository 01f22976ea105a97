"""Archives of `torch.export`, made safe to load: PyTorch would run code that a hostile one holds."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from smidgen.data.files import read_zip
from smidgen.errors import ImportModelError

# Functions that are looked up by name in the archive: PyTorch's operators, and taking one of several results.
ALLOWED = re.compile(r"torch\.ops\.aten\.[a-z0-9_]+(\.[A-Za-z0-9_]+)?|_operator\.getitem")
MODEL, SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
PICKLED = "holds pickled objects, which could run code; save a model of plain tensors with torch.export.save"


def safe_archive(path: Path) -> bytes:
    """The archive's bytes without anything pickled: its sample inputs are left out."""
    members = read_zip(path, "")
    root = next((name.removesuffix(MODEL) for name in members if name.endswith("/" + MODEL)), None)
    if root is None:
        raise ImportModelError(
            f"{path.name} holds no {MODEL}; save the model with torch.export.save of PyTorch 2.8 or later"
        )
    model = _json(members[root + MODEL], path)
    _check(model, path)
    model["guards_code"] = []  # conditions on inputs, as Python code
    for name, data in members.items():
        if name.endswith("_config.json") and any(entry is True for entry in _values(_json(data, path), "use_pickle")):
            raise ImportModelError(f"{path.name} {PICKLED}")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in members.items():
            replaced = {root + MODEL: json.dumps(model).encode(), root + SAMPLES: b""}
            archive.writestr(name, replaced.get(name, data))
    return packed.getvalue()


def _check(model: dict[str, object], path: Path) -> None:
    """No function but PyTorch's operators, no size but fixed ones."""
    for target in _values(model, "target"):
        if not isinstance(target, str) or not ALLOWED.fullmatch(target):
            raise ImportModelError(
                f"{path.name} calls {str(target)[:80]!r}, which is not one of PyTorch's own operators; use only those"
            )
    if next(_values(model, "as_expr"), None) is not None:
        raise ImportModelError(
            f"{path.name} leaves a dimension open; export it with fixed sizes, without dynamic_shapes"
        )


def _json(data: bytes, path: Path) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ImportModelError(f"{path.name} is damaged: its description cannot be read; save it again") from None
    if not isinstance(found, dict):
        raise ImportModelError(f"{path.name} is damaged: its description is not a mapping; save it again")
    return found


def _values(found: object, key: str) -> Iterator[object]:
    """What stands under a key, anywhere within."""
    pending = [found]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if key in item:
                yield item[key]
            pending += item.values()
        elif isinstance(item, list):
            pending += item
