"""Floats are computed as floats: kernels refuse to be built where a compiler keeps more bits, or rounds as it likes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from smidgen.codegen import RUNTIME
from smidgen.compiler import cross
from smidgen.errors import TargetError

ZIG = (sys.executable, "-m", "ziglang", "cc")
INCLUDED = re.compile(r'^#include "([\w.]+)"', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
ARITHMETIC = re.compile(r"\b(?:float|double)\b(?! \*)")  # a number, not where numbers lie
FILES = sorted(
    path for folder in ("kernels", "scalar", "cortex_m", "helium") for path in (RUNTIME / folder).glob("*.[ch]")
)


def includes(path: Path) -> set[str]:
    """All headers of the runtime that a file includes, directly or not."""
    found, pending = set[str](), [path]
    while pending:
        names = set(INCLUDED.findall(pending.pop().read_text())) - found
        found |= names
        pending += [file for file in FILES if file.name in names]
    return found


def test_every_kernel_that_computes_in_floats_is_guarded() -> None:
    floating = [path for path in FILES if ARITHMETIC.search(COMMENT.sub("", path.read_text()))]
    assert {"loss.c", "dense_f32.c", "quantize.c", "gradient.c", "dense.h"} <= {path.name for path in floating}
    assert [path.name for path in floating if "exact_floats.h" not in {path.name, *includes(path)}] == []


@pytest.mark.parametrize("kernel", ["loss.c", "dense_f32.c", "quantize.c", "gradient.c", "dense.c"])
def test_a_build_that_keeps_more_bits_is_refused_in_a_sentence(kernel: str, tmp_path: Path) -> None:
    x87 = ("-target", "x86-freestanding-none", "-mcpu=i586", "-std=c99", "-ffreestanding")
    words = (f"-I{RUNTIME}", "-c", str(RUNTIME / "kernels" / kernel), "-o", "kernel.o")
    with pytest.raises(TargetError, match="computes float with more bits than float has; on x86 build with -msse2"):
        cross(ZIG, x87)(*words, folder=tmp_path)
    cross(ZIG, ("-target", "x86-freestanding-none", "-mcpu=pentium4", "-std=c99", "-ffreestanding"))(
        *words, folder=tmp_path
    )


def test_a_build_that_rounds_as_it_likes_is_refused(tmp_path: Path) -> None:
    words = (f"-I{RUNTIME}", "-c", str(RUNTIME / "kernels" / "loss.c"), "-o", "kernel.o")
    with pytest.raises(TargetError, match="-ffast-math computes other numbers"):
        cross(ZIG, ("-std=c99", "-ffast-math"))(*words, folder=tmp_path)
