"""Run the slow tier of the tests, group after group, in the time there is; say which groups were left out.

    python tools/slow_tier.py --minutes 12    # groups that fit into 12 minutes, in the order below
    python tools/slow_tier.py --list          # the groups, in order, with the minutes each takes

A group is begun only if it should end in time, and is stopped where it does not. Exits with 1 where a test failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-q")
TWO = ("-n", "2", "--dist", "worksteal")
NONE_COLLECTED = 5  # pytest's exit status where a group has no test


@dataclass(frozen=True)
class Group:
    """Tests that run together, and the minutes they take on two idle cores from a warm cache."""

    name: str
    minutes: float
    command: tuple[str, ...]


def slow(name: str, minutes: float, *folders: str) -> Group:
    """Return the group of the slow tests in some folders of tests/."""
    return Group(name, minutes, (*PYTEST, *TWO, "-m", "slow and not alone", *(f"tests/{folder}" for folder in folders)))


# What breaks most often first; what only draws more of the same last.
GROUPS = (
    slow("boards", 8, "targets", "runtime", "codegen", "link"),
    slow("front ends", 5, "frontends", "quantization", "zoo", "data", "numerics"),
    slow(
        "learning", 4, "ir", "ops", "training", "memory", "learning", "simulation", "selection", "inference", "fitting",
        "play",
    ),
    slow(
        "documents and tools", 4, "docs", "experiments", "results", "cli", "tools",
        *sorted(path.name for path in (ROOT / "tests").glob("test_*.py")),
    ),
    Group("busy machine", 1, (*PYTEST, "-m", "alone", "tests")),
    Group("all examples", 6, (*PYTEST, *TWO, "-m", "(hypothesis or sampled) and not slow", "tests")),
    Group("fuzz", 3, ("make", "fuzz-ci")),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """How a group ended: "passed", "failed", "stopped" at the deadline, or "left out"."""

    group: Group
    state: str
    seconds: float = 0.0


def run(groups: Sequence[Group], seconds: float) -> list[Result]:
    """Run each group that fits into what is left of the seconds."""
    deadline = time.monotonic() + seconds
    results = []
    for group in groups:
        left = deadline - time.monotonic()
        if left < 60 * group.minutes:
            results.append(Result(group, "left out"))
            continue
        print(f"== {group.name}: about {group.minutes:g} of {left / 60:.1f} minutes left", flush=True)
        began = time.monotonic()
        results.append(Result(group, _run(group.command, left), time.monotonic() - began))
    return results


def _run(command: Sequence[str], seconds: float) -> str:
    """Run a command and all it starts for so many seconds at most; return how it ended."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "stopped"
    return "passed" if status in (0, NONE_COLLECTED) else "failed"


def report(results: Sequence[Result]) -> str:
    """Return one line per state, with the groups in it."""
    lines = []
    for state in ("passed", "failed", "stopped", "left out"):
        names = [
            f"{r.group.name} ({r.seconds / 60:.1f} min)" if r.seconds else f"{r.group.name} (about {r.group.minutes:g})"
            for r in results
            if r.state == state
        ]
        if names:
            lines.append(f"slow tier, {state}: {', '.join(names)}")
    if any(r.state in ("stopped", "left out") for r in results):
        lines.append("`make test-all` runs what was left out")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(f"{group.minutes:4g} min  {group.name}" for group in GROUPS))
        return 0
    results = run(GROUPS, 60 * asked.minutes)
    print(report(results))
    return int(any(r.state == "failed" for r in results))


if __name__ == "__main__":
    sys.exit(main())
