"""What a layer is for in its block, told by its op and the shape of its weights."""

from __future__ import annotations

from enum import StrEnum

from smidgen.ir import Node
from smidgen.ops.conv import Conv2D, Depthwise


class Kind(StrEnum):
    """An inverted residual block widens, filters each channel by itself, and narrows; all else is other."""

    expand = "expand"
    depthwise = "depthwise"
    project = "project"
    other = "other"


def kind_of(node: Node) -> Kind:
    """The kind of a layer."""
    out, *window, channels = node.ins[1].type.shape
    match node.op:
        case Depthwise():
            return Kind.depthwise
        case Conv2D(groups=1) if window == [1, 1] and out != channels:
            return Kind.expand if out > channels else Kind.project
        case Conv2D(groups=groups) if groups > 1 and channels == 1:
            return Kind.depthwise
    return Kind.other
