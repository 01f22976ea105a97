"""The emulated board gives the host's bytes, counts every instruction, and says what went wrong and where."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen import codegen, ops
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array, Builder, Graph, QParams, Type, evaluate, evaluate_step
from smidgen.pipeline import Program, compile
from smidgen.targets import find, find_board
from smidgen.targets.boards import BOARDS, Isa, parse_size, resize
from smidgen.targets.firmware import BoardDevice, BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.toolchain import GCC
from smidgen.training import Options
from tests.support.counting import PythonCounter
from tests.support.networks import CLASSES, NETWORKS, inverted_residual, samples
from tests.support.qemu import run_firmware
from tests.support.tiers import first
from tests.support.tools import absent, needs

RATE = 0.02
DEEP = "volatile char deep[{0}]; for (int i = {0}; i--;) deep[i] = 1;"  # so many bytes of stack
Q = QParams.per_tensor


@pytest.fixture(scope="session")
def m7(cache: Path) -> BoardTarget:
    return BoardTarget(cache=cache)


def learner(target: BoardTarget | Host, graph: Graph | None = None, streamed: bool = False) -> Program:
    network = graph or inverted_residual(3)
    return compile(network, "last:4", target, options=Options(CLASSES), streamed_input=streamed)


def started(target: BoardTarget, program: Program) -> BoardDevice:
    return target.start(program.graph, program.sources)


def pooled(channels: int = 7, side: int = 20) -> Graph:
    """A mean alone, over more pixels than halfwords can sum up, of channels beyond a multiple of four."""
    g = Builder("pooled")
    x = g.input("x", Type((1, side, side, channels), "int8", Q(0.1, -9)))
    return g.graph(g.emit(ops.Mean(), x, q=Q(0.02, 5)))


def noise(graph: Graph, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)


def start(target: BoardTarget, program: Program, spoil: str = "") -> BoardDevice:
    """The program on its board, with a statement put before the first kernel call."""
    head = "void model_run(void) {\n"
    assert head in program.sources.files["model.c"]
    text = program.sources.files["model.c"].replace(head, f"{head}    {spoil}\n")
    return target.start(program.graph, replace(program.sources, files={**program.sources.files, "model.c": text}))


@pytest.mark.parametrize("streamed", [False, True], ids=["buffered", "streamed"])
def test_the_board_learns_in_the_bytes_of_the_host_and_of_the_reference(
    m7: BoardTarget, host: Host, streamed: bool
) -> None:
    program = learner(m7, streamed=streamed)
    assert program.training is not None
    reference = program.training.step
    state = reference.state
    with program.start() as board, learner(host, streamed=streamed).start() as machine:
        for image, label in samples(program.graph, 4):
            arrays = (image, np.array([label], np.int32), np.array([RATE], np.float32))
            expected, state = evaluate_step(reference, state, *arrays)
            assert board.train(image, label, RATE) == machine.train(image, label, RATE) == expected[0].item()
            for found, other, right in zip(board.outputs(), machine.outputs(), expected, strict=True):
                assert found.tobytes() == other.tobytes() == right.tobytes()
            kept, elsewhere = board.state(), machine.state()
            for value, array in state.items():
                assert kept[value.name].tobytes() == elsewhere[value.name].tobytes() == array.tobytes()
        assert board.predict(image) == machine.predict(image)


def test_a_rate_of_any_size_leaves_the_bytes_of_the_host_and_of_the_reference(
    m7: BoardTarget, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, options = (1e38, 3e38, 1e38, np.inf, np.nan, -1.0, RATE, 2.0**30), Options(CLASSES, head_dtype="float32")
    program, other = (compile(inverted_residual(3), "full", target, options=options) for target in (m7, host))
    state = program.graph.state
    with program.start() as board, other.start() as machine:
        for device in (board, machine):
            with pytest.raises(
                InputError, match=r"rate of 1e\+38 cannot be used; give a number from 0 to 1,073,741,824"
            ):
                device.train(*samples(program.graph, 1)[0], 1e38)
        monkeypatch.setattr("smidgen.targets.device.check_rate", lambda rate: None)  # as where C calls model_train
        for (image, label), rate in zip(samples(program.graph, len(rates)), rates, strict=True):
            arrays = (image, np.array([label], np.int32), np.array([rate], np.float32))
            (loss, _), state = evaluate_step(program.graph, state, *arrays)
            assert board.train(image, label, rate) == machine.train(image, label, rate) == loss.item(), rate
            for value, array in state.items():
                assert np.isfinite(array).all(), value.name
                assert board.state()[value.name].tobytes() == array.tobytes() == machine.state()[value.name].tobytes()


@pytest.mark.parametrize("network", first(*NETWORKS[1:]), ids=lambda network: network.__name__)
def test_networks_of_every_shape_learn_alike_on_board_and_host(
    m7: BoardTarget, host: Host, network: Callable[[int], Graph]
) -> None:
    graph = network(1)
    with learner(m7, graph).start() as board, learner(host, graph).start() as machine:
        for image, label in samples(graph, 2):
            assert board.train(image, label, RATE) == machine.train(image, label, RATE)
        kept, expected = board.state(), machine.state()
        assert all(kept[name].tobytes() == expected[name].tobytes() for name in expected)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m33", "cortex-m3", "cortex-m0plus"])
def test_other_cores_give_the_same_bytes(cache: Path, host: Host, core: str) -> None:
    graph = inverted_residual(3)
    target = BoardTarget(BOARDS[core], cache=cache)
    options = Options(CLASSES)
    with (
        compile(graph, "head", target, options=options).start() as board,
        compile(graph, "head", host, options=options).start() as machine,
    ):
        for image, label in samples(graph, 2):
            assert board.train(image, label, RATE) == machine.train(image, label, RATE)
        assert all(np.array_equal(a, b) for a, b in zip(board.outputs(), machine.outputs(), strict=True))
        kept, expected = board.state(), machine.state()
        assert all(kept[name].tobytes() == expected[name].tobytes() for name in expected)


def test_a_state_put_back_is_learned_on_from(m7: BoardTarget) -> None:
    (first, label), (second, other) = samples(inverted_residual(3), 2)
    with learner(m7).start() as board:
        board.train(first, label, RATE)
        kept = board.state()
        loss = board.train(second, other, RATE)
        after = board.state()
        board.restore(kept)
        assert board.train(second, other, RATE) == loss
        assert all(np.array_equal(array, after[name]) for name, array in board.state().items())
        with pytest.raises(InputError, match="another program"):
            board.restore({})
        with pytest.raises(InputError, match="not one of the 5 classes"):
            board.train(first, 5, RATE)


def test_inference_alone_runs_on_the_board(m7: BoardTarget) -> None:
    graph = pooled()
    with compile(graph, target=m7).start() as board:
        for seed in range(3):
            (expected,) = evaluate(graph, noise(graph, seed))
            assert board.run(noise(graph, seed))[0].tobytes() == expected.tobytes()
            assert board.outputs()[0].tobytes() == expected.tobytes()
            assert board.predict(noise(graph, seed)) == int(expected.argmax())
        assert board.state() == {}
        with pytest.raises(InputError, match="does not learn"):
            board.train(noise(graph), 0, RATE)
        board.close()
        with pytest.raises(TargetError, match="closed"):
            board.predict(noise(graph))


def test_each_kind_of_core_takes_its_faster_files(cache: Path, m7: BoardTarget) -> None:
    m3 = BoardTarget(BOARDS["cortex-m3"], cache=cache)
    for target, folder, own in ((m7, "cortex_m", "cortex_m"), (m3, "kernels", "scalar")):
        files = {path.name: path.parent.name for path in compile(pooled(), target=target).sources.runtime}
        assert (files["mean.c"], files["arithmetic.h"]) == (folder, "kernels")
        assert {path.parent.name for path in learner(target).sources.runtime} == {"runtime", "kernels", own}
        known = {path.name for path in (codegen.RUNTIME / "kernels").iterdir()}
        faster = (codegen.RUNTIME / own).glob("*.c")  # each a portable file's equal, or with a header of its own
        assert all(path.name in known or path.with_suffix(".h").exists() for path in faster)


def test_assembly_is_found_by_what_it_defines_with_what_it_includes() -> None:
    packed = {path.name for path in codegen.runtime_files({"smg_add_s8"}, (*codegen.PORTABLE, "cortex_m"))}
    assert {"add.c", "add_words.S", "assembly.inc", "scales.h", "smidgen.h"} <= packed
    assert {"conv2d.c", "multiply.S", "scaling.inc", "taps.inc"}.isdisjoint(packed)
    assert "scaling.inc" in {p.name for p in codegen.runtime_files({"smg_conv2d_s8"}, (*codegen.PORTABLE, "cortex_m"))}
    portable = codegen.runtime_files({"smg_add_s8", "smg_conv2d_s8"})
    assert {path.suffix for path in portable} == {".c", ".h"}


def test_every_instruction_is_counted_by_function_and_by_node(m7: BoardTarget) -> None:
    program = learner(m7)
    image, label = samples(program.graph, 1)[0]
    with started(m7, program) as board:
        board.predict(image)
        forward = board.counts()
        board.train(image, label, RATE)
        step = board.counts()
        board.state()
        assert board.counts() == step, "only calls into the program are measured"
    for counts in (forward, step):
        assert counts.total == sum(counts.by_function.values()) == sum(counts.by_node) + counts.between
    ran = [index for index, count in enumerate(step.by_node) if count]
    assert ran == sorted(set(program.sources.calls)), "a node that runs has instructions, a view has none"
    assert sum(step.by_node[: len(forward.by_node)]) > sum(forward.by_node)
    assert forward.by_node[0] == step.by_node[0] > 0, "the same work takes the same instructions"
    assert step.by_function["smg_mean_s8"] <= step.by_node[_first(program.graph, ops.Mean)]


def _first(graph: Graph, kind: type[ops.Mean]) -> int:
    return next(i for i, node in enumerate(graph.nodes) if isinstance(node.op, kind))


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["cortex-m7", "riscv32"])
def test_python_counts_what_c_counts(cache: Path, monkeypatch: pytest.MonkeyPatch, chip: str) -> None:
    target = BoardTarget(BOARDS[chip], cache=cache)
    program = learner(target, streamed=True)
    image, label = samples(program.graph, 1)[0]

    def measured() -> tuple[object, ...]:
        with started(target, program) as board:
            loss = board.train(image, label, RATE)
            return loss, board.counts(), board.memory()

    expected = measured()

    monkeypatch.setattr("smidgen.targets.firmware.Counter", PythonCounter)
    assert measured() == expected


def test_memory_is_what_the_linker_placed_and_the_stack_that_was_used(m7: BoardTarget) -> None:
    program = learner(m7)
    with started(m7, program) as board:
        before = board.memory()
        board.train(*samples(program.graph, 1)[0], RATE)
        memory = board.memory()
    assert (memory.arena, memory.state) == (program.plan.peak, program.sources.state_bytes)
    assert 0 < memory.other < 64
    assert before.stack < memory.stack < m7.board.stack
    assert board.image.constant_bytes > program.sources.constant_bytes
    assert memory.bytes == memory.arena + memory.state + memory.other + memory.stack
    with start(m7, compile(pooled(), target=m7), DEEP.format(1000)) as spoiled:
        spoiled.predict(noise(pooled()))
        assert spoiled.memory().stack > 1000


FAULTS = {
    "flash": ("*(volatile int *)0x08000004 = 1;", r"model_run\+0x\w+ wrote 4 bytes at 0x08000004 \(flash, vectors"),
    "below": ("*(volatile int *)0x20040000;", r"read 4 bytes at 0x20040000 \(no memory\)"),
    "null": ("*(volatile int *)0 = 1;", r"wrote 4 bytes at 0x00000000 \(no memory\)"),
    "jump": ("((void (*)(void))0x30000001)();", r"jumped from about model_\w+\+0x\w+ to 0x30000000 \(no memory\)"),
    "data": ("((void (*)(void))((uintptr_t)arena | 1))();", r"to 0x2000\w+ \(SRAM, arena"),
    "stack": (
        '__asm__ volatile("msr msp, %0\\n push {r4}" : : "r"(0x20000000));',
        r"outgrew its 4,096 bytes: .*larger stack$",
    ),
    "undefined": ('__asm__ volatile("udf #0");', r"faulted in model_\w+\+0x\w+: Invalid instruction"),
    "exception": ('__asm__ volatile("svc #0");', r"met exception 2 in model_"),
}


def check_fault(target: BoardTarget, spoil: str, message: str) -> None:
    """A program spoiled by this C stops with that message, and stays stopped."""
    graph = pooled()
    with start(target, compile(graph, target=target), f'__asm__ volatile("");{spoil}') as board:
        with pytest.raises(TargetError, match=message):
            board.run(noise(graph))
        with pytest.raises(TargetError, match="has stopped; start another"):
            board.run(noise(graph))


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_told_with_the_place_and_what_lay_there(m7: BoardTarget, kind: str) -> None:
    check_fault(m7, *FAULTS[kind])


def test_a_program_that_hangs_is_stopped_where_it_is(m7: BoardTarget) -> None:
    impatient, graph = replace(m7, limit=100_000), pooled()
    with (
        start(impatient, compile(graph, target=m7), "for (volatile int i = 0;;) i++;") as board,
        pytest.raises(TargetError, match=r"stopped in model_\w+\+0x\w+ after 100,000 instructions"),
    ):
        board.predict(noise(graph))


def sized(target: BoardTarget, **sizes: str) -> BoardTarget:
    return replace(target, board=resize(target.board, **sizes))


def test_a_program_too_large_for_sram_is_refused_with_the_figures(m7: BoardTarget) -> None:
    with pytest.raises(TargetError, match=r"pooled needs 22,\d{3} bytes of SRAM, cortex-m7 has 16,384: arena 18,\d{3}"):
        compile(pooled(45), target=sized(m7, sram="16KB"))
    with pytest.raises(TargetError, match=r"\. Let fewer layers or channels learn, stream the image, take a smaller"):
        learner(sized(m7, sram="4KB"))
    with pytest.raises(TargetError, match=r"\. Let fewer layers or channels learn, take a smaller network or a board"):
        learner(sized(m7, sram="4KB"), streamed=True)


def test_what_only_the_linker_sees_is_refused_with_the_figures_too(m7: BoardTarget) -> None:
    program = compile(pooled(8, 22), target=m7)
    # Arena and stack take 8 KB but for less than a word or two: there is no room for the few besides.
    full = replace(m7.board, sram=replace(m7.board.sram, bytes=8192), stack=(8192 - program.plan.peak) // 8 * 8)
    with pytest.raises(TargetError, match=r"needs 8,\d{3} bytes of SRAM, cortex-m7 has 8,192: static data"):
        replace(m7, board=full).start(program.graph, program.sources)
    with pytest.raises(TargetError, match=r"net3 needs \d\d,\d{3} bytes of flash, cortex-m7 has 16,384: code"):
        learner(sized(m7, flash="16KB")).start()
    g = Builder("wide")
    w = g.constant("w", np.ones((10, 9000), np.int8), QParams.per_channel([0.01] * 10, 0))
    x = g.input("x", Type((1, 9000), "int8", Q(0.1)))
    graph = g.graph(g.emit(ops.Dense(), x, w, g.constant("b", np.zeros(10, np.int32)), q=Q(0.1)))
    with pytest.raises(TargetError, match=r"wide needs 90,\d{3} bytes of flash, cortex-m7 has 65,536: constants 90,"):
        compile(graph, target=sized(m7, flash="64KB"))


def test_without_a_compiler_the_user_is_told_what_to_install(m7: BoardTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile(pooled(), target=m7)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(TargetError, match=r"no compiler for Cortex-M7 was found; run: pip install ziglang"):
        program.start()
    with pytest.raises(TargetError, match=r"arm-none-eabi-gcc was not found; .*pip install ziglang"):
        replace(m7, toolchain="gcc").start(program.graph, program.sources)


@pytest.mark.parametrize(
    ("name", "isa", "package"),
    [("cortex-m7", "thumb", "libnewlib-arm-none-eabi"), ("riscv32", "riscv", "picolibc-riscv64-unknown-elf")],
)
def test_the_package_of_a_missing_c_library_is_named(
    name: str, isa: Isa, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gcc = tmp_path / GCC[isa]
    gcc.write_text("#!/bin/sh\necho ${1#-print-file-name=}\n")  # what gcc answers where it finds no such file
    gcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    target = BoardTarget(BOARDS[name], "gcc", tmp_path / "cache")
    with pytest.raises(TargetError, match=rf"{GCC[isa]} has no C library: .* run: apt install {package}, or use"):
        compile(pooled(), target=target).start()
    assert package in absent(GCC[isa])


def test_boards_are_found_by_name_and_resized() -> None:
    assert find("stm32f746").name == "stm32f746"
    with pytest.raises(TargetError, match="known are host, wasm, cortex-m7"):
        find("moon")
    with pytest.raises(TargetError, match="no board 'host' to measure on"):
        find_board("host")
    board = resize(BOARDS["cortex-m7"], "128KB", "0.5MB", "2048")
    assert (board.sram.bytes, board.flash.bytes, board.stack) == (131072, 524288, 2048)
    assert [parse_size(text) for text in ("7", "4kb", "1 MB")] == [7, 4096, 1048576]
    for text in ("", "big", "1.3", "-4KB", "1e3", "0.3KB", "9" * 400):
        with pytest.raises(InputError, match="not a size"):
            parse_size(text)
    for wrong in ({"sram": "0"}, {"sram": "1000"}, {"flash": "5000"}, {"stack": "12"}, {"stack": "1MB"}):
        with pytest.raises(TargetError, match="multiple of"):
            resize(BOARDS["cortex-m7"], **wrong)


@pytest.mark.slow
@needs("arm-none-eabi-gcc")
def test_gcc_builds_a_program_of_the_same_bytes(m7: BoardTarget) -> None:
    image, label = samples(inverted_residual(3), 1)[0]
    gcc = replace(m7, toolchain="gcc")
    with started(m7, learner(m7)) as one, started(gcc, learner(gcc)) as other:
        assert one.train(image, label, RATE) == other.train(image, label, RATE)
        kept, expected = other.state(), one.state()
        assert all(kept[name].tobytes() == expected[name].tobytes() for name in expected)
        for counts in (one.counts(), other.counts()):
            assert counts.total == sum(counts.by_node) + counts.between
            assert counts.between < counts.total / 50


@needs("qemu-system-arm")
def test_qemu_runs_the_same_firmware_in_as_many_instructions(cache: Path, tmp_path: Path) -> None:
    target = BoardTarget(BOARDS["mps2-an500"], cache=cache)
    program = learner(target, streamed=True)
    firmware = target.build(program.graph, program.sources)
    images = [image for image, _ in samples(program.graph, 3)]
    steps = [b"t" + np.float32(RATE).tobytes() + np.int32(1).tobytes() + image.tobytes() for image in images]
    (tmp_path / "requests").write_bytes(b"".join(steps) + b"s")
    run_firmware(firmware, tmp_path)
    with started(target, program) as board:
        losses = [np.float32(board.train(image, 1, RATE)).tobytes() for image in images]
        state = b"".join(_padded(array) for array in board.state().values())
        total = board.finish()
    assert (tmp_path / "answers").read_bytes() == b"".join(losses) + state
    counted = tmp_path / "instructions"
    if not counted.exists():
        pytest.skip("the bytes are the same; this QEMU takes no plugin to count with")
    assert int(counted.read_text()) == total


def _padded(array: Array) -> bytes:
    return array.tobytes() + bytes(-array.nbytes % 4)
