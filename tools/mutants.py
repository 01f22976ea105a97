"""Do the tests see wrong programs? Each mutant runs against the quick tests of its room, in copies of the tree.

    python tools/mutants.py --minutes 60

Named mutants (`named_mutants.toml`) run first and must all be killed; the others are a sample, in an order that a fixed
seed gives. Results are lines of a file: a later run goes on where the last one stopped. `--again` runs what survived
once more, after tests were written for it; `--minutes 0` only shows the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from random import Random

from mutating import Mutant, generated, named

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
NAMED = ROOT / "tools" / "named_mutants.toml"
COPIED = ("src", "tests", "experiments", "tools", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile")
SEED = 0
KERNELS = "src/smidgen/runtime/kernels"
STATUSES = ("killed", "survived", "timed out")
ALLOWANCE = 60  # seconds that the tests of a mutant may take beyond three times what they take


@dataclass(frozen=True)
class Room:
    """Files that are mutated, and the tests that should notice, quick ones first."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


def _files(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


KERNEL_BY_KERNEL = "training_kernels::test_a_kernel_that_trains_writes_its_outputs_and_nothing_else"
ROW_BY_ROW = "kernels::test_elementwise_kernels_run_row_by_row_and_in_place"
ANY_GEOMETRY = "kernels::test_convolutions_of_any_geometry_agree_with_numpy"
LINK_TESTS = (
    "test_requests_out_of_order_and_without_a_session_change_nothing",
    "test_another_request_under_the_last_ones_number_is_not_taken_for_it",
    "test_frames_longer_than_any_are_damaged_and_the_next_one_is_read",
    "test_a_board_that_learns_otherwise_after_a_restart_is_not_gone_on_with",
)
ROOMS = {
    "numerics": Room(
        _files("src/smidgen/numerics", "stochastic.py", "int8.py"),
        ("numerics", "stochastic", "levels", KERNEL_BY_KERNEL, ROW_BY_ROW, ANY_GEOMETRY, "update_rules"),
    ),
    "ops": Room(
        _files("src/smidgen/ops", "update.py", "gradient.py", "loss.py", "rules.py", "conv.py", "conv_grad.py"),
        ("levels", "loss", "shape_rules", "checking", KERNEL_BY_KERNEL, "update_rules", ANY_GEOMETRY, "definitions",
         "gradients::test_gradients_are_those_of_pytorch", "working_memory"),
    ),
    "training": Room(
        _files("src/smidgen/training", "building.py", "lowering.py", "scheme.py", "passes.py"),
        ("passes_text", "definitions", "scheme", "heads", "training_graph"),
    ),
    "memory": Room(
        _files("src/smidgen/memory", "rows.py", "streaming.py", "checking.py", "planner.py"),
        ("checking", "layout", "groups", "streaming",
         "plan_mutations::test_a_wrong_rule_of_the_planner_is_caught"),
    ),
    "kernels": Room(
        _files(KERNELS, "step.c", "step.h", "update.c", "rounding.c", "stochastic.h", "step_state.c"),
        ("levels", "loss", KERNEL_BY_KERNEL),
    ),
    "codegen": Room((), ("saved_state",)),
    "store": Room((), ("flash", "store", "replay_ring")),
    "boards": Room((), ("board_brinks",)),
    "link": Room((), ("answers", *(f"link::{name}" for name in LINK_TESTS))),
}  # fmt: skip
# Tests that build a program for each of many graphs take longest and see little that the others do not.
LEFT_OUT = "not host and not sanitizer and not compute_the and not learn_the_same and not moments"


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    number: str
    room: str
    name: str
    status: str
    seconds: float
    by: str = ""  # the test that killed it


class Tree:
    """A copy of the checkout in which one program after another is wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "tree"
        for name in COPIED:
            source, to = ROOT / name, self.root / name
            to.parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, to, ignore=ignored) if source.is_dir() else shutil.copy(source, to)

    def tests(self, room: str, limit: float) -> tuple[str, str]:
        """Whether the tests of a room pass, and which one failed."""
        named_tests = (test.partition("::") for test in ROOMS[room].tests)
        files = [
            f"{next(TESTS.rglob(f'test_{file}.py')).relative_to(ROOT)}{colons}{test}"
            for file, colons, test in named_tests
        ]
        options = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={self.folder / 'run'}", "--tb=no", "-k", LEFT_OUT]
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *files], cwd=self.root, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timed out", ""
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return ("survived", "") if process.returncode == 0 else ("killed", failed[0][:160] if failed else "")

    def run(self, mutant: Mutant, limit: float) -> Result:
        began = time.monotonic()
        originals = {change.file: (self.root / change.file).read_bytes() for change in mutant.changes}
        try:
            for change in mutant.changes:
                file = self.root / change.file
                data = file.read_bytes()
                file.write_bytes(data[: change.start] + change.new.encode() + data[change.end :])
            builds = all(self._builds(change.file) for change in mutant.changes)
            status, by = self.tests(mutant.room, limit) if builds else ("invalid", "")
        finally:
            for name, data in originals.items():
                (self.root / name).write_bytes(data)
        return Result(mutant.number, mutant.room, mutant.name, status, round(time.monotonic() - began, 1), by)

    def _builds(self, file: str) -> bool:
        """Whether a changed kernel is still C: one that is not proves nothing. Only portable ones are built here."""
        if not file.startswith(KERNELS) or not file.endswith((".c", ".h")):
            return True
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{self.root}/{KERNELS}/.."]
        sources = [file] if file.endswith(".c") else [f"{KERNELS}/step.c"]
        return subprocess.run(["cc", *flags, *sources], cwd=self.root, capture_output=True, check=False).returncode == 0


def mutants(rooms: list[str]) -> Iterator[Mutant]:
    """Named ones first, then one of each room in turn, shuffled."""
    yield from (one for one in named(ROOT, NAMED) if one.room in rooms)
    shuffled = []
    for room in rooms:
        found = [one for file in ROOMS[room].files for one in generated(ROOT, room, file)]
        Random(SEED).shuffle(found)
        shuffled.append(found)
    yield from (one for one in chain.from_iterable(zip_longest(*shuffled)) if one is not None)


def read(file: Path) -> dict[str, Result]:
    lines = file.read_text().splitlines() if file.exists() else []
    return {result.number: result for result in (Result(**json.loads(line)) for line in lines)}


def limits(tree: Tree, rooms: list[str]) -> dict[str, float]:
    """Seconds that the tests of each room may take; they must pass where nothing is wrong."""
    allowed = {}
    for room in rooms:
        began = time.monotonic()
        status, by = tree.tests(room, 1200)
        if status != "survived":
            raise SystemExit(f"the tests of {room} fail on the program as it is: {by or status}")
        taken = time.monotonic() - began
        allowed[room] = 3 * taken + ALLOWANCE
        print(f"{room}: {len(ROOMS[room].tests)} test files pass in {taken:.0f} s", file=sys.stderr)
    return allowed


def run(rooms: list[str], minutes: float, processes: int, file: Path, again: bool) -> dict[str, Result]:
    """Run mutants until time is up; results are added to the file one by one."""
    results = read(file)
    waiting = [one for one in mutants(rooms) if again == (one.number in results)]
    if again:
        waiting = [one for one in waiting if results[one.number].status == "survived"]
    if not waiting or minutes <= 0:
        return results
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(processes) as pool:
        trees = [Tree(Path(name) / str(index)) for index in range(processes)]
        allowed = limits(trees[0], sorted({one.room for one in waiting}))
        ends = time.monotonic() + 60 * minutes

        def work(tree: Tree) -> None:
            while waiting and time.monotonic() < ends:
                result = tree.run(one := waiting.pop(0), allowed[one.room])
                results[result.number] = result
                with file.open("a") as lines:
                    lines.write(json.dumps(vars(result), ensure_ascii=False) + "\n")
                print(f"{result.status:9} {result.seconds:5.0f} s  {result.name}", file=sys.stderr)

        list(pool.map(work, trees))
    return results


def table(results: dict[str, Result], rooms: list[str]) -> str:
    """Mutants by room and by what became of them; results of files that have changed since are left out."""
    current = {one.number: one for one in mutants(rooms)}
    lines = ["| room | possible | run | killed | survived | timed out |", "| --- | --- | --- | --- | --- | --- |"]
    for room in rooms:
        possible = sum(one.room == room for one in current.values())
        counts = Counter(r.status for r in results.values() if r.room == room and r.number in current)
        total = sum(counts[status] for status in STATUSES)
        lines.append(f"| {room} | {possible} | {total} | {' | '.join(str(counts[s]) for s in STATUSES)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutants.jsonl")
    parser.add_argument("--again", action="store_true", help="run what survived once more")
    given = parser.parse_args()
    results = run(given.rooms, given.minutes, given.processes, given.results, given.again)
    print(table(results, given.rooms))
    escaped = [
        one.name for one in named(ROOT, NAMED) if one.number in results and results[one.number].status != "killed"
    ]
    if escaped:
        raise SystemExit(f"{len(escaped)} named mutants were not killed: {'; '.join(escaped)}")


if __name__ == "__main__":
    main()
