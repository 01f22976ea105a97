"""Networks by name: the paper's three backbones with weights trained here, and MobileNetV2 at any width."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from smidgen.data.files import MEMORY
from smidgen.errors import ImportModelError, InputError
from smidgen.frontends import READERS, import_model
from smidgen.frontends.native import read_smg
from smidgen.frontends.network import build
from smidgen.ir import Graph
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import MCUNET_5FPS, PROXYLESS_W03, BlockTable, mbv2

NAMES = ("mbv2-w0.35", "mcunet-5fps", "proxyless-w0.3")
SHAPES = {"mcunet-5fps": MCUNET_5FPS, "proxyless-w0.3": PROXYLESS_W03}
WIDTHS = (0.1, 2.0)
RESOLUTIONS = (32, 512)
CLASSES = (1, 65536)
_MBV2 = re.compile(r"mbv2-w([0-9](?:\.[0-9]{1,3})?)")


def load(model: str | Path, memory: int = MEMORY, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """Load a network of the zoo by name, or a model file: what MODEL means everywhere; `./name` stands for the file.

    A file's contents may take so many bytes of `memory`; `shapes` are those of inputs that it leaves open.
    """
    if isinstance(model, str) and is_zoo_name(model):
        if shapes:
            raise InputError(f"{model} has fixed sizes; leave the shape out")
        return load_zoo(model)
    path = Path(model)
    if path.exists() or path.suffix.lower() in READERS:
        return import_model(path, memory, shapes)
    try:
        return load_zoo(str(model))
    except InputError as error:
        raise ImportModelError(f"there is no file {model}, and {error}") from None


def load_zoo(name: str) -> Graph:
    """Return the network of that name, pre-trained on Tiny-ImageNet-200 where it ships with weights, else random."""
    if name not in NAMES:
        return build_zoo(name)
    with as_file(files("smidgen.zoo") / "weights" / f"{name}.smg") as path:
        return read_smg(path)


def build_zoo(name: str, *, resolution: int = 128, classes: int = 1000, seed: int = 0) -> Graph:
    """Build the network of that name for square RGB images; its weights are random, drawn from the seed."""
    _check_range("resolution", resolution, RESOLUTIONS)
    _check_range("classes", classes, CLASSES)
    return build(draw(find_table(name), resolution, classes, seed), name)


def find_table(name: str) -> BlockTable:
    """Return the layer table of a network, or raise InputError with the names there are."""
    if name in SHAPES:
        return SHAPES[name]
    width = _MBV2.fullmatch(name)
    if width is None:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"the zoo has {', '.join(NAMES)} and mbv2-wX for widths X, not '{name}'{hint}")
    _check_range("width", float(width[1]), WIDTHS)
    return mbv2(float(width[1]))


def is_zoo_name(name: str) -> bool:
    """Return whether the zoo has a network of this name."""
    return name in NAMES or _MBV2.fullmatch(name) is not None


def _check_range(what: str, value: float, limits: tuple[float, float]) -> None:
    if not limits[0] <= value <= limits[1]:
        raise InputError(f"{what} is {value:g}; it can be {limits[0]:g} to {limits[1]:g}")
