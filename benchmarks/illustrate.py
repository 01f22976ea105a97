"""Write the pictures of docs/how-it-works.md, all of them or those named: `python benchmarks/illustrate.py arena`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from experiments.illustrations import PICTURES

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        (FOLDER / f"{name}.svg").write_text(PICTURES[name]())


if __name__ == "__main__":
    main()
