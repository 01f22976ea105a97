"""Trials on a Ray cluster: one task for each, or for each fleet of them on a GPU; lost ones are done again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from smidgen.errors import InputError, SmidgenError, TargetError
from smidgen.selection.answering import check_answers
from smidgen.selection.runs import OnDevice, Outcome, Setup, fleets, run_trial, say_nothing
from smidgen.selection.trials import Trial

RETRIES = 3  # of a task whose worker or machine was lost
LOCAL = "local"  # Ray's own word for a cluster of this machine


@dataclass(frozen=True)
class OnRay:
    """A cluster by address, or `auto`: the one that is there, otherwise one of this machine's cores."""

    address: str
    workers: int  # of a cluster that is started here
    target: str | None = None  # host: leave GPUs alone
    device: str = "cuda"  # of PyTorch, on a machine whose GPU Ray hands out

    def launch(
        self, setup: Setup, trials: Sequence[Trial], on_part: Callable[[float], None] = say_nothing
    ) -> Generator[tuple[Trial, Outcome]]:
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
        """Whether to use GPUs."""
        there = ray.cluster_resources().get("GPU", 0) >= 1
        if self.target == "cuda" and not there:
            raise TargetError(f"the Ray cluster at {self.address} offers no GPU; add one, or leave --target out")
        return there and self.target != "host"


def run_one(setup: Setup, trials: Sequence[Trial]) -> list[Outcome]:
    """The task of a core."""
    return [run_trial(setup, trial) for trial in trials]


def run_together(setup: Setup, trials: Sequence[Trial], device: str) -> list[Outcome]:
    """The task of a GPU."""
    found = dict(OnDevice(1, device).launch(setup, trials))
    return [found[trial] for trial in trials]


def _answer(ray: Any, task: Any) -> list[Outcome]:
    """What a task gave, or one sentence about why it gave nothing."""
    try:
        found: list[Outcome] = ray.get(task)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, SmidgenError):
            raise cause from None
        raise TargetError(
            f"a run failed on the Ray cluster ({_last_line(error)}); the same smidgen has to be installed on all its "
            "machines"
        ) from None
    except ray.exceptions.RayError as error:
        raise TargetError(
            f"a run was lost {RETRIES + 1} times on the Ray cluster ({_last_line(error)}); where memory ran out, let "
            "fewer run at once"
        ) from None
    return found


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]


@contextmanager
def _connected(ray: Any, address: str, workers: int) -> Iterator[None]:
    """A connection for a while; one that is there already is used and left as it is."""
    if ray.is_initialized():
        yield
        return
    at = _running(ray) if address == "auto" else address
    if at != LOCAL:
        check_answers(at)
    own = {"num_cpus": workers, "include_dashboard": False} if at == LOCAL else {}
    try:
        try:
            ray.init(at, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise TargetError(f"Ray at {address} cannot be used: {_last_line(error)}") from None
        yield
    finally:
        ray.shutdown()


def _running(ray: Any) -> str:
    """The address of the cluster of which this machine is a part, or LOCAL where there is none that answers."""
    try:
        found: str = ray._private.services.canonicalize_bootstrap_address("auto")
        check_answers(found)
    except (ConnectionError, SmidgenError):  # Ray remembers clusters that have ended
        return LOCAL
    return found
