"""Sizes that C and Python share: numbers that a header defines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_DEFINE = re.compile(r"^#define (SMG_\w+) (\d+)$", re.MULTILINE)


def read_sizes(header: Path) -> Mapping[str, int]:
    """Every `#define SMG_NAME number` of a header, by name without its prefix."""
    return {name.removeprefix("SMG_"): int(number) for name, number in _DEFINE.findall(header.read_text())}
