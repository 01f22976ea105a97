"""Latent replay: a step on what the frozen layers made of an image learns the bytes of a step on the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from smidgen import memory
from smidgen.compiler import find_compiler
from smidgen.errors import InputError, PlanError, StreamError
from smidgen.ir import Graph, evaluate, evaluate_step
from smidgen.memory.rows import Cut
from smidgen.memory.streaming import crossing, front
from smidgen.ops.rules import SGD, Momentum, UpdateRule
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.device import Device, Target
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.loss_tasks import TASKS, Task
from tests.support.networks import CLASSES, NETWORKS, inverted_residual, one_scale_hidden, samples
from tests.support.tiers import examples, first

RATE, ROOM = 0.01, "64KB"
RULES = (SGD, Momentum(0.9))


def compiled(graph: Graph, scheme: str, target: Target, options: Options, streamed: bool) -> Program:
    """The program, its image in rows where that can be and is asked for."""
    try:
        return compile(graph, scheme, target, options=options, streamed_input=streamed, replay=ROOM)
    except StreamError:
        return compile(graph, scheme, target, options=options, replay=ROOM)


def learned(device: Device) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in device.state().items()}


def agree(program: Program, steps: int, seed: int) -> None:
    """Steps on images, steps on latents, and the reference, which all learn the same."""
    step, cut, state = program.graph, program.schedule.cut, program.graph.state
    assert cut is not None
    with program.start() as whole, program.start() as replaying:
        for image, label in samples(step, steps, seed):
            (wanted, _), state = evaluate_step(
                step, state, image, np.array([label], np.int32), np.array([RATE], np.float32)
            )
            latent = replaying.latent(image)
            parts = evaluate(front(step, cut), image)
            assert latent == b"".join(part.tobytes() for part in parts)
            replaying.predict(image[:, ::-1].copy())  # other things happen before it is replayed
            assert whole.train(image, label, RATE) == wanted.item() == replaying.replay(latent, label, RATE)
            assert learned(whole) == learned(replaying) == {v.name: a.tobytes() for v, a in state.items()}


@settings(max_examples=examples(15, quick=2), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    network=st.sampled_from((*NETWORKS, one_scale_hidden)),
    scheme=st.sampled_from(("last:1", "last:2", "last:3", "bias:1", "bias:3", "head", "full")),
    bits=st.sampled_from((8, 10, 12)),
    rule=st.sampled_from(RULES),
    skipped=st.sampled_from((0.0, 1.6)),
    streamed=st.booleans(),
    seed=st.integers(0, 50),
)
def test_a_latent_teaches_the_bytes_that_its_image_does(
    host: Host,
    network: Callable[[int], Graph],
    scheme: str,
    bits: int,
    rule: UpdateRule,
    skipped: float,
    streamed: bool,
    seed: int,
) -> None:
    options = Options(CLASSES, weight_bits=bits, rule=rule, seed=seed, skip_below=skipped)
    agree(compiled(network(seed), scheme, host, options, streamed), 2, seed)


@pytest.mark.parametrize("make", TASKS, ids=[make.__name__ for make in TASKS])
def test_whatever_a_step_is_told_it_can_be_replayed(make: Callable[[], Task], host: Host, tmp_path: Path) -> None:
    task = make()
    program = compile(task.model, task.scheme, host, options=task.options, replay="256KB")
    with program.start() as whole, program.start() as replaying:
        for place in range(3):
            image, told = task.sample(place)
            loss = whole.train(image, told, task.rate)
            assert loss == replaying.replay(replaying.latent(image), told, task.rate)
        assert learned(whole) == learned(replaying)
    program.write(tmp_path / "out")
    folders = [f"-I{tmp_path}/out/{name}" for name in ("model", "smidgen")]
    warnings = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
    find_compiler()(*warnings, *folders, "out/board/main.c", folder=tmp_path)
    assert (tmp_path / "out/model/model_replay.h").exists()


@pytest.mark.parametrize("scheme", ["last:2", "bias:3"])
@pytest.mark.parametrize("name", first("cortex-m7", "cortex-m0plus"))
def test_the_same_holds_on_an_emulated_board(name: str, scheme: str, cache: Path) -> None:
    options = Options(CLASSES, weight_bits=12, rule=Momentum(0.9))
    program = compiled(inverted_residual(7), scheme, BoardTarget(BOARDS[name], cache=cache), options, streamed=True)
    assert program.sources.streamed_input
    agree(program, 2, 7)


def test_a_replayed_step_runs_no_node_of_the_front(cache: Path) -> None:
    target = BoardTarget(BOARDS["cortex-m7"], cache=cache)
    program = compiled(inverted_residual(3), "last:1", target, Options(CLASSES), streamed=True)
    cut = program.schedule.cut
    assert cut is not None
    with target.start(program.graph, program.sources) as board:
        ((image, label),) = samples(program.graph, 1)
        board.train(image, label, RATE)
        whole = board.counts()
        board.replay(board.latent(image), label, RATE)
        replayed = board.counts()
    assert sum(whole.by_node[: cut.at]) > 0
    assert replayed.total < whole.total - sum(whole.by_node[: cut.at]) + 200


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_no_other_cut_before_what_learns_has_fewer_bytes(network: Callable[[int], Graph], host: Host) -> None:
    program = compile(network(2), "last:2", host, options=Options(CLASSES), replay=ROOM)
    graph, cut = program.graph, program.schedule.cut
    assert cut is not None
    at = 0
    while True:
        try:
            memory.check(
                graph, program.plan, replace(program.schedule, cut=Cut(at, crossing(graph, at))), working=host.working
            )
            size = sum(v.type.bytes for v in crossing(graph, at))
            assert (cut.bytes, -cut.at) <= (size, -at)
        except PlanError as error:
            if "learns, and is before the cut" in str(error):
                break
        at += 1
    assert at > cut.at


def test_where_the_first_layer_learns_the_latent_is_the_image(host: Host) -> None:
    program = compile(inverted_residual(1), "full", host, options=Options(CLASSES), replay=ROOM)
    assert program.schedule.cut == Cut(0, (program.graph.image,))
    with pytest.raises(StreamError, match="its image is what is replayed, and cannot be streamed"):
        compile(inverted_residual(1), "bias:8", host, options=Options(CLASSES), replay=ROOM, streamed_input=True)


def test_a_cut_behind_what_learns_or_with_a_part_missing_is_refused(host: Host) -> None:
    program = compile(inverted_residual(1), "last:1", host, options=Options(CLASSES), replay=ROOM)
    graph, schedule, cut = program.graph, program.schedule, program.schedule.cut
    assert cut is not None
    with pytest.raises(PlanError, match="learns, and is before the cut"):
        memory.check(
            graph, program.plan, replace(schedule, cut=replace(cut, at=len(graph.nodes))), working=host.working
        )
    with pytest.raises(PlanError, match="overwritten, or not there"):
        memory.check(graph, program.plan, replace(schedule, cut=replace(cut, latent=())), working=host.working)


def test_what_cannot_be_replayed_is_said_in_a_sentence(host: Host) -> None:
    with pytest.raises(InputError, match="compiled without a scheme: there is nothing to replay"):
        compile(inverted_residual(1), target=host, replay=ROOM)
    plain = compile(inverted_residual(1), "last:1", host, options=Options(CLASSES))
    with plain.start() as device, pytest.raises(InputError, match="compiled without replay"):
        device.latent(samples(plain.graph, 1)[0][0])
    program = compile(inverted_residual(1), "last:1", host, options=Options(CLASSES), replay=ROOM)
    with program.start() as device, pytest.raises(InputError, match="bytes, given were 3"):
        device.replay(b"abc", 0, RATE)
