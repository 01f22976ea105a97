"""Runner of one page's code blocks: `python doc_runner.py BLOCKS.json`, in a fresh folder and a process per page.

Blocks of Python share one namespace; each shell block begins in the folder. Blocks that only call `smidgen` run in this
process, which shows the same without starting Python again for each command. The first failure ends the page.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

SHELL = ("bash", "-euo", "pipefail", "-c")
FOR_A_SHELL = re.compile(r"[|&;<>$`*?(){}\[\]~!=]")  # what only a shell understands, outside options with values


def plain_commands(text: str) -> list[list[str]] | None:
    """Return the words of each command of a block that calls `smidgen` alone; None where it takes a shell."""
    commands = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] != "smidgen" or any(FOR_A_SHELL.search(re.sub(r"^--[\w-]+=", "", word)) for word in words):
            return None
        commands.append(words)
    return commands


def call(words: list[str]) -> int:
    """Run a command of `smidgen` in this process; return its exit status."""
    from smidgen.cli import main

    print("$", shlex.join(words), flush=True)
    sys.argv = words
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def shell(text: str) -> int:
    """Run a shell block; return the exit status of the first command that fails, or 0."""
    commands = plain_commands(text)
    if commands is None:
        return subprocess.run([*SHELL, text], check=False).returncode
    return next((code for code in map(call, commands) if code), 0)


def main() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    folder = Path.cwd()
    for place, language, text in json.loads(Path(sys.argv[1]).read_text()):
        print(f"--- {place}", flush=True)
        if language == "python":
            line = int(place.rpartition(":")[2])
            exec(compile("\n" * line + text, place.rpartition(":")[0], "exec"), namespace)
            sys.stdout.flush()
        elif (code := shell(text)) != 0:
            sys.exit(f"{place}: the shell ended with {code}")
        os.chdir(folder)


if __name__ == "__main__":
    main()
