"""Which prefixes a program's files and C names may begin with: those that meet no other file or name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from smidgen.codegen.runtime import HEADERS, RUNTIME, SOURCES
from smidgen.errors import InputError

_PREFIX = re.compile(r"[a-z][a-z0-9_]*")
_WORDS: Mapping[str, str] = {
    "a keyword of C or C++": """
        asm auto bool break case char class const continue default delete do double else enum export extern float for
        goto if inline int long namespace new operator private protected public register restrict return short signed
        sizeof static struct switch template this throw try typedef typename union unsigned virtual void volatile while
        """,
    "a header of the C library": """
        arm_acle arm_neon assert complex ctype errno fcntl fenv float glob immintrin inttypes iso646 limits locale math
        poll pthread regex sched search semaphore setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio
        stdlib stdnoreturn string termios tgmath threads time uchar unistd wchar wctype
        """,
    "a function of the C library": """
        abort abs atexit atof atoi bsearch calloc ceil clock cos exit exp fabs fclose feof fflush floor fmod fopen
        fprintf fputs fread free fscanf fseek fwrite getc getchar getenv gets labs log malloc memchr memcmp memcpy
        memmove memset perror pow printf putc putchar puts qsort raise rand read realloc remove rename rewind round
        scanf sin snprintf sprintf sqrt srand sscanf strcat strchr strcmp strcpy strlen strncpy strtol system tan
        tmpfile write
        """,
    "a target of CMake's own": """
        all clean depend edit_cache help install package package_source preinstall rebuild_cache test
        """,
    "the project around the program": "board example fault firmware main reset serve startup",
    "names that Smidgen writes itself": "at map p parts row smg smidgen w",
}


def check_prefix(prefix: str) -> None:
    """Raise InputError unless files and names that begin so can lie and be linked beside all others."""
    if not _PREFIX.fullmatch(prefix):
        raise InputError(
            f"the prefix {prefix!r} cannot begin C names; use lower-case letters, digits and '_' after one"
        )
    if taken := _taken_by(prefix):
        raise InputError(f"the prefix {prefix!r} is taken by {taken}; use another, such as 'my_{prefix}'")


def _taken_by(prefix: str) -> str | None:
    """What else has a file or a name of this prefix."""
    first = prefix.split("_")[0]
    for owner, words in _WORDS.items():
        if prefix in words.split() or (first in ("smg", "smidgen") and first in words.split()):
            return owner
    kernels = {path.stem for path in RUNTIME.rglob("*") if path.suffix in (*SOURCES, *HEADERS)}
    files = {prefix, f"{prefix}_link", f"{prefix}_replay", f"{prefix}_weights"} & kernels
    return f"the kernels' own file {min(files)}" if files else None
