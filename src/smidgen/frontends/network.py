"""Inverted-residual networks in int8, as data: what the zoo draws and what the paper's release holds."""

from dataclasses import dataclass

from smidgen.ir import Array, Builder, Graph, QParams, Type, Value
from smidgen.ops import Add, Conv2D, Dense, Depthwise, Mean

IMAGE_SCALE = 2 / 255  # an image's int8 value is pixel − 128: −1 … 1 in 255 steps


@dataclass(frozen=True, eq=False)
class Conv:
    """A convolution: weights [out, rows, columns, in] or, depthwise, [1, rows, columns, channels].

    The padding is (kernel − 1) // 2 per side; ReLU6 is the saturation of `y`, the output's quantization.
    """

    w: Array
    b: Array
    w_scales: tuple[float, ...]
    y: QParams
    stride: int = 1
    depthwise: bool = False


@dataclass(frozen=True, eq=False)
class Block:
    """Expand, depthwise, project; `add` is the quantization of the sum where the input is added."""

    expand: Conv | None
    depthwise: Conv
    project: Conv
    add: QParams | None


@dataclass(frozen=True, eq=False)
class Network:
    """Stem, blocks, global mean and classifier, a 1×1 convolution, over square RGB images."""

    resolution: int
    image: QParams
    stem: Conv
    blocks: tuple[Block, ...]
    classifier: Conv


def build(network: Network, name: str) -> Graph:
    """Build the graph: `stem`, `b0.expand`, `b0.depthwise`, `b0.project`, `b0.add`, …, `pool`, `logits`."""
    g = Builder(name)
    side, channels = network.resolution, network.stem.w.shape[3]
    x = g.input("image", Type((1, side, side, channels), "int8", network.image))
    x = _emit_conv(g, x, network.stem, "stem")
    for index, block in enumerate(network.blocks):
        y = x if block.expand is None else _emit_conv(g, x, block.expand, f"b{index}.expand")
        y = _emit_conv(g, y, block.depthwise, f"b{index}.depthwise")
        y = _emit_conv(g, y, block.project, f"b{index}.project")
        x = y if block.add is None else g.emit(Add(), x, y, q=block.add, name=f"b{index}.add")
    pool = g.emit(Mean(keep_dims=False), x, q=x.type.q, name="pool")
    head = network.classifier
    w = g.constant("logits.w", head.w[:, 0, 0, :], QParams.per_channel(head.w_scales, 0))
    return g.graph(g.emit(Dense(), pool, w, g.constant("logits.b", head.b), q=head.y, name="logits"))


def _emit_conv(g: Builder, x: Value, conv: Conv, name: str) -> Value:
    w = g.constant(f"{name}.w", conv.w, QParams.per_channel(conv.w_scales, 3 if conv.depthwise else 0))
    rows, columns = (conv.w.shape[1] - 1) // 2, (conv.w.shape[2] - 1) // 2
    op = (Depthwise if conv.depthwise else Conv2D)((conv.stride, conv.stride), (rows, rows, columns, columns))
    return g.emit(op, x, w, g.constant(f"{name}.b", conv.b), q=conv.y, name=name)
