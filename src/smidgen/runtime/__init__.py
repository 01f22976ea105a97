"""The kernels in C and assembly: `kernels/` for any machine, other folders for processors that can do more.

A file of such a folder takes the place of the portable one of its name; `working*.c` beside the kernels returns how
much working memory each of them needs.
"""

from smidgen.runtime.working import struct, working_memory

__all__ = ["struct", "working_memory"]
