"""docs/internals/ops.md from the op table and the front ends' rules: `python -m tests.support.ops_table` writes it."""

from __future__ import annotations

from pathlib import Path

from smidgen import ops
from smidgen.frontends.onnx.read.operators import OPERATOR_RULES as ONNX
from smidgen.frontends.onnx.write.plain import RULES as TO_ONNX
from smidgen.frontends.tflite.read import OPERATOR_RULES as TFLITE
from smidgen.frontends.tflite.write.operators import LOWERINGS as TO_TFLITE
from smidgen.frontends.torch.operators import RULES as ATEN
from smidgen.ir import Op
from smidgen.ops.functions import FUNCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "ops.md"
# What each op is called in files: in ONNX, in PyTorch's ATen, in TFLite.
NAMES: dict[type[Op], tuple[str, str, str]] = {
    ops.Activate: ("Relu Clip", "relu hardtanh clamp", "RELU RELU6 RELU_N1_TO_1"),
    ops.Add: ("Add Sub Sum", "add sub", "ADD SUB"),
    ops.Assign: ("", "", "ASSIGN_VARIABLE CALL_ONCE READ_VARIABLE VAR_HANDLE"),
    ops.AvgPool: (
        "AveragePool", "avg_pool1d avg_pool2d adaptive_avg_pool1d _adaptive_avg_pool2d", "AVERAGE_POOL_2D",
    ),
    ops.BatchNorm: ("BatchNormalization", "_native_batch_norm_legit_no_training", ""),
    ops.Concat: ("Concat", "cat", "CONCATENATION PACK"),
    ops.Conv2D: ("Conv ConvTranspose", "convolution", "CONV_2D TRANSPOSE_CONV"),
    ops.Crop: ("Slice Split", "slice select split split_with_sizes", "SLICE SPLIT SPLIT_V STRIDED_SLICE UNPACK"),
    ops.Dense: ("Gemm MatMul", "addmm mm", "FULLY_CONNECTED"),
    ops.Depthwise: ("Conv", "convolution", "DEPTHWISE_CONV_2D"),
    ops.Dequantize: ("DequantizeLinear", "", "DEQUANTIZE"),
    ops.Gru: ("GRU", "gru", ""),
    ops.Lookup: (
        "Abs Celu Clip Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Max Min Mish Pow PRelu Reciprocal Selu "
        "Sigmoid Softplus Softsign Sqrt Swish Tanh",
        "abs celu clamp elu erf exp gelu hardsigmoid hardswish hardtanh leaky_relu log mish pow reciprocal rsqrt selu "
        "sigmoid silu softplus sqrt tanh",
        "ABS ELU EXP GATHER GELU HARD_SWISH LEAKY_RELU LOG LOGISTIC RSQRT SQRT TANH",
    ),
    ops.MatMul: (
        "MatMul Attention", "bmm mm matmul baddbmm scaled_dot_product_attention", "BATCH_MATMUL",
    ),
    ops.LogSoftmax: ("LogSoftmax", "_log_softmax", "LOG_SOFTMAX"),
    ops.Lstm: ("LSTM", "lstm", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    ops.Maximum: ("Max", "maximum", "MAXIMUM MINIMUM"),
    ops.MaxPool: ("MaxPool GlobalMaxPool", "max_pool2d_with_indices adaptive_max_pool2d", "MAX_POOL_2D REDUCE_MAX"),
    ops.Mean: ("ReduceMean GlobalAveragePool", "mean adaptive_avg_pool1d _adaptive_avg_pool2d", "MEAN SUM"),
    ops.Mul: ("Mul Div Neg Pow", "mul div neg pow", "MUL DIV"),
    ops.Normalize: (
        "LayerNormalization GroupNormalization InstanceNormalization",
        "native_layer_norm native_group_norm _native_batch_norm_legit", "",
    ),
    ops.Pad: ("Pad", "constant_pad_nd", "PAD PADV2"),
    ops.Pick: (
        "Resize Slice Gather Tile", "upsample_nearest1d upsample_nearest2d slice index_select flip repeat",
        "RESIZE_NEAREST_NEIGHBOR STRIDED_SLICE GATHER TILE",
    ),
    ops.PRelu: ("PRelu", "", "PRELU"),
    ops.Quantize: ("QuantizeLinear", "", "QUANTIZE"),
    ops.Requantize: ("QuantizeLinear", "", "QUANTIZE"),
    ops.Reshape: ("Reshape Flatten Squeeze Unsqueeze", "view squeeze unsqueeze", "RESHAPE SQUEEZE EXPAND_DIMS"),
    ops.ResizeBilinear: ("Resize", "upsample_bilinear2d", "RESIZE_BILINEAR"),
    ops.Softmax: ("Softmax", "_softmax", "SOFTMAX"),
    ops.Transpose: ("Transpose", "permute", "TRANSPOSE"),
    ops.UnitNorm: ("LpNormalization", "", "L2_NORMALIZATION"),
}  # fmt: skip
FOLDED = (
    "ArgMax Cast Constant Dropout Identity Shape",
    "_to_copy alias clone expand getitem",
    "ARG_MAX CAST",
)  # they leave no node

HEAD = """# What is supported

Made by `python -m tests.support.ops_table` from the op table and the front ends' rules; a test keeps it true.

Files are read into one graph: float32, or int8 where they are quantized. *int8* means a C kernel, and *gradient* that
what lies before the op can learn. `.tflite` is read and written byte for byte as LiteRT's reference kernels compute
it; `.onnx` is read in any opset (those before 13 through ONNX's own version converter; sizes that it leaves open are
given by `--shape input=1,3,96,96`) and written in QDQ form, with functions that make ONNX Runtime compute the same
bytes, or without them (`--plain`, see `docs/internals/numerics.md`); PyTorch modules and `.pt2` archives are read
through `torch.export`. Transposes
between a file's [batch, channels, rows, columns] and our [rows, columns, channels] are
folded away; flattening a map costs nothing either: the weights of the next layer are reordered instead.

| op | ONNX | ATen | TFLite | written as | int8 | gradient |
| --- | --- | --- | --- | --- | --- | --- |
"""


def names(which: int) -> set[str]:
    """All names of one kind of file in the table."""
    return {name for entry in (*NAMES.values(), FOLDED) for name in entry[which].split()}


def page() -> str:
    rows = []
    for op, entry in sorted(NAMES.items(), key=lambda item: item[0].__name__):
        written = [name for name, rules in ((".tflite", {*TO_TFLITE, ops.Assign}), (".onnx", TO_ONNX)) if op in rules]
        kernel = "no code runs" if op.view else "yes" if op.kernel or op is ops.Dense else "no"
        gradient = "yes" if op.grad is not Op.grad else "no"
        cells = (f"`{op.__name__}`", *(_listed(text) for text in entry), ", ".join(written), kernel, gradient)
        rows.append(f"| {' | '.join(cells)} |")
    rows.append(f"| folded away | {' | '.join(_listed(text) for text in FOLDED)} | | | |")
    functions = ", ".join(f"`{name}`" for name in FUNCTIONS)
    tail = f"""
`Lookup` is a table of 256 results in int8; its functions are {functions}. Where a file writes hard-swish,
SiLU, GELU or a similar function as several nodes, it is recognized. `BatchNorm` and float activations are folded and
fused when a model is quantized. `Lstm` and `Gru` run over one sequence of fixed length from a state of zero; what
stands behind them can learn ([tflite.md](tflite.md)).

A choice of the class at the end of a file (`ArgMax`, `ARG_MAX`, with casts and reshapes behind it) is left out: the
output is the scores it chose from, whose largest is its class; `info` and `import` say so. Operators on constants are
computed while a file is read, an ONNX `If` whose condition is known then is the branch it takes, and an ONNX file
without an opset has that of its IR version. Operators of a `.tflite` file may lack options; theirs are the schema's
defaults. Not read are `SVDF` and int16 activations.
"""
    return HEAD + "\n".join(rows) + "\n" + tail


def _listed(text: str) -> str:
    return ", ".join(text.split())


def tables() -> tuple[set[str], set[str], set[str]]:
    """Return the operators that the readers know, by kind of file."""
    return set(ONNX), set(ATEN), set(TFLITE)


if __name__ == "__main__":
    PAGE.write_text(page())
