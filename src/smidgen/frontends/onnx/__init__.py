"""ONNX models in and out: `.onnx` file → Graph, and Graph → the bytes of an `.onnx` file, in one of two forms."""

from smidgen.frontends.onnx.read import read_onnx
from smidgen.frontends.onnx.write.exact import write_onnx
from smidgen.frontends.onnx.write.plain import write_plain

__all__ = ["read_onnx", "write_onnx", "write_plain"]
