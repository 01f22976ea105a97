"""Names of files' tensors as names of values."""

from __future__ import annotations

import re

MAX_NAME = 64  # characters of a value's name


def identifier(text: str) -> str:
    """The text with '_' for what a value's name may not hold."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "_", text)[:MAX_NAME].strip("_.")
    return f"_{name}" if name[:1].isdigit() else name
