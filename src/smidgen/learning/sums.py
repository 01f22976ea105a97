"""Sums of one pass as files: in a model's own file, or alone, with a digest and a fingerprint of the frozen layers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from smidgen.data.files import MEMORY, check_size, write_whole
from smidgen.errors import InputError
from smidgen.frontends.native import BESIDE, write_smg
from smidgen.ir import Array, Graph, Node, Type, Value
from smidgen.ir.rewriting import producers
from smidgen.numerics import one_pass
from smidgen.numerics.one_pass import Sums
from smidgen.ops.elementwise import Dequantize
from smidgen.ops.one_pass import FAR, Distance
from smidgen.targets.device import check_code
from smidgen.training.head import ending_of
from smidgen.training.one_pass import front_fingerprint

NOTE = f"{BESIDE}note"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class KeptSums:
    """Sums, the network whose features they are sums of, and the names of the classes."""

    sums: Sums
    features: str  # fingerprint of the frozen layers
    classes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return a SHA-256 of everything, in hexadecimal."""
        hashed = hashlib.sha256(json.dumps([FORMAT, self.features, self.classes]).encode())
        for part in (self.sums.n, self.sums.m, self.sums.g):
            hashed.update(part.astype("<i4").tobytes())
        return hashed.hexdigest()

    @property
    def tensors(self) -> dict[str, Array]:
        """Return them as a file keeps them, beside a note that says what they are."""
        stated = {"format": FORMAT, "features": self.features, "classes": self.classes, "digest": self.digest}
        parts = {f"{BESIDE}{name}": np.ascontiguousarray(getattr(self.sums, name)) for name in "nmg"}
        return {**parts, NOTE: np.frombuffer(json.dumps(stated).encode(), np.uint8)}

    def merged(self, other: KeptSums, sign: int = 1) -> KeptSums:
        """Return both added up, or the other taken out (−1); InputError where they do not belong together."""
        if self.features != other.features:
            raise InputError(
                "the sums are of two networks, of two versions of one, or of two projections: their frozen layers "
                "differ; merge what was observed with the same model, projected alike"
            )
        if self.classes != other.classes:
            raise InputError(
                f"the sums are of other classes: {_listed(self.classes)} and {_listed(other.classes)}; teach both with "
                "the same classes in the same order"
            )
        if self.sums.m.shape != other.sums.m.shape:
            raise InputError(
                f"the sums have room for {len(self.sums.m)} and {len(other.sums.m)} classes; as many are needed"
            )
        code, sums = one_pass.merge(self.sums, other.sums, sign)
        check_code(Graph((), (), (), name="the sums"), code)
        return replace(self, sums=sums)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") if names else "none by name"


def write_sums(kept: KeptSums, path: Path) -> None:
    """Write sums alone."""
    write_whole(path, save(kept.tensors))


def write_taught(model: Graph, kept: KeptSums, path: Path) -> None:
    """Write a model with the sums that its head was made of."""
    write_smg(model, path, kept.tensors)


def holds_sums(path: Path) -> bool:
    """Return whether a file that was read as a model holds sums."""
    with safe_open(path, framework="np") as file:
        return NOTE in file.keys()  # noqa: SIM118


def read_sums(path: Path) -> KeptSums:
    """Read the sums of a file; InputError where there are none, or they are not those that were written."""
    try:
        check_size(path, MEMORY)
        with safe_open(path, framework="np") as file:
            if NOTE not in file.keys():  # noqa: SIM118
                raise InputError(f"{path} holds no sums; teach a model with `smidgen train --one-pass`")
            stated = json.loads(file.get_tensor(NOTE).tobytes())
            parts = [file.get_tensor(f"{BESIDE}{name}") for name in "nmg"]
        kept = KeptSums(Sums(*parts), str(stated["features"]), tuple(map(str, stated["classes"])))
        n, m, g = kept.sums.n, kept.sums.m, kept.sums.g
        fits = m.ndim == 2 and n.shape == (len(m) + 1,) and g.shape == (one_pass.triangle(m.shape[1]),)
        if not fits or any(part.dtype != np.int32 for part in parts) or stated["digest"] != kept.digest:
            raise InputError(f"{path} is damaged: its sums are not those that were written")
        return kept
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} holds no sums that can be read: {type(error).__name__}") from None


def features_of_head(model: Graph) -> tuple[Node, Value]:
    """Return the float32 head of a model that was taught, and the int8 features that it reads."""
    ending = ending_of(model)
    before = producers(model).get(ending.layer.ins[0])
    if not ending.is_float or before is None or not isinstance(before.op, Dequantize):
        raise InputError(
            f"the head of {model.name} is not one that one pass made; teach it with `smidgen train --one-pass`"
        )
    return ending.layer, before.ins[0]


def check_belongs(model: Graph, kept: KeptSums) -> None:
    """Raise InputError unless a model has the frozen layers that sums were observed with."""
    _, features = features_of_head(model)
    if front_fingerprint(model, features) != kept.features:
        raise InputError(
            f"the layers of {model.name} are not those that its sums were observed with: steps changed them since, or "
            "the sums are another model's"
        )


def with_distance(model: Graph, sums: Sums) -> Graph:
    """Return a model that also gives how far a sample lies from the nearest class of these sums: 1 is the limit."""
    _, features = features_of_head(model)
    limit = np.array([one_pass.limit(sums)])
    held = {"far.n": sums.n, "far.m": sums.m, "far.limit": limit}
    n, m, most = added = [Value(name, Type(data.shape, data.dtype.name)) for name, data in held.items()]
    far = Node(Distance(), (n, m, features, most), (Value("far", FAR),))
    return replace(
        model, outputs=(*model.outputs, far.out), nodes=(*model.nodes, far),
        constants={**model.constants, **dict(zip(added, held.values(), strict=True))},
    )  # fmt: skip


def measuring(model: Graph, path: Path) -> Graph:
    """Return a model that also gives distances where its file has the sums that it was taught by, else unchanged."""
    if path.suffix != ".smg" or not path.is_file() or not holds_sums(path):
        return model
    check_belongs(model, kept := read_sums(path))
    return with_distance(model, kept.sums)


def with_head(model: Graph, kept: KeptSums) -> Graph:
    """Return a model whose head is made of sums: the bytes that a device makes of them."""
    check_belongs(model, kept)
    head, features = features_of_head(model)
    _, w, b = head.ins
    code, weights, biases = one_pass.solve(kept.sums, features.type.scale, model.constants[w], model.constants[b])
    check_code(model, code)
    return replace(model, constants={**model.constants, w: weights, b: biases})
