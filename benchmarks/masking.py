"""LiteRT made to believe that this machine has no AVX-512, so that XNNPACK takes its AVX2 kernels.

XNNPACK asks the processor what it has, and has no option to be told. It takes AVX-512 only where the system saves the
registers of AVX-512, which it learns by one instruction, XGETBV. In the memory of this process, before it runs, that
instruction is replaced by two that answer "those of AVX alone".
"""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path

from smidgen.errors import TargetError

ASKS, ANSWERS = b"\x0f\x01\xd0", b"\x6a\x07\x58"  # xgetbv; push 7, pop rax: x87, SSE and AVX
LIBRARY = "litert"
MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-xp .*/(\S*)")


def hide_avx512() -> None:
    """Replace the question in every library of LiteRT that this process has loaded."""
    found = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if (matched := MAP.match(line)) and LIBRARY in matched[3]:
            found += _replace(int(matched[1], 16), int(matched[2], 16))
    if not found:
        raise TargetError("LiteRT as installed here does not ask for AVX-512 in a way that is known; leave out --isa")


def _replace(start: int, end: int) -> int:
    """Replace the question in memory [start, end); how often it stood there."""
    code = (ctypes.c_char * (end - start)).from_address(start)
    places = [found.start() for found in re.finditer(re.escape(ASKS), code.raw)]
    for place in places:
        page = (start + place) // mmap.PAGESIZE * mmap.PAGESIZE
        _protect(page, mmap.PROT_READ | mmap.PROT_WRITE)  # two pages: the instruction may cross from one to the next
        ctypes.memmove(start + place, ANSWERS, len(ANSWERS))
        _protect(page, mmap.PROT_READ | mmap.PROT_EXEC)
    return len(places)


def _protect(page: int, protection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), protection):
        raise TargetError("this system does not let a process change its own code; leave out --isa")
