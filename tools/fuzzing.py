"""One parser fuzzed in one process: cases by coverage (atheris) or by a plain seeded loop, held to the same bounds.

    python tools/fuzzing.py '{"target": "tflite", …}'        # what tools/fuzz.py starts, see Job

A case is a finding where anything but a SmidgenError of one line comes out, where it takes too long, or where memory
grows beyond the bound while it is read. Findings are kept and the run goes on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from types import FrameType, TracebackType

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "corpus"
SECONDS = 10.0  # of processor time for one case
GROWTH = 2**27  # bytes by which the process may grow while it reads one case of `fuzz_targets.MEMORY`
ADDRESSES = 2**32  # bytes of address space beyond what the process has at its start
LONGEST = 2**15  # bytes of a case
EVERY = 1.0  # second between notes of how far the run has come
POOL = 2000  # cases that the plain loop keeps because they led somewhere new
SHRINKING = 300  # attempts at a smaller case that fails in the same way
HAS_ATHERIS = importlib.util.find_spec("atheris") is not None


@dataclass(frozen=True)
class Job:
    """What one process does: so many cases of a target, or until some seconds have passed."""

    target: str
    seed: int
    cases: int  # at most; 0 for no limit
    seconds: float  # at most; 0 for no limit
    folder: str  # of its own: the case in hand, notes, and what coverage found
    findings: str
    plain: bool  # without coverage


@dataclass
class Notes:
    """How far a run has come."""

    target: str
    seed: int
    engine: str
    cases: int = 0
    read: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0  # processor seconds of a case
    growth: int = 0  # bytes, the most in a case
    digest: str = ""  # of all cases in their order
    done: bool = False
    findings: dict[str, str] = field(default_factory=dict)  # what went wrong → the file


class TooSlowError(BaseException):
    """A case took too long; no reader's `except Exception` catches it."""


class SentenceError(Exception):
    """A SmidgenError of more than one line, or of none."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {SECONDS:.0f} s of processor time")


class Memory:
    """By how much a process grows; where the kernel cannot set its peak back, only beyond all peaks before."""

    def __init__(self) -> None:
        try:
            self._reset: int | None = os.open("/proc/self/clear_refs", os.O_WRONLY)
        except OSError:
            self._reset = None
        self._before = 0

    def begin(self) -> None:
        if self._reset is not None:
            os.write(self._reset, b"5")
        self._before = self._peak()

    def grown(self) -> int:
        return self._peak() - self._before

    def _peak(self) -> int:
        """What can be set back, not `ru_maxrss`: that is at least what the starting process took."""
        if self._reset is not None:
            status = Path("/proc/self/status").read_text()
            return int(status.partition("VmHWM:")[2].split()[0]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def limit_addresses() -> None:
    """Let what takes far too much fail in this process, before the machine suffers."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ADDRESSES,) * 2)


def _place(trace: TracebackType | None) -> str:
    """The innermost line of Smidgen or of this tool that an exception passed."""
    frames = [f for f in traceback.extract_tb(trace) if "/smidgen/" in f.filename or "/tools/" in f.filename]
    last = frames[-1] if frames else None
    return "nowhere" if last is None else f"{Path(last.filename).name}:{last.lineno}"


class Judge:
    """Reads cases, one after another, and keeps those that fail."""

    def __init__(self, name: str, case: Path, findings: Path, notes: Notes) -> None:
        from fuzz_targets import TARGETS  # here, after atheris was told to instrument what it imports

        self.target = TARGETS[name]
        self.name, self.findings, self.notes = name, findings, notes
        self.case = case.with_suffix(self.target.suffix)
        self.memory = Memory()
        self.said = ""  # about the last case: what makes it like others
        signal.signal(signal.SIGVTALRM, _interrupt)

    def failure(self, data: bytes) -> str:
        """What is wrong with how a case is read, in a few words that are the same for the same fault; or nothing."""
        from smidgen.errors import SmidgenError

        self.case.write_bytes(data)
        self.memory.begin()
        began, said, failed = time.process_time(), "read", ""
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            try:
                self.target.read(self.case)
                self.notes.read += 1
            except SmidgenError as error:
                said = str(error)
                self.notes.refused += 1
                if len(said.splitlines()) != 1:
                    raise SentenceError(repr(said[:200])) from error
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except (Exception, TooSlowError) as error:
            failed = f"{type(error).__name__} at {_place(error.__traceback__)}"
            said = "".join(traceback.format_exception(error))
        spent, grown = time.process_time() - began, self.memory.grown()
        self.notes.slowest = max(self.notes.slowest, spent)
        self.notes.growth = max(self.notes.growth, grown)
        if not failed and grown > GROWTH:
            failed, said = "memory", f"the process grew by {grown:,} bytes, the bound is {GROWTH:,}"
        if not failed and spent > SECONDS:
            failed, said = "time", f"it took {spent:.1f} s, the bound is {SECONDS:.1f}"
        self.said = said
        return failed

    def changed(self, data: bytes, rng: Random) -> bytes:
        """Another case; a mutator that cannot cope with what others made of a file leaves it to raw bytes."""
        from fuzz_bytes import raw

        try:
            return self.target.mutate(data, rng)
        except Exception:
            return raw(data, rng)

    def __call__(self, data: bytes) -> None:
        self.notes.cases += 1
        failed = self.failure(data)
        if failed:
            self._keep(failed, data)

    def _keep(self, failed: str, data: bytes) -> None:
        known = self.notes.findings.get(failed)
        if known is not None and Path(known).stat().st_size <= len(data):
            return
        said = self.said
        small = self._shrunk(failed, data) if known is None else data
        keep(self.findings, self.name, self.target.suffix, failed, small, said, self.notes)

    def _shrunk(self, failed: str, data: bytes) -> bytes:
        """The case with pieces left out, as long as it fails in the same way."""
        if failed.startswith(("TooSlow", "time")):
            return data
        counts = self.notes.read, self.notes.refused
        size, left = len(data) // 2, SHRINKING
        while size and left:
            at = 0
            while at < len(data) and left:
                left -= 1
                smaller = data[:at] + data[at + size :]
                if self.failure(smaller) == failed:
                    data = smaller
                else:
                    at += size
            size //= 2
        self.notes.read, self.notes.refused = counts
        return data


