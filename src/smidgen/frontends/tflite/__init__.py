"""TFLite models in and out: `.tflite` file → Graph, and Graph → the bytes of a `.tflite` file."""

from smidgen.frontends.tflite.read import read_tflite
from smidgen.frontends.tflite.write import write_tflite

__all__ = ["read_tflite", "write_tflite"]
