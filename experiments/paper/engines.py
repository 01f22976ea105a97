"""What makes the runs: the fleet of simulated devices, the float baselines, and the planner for memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING

import smidgen as sm
from experiments.paper import rotating
from experiments.paper.channels import named, scheme_of
from experiments.paper.fleets import Fleet
from experiments.paper.runs import Build, Footprint, Outcome, Run
from smidgen.data import Data, examples, pixel_encoding
from smidgen.errors import InputError, PlanError
from smidgen.ir import Array, Graph
from smidgen.ir.text import fingerprint
from smidgen.learning.run import saturation
from smidgen.training import build_training, passes
from smidgen.training.scheme import Scheme, analytic_memory

if TYPE_CHECKING:
    from experiments.baselines import BaselineProgress
    from smidgen.simulation import FleetProgress, Simulated

PLANNED = sm.Options(classes=10)
OnSteps = Callable[[int, int], None]  # done, of
_Learned = tuple[float, tuple[float, ...], float | None]  # accuracy, losses, share of weights at their limits


def compile_program(graph: Graph, scheme: Scheme, options: sm.Options, images: tuple[Array, ...]) -> sm.Program:
    return sm.compile(graph, scheme, options=options, images=images)


class Simulators:
    """PyTorch on one device; programs are compiled by other processes, those of the next fleet during this one."""

    def __init__(
        self,
        models: Callable[[str], Graph],
        data: Callable[[str], Data],
        device: str,
        *,
        workers: int = 1,
        on_steps: OnSteps = lambda done, of: None,
    ) -> None:
        self._models, self._data, self._device, self._on_steps = models, data, device, on_steps
        self._torch = "cpu" if device == "host" else device
        self._pool: Executor | None = None
        if workers > 1:
            self._pool = ProcessPoolExecutor(workers, get_context("spawn"))
        self._compiling: dict[Run, Future[sm.Program]] = {}  # by all that a program depends on
        self._schemes: dict[Run, Scheme] = {}
        self._digests: dict[tuple[str, int | None], str] = {}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def prepare(self, fleet: Fleet) -> None:
        """Hand the fleet's programs to the other processes."""
        if self._pool is None or fleet.runs[0].engine != "device":
            return
        for run in dict.fromkeys(map(_program_of, fleet.runs)):
            if run not in self._compiling:
                self._compiling[run] = self._pool.submit(compile_program, *self._parts(run))

    def run(self, fleet: Fleet) -> Mapping[Run, Outcome]:
        """Make the runs of a fleet."""
        first, begun = fleet.runs[0], time.monotonic()
        data = self.samples(first)
        if first.engine != "device":
            found = self._baselines(fleet.runs, data)
        elif first.channels == "rotating":
            found = self._rotating(fleet.runs, data)
        else:
            found = self._devices(fleet.runs, data)
        seconds, digest = time.monotonic() - begun, self.digest(first)
        size = (len(data.train), len(data.test), len(data.classes))
        return {
            run: Outcome(*learned, *size, digest, self.weights(run), round(seconds, 2), len(fleet.runs), self._device)
            for run, learned in zip(fleet.runs, found, strict=True)
        }

    def digest(self, run: Run) -> str:
        """A fingerprint of what a run learns from and is tested with."""
        key = (run.data, run.limit)
        if key not in self._digests:
            self._digests[key] = self.samples(run).digest()[:16]
        return self._digests[key]

    def weights(self, run: Run) -> str:
        """A fingerprint of the network a run begins with."""
        return fingerprint(self._models(run.network))[:16]

    def images(self, run: Run) -> int:
        return len(self.samples(run).train)

    def samples(self, run: Run) -> Data:
        """What a run learns from and is tested with."""
        data = self._data(run.data)
        if run.limit is None:
            return data
        return replace(data, train=data.train.spread(run.limit), test=data.test.spread(run.limit))

    def _parts(self, run: Run, epoch: int = 0) -> tuple[Graph, Scheme, sm.Options, tuple[Array, ...]]:
        graph, data = self._models(run.network), self.samples(run)
        seed = rotating.epoch_seed(run, epoch)
        options = sm.Options(len(data.classes), run.bits, run.qas, run.rule, run.head, seed, "new")
        if run not in self._schemes:
            self._schemes[run] = scheme_of(run, graph, data)
        return graph, self._schemes[run], options, examples(data.train, pixel_encoding(graph))

    def _compile(self, parts: Sequence[tuple[Graph, Scheme, sm.Options, tuple[Array, ...]]]) -> list[sm.Program]:
        if self._pool is None:
            return [compile_program(*part) for part in parts]
        waiting = [self._pool.submit(compile_program, *part) for part in parts]
        return [program.result() for program in waiting]

    def _programs(self, runs: Sequence[Run]) -> list[sm.Program]:
        """The runs' programs, compiled now unless `prepare` had that begun; runs at other rates share theirs."""
        needed = dict.fromkeys(map(_program_of, runs))
        missing = [run for run in needed if run not in self._compiling]
        made = dict(zip(missing, self._compile([self._parts(run) for run in missing]), strict=True))
        made.update({run: self._compiling.pop(run).result() for run in needed if run in self._compiling})
        return [made[_program_of(run)] for run in runs]

    def _devices(self, runs: Sequence[Run], data: Data) -> list[_Learned]:
        from smidgen.simulation import simulate

        first = runs[0]
        course = sm.Course(
            first.epochs, first.step_rate, warmup=first.warmup, seed=first.order, test_every=first.epochs
        )
        programs, rates = self._programs(runs), [run.step_rate for run in runs]
        done = simulate(programs, data, course, learning_rates=rates, device=self._device, on_progress=self._on_step)
        return _learned(programs, done, done.losses)

    def _rotating(self, runs: Sequence[Run], data: Data) -> list[_Learned]:
        """A course for each epoch; only the last is tested."""
        from smidgen.simulation import simulate

        quick = replace(data, test=data.test.spread(1))
        programs = self._programs(runs)
        losses: list[tuple[float, ...]] = []
        for epoch in range(runs[0].epochs):
            last = epoch + 1 == runs[0].epochs
            rates = [rotating.epoch_rate(run, epoch) for run in runs]
            done = simulate(
                programs, data if last else quick, rotating.epoch_course(runs[0], epoch), learning_rates=rates,
                device=self._device, on_progress=self._on_step,
            )  # fmt: skip
            losses += done.losses
            if not last:
                programs = self._redrawn(runs, programs, done.states, epoch + 1)
        return _learned(programs, done, losses)

    def _redrawn(
        self, runs: Sequence[Run], programs: Sequence[sm.Program], states: Sequence[Mapping[str, Array]], epoch: int
    ) -> list[sm.Program]:
        """The next epoch's programs: what was learned, with other channels."""
        parts = []
        for run, program, state in zip(runs, programs, states, strict=True):
            _, scheme, options, images = self._parts(_program_of(run), epoch)
            parts.append((rotating.next_graph(program, state), scheme, options, images))
        made = self._compile(parts)
        return [rotating.carried_on(program, state) for program, state in zip(made, states, strict=True)]

    def _baselines(self, runs: Sequence[Run], data: Data) -> list[_Learned]:
        from experiments.baselines import Baseline, train_baselines

        first, graph = runs[0], self._models(runs[0].network)
        options = sm.Options(len(data.classes), head_dtype=first.head, head="new")
        training = build_training(graph, scheme_of(first, graph, data), options)
        course = sm.Course(
            first.epochs, first.step_rate, warmup=first.warmup, seed=first.order, test_every=first.epochs
        )
        asked = [
            Baseline(
                "fp32" if r.engine == "fp32" else "int8", r.optimizer, r.rate, qas=r.qas, seed=r.seed,
                limited=r.limited, stored_bits=r.bits if r.stored else None,
            )
            for r in runs
        ]  # fmt: skip
        done = train_baselines(
            training, asked, data, course, batch=first.batch, device=self._torch, on_progress=self._on_epoch
        )
        return [(one.accuracy, one.losses, None) for one in done]

    def _on_step(self, progress: FleetProgress) -> None:
        steps = progress.steps
        self._on_steps((progress.epoch - 1) * steps + progress.step, progress.epochs * steps)

    def _on_epoch(self, progress: BaselineProgress) -> None:
        self._on_steps(progress.epoch, progress.epochs)

    def build(self, build: Build) -> Footprint:
        return footprint(self._models(build.network), build)


