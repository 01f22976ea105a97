"""The picture of docs/internals/architecture.md: what a model file becomes, and which package does it."""

from __future__ import annotations

from experiments.drawn import arrow, box, path, picture, words

HIGH, PITCH, TOP = 38, 84, 56  # of a box, from one row to the next, of the first row
# Row, middle and width of each thing.
THINGS: dict[str, tuple[int, float, float]] = {
    ".tflite, .onnx, .pt2, .keras, .npz": (0, 300, 290),
    "zoo: a network by name": (0, 650, 230),
    "Graph, float32": (1, 180, 170),
    "Graph, int8": (1, 520, 170),
    "training Graph": (2, 520, 170),
    "Plan: an offset per buffer": (3, 520, 230),
    "C: one call per node": (4, 520, 210),
    "runtime: kernels": (4, 170, 190),
    "shared library": (5, 160, 180),
    "firmware on an emulated board": (5, 430, 260),
    "a project: model/, smidgen/, board/": (5, 710, 270),
    "learned model, checkpoint": (6, 295, 230),
    "predictions, accuracy": (6, 640, 200),
}
KINDS = {0: "gray tint", 1: "blue tint", 2: "blue tint", 3: "orange tint", 4: "green tint", 5: "purple tint"}
# From, to, the package, and how far the words stand to the right of the arrow's middle.
WAYS: tuple[tuple[str, str, str, float], ...] = (
    (".tflite, .onnx, .pt2, .keras, .npz", "Graph, float32", "", 0),
    (".tflite, .onnx, .pt2, .keras, .npz", "Graph, int8", "frontends", -75),
    ("zoo: a network by name", "Graph, int8", "", 0),
    ("Graph, float32", "Graph, int8", "quantization", 0),
    ("Graph, int8", "training Graph", "training: head, scheme, autodiff, lowering, passes", 10),
    ("training Graph", "Plan: an offset per buffer", "memory: ordering, streaming, packing, checking", 10),
    ("Plan: an offset per buffer", "C: one call per node", "codegen", 10),
    ("runtime: kernels", "C: one call per node", "", 0),
    ("C: one call per node", "shared library", "targets: host", 8),
    ("C: one call per node", "firmware on an emulated board", "targets: boards", 8),
    ("C: one call per node", "a project: model/, smidgen/, board/", "Program.write", 12),
    ("shared library", "learned model, checkpoint", "", 0),
    ("firmware on an emulated board", "learned model, checkpoint", "learning", 20),
    ("learned model, checkpoint", "predictions, accuracy", "inference", 0),
)


def architecture() -> str:
    """From files above to predictions below."""
    parts: list[str] = []
    for begin, end, said, right in WAYS:
        (row, x, wide), (below, a, broad) = THINGS[begin], THINGS[end]
        if row == below:
            y = TOP + row * PITCH + HIGH / 2
            parts.append(arrow((x + wide / 2, y), (a - broad / 2, y)))
            parts.append(words((x + wide / 2 + a - broad / 2) / 2, y - 8, said, "middle", "small faint"))
        else:
            high, low = TOP + row * PITCH + HIGH, TOP + below * PITCH
            middle = high + 14
            parts += [path("axis", (x, high), (x, middle), (a, middle)), arrow((a, middle), (a, low))]
            parts.append(words(a + right + (4 if right >= 0 else 0), low - 10, said, "start", "small faint"))
    for name, (row, x, wide) in THINGS.items():
        corner = (x - wide / 2, TOP + row * PITCH)
        parts += [box(corner, (wide, HIGH), KINDS.get(row, "gray tint"))]
        parts += [words(x, corner[1] + 24, name, "middle", "small")]
    told = "; ".join(f"{begin} to {end}" + (f" by {said}" if said else "") for begin, end, said, _ in WAYS)
    return picture("From a model file to a board", told, (860, TOP + 6 * PITCH + HIGH + 24), parts)
