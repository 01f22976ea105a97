"""Write what the examples print into their README files: run it after a change that moves their figures.

python tools/example_figures.py              # all of them
python tools/example_figures.py gesture      # some
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)


def main() -> None:
    for name in sys.argv[1:] or sorted(path.parent.name for path in EXAMPLES.glob("*/run.py")):
        done = subprocess.run([sys.executable, EXAMPLES / name / "run.py"], check=True, capture_output=True, text=True)
        readme = EXAMPLES / name / "README.md"
        page = readme.read_text()
        found = PRINTED.search(page)
        if found is None:
            sys.exit(f"{readme} has no block of ```text for the figures; add one")
        readme.write_text(page[: found.start()] + done.stdout + page[found.end() :])
        print(f"{name}\n{done.stdout}")


if __name__ == "__main__":
    main()