def _learned(programs: Sequence[sm.Program], done: Simulated, losses: Sequence[tuple[float, ...]]) -> list[_Learned]:
    limits = [saturation(p.graph, state) for p, state in zip(programs, done.states, strict=True)]
    return [(done.accuracies[i], tuple(epoch[i] for epoch in losses), limits[i]) for i in range(len(programs))]


def _program_of(run: Run) -> Run:
    """The run with all left out that its program does not depend on; rotating channels do depend on the course."""
    return replace(run, rate=0.0, warmup=0.0, epochs=0, order=0)


def footprint(graph: Graph, build: Build) -> Footprint:
    """Plan a training step and, where it is to be counted, run it on the emulated board."""
    from experiments.ladder import plan_step  # here, because it needs the emulator, which runs do not

    scheme, options = named(build.scheme, graph), replace(PLANNED, weight_bits=build.bits)
    step = passes.run(build_training(graph, scheme, options).step)
    try:
        planned, streamed = plan_step(step, "streamed"), True
    except PlanError:
        planned, streamed = plan_step(step, "buffered"), False
    made = Footprint(analytic_memory(scheme, graph).total, planned.total, streamed)
    return _counted(graph, scheme, options, made) if build.counted else made


def _counted(graph: Graph, scheme: Scheme, options: sm.Options, planned: Footprint) -> Footprint:
    from smidgen.results.profile import profile

    result = profile(sm.compile(graph, scheme, "cortex-m7", options=options, streamed_input=planned.streamed))
    if not result.exact.equal:
        raise InputError(f"{scheme.name} of {graph.name} does not compute the reference's bytes on the emulated board")
    cost = result.instructions
    return replace(planned, forward=cost.forward, step=cost.step, sram=result.sram_bytes, flash=result.flash_bytes)
