"""How much memory the contents of a file may take: counted before any of it is taken."""

from __future__ import annotations

from smidgen.errors import ImportModelError, SmidgenError

# Bytes. Networks for microcontrollers have megabytes of weights, also in float32; what they learn from is 50,000
# images of 32×32 pixels (154 MB) or a few thousand photographs.
MEMORY = 2**30


class Budget:
    """What a file has taken of the memory allowed to it; `error` is raised where it would take more."""

    def __init__(self, limit: int = MEMORY, error: type[SmidgenError] = ImportModelError) -> None:
        self.limit = limit
        self.taken = 0
        self.error = error

    def check(self, what: str, size: int) -> None:
        """Raise unless so many bytes more can be taken."""
        if self.taken + size > self.limit:
            before = f" beside {self.taken:,} before" if self.taken else ""
            raise self.error(
                f"{what} would take {size:,} bytes of memory{before}, the limit for one file is {self.limit:,}; "
                "where you trust the file, raise the limit with --memory, or memory= in Python"
            )

    def take(self, what: str, size: int) -> None:
        """Count so many bytes as taken, or raise."""
        self.check(what, size)
        self.taken += size

    def copy(self) -> Budget:
        """The same budget from here on, counted apart."""
        made = Budget(self.limit, self.error)
        made.taken = self.taken
        return made
