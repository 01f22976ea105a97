"""The rules of every graph, whoever made it."""

import math

from smidgen.errors import GraphError, InputError
from smidgen.ir.graph import Graph, Node, Roles, Value, infer, memory_read, virtual_sources
from smidgen.ir.log_mel import LogMel
from smidgen.ir.types import DTYPES, MAX_BYTES, MAX_RANK, NAME, Type

MAX_CLASS_NAME = 255  # characters
YES_OR_NO = 2  # classes that one score decides between
SCALAR = Type((1,), "float32")
LABELS = {"int32": "[1], a class", "float32": "[1, outputs], a vector", "uint8": "[1, height, width], a map"}


def verify(graph: Graph) -> None:
    """Raise GraphError unless every name is unique, every value defined before use and every type right."""
    defined: set[Value] = set()
    names: set[str] = set()

    def define(value: Value) -> None:
        if value.name in names:
            raise GraphError(f"%{value.name} is defined twice; give each value its own name")
        _verify_type(value)
        names.add(value.name)
        defined.add(value)

    for value in graph.inputs:
        define(value)
    for value, data in (*graph.constants.items(), *graph.state.items()):
        define(value)
        if data.shape != value.type.shape or data.dtype.name != value.type.dtype:
            raise GraphError(
                f"%{value.name} is declared {value.type.dtype}{list(value.type.shape)} "
                f"but holds {data.dtype.name}{list(data.shape)}"
            )
        if value.type.dtype == "int8" and value.type.q is None and (data == -128).any():
            raise GraphError(f"%{value.name} is int8 without a quantization, a gradient, but holds −128")
    for node in graph.nodes:
        for value in node.ins:
            if value not in defined:
                raise GraphError(f"%{value.name}, read by {type(node.op).__name__}, is not defined before its use")
        if node.op.overlay_input is not None and len(set(node.ins)) < len(node.ins):
            raise GraphError(f"{type(node.op).__name__}, which gives %{node.outs[0].name}, reads one value as two")
        _verify_outputs(node)
        for value in node.outs:
            define(value)
    for value in graph.outputs:
        if value not in defined:
            raise GraphError(f"the output %{value.name} is not defined by any node")
    if not graph.outputs:
        raise GraphError(f"the graph {graph.name} has no outputs")
    _verify_virtual(graph)
    _verify_updates(graph)
    _verify_preprocessing(graph)
    _verify_classes(graph)
    if graph.roles is not None:
        _verify_roles(graph, graph.roles)


def _verify_roles(graph: Graph, roles: Roles) -> None:
    """Check that each value of a training step is where its role belongs."""
    expected = (
        ("an input", graph.inputs, ("image", "label", "rate")),
        ("an output", graph.outputs, ("loss", "logits")),
        ("state", graph.state, ("step_state",)),
    )
    for what, where, names in expected:
        for name in names:
            value: Value | None = getattr(roles, name)
            if value is not None and value not in where:
                raise GraphError(f"%{value.name} is the {name} of the training step {graph.name}, but not {what} of it")
    for name, scalar in (("rate", roles.rate), ("loss", roles.loss)):
        if scalar.type != SCALAR:
            raise GraphError(f"%{scalar.name} is the {name} of the training step {graph.name}, but not float32[1]")
    if roles.label is not None and not _is_label(roles.label.type):
        known = ", ".join(f"{dtype}{shape}" for dtype, shape in LABELS.items())
        raise GraphError(f"%{roles.label.name} is the label of the training step {graph.name}, but none of {known}")
    if roles.step_state.type.dtype != "int32" or len({roles.image, roles.label, roles.rate}) < 3:
        raise GraphError(f"the training step {graph.name} has a value in two roles, or a step state that is not int32")
    _verify_prediction(graph, roles)
    if not 0 <= roles.skip_below < math.inf:
        raise GraphError(f"the training step {graph.name} skips below a loss of {roles.skip_below}; give one from 0 up")
    first = graph.nodes[graph.prediction_end : graph.prediction_end + 1]
    if roles.skip_below and not any(roles.loss in node.outs for node in first):
        raise GraphError(f"%{roles.loss.name}, the loss of {graph.name}, does not come first once the label is read")


