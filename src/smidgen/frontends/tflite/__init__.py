"""TFLite models in and out: `.tflite` file → Graph, and Graph → the bytes of a `.tflite` file."""

from smidgen.frontends.tflite.reader import read_tflite
from smidgen.frontends.tflite.writer import write_tflite

__all__ = ["read_tflite", "write_tflite"]
