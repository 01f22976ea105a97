"""Run trials on this machine's cores, a GPU or a Ray cluster; the numbers are the same on each."""

from __future__ import annotations

import logging
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from smidgen.data import Data, examples, pixel_encoding
from smidgen.errors import InputError, SmidgenError, TargetError
from smidgen.ir import Array, Graph
from smidgen.learning import Course, LearningError, learn
from smidgen.pipeline import Program, compile
from smidgen.selection.trials import Trial
from smidgen.selection.workers import share_out
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.training.head import layers

FLEET = 64  # devices on a GPU at once
EXAMPLES = 2  # images that set a program's first exponents, which learning soon corrects: each takes time
SMALL = 16  # devices: a fleet this large is closed where the next trial would slow it down
RETRIES = 3  # of a task whose worker or machine was lost
LOCAL = "local"  # Ray's name for a cluster of this machine
CONNECT = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR')"
CONNECT_SECONDS = 15.0


@dataclass(frozen=True, eq=False)
class Setup:
    """The model, data and course that all trials of an analysis share."""

    model: Graph
    data: Data  # its test images are those held back
    course: Course


@dataclass(frozen=True)
class Outcome:
    """Top-1 on the images held back and the mean loss of the last epoch; 0 and None where the run diverged."""

    accuracy: float
    loss: float | None


DIVERGED = Outcome(0.0, None)
PartCallback = Callable[[float], None]  # gets the progress of trials under way, in trials, where that is known
Outcomes = Generator[tuple[Trial, Outcome], None, None]


def ignore(_: float) -> None:
    """Ignore progress."""


class Launcher(Protocol):
    """A way to run trials; the numbers are the same on each."""

    def launch(self, setup: Setup, trials: Sequence[Trial], on_part: PartCallback = ignore) -> Outcomes:
        """Yield the outcome of every trial, as they end."""


@dataclass(frozen=True)
class OnHost:
    """Programs in C, one per process."""

    workers: int

    def launch(self, setup: Setup, trials: Sequence[Trial], on_part: PartCallback = ignore) -> Outcomes:
        yield from share_out(run_trial, setup, trials, self.workers)


@dataclass(frozen=True)
class OnDevice:
    """Fleets of simulated devices in PyTorch, on a GPU; `workers` processes compile their programs."""

    workers: int
    device: str = "cuda"

    def launch(self, setup: Setup, trials: Sequence[Trial], on_part: PartCallback = ignore) -> Outcomes:
        _check_device(self.device)
        few = replace(setup.data, train=setup.data.train.spread(EXAMPLES), test=setup.data.test.spread(1))
        slim = replace(setup, data=few)  # all that compiling needs
        for fleet in fleets(setup.model, trials):
            with closing(share_out(compile_trial, slim, fleet, self.workers)) as compiled:
                programs = dict(compiled)
            found = run_fleet(setup, [programs[trial] for trial in fleet], self.device, on_part)
            yield from zip(fleet, found, strict=True)


def compile_trial(setup: Setup, trial: Trial) -> Program:
    """Compile the program of a trial for this machine."""
    options = Options(len(setup.data.classes), trial.weight_bits, seed=trial.seed)
    images = examples(setup.data.train, pixel_encoding(setup.model), EXAMPLES)
    return compile(setup.model, trial.scheme, Host(), options=options, images=images)


def run_trial(setup: Setup, trial: Trial) -> Outcome:
    """Train and test in C on one core, and remove what was built for it."""
    program = compile_trial(setup, trial)
    built = Host().build(program.sources)
    try:
        learned = learn(program, setup.data, setup.course, threads=1)
    except LearningError:  # its loss is not a number
        return DIVERGED
    finally:
        shutil.rmtree(built.parent, ignore_errors=True)
    return Outcome(learned.accuracy, learned.record[-1].loss)


def run_fleet(setup: Setup, programs: Sequence[Program], device: str, on_part: PartCallback) -> list[Outcome]:
    """Train and test many programs at once, in PyTorch."""
    from smidgen.simulation import FleetProgress, simulate

    def report(at: FleetProgress) -> None:
        on_part(at.devices * ((at.epoch - 1) * at.steps + at.step) / (at.epochs * at.steps))

    done = simulate(programs, setup.data, setup.course, device=device, on_progress=report)
    return [
        DIVERGED if gone or not _finite(state) else Outcome(accuracy, loss)
        for accuracy, loss, gone, state in zip(
            done.accuracies, done.losses[-1], done.diverged, done.states, strict=True
        )
    ]


def _check_device(device: str) -> None:
    """Raise InputError where fleets cannot run, before anything is compiled for them."""
    try:
        from smidgen.simulation.courses import check_device
    except ImportError:
        raise InputError(f"{device} needs PyTorch, which is not installed; run: pip install 'smidgen[torch]'") from None
    check_device(device)