def _is_label(type_: Type) -> bool:
    """Return whether a type is a class's, a vector's or a map's."""
    if type_.q is not None or not type_.shape or type_.shape[0] != 1:
        return False
    return len(type_.shape) == {"int32": 1, "float32": 2, "uint8": 3}.get(type_.dtype)


def _verify_prediction(graph: Graph, roles: Roles) -> None:
    """Check that nodes before the label is read give the logits, change all variables, and nothing that learns."""
    before = graph.nodes[: graph.prediction_end]
    made = {v for node in before for v in node.outs}
    if any(roles.logits in node.outs for node in graph.nodes) and roles.logits not in made:
        raise GraphError(f"%{roles.logits.name}, the logits of {graph.name}, is computed after the label is read")
    variables = graph.variables
    for old, new in graph.updates.items():
        if (new in made) != (old in variables):
            when = "before" if new in made else "only after"
            raise GraphError(f"%{new.name} replaces state of {graph.name} {when} the label is read")


def _verify_preprocessing(graph: Graph) -> None:
    """Check that images become maps of pixels with numbers for each channel, and sound fills its input with frames."""
    stated, shape = graph.preprocessing, graph.image.type.shape if graph.inputs else ()
    if stated is None:
        return
    if not isinstance(stated, LogMel) and len(shape) != 4:
        raise GraphError(f"{graph.name} has preprocessing for images, its first input is {list(shape)}")
    try:
        stated.check(shape) if isinstance(stated, LogMel) else stated.check(shape[3])
    except InputError as error:
        raise GraphError(f"{graph.name}: {error}") from None


def _verify_classes(graph: Graph) -> None:
    """Check that every score has a name, where any has; one score for yes or no has two names."""
    if not graph.classes:
        return
    if not fits_scores(graph.classes, graph.scores.type):
        raise GraphError(
            f"{graph.name} names {len(graph.classes)} classes, its scores are {list(graph.scores.type.shape)}; give "
            f"each score one name of up to {MAX_CLASS_NAME} characters"
        )


def fits_scores(classes: tuple[str, ...], scores: Type) -> bool:
    """Return whether each score has a name that is not endless: one per channel, or two where one score decides."""
    channels = scores.shape[-1] if scores.shape else 1
    enough = len(classes) == channels or (channels == 1 and len(classes) == YES_OR_NO)
    return enough and all(len(name) <= MAX_CLASS_NAME for name in classes)


def _verify_virtual(graph: Graph) -> None:
    """Check that only kernels which take its inputs read a value without memory."""
    virtual: set[Value] = set()
    for node in graph.nodes:
        for index, value in enumerate(node.ins):
            if value in virtual and index != node.op.overlay_input:
                raise GraphError(f"%{value.name} has no memory; {type(node.op).__name__} cannot read it")
        if node.op.virtual:
            virtual.update(node.outs)
    for value in (*graph.outputs, *graph.updates.values()):
        if value in virtual:
            raise GraphError(f"%{value.name} has no memory; it cannot be an output or state")


def _verify_updates(graph: Graph) -> None:
    """Check that a state value's successor has its type and memory, and that nobody reads the old value after."""
    replaced: dict[Value, Value] = {new: old for old, new in graph.updates.items()}
    if not set(graph.updates) <= set(graph.state) or len(replaced) != len(graph.updates):
        raise GraphError(
            f"the updates of {graph.name} must each replace one state value by one value that replaces no other"
        )
    gone: set[Value] = set()
    sources = virtual_sources(graph)
    views: dict[Value, Value] = {}  # of state, by the value in its memory
    for node in graph.nodes:
        read = [views.get(value, value) for value in memory_read(node, sources)]
        for value in read:
            if value in gone:
                raise GraphError(f"%{value.name} is read by {type(node.op).__name__} after its update replaced it")
        if node.op.view and read[0] in graph.state:
            views[node.out] = read[0]
        _verify_moved(graph, node)
        for value in node.outs:
            if value in replaced:
                old = replaced.pop(value)
                if not _takes_place(node, old, value, read):
                    raise GraphError(
                        f"%{value.name} cannot replace %{old.name}: it must be computed from it, "
                        "in its place, and have its type"
                    )
                gone.add(old)
    if replaced:
        raise GraphError(f"%{next(iter(replaced)).name} should replace a state value, but no node produces it")
    for value in graph.outputs:
        if views.get(value, value) in gone:
            raise GraphError(f"the output %{value.name} is state that an update replaces; give the update instead")


