"""The classes of an ONNX model by name: in its metadata, for which ONNX has no standard."""

from __future__ import annotations

import ast
import json

import onnx

from smidgen.frontends.onnx.write import CLASSES

NAMES = "names"  # and under which YOLO's exporter does, a dict in Python's spelling: {0: 'person', 1: 'bicycle'}
LARGEST = 2**22  # characters


def stated_classes(proto: onnx.ModelProto) -> tuple[str, ...]:
    """The names that a model's metadata gives its classes; none where it does not, or not soundly."""
    held = {entry.key: entry.value for entry in proto.metadata_props}
    found = _parsed(held.get(CLASSES) or held.get(NAMES))
    if isinstance(found, dict) and set(found) == set(range(len(found))):
        found = [found[place] for place in range(len(found))]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        return ()
    return tuple(found)


def _parsed(text: object) -> object:
    """What a text says as JSON or as a literal of Python; None where it is neither."""
    if not isinstance(text, str) or len(text) > LARGEST:  # protobuf returns bytes for what is not text
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            found: object = parse(text)
            return found
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return None
