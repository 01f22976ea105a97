"""Fuzz every parser: coverage-guided where atheris is installed, with mutators that know the structure of each format.

    python tools/fuzz.py --minutes 10                # all parsers, new cases, the time shared between them
    python tools/fuzz.py --deterministic             # the same cases every time, as many as fuzz_targets.py says
    python tools/fuzz.py --cases 1000000 tflite onnx # some parsers, until so many cases
    python tools/fuzz.py --replay FILE tflite        # one file, as a case of a parser

Prints a table, or JSON lines with --json, and exits with 1 where there are findings. They lie under --findings, each
beside what it does and the command that replays it; the cases that coverage found stay under --work for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from fuzz_targets import TARGETS
from fuzzing import HAS_ATHERIS, ROOT, Job, Judge, Notes, keep

WORKER = Path(__file__).with_name("fuzzing.py")
SILENT = 900.0  # seconds after which a process that notes nothing hangs
CRASHES = 10  # after which a parser is not started again
SEED = 2024  # of the run that is the same every time
NO_ATHERIS = (
    "atheris is not installed: cases come from the same mutators in a plain loop, WITHOUT coverage; "
    "there are wheels for Linux on x86_64"
)


@dataclass(frozen=True)
class Plan:
    """What is asked of a run: cases or seconds per parser, and where things lie."""

    seed: int
    cases: int
    seconds: float
    work: Path
    findings: Path
    plain: bool
    kept: bool  # whether what coverage found is kept for the next run


def fuzz(name: str, plan: Plan) -> Notes:
    """Fuzz one parser; where a case kills the process, it becomes a finding and another process goes on."""
    total = Notes(name, plan.seed, "")
    own = plan.work / name
    if not plan.kept:
        shutil.rmtree(own, ignore_errors=True)
    for attempt in range(CRASHES):
        left = plan.cases - total.cases if plan.cases else 0
        seconds = plan.seconds - total.seconds if plan.seconds else 0.0
        with tempfile.TemporaryDirectory(dir=_memory_disk()) as folder:
            job = Job(name, plan.seed + attempt, left, seconds, folder, str(plan.findings / name), plan.plain)
            (own / "corpus").mkdir(parents=True, exist_ok=True)
            (Path(folder) / "corpus").symlink_to((own / "corpus").resolve())
            said = _work(job, own / "log.txt")
            notes = _notes(Path(folder), job)
            if not notes.done:
                _keep_crash(Path(folder), job, notes, said)
        total = _added(total, notes)
        if notes.done:
            return total
    return total


def _memory_disk() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@cache
def _same_addresses() -> tuple[str, ...]:
    """What to put before a command so that objects lie at the same addresses every time: hashes can depend on them."""
    prefix = ("setarch", "--addr-no-randomize")
    try:
        found = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        found = False
    return prefix if found else ()


def _work(job: Job, log: Path) -> str:
    """Run a job in a process of its own, which is ended where it falls silent; what it said at the end."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    notes = Path(job.folder) / "notes.json"
    with log.open("wb") as file:
        command = [*_same_addresses(), sys.executable, str(WORKER), json.dumps(asdict(job))]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=ROOT)
        began = time.time()
        while process.poll() is None:
            time.sleep(0.2)
            heard = notes.stat().st_mtime if notes.exists() else began
            if time.time() - max(heard, began) > SILENT:
                process.kill()
        process.wait()
    return log.read_text(errors="replace")[-3000:]


def _notes(folder: Path, job: Job) -> Notes:
    path = folder / "notes.json"
    return Notes(**json.loads(path.read_text())) if path.exists() else Notes(job.target, job.seed, "")


def _keep_crash(folder: Path, job: Job, notes: Notes, said: str) -> None:
    """The case in hand when a process died."""
    case = next((folder / "case").glob("*"), None) if (folder / "case").exists() else None
    data = case.read_bytes() if case is not None else b""
    keep(Path(job.findings), job.target, TARGETS[job.target].suffix, f"crash {job.seed}", data, said, notes)


def _added(one: Notes, other: Notes) -> Notes:
    """Both runs as one; the digest is that of the last."""
    sums = {name: getattr(one, name) + getattr(other, name) for name in ("cases", "read", "refused", "seconds")}
    most = {name: max(getattr(one, name), getattr(other, name)) for name in ("slowest", "growth")}
    return replace(other, **sums, **most, seed=one.seed, findings={**one.findings, **other.findings})


def replay(path: Path, name: str) -> int:
    """Read one file as a case; 1 where it is a finding."""
    with tempfile.TemporaryDirectory() as folder:
        case = Path(folder) / "case"
        judge = Judge(name, case, Path(folder), Notes(name, 0, "replay"))
        failed = judge.failure(path.read_bytes())
    print(judge.said)
    print(failed or "no finding")
    return 1 if failed else 0


def head() -> str:
    counts = f"{'parser':<11}{'cases':>11}{'read':>10}{'refused':>11}{'findings':>9}"
    return f"{counts}{'time':>11}{'':>10}{'slowest':>10}{'growth':>11}"


def row(notes: Notes) -> str:
    per_second = notes.cases / max(notes.seconds, 1e-9)
    return (
        f"{notes.target:<11}{notes.cases:>11,}{notes.read:>10,}{notes.refused:>11,}{len(notes.findings):>9}"
        f"{notes.seconds:>9.0f} s{per_second:>8,.0f}/s{notes.slowest:>8.2f} s{notes.growth / 2**20:>7.0f} MiB"
        f"  {notes.engine}, seed {notes.seed}, {notes.digest[:12]}"
    )


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs="*", default=list(TARGETS), metavar="parser", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=0.0, help="of wall time, shared between the parsers")
    parser.add_argument("--cases", type=int, default=0, help="per parser")
    parser.add_argument("--deterministic", action="store_true", help="the same cases every time")
    parser.add_argument("--share", type=float, default=1.0, help="with --deterministic: this share of its cases")
    parser.add_argument("--seed", type=int, help="without one, a new one each time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--plain", action="store_true", help="without coverage")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--findings", type=Path, default=ROOT / "build" / "findings")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    found = parser.parse_args(arguments)
    if unknown := [name for name in found.parsers if name not in TARGETS]:
        parser.error(f"there is no parser {unknown[0]!r}; known are {', '.join(TARGETS)}")
    if not (found.replay or found.deterministic or found.minutes or found.cases):
        parser.error("say how long: --minutes, --cases or --deterministic")
    return found


def main(arguments: list[str]) -> int:
    asked = parsed(arguments)
    if asked.replay:
        return replay(asked.replay, asked.parsers[0])
    if not HAS_ATHERIS and not asked.plain:
        print(NO_ATHERIS, file=sys.stderr)
    seed = asked.seed if asked.seed is not None else SEED if asked.deterministic else secrets.randbelow(2**31)
    seconds = asked.minutes * 60 * min(asked.jobs, len(asked.parsers)) / len(asked.parsers)
    plan = Plan(seed, asked.cases, seconds, asked.work, asked.findings, asked.plain, not asked.deterministic)

    def one(name: str) -> Notes:
        fixed = max(int(asked.share * TARGETS[name].cases), 1)
        return fuzz(name, replace(plan, cases=fixed) if asked.deterministic else plan)

    failed = False
    if not asked.json:
        print(head())
    with ThreadPoolExecutor(asked.jobs) as pool:
        for notes in pool.map(one, asked.parsers):
            print(json.dumps(asdict(notes)) if asked.json else row(notes), flush=True)
            for what, path in notes.findings.items():
                failed = True
                print(f"FOUND in {notes.target}: {what}, see {path}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