def _verify_moved(graph: Graph, node: Node) -> None:
    """Check that state which a kernel changes in place becomes that kernel's output."""
    for old, new in zip(node.ins[: node.op.moved(node)], node.outs, strict=False):
        if graph.updates.get(old) != new:
            what = f"{type(node.op).__name__} changes %{old.name} where it lies"
            raise GraphError(f"{what}; %{new.name} must be its update")


def _takes_place(node: Node, old: Value, new: Value, read: list[Value]) -> bool:
    """Return whether a node computes a state value's successor in its memory, and reads it nowhere else."""
    index = node.outs.index(new)
    moved = node.op.moved(node)
    donor = index if index < moved else node.op.donor(node) if index == 0 else None
    return donor is not None and node.ins[donor] == old and old.type == new.type and read.count(old) == 1


def _verify_outputs(node: Node) -> None:
    expected = infer(node.op, tuple(v.type for v in node.ins))
    if len(expected) != len(node.outs):
        raise GraphError(f"{type(node.op).__name__} has {len(expected)} outputs, the node lists {len(node.outs)}")
    for index, (value, type_) in enumerate(zip(node.outs, expected, strict=True)):
        open_q = node.op.requantizes and index == 0 and type_.dtype == "int8"
        same = value.type.shape == type_.shape and value.type.dtype == type_.dtype
        if not same or not (open_q or value.type.q == type_.q):
            raise GraphError(f"%{value.name} is declared {value.type}, {type(node.op).__name__} gives {type_}")
        if open_q and value.type.q is None:
            raise GraphError(f"%{value.name}, an output of {type(node.op).__name__}, carries no quantization")
        if open_q and value.type.q is not None and value.type.q.axis is not None:
            raise GraphError(f"%{value.name}, an output of {type(node.op).__name__}, has more than one scale")


def _verify_type(value: Value) -> None:
    type_, where = value.type, f"%{value.name}"
    if not NAME.fullmatch(value.name):
        raise GraphError(f"{where} is not a name: letters, digits, '_' and '.' only, no digit first")
    if type_.dtype not in DTYPES:
        raise GraphError(f"{where} is {type_.dtype}; supported are {', '.join(DTYPES)}")
    if len(type_.shape) > MAX_RANK or any(d < 1 for d in type_.shape):
        raise GraphError(f"{where} has shape {list(type_.shape)}; up to {MAX_RANK} positive dimensions are supported")
    if type_.bytes > MAX_BYTES:
        raise GraphError(f"{where} would take {type_.bytes:,} bytes; the limit for one tensor is {MAX_BYTES:,}")
    q = type_.q
    if q is None:
        return
    if q.axis is None and len(q.scale) != 1:
        raise GraphError(f"{where} has {len(q.scale)} scales and no axis they run along")
    if q.axis is not None and not (0 <= q.axis < len(type_.shape) and type_.shape[q.axis] == len(q.scale)):
        raise GraphError(f"{where} has {len(q.scale)} scales along axis {q.axis} of shape {list(type_.shape)}")
    if not all(math.isfinite(s) and s > 0 for s in q.scale):
        raise GraphError(f"{where} has a scale that is not a positive number")
    low, high = (-128, 127) if type_.dtype == "int8" else (0, 255) if type_.dtype == "uint8" else (0, 0)
    if not low <= q.zero <= high:
        raise GraphError(f"{where} has zero point {q.zero}, outside {low}…{high} for {type_.dtype}")
    if q.axis is not None and q.zero != 0:
        raise GraphError(f"{where} has several scales and zero point {q.zero}; per-channel tensors are symmetric")
