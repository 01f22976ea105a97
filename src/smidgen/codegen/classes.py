"""The names of classes in C: how many there are, where a program declares them, and where they lie in flash."""

from __future__ import annotations

from smidgen.codegen.spelling import text_literal


def class_count(classes: tuple[str, ...], prefix: str) -> str:
    """A line of the header that says how many names there are; nothing where there are none."""
    return f"\n#define {prefix.upper()}_CLASSES {len(classes)}" if classes else ""


def class_declaration(classes: tuple[str, ...], prefix: str) -> str:
    """The array of names as the header declares it."""
    if not classes:
        return ""
    said = "Classes by name, in the order of the scores: UTF-8 text, as it was given."
    return f"\n/* {said} */\nextern const char *const {_array(prefix)};\n"


def class_definition(classes: tuple[str, ...], prefix: str) -> str:
    """The array itself, checked against its declaration by the header."""
    names = ",\n    ".join(map(text_literal, classes))
    return f'#include "{prefix}.h"\n\nconst char *const {_array(prefix)} = {{\n    {names}}};'


def class_usage(classes: tuple[str, ...], prefix: str) -> str:
    """What a README says of the names."""
    if not classes:
        return ""
    return f"- `{prefix}_class_names[i]` is the name of class `i`, of {len(classes)}, in the order of the scores.\n"


def _array(prefix: str) -> str:
    return f"{prefix}_class_names[{prefix.upper()}_CLASSES]"
