"""Run trials on this machine's cores, a GPU or a Ray cluster; the numbers are the same on each."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from smidgen.callbacks import ignore
from smidgen.errors import InputError, SmidgenError, TargetError
from smidgen.threads import cores

FLEET = 64  # devices on a GPU at once
RETRIES = 3  # of a task whose worker or machine was lost
LOCAL = "local"  # Ray's name for a cluster of this machine
CONNECT = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR')"
CONNECT_SECONDS = 15.0


PartCallback = Callable[[float], None]  # gets the progress of items under way, in items, where that is known
Item = TypeVar("Item")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Results = Generator[tuple[Item, Result], None, None]


class Work(Protocol[Item, Result_co]):
    """Many runs that share what they read; it can be pickled."""

    def run(self, item: Item) -> Result_co:
        """Run one in C, on one core."""

    def on_cores(self, items: Sequence[Item], workers: int) -> Results[Item, Result_co]:
        """Yield what `run` gives for each, as they end, from so many cores of this machine."""

    def fleets(self, items: Sequence[Item]) -> Sequence[Sequence[Item]]:
        """Group what a GPU is to run together."""

    def run_fleet(self, items: Sequence[Item], device: str, workers: int, on_part: PartCallback) -> Sequence[Result_co]:
        """Run a group in PyTorch; the numbers are those of `run`. Programs are compiled on so many cores."""


class Launcher(Protocol):
    """A way to run trials; the numbers are the same on each."""

    @property
    def workers(self) -> int:
        """Return the cores of this machine to use."""

    def launch(
        self, work: Work[Item, Result], items: Sequence[Item], on_part: PartCallback = ignore
    ) -> Results[Item, Result]:
        """Yield the result of every item, as they end."""

    def connected(self) -> AbstractContextManager[None]:
        """Keep what several calls of `launch` need; without it each gets and gives back its own."""


@dataclass(frozen=True)
class OnHost:
    """Programs in C, on the cores of this machine."""

    workers: int

    def launch(
        self, work: Work[Item, Result], items: Sequence[Item], on_part: PartCallback = ignore
    ) -> Results[Item, Result]:
        yield from work.on_cores(items, self.workers)

    def connected(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class OnDevice:
    """Fleets of simulated devices in PyTorch, on a GPU; `workers` processes compile their programs."""

    workers: int
    device: str = "cuda"

    def launch(
        self, work: Work[Item, Result], items: Sequence[Item], on_part: PartCallback = ignore
    ) -> Results[Item, Result]:
        _check_device(self.device)
        for fleet in work.fleets(items):
            found = work.run_fleet(fleet, self.device, self.workers, on_part)
            yield from zip(fleet, found, strict=True)

    def connected(self) -> AbstractContextManager[None]:
        _check_device(self.device)
        return nullcontext()


def _check_device(device: str) -> None:
    """Raise InputError where fleets cannot run, before anything is compiled for them."""
    try:
        from smidgen.simulation.courses import check_device
    except ImportError:
        raise InputError(f"{device} needs PyTorch, which is not installed; run: pip install 'smidgen[torch]'") from None
    check_device(device)


def find_launcher(target: str | None, workers: int | None, ray: str | None) -> Launcher:
    """Return the launcher for a target, "host" or "cuda", or for a Ray cluster."""
    if target not in (None, "host", "cuda"):
        raise InputError(f"{target} cannot run trials; give host or cuda")
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers cannot run anything; give 1 or more")
    count = workers or cores()
    if ray is not None:
        return OnRay(ray, count, target)
    return OnDevice(count) if target == "cuda" else OnHost(count)


@dataclass(frozen=True)
class OnRay:
    """A cluster by address, or `auto`: the running one, otherwise one of this machine's cores."""

    address: str
    workers: int  # of a cluster that is started here
    target: str | None = None  # host: leave GPUs alone
    device: str = "cuda"  # of PyTorch, on a machine whose GPU Ray hands out

    def launch(
        self, work: Work[Item, Result], items: Sequence[Item], on_part: PartCallback = ignore
    ) -> Results[Item, Result]:
        if not items:
            return
        with self.connected():
            import ray

            common, gpus = ray.put(work), self._gpus(ray)
            remote = ray.remote(num_cpus=1, num_gpus=int(gpus), max_retries=RETRIES)(run_task)
            together = work.fleets(items) if gpus else [[item] for item in items]
            tasks = {remote.remote(common, some, self.device if gpus else None): some for some in together}
            while tasks:
                (done, *_), _ = ray.wait(list(tasks))
                yield from zip(tasks.pop(done), _answer(ray, done), strict=True)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect for a while; a connection that already exists is used and left open."""
        try:
            import ray
        except ImportError:
            raise InputError("--ray needs Ray, which is not installed; run: pip install 'smidgen[ray]'") from None
        if ray.is_initialized():
            yield
            return
        problem = "" if self.address == LOCAL else _try_to_connect(self.address)
        if problem and self.address != "auto":
            raise TargetError(
                f"no Ray cluster answers at {self.address} ({problem}); give the address that ray start printed, or "
                "auto"
            )
        at = LOCAL if problem else self.address
        own = {"num_cpus": self.workers, "include_dashboard": False} if at == LOCAL else {}
        try:
            try:
                ray.init(at, log_to_driver=False, logging_level=logging.ERROR, **own)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise TargetError(f"Ray at {self.address} cannot be used: {_last_line(str(error))}") from None
            yield
        finally:
            ray.shutdown()

    def _gpus(self, ray: Any) -> bool:
        """Return whether to use GPUs."""
        there = ray.cluster_resources().get("GPU", 0) >= 1
        if self.target == "cuda" and not there:
            raise TargetError(f"the Ray cluster at {self.address} offers no GPU; add one, or leave --target out")
        return there and self.target != "host"


def run_task(work: Work[Item, Result], items: Sequence[Item], device: str | None) -> Sequence[Result]:
    """Run items on a core, or together on a GPU, as a task of Ray."""
    if device is None:
        return [work.run(item) for item in items]
    _check_device(device)
    return work.run_fleet(items, device, 1, ignore)


def _answer(ray: Any, task: Any) -> Sequence[Any]:
    """Return the results of a task, or raise with its reason."""
    try:
        found: Sequence[Any] = ray.get(task)
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
