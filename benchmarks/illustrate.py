"""Write the pictures of docs/internals/how-it-works.md and docs/internals/architecture.md.

    python benchmarks/illustrate.py [arena …]

All of them, or those that are named.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from experiments.illustrations import PICTURES
from experiments.mapped import architecture

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def main() -> None:
    pictures = {**PICTURES, "architecture": architecture}
    for name in sys.argv[1:] or pictures:
        (FOLDER / f"{name}.svg").write_text(pictures[name]())


if __name__ == "__main__":
    main()
