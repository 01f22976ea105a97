"""Runs the blocks of one page in order: `python doc_runner.py BLOCKS.json`, in a fresh folder, a process of its own.

Blocks of Python share one namespace; each block of a shell begins in the folder. Any that fails ends the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SHELL = ("bash", "-euo", "pipefail", "-c")


def main() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    folder = Path.cwd()
    for place, language, text in json.loads(Path(sys.argv[1]).read_text()):
        print(f"--- {place}", flush=True)
        if language == "python":
            line = int(place.rpartition(":")[2])
            exec(compile("\n" * line + text, place.rpartition(":")[0], "exec"), namespace)
            sys.stdout.flush()
            os.chdir(folder)
        elif (code := subprocess.run([*SHELL, text], check=False).returncode) != 0:
            sys.exit(f"{place}: the shell ended with {code}")


if __name__ == "__main__":
    main()