def keep(folder: Path, name: str, suffix: str, failed: str, data: bytes, said: str, notes: Notes) -> None:
    """A finding as a file, and beside it what it does and the command that shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    label = re.sub(r"\W+", "-", failed).strip("-").lower()
    path = folder / f"found-{name}-{label}{suffix}"
    path.write_bytes(data)
    shown = f"{failed}\n\n{said}\n\npython tools/fuzz.py --replay {path} {name}\n"
    path.with_suffix(".why").write_text(shown, errors="replace")
    notes.findings[failed] = str(path)


class Run:
    """A job under way: it counts, keeps notes, and ends at the number of cases or at the time that was given."""

    def __init__(self, job: Job, engine: str) -> None:
        self.job, self.folder = job, Path(job.folder)
        self.notes = Notes(job.target, job.seed, engine)
        cases = self.folder / "case"
        cases.mkdir(parents=True, exist_ok=True)
        self.judge = Judge(job.target, cases / "case", Path(job.findings), self.notes)
        self.began = self.noted = time.monotonic()
        self.digest = hashlib.sha256()

    @property
    def seeds(self) -> list[Path]:
        return sorted((CORPUS / (self.judge.target.corpus or self.job.target)).iterdir())

    def warm(self) -> None:
        """Import what readers import late, uncounted, and set the limit of addresses."""
        self.judge.failure(self.seeds[0].read_bytes())
        self.notes.read = self.notes.refused = self.notes.growth = 0
        self.notes.slowest = 0.0
        limit_addresses()

    def one(self, data: bytes) -> None:
        """Judge one case, and now and then note how far the run has come."""
        self.digest.update(len(data).to_bytes(4, "little") + data)
        self.judge(data)
        now = time.monotonic()
        if now - self.noted > EVERY:
            self.note(now)

    def over(self) -> bool:
        cases, seconds = self.job.cases, self.job.seconds
        return bool(cases and self.notes.cases >= cases) or bool(seconds and time.monotonic() - self.began > seconds)

    def note(self, now: float) -> None:
        self.noted, self.notes.seconds = now, now - self.began
        self.notes.digest = self.digest.hexdigest()
        path = self.folder / "notes.json"
        path.with_suffix(".new").write_text(json.dumps(asdict(self.notes)))
        path.with_suffix(".new").replace(path)

    def end(self) -> None:
        self.notes.done = True
        self.note(time.monotonic())


def plain(job: Job) -> None:
    """Cases from a seeded generator alone; one that is answered in new words becomes a seed of others."""
    run = Run(job, "plain")
    run.warm()
    rng = Random(f"{job.target} {job.seed}")
    sound, pool = [path.read_bytes() for path in run.seeds], [b""]
    known: set[str] = set()
    for data in sound:
        if not run.over():
            run.one(data)
    while not run.over():
        data = rng.choice(rng.choice((sound, pool)))
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            data = run.judge.changed(data, rng)[:LONGEST]
        run.one(data)
        kind = re.sub(r"\d+|'[^']*'", "", run.judge.said)[:200]
        if kind not in known:
            known.add(kind)
            if len(pool) < POOL:
                pool.append(data)
    run.end()


def guided(job: Job) -> None:
    """Cases by the coverage of Smidgen's own code; atheris takes the process over and never gives it back."""
    import atheris

    with atheris.instrument_imports(include=["smidgen"]):
        run = Run(job, "atheris")
        run.warm()

    def one(data: bytes) -> None:
        if data or run.notes.cases:  # libFuzzer begins with an empty one
            run.one(data)
        if run.over():
            run.end()
            sys.stdout.flush()
            os._exit(0)

    sound = [path.read_bytes() for path in run.seeds]

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = Random(seed)
        if not rng.randrange(8):
            return bytes(atheris.Mutate(data, most))
        if not rng.randrange(3):  # most of what coverage collects is refused early: what is sound leads further
            data = rng.choice(sound)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            data = run.judge.changed(data, rng)
        return data[:most]

    found = run.folder / "corpus"
    found.mkdir(exist_ok=True)
    options = {"seed": 1 + job.seed % 2**31, "max_len": LONGEST, "rss_limit_mb": 0, "timeout": 600, "reload": 0}
    flags = [f"-{name}={value}" for name, value in options.items()]
    crashes = f"-artifact_prefix={run.folder}/"
    seeds = str(CORPUS / (run.judge.target.corpus or job.target))
    atheris.Setup([sys.argv[0], *flags, crashes, str(found), seeds], one, custom_mutator=mutate)
    atheris.Fuzz()


def main(described: str) -> None:
    job = Job(**json.loads(described))
    warnings.simplefilter("ignore")  # of Pillow and numpy, on every other case
    engine: Callable[[Job], None] = plain if job.plain or not HAS_ATHERIS else guided
    engine(job)


if __name__ == "__main__":
    main(sys.argv[1])
