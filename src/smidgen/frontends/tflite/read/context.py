"""The import of one model: which value of the graph stands for which tensor of the file."""

import math
from collections.abc import Callable

import numpy as np

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteTensor
from smidgen.ir import DTYPES, MAX_BYTES, MAX_RANK, Array, Builder, Op, QParams, Type, Value, infer
from smidgen.ir.types import identifier
from smidgen.ops import Reshape

MAX_INTEGERS = 16  # elements of a constant shape, permutation, …
# What tensors are whose values are kept for one operator: maps with padding, places in a table, classes.
KEPT_BACK = (
    "padded with the lowest value and read by an operator other than one MAX_POOL_2D without padding; pad with zero",
    "int8 cast to int32 and read by an operator other than a GATHER from a table; stay in int8",
    "the class that ARG_MAX chose, and more is computed from it; end the model at ARG_MAX",
)
Shape = tuple[int, ...]
Variable = tuple[str, str]  # the container it is in, and its name


class TfliteImport:
    """A model being read: rules for operators ask it for tensors, and every answer is checked."""

    def __init__(self, model: TfliteModel, name: str, budget: Budget) -> None:
        self.model, self.budget, self.builder = model, budget, Builder(name)
        self.values: dict[int, Value] = {}
        self.names: set[str] = set()
        # Maps padded with the lowest number: (input, before, after), kept for the max pool that reads them.
        self.pads: dict[int, tuple[Value, Shape, Shape]] = {}
        # int8 numbers cast to int32 and the offset added to them, kept for the table that they index.
        self.places: dict[int, tuple[Value, int]] = {}
        # Classes that ARG_MAX chose, by the scores it chose from: these become the output.
        self.chosen: dict[int, Value] = {}
        self.folded: dict[int, Array] = {}  # results that operators compute from constants
        self.widened: set[int] = set()  # int8 weights that float32 layers read
        # Variables: the tensors that stand for them, and their values at first, when a run begins and now.
        self.handles: dict[int, Variable] = {}
        self.first: dict[Variable, Array] = {}
        self.begun: dict[Variable, Value] = {}
        self.assigned: dict[Variable, Value] = {}

    def tensor(self, index: int) -> TfliteTensor:
        count = len(self.model.tensors)
        refuse(not 0 <= index < count, f"tensor {index} does not exist, only {count} do")
        return self.model.tensors[index]

    def type(self, index: int) -> Type:
        """Return a tensor's type, checked so that nothing absurd goes further."""
        tensor = self.tensor(index)
        what, shape, signature = f"tensor '{tensor.name}'", tensor.shape, tensor.signature
        if len(signature) == len(shape):
            if any(d < 0 for d in signature[1:]):
                raise ImportModelError(
                    f"{what} has the dynamic shape {list(signature[:8])}; only the batch may be open: convert the "
                    "model with a fixed input shape"
                )
            shape = (1, *shape[1:]) if signature[:1] == (-1,) else shape
        refuse(tensor.dtype == "int16", f"{what} is int16; convert the model with int8 activations, or in float32")
        refuse(tensor.dtype not in DTYPES, f"{what} is {tensor.dtype}; convert the model to int8 or float32")
        refuse(not tensor.plain, f"{what} is sparse or a variable; convert the model without sparsity and state")
        size = math.prod(shape) * DTYPES[tensor.dtype].itemsize
        if len(shape) > MAX_RANK or min(shape, default=1) < 1 or size > MAX_BYTES:
            raise ImportModelError(
                f"{what} has shape {list(shape[:8])}; up to {MAX_RANK} positive dimensions and {MAX_BYTES:,} bytes "
                "are supported: use a smaller model"
            )
        return Type(shape, tensor.dtype, self.q(index))

    def name(self, index: int) -> str:
        """Return a unique name for the tensor's value."""
        return self.free(identifier(self.tensor(index).name) or f"t{index}", index)

    def free(self, name: str, number: int = 1) -> str:
        """Return a name, with a number appended if it is taken."""
        if name in self.names:
            name = f"{name}_{number}"
        self.names.add(name)
        return name

    def value(self, index: int) -> Value:
        """Return the value of a tensor that an operator reads."""
        if index not in self.values:
            tensor = self.tensor(index)
            for kept, what in zip((self.pads.keys(), self.places.keys(), self.chosen.keys()), KEPT_BACK, strict=True):
                refuse(index in kept, f"tensor '{tensor.name}' is {what}")
            refuse(not self.known(index), f"tensor '{tensor.name}' is read before it is written")
            data = self.data(index)
            q = self.q(index) if index in self.folded else self.type(index).q
            self.values[index] = self.builder.constant(self.name(index), data, q)
        return self.values[index]

    def ins(self, operator: TfliteOperator, count: int = 1) -> tuple[Value, ...]:
        """Return the values that an operator of exactly `count` inputs reads."""
        return tuple(self.value(index) for index in operator.reads(count, count))

    def known(self, index: int) -> bool:
        """Return whether a tensor is constant: stored in the file, or computed from constants."""
        return index in self.folded or (0 <= index < len(self.model.tensors) and self.tensor(index).data is not None)

    def real(self, index: int) -> Array:
        """Return a constant as float32, whatever type it is stored in."""
        data, tensor = self.data(index), self.tensor(index)
        q = None if data.dtype.kind == "f" else _qparams(tensor)
        if q is None and (index in self.folded or data.dtype.kind == "f"):
            return data.astype(np.float32)
        if q is None:
            raise ImportModelError(f"the constant '{tensor.name}' is {tensor.dtype} without a scale; quantize it again")
        along = [-1 if i == q.axis else 1 for i in range(data.ndim)]
        scales = np.array(q.scale, np.float32).reshape(along if q.axis is not None else ())
        numbers: Array = scales * (data.astype(np.float32) - q.zero)
        return numbers

    def weights(self, index: int, x: Value) -> Value:
        """Return a layer's weights; int8 constants of a float32 layer become float32."""
        if x.type.dtype != "float32" or not self.known(index) or self.tensor(index).dtype != "int8":
            return self.value(index)
        if index not in self.values:
            self.widened.add(index)
            self.values[index] = self.builder.constant(self.name(index), self.real(index))
        return self.values[index]

    def is_open(self, index: int) -> bool:
        """Return whether the file leaves sizes other than the batch open: the operator that computes it sets them."""
        tensor = self.tensor(index)
        stated = len(tensor.signature) == len(tensor.shape)
        return tensor.data is None and stated and any(d < 0 for d in tensor.signature[1:])

    def q(self, index: int) -> QParams | None:
        """Return an int8 tensor's quantization."""
        tensor = self.tensor(index)
        return _qparams(tensor) if tensor.dtype == "int8" else None

    def emit(self, operator: TfliteOperator, op: Op, *ins: Value) -> Value:
        """Emit the node that computes the operator's output."""
        (out,) = operator.outputs
        return self.builder.emit(op, *ins, q=self.q(out), name=self.name(out))

    def emit_shaped(self, operator: TfliteOperator, shape: Shape, op: Op, *ins: Value) -> Value:
        """Emit the node that computes the operator's output, and a reshape if the op gives another shape."""
        if infer(op, tuple(x.type for x in ins))[0].shape == shape:
            return self.emit(operator, op, *ins)
        y = self.builder.emit(op, *ins, q=self.q(operator.outputs[0]))
        return self.emit(operator, Reshape(shape), y)

    def reshaped(self, x: Value, shape: Shape, role: str) -> Value:
        """Return x in this shape, named after x with `role` appended where it needs a reshape."""
        return x if x.type.shape == shape else self.builder.emit(Reshape(shape), x, name=f"{x.name}.{role}")

    def data(self, index: int) -> Array:
        """Return a constant's elements; its bytes must fill its shape exactly."""
        if index in self.folded:
            return self.folded[index]
        tensor = self.tensor(index)
        if tensor.data is None:
            raise ImportModelError(f"'{tensor.name}' must be a constant; convert the model with fixed shapes")
        if tensor.dtype not in ("int64", "int32", "int8", "float16", "float32") or min(tensor.shape, default=1) < 1:
            raise ImportModelError(f"constant '{tensor.name}' is {tensor.dtype}{list(tensor.shape[:8])}, not supported")
        needed = math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        if needed != len(tensor.data):
            raise ImportModelError(
                f"the constant '{tensor.name}' is {tensor.dtype}{list(tensor.shape[:8])}, {needed:,} bytes, but its "
                f"buffer holds {len(tensor.data):,}"
            )
        self.budget.take(f"the constant '{tensor.name}'", needed)
        return tensor.array()

    def integers(self, index: int) -> Shape:
        """Return a small constant of integers: a shape, axes, a permutation, padding."""
        if index not in self.folded and self.tensor(index).shape == (0,):
            return ()
        data = self.data(index)
        if data.dtype.kind != "i" or data.size > MAX_INTEGERS:
            raise ImportModelError(f"'{self.tensor(index).name}' should be integers, is {data.dtype}{list(data.shape)}")
        return tuple(int(n) for n in data.ravel())


def _qparams(tensor: TfliteTensor) -> QParams | None:
    if not tensor.scales:
        return None
    scales, axis, shape, what = tensor.scales, tensor.axis, tensor.shape, f"tensor '{tensor.name}'"
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise ImportModelError(f"{what} has a scale that is not a positive number; quantize the model again")
    zeros = tensor.zeros or (0,) * len(scales)
    if len(scales) == 1:
        if len(zeros) != 1 or not -128 <= zeros[0] <= 127:
            raise ImportModelError(f"{what} has zero point {zeros[:4]}, outside −128…127; quantize the model again")
        return QParams.per_tensor(scales[0], zeros[0])
    if len(zeros) not in (1, len(scales)) or any(zeros):
        raise ImportModelError(f"{what} has several scales and zero points other than 0; quantize it symmetrically")
    if not 0 <= axis < len(shape) or shape[axis] != len(scales):
        along = f"along axis {axis} of {list(shape[:8])}"
        raise ImportModelError(f"{what} has {len(scales)} scales {along}; quantize the model again")
    return QParams.per_channel(scales, axis)


TfliteRule = Callable[[TfliteImport, TfliteOperator], Value | tuple[Value, ...] | None]
