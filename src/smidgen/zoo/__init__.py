"""Networks by name: the paper's three backbones with weights trained here, and MobileNetV2 at any width."""

from __future__ import annotations

import difflib
import re
from importlib.resources import as_file, files

from smidgen.errors import InputError
from smidgen.frontends.native import read_smg
from smidgen.frontends.network import build
from smidgen.ir import Graph
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import MCUNET_5FPS, PROXYLESS_W03, Table, mbv2

NAMES = ("mbv2-w0.35", "mcunet-5fps", "proxyless-w0.3")
WIDTHS = (0.1, 2.0)
RESOLUTIONS = (32, 512)
CLASSES = (1, 65536)
_MBV2 = re.compile(r"mbv2-w([0-9](?:\.[0-9]{1,3})?)")


def load_zoo(name: str) -> Graph:
    """The network of that name: pre-trained on Tiny-ImageNet-200 where it ships with weights, else with random ones."""
    if name not in NAMES:
        return build_zoo(name)
    with as_file(files("smidgen.zoo") / "weights" / f"{name}.smg") as path:
        return read_smg(path)


def build_zoo(name: str, *, resolution: int = 128, classes: int = 1000, seed: int = 0) -> Graph:
    """The network of that name for square RGB images; its weights are random, drawn from the seed."""
    _check_range("resolution", resolution, RESOLUTIONS)
    _check_range("classes", classes, CLASSES)
    return build(draw(find_table(name), resolution, classes, seed), name)


def find_table(name: str) -> Table:
    """The layer table of a network, or InputError with the names there are."""
    if name == "mcunet-5fps":
        return MCUNET_5FPS
    if name == "proxyless-w0.3":
        return PROXYLESS_W03
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