def _finite(state: Mapping[str, Array]) -> bool:
    """Return whether all numbers of a state are finite; otherwise `learn` counts a run as diverged, too."""
    return all(np.isfinite(array).all() for array in state.values() if array.dtype.kind == "f")


def fleets(model: Graph, trials: Sequence[Trial]) -> list[list[Trial]]:
    """Group trials that begin to learn at about the same layer: what no device of a fleet trains is computed once."""
    sizes = [node.out.type.size for node in layers(model)]
    grouped: list[list[Trial]] = []
    least = math.inf
    for trial in sorted(trials, key=lambda one: one.scheme.biases):
        behind = sum(sizes[len(sizes) - trial.scheme.biases :])
        if not grouped or len(grouped[-1]) == FLEET or (len(grouped[-1]) >= SMALL and behind > 2 * least):
            grouped.append([])
            least = behind
        grouped[-1].append(trial)
    return grouped


@dataclass(frozen=True)
class OnRay:
    """A cluster by address, or `auto`: the running one, otherwise one of this machine's cores."""

    address: str
    workers: int  # of a cluster that is started here
    target: str | None = None  # host: leave GPUs alone
    device: str = "cuda"  # of PyTorch, on a machine whose GPU Ray hands out

    def launch(self, setup: Setup, trials: Sequence[Trial], on_part: PartCallback = ignore) -> Outcomes:
        try:
            import ray
        except ImportError:
            raise InputError("--ray needs Ray, which is not installed; run: pip install 'smidgen[ray]'") from None
        if not trials:
            return
        with _connected(ray, self.address, self.workers):
            common = ray.put(setup)
            if self._gpus(ray):
                remote = ray.remote(num_cpus=1, num_gpus=1, max_retries=RETRIES)(run_together)
                tasks = {remote.remote(common, fleet, self.device): fleet for fleet in fleets(setup.model, trials)}
            else:
                remote = ray.remote(num_cpus=1, max_retries=RETRIES)(run_one)
                tasks = {remote.remote(common, [trial]): [trial] for trial in trials}
            while tasks:
                (done, *_), _ = ray.wait(list(tasks))
                yield from zip(tasks.pop(done), _answer(ray, done), strict=True)

    def _gpus(self, ray: Any) -> bool:
        """Return whether to use GPUs."""
        there = ray.cluster_resources().get("GPU", 0) >= 1
        if self.target == "cuda" and not there:
            raise TargetError(f"the Ray cluster at {self.address} offers no GPU; add one, or leave --target out")
        return there and self.target != "host"


def run_one(setup: Setup, trials: Sequence[Trial]) -> list[Outcome]:
    """Run trials on a core, as a task of Ray."""
    return [run_trial(setup, trial) for trial in trials]


def run_together(setup: Setup, trials: Sequence[Trial], device: str) -> list[Outcome]:
    """Run a fleet of trials on a GPU, as a task of Ray."""
    found = dict(OnDevice(1, device).launch(setup, trials))
    return [found[trial] for trial in trials]


def _answer(ray: Any, task: Any) -> list[Outcome]:
    """Return the outcomes of a task, or raise with its reason."""
    try:
        found: list[Outcome] = ray.get(task)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, SmidgenError):
            raise cause from None
        raise TargetError(
            f"a run failed on the Ray cluster ({_last_line(str(error))}); install this version of smidgen on all its "
            "machines"
        ) from None
    except ray.exceptions.RayError as error:
        raise TargetError(
            f"a run was lost {RETRIES + 1} times on the Ray cluster ({_last_line(str(error))}); if memory ran out, let "
            "fewer run at once"
        ) from None
    return found


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1][:200]


@contextmanager
def _connected(ray: Any, address: str, workers: int) -> Iterator[None]:
    """Connect for a while; a connection that already exists is used and left open."""
    if ray.is_initialized():
        yield
        return
    problem = "" if address == LOCAL else _try_to_connect(address)
    if problem and address != "auto":
        raise TargetError(
            f"no Ray cluster answers at {address} ({problem}); give the address that ray start printed, or auto"
        )
    at = LOCAL if problem else address
    own = {"num_cpus": workers, "include_dashboard": False} if at == LOCAL else {}
    try:
        try:
            ray.init(at, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise TargetError(f"Ray at {address} cannot be used: {_last_line(str(error))}") from None
        yield
    finally:
        ray.shutdown()


def _try_to_connect(address: str) -> str:
    """Let Ray connect in another process, which a time limit can end, and return what went wrong; else nothing.

    In this process Ray would keep trying for minutes, or end it.
    """
    try:
        tried = subprocess.run(
            (sys.executable, "-c", CONNECT, address),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=CONNECT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no connection within {CONNECT_SECONDS:g} seconds"
    return _last_line(tried.stderr) if tried.returncode else ""
