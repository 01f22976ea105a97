"""How long `import smidgen` and short commands take to start, and how many modules they load.

    python benchmarks/startup.py --runs 10

Times are of the processor (user and system), the least of some runs in fresh interpreters.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass

COMMANDS = {
    "import smidgen": "import smidgen",
    "smidgen --version": "from smidgen.cli import main; main()",
    "smidgen --help": "from smidgen.cli import main; main()",
    "smidgen train --help": "from smidgen.cli import main; main()",
    "smidgen info mcunet-5fps": "from smidgen.cli import main; main()",
    "from smidgen import compile": "from smidgen import compile",
}
COUNTED = """
import atexit, sys
atexit.register(lambda: print("\\n".join(sys.modules), file=sys.stderr))
"""


@dataclass(frozen=True)
class Started:
    """What starting a command took."""

    command: str
    own_modules: int
    other_modules: int
    processor_seconds: float


def measure(command: str, runs: int) -> Started:
    """Start a command several times: the least time, and the modules it loads."""
    words = (sys.executable, "-c", COMMANDS[command], *command.split()[1:])
    seconds = min(_run(words)[0] for _ in range(runs))
    _, modules = _run((sys.executable, "-c", COUNTED + COMMANDS[command], *command.split()[1:]))
    own = sum(name.split(".")[0] == "smidgen" for name in modules)
    return Started(command, own, len(modules) - own, round(seconds, 3))


def _run(words: tuple[str, ...]) -> tuple[float, list[str]]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stderr.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of which the fastest counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    found = [measure(command, given.runs) for command in COMMANDS]
    if given.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    print("| command | modules of ours | other modules | processor time |\n| --- | ---: | ---: | ---: |")
    for one in found:
        print(f"| `{one.command}` | {one.own_modules} | {one.other_modules} | {one.processor_seconds:.2f} s |")


if __name__ == "__main__":
    main()
