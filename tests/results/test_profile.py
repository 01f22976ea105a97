"""`smidgen profile` measures what it says, and compares every byte with the reference."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from smidgen.cli import app
from smidgen.codegen.constants import Copied, initial
from smidgen.errors import InputError, StreamError
from smidgen.frontends.native import write_smg
from smidgen.ir import Builder, Graph, QParams, Type
from smidgen.ops import Dense
from smidgen.pipeline import compile
from smidgen.results.profile import NOTE, profile, time_program
from smidgen.targets.boards import BOARDS, M7, resize, shown_time
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.zoo import load
from tests.support.drawn_heads import drawn_program
from tests.support.networks import CLASSES, inverted_residual

ANSWER = "float model_train(int label, float learning_rate) {\n"


@pytest.fixture(scope="session")
def m7(cache: Path) -> BoardTarget:
    return BoardTarget(cache=cache)


def test_a_profile_adds_up_and_is_exact(m7: BoardTarget) -> None:
    program = compile(inverted_residual(3), "last:4", m7, options=Options(CLASSES), streamed_input=True)
    result = profile(program)
    sram, flash, spent = result.sram, result.flash, result.instructions
    assert result.sram_bytes == sram.arena + sram.state + sram.other + sram.stack
    assert result.flash_bytes == flash.code + flash.constants == sum(part.bytes for part in flash.parts)
    held = {part.what: part.bytes for part in flash.parts}
    copied = [start.value for start in initial(program.graph) if isinstance(start, Copied)]
    assert held["weights"] == sum(v.type.bytes for v in (*program.graph.constants, *copied) if v.type.dtype == "int8")
    assert 0 <= held["vectors and padding"] < 1024
    assert spent.step is not None
    assert spent.forward < spent.step
    for costs in (spent.by_op, spent.by_node):
        assert sum(cost.instructions for cost in costs) + spent.between == spent.step
        assert sum(cost.macs for cost in costs) == sum(node.op.macs(node) for node in program.graph.nodes)
    assert (result.plan.peak, result.exact.steps, result.exact.equal) == (program.plan.peak, 3, True)
    shown = Console(width=120)
    with shown.capture() as text:
        shown.print(result, result.layers())
    for words in ("ConvGradWeight + step", "image streamed", "3 of 3 steps give the bytes of the reference", NOTE):
        assert words in text.get()


def test_a_program_that_only_infers_is_measured_too(m7: BoardTarget) -> None:
    result = profile(compile(inverted_residual(3), target=m7), steps=1)
    assert result.instructions.step is None
    assert result.exact.equal
    assert (
        sum(c.instructions for c in result.instructions.by_op) + result.instructions.between
        == result.instructions.forward
    )


@pytest.mark.slow
def test_mcunet_learns_on_a_cortex_m7_for_less_than_half_of_what_the_papers_engine_takes(m7: BoardTarget) -> None:
    options = Options(classes=10, weight_bits=8)
    result = profile(compile(load("mcunet-5fps"), "49kb", m7, options=options, streamed_input=True))
    assert result.exact.equal
    assert result.instructions.step is not None
    assert result.instructions.forward < 65_000_000 / 2
    assert result.instructions.step < 106_400_000 / 2
    assert result.sram_bytes < 252_712 / 3
    assert result.sram_bytes <= 76_240
    assert result.flash_bytes <= 600_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "scheme"), [("mcunet-5fps", "99kb"), ("mbv2-w0.35", "99kb"), ("proxyless-w0.3", "98kb")]
)
def test_the_schemes_of_about_100_kb_learn_in_128_kb(network: str, scheme: str, cache: Path) -> None:
    small = BoardTarget(resize(BOARDS["cortex-m7"], sram="128KB"), cache=cache)
    options = Options(classes=10, weight_bits=8)
    program = compile(load(network), scheme, small, options=options, streamed_input=True)
    result = profile(drawn_program(program), steps=1)
    assert result.exact.equal
    assert result.sram_bytes <= 128 * 1024
    assert result.flash_bytes <= 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "scheme"), [("mcunet-5fps", "99kb"), ("mbv2-w0.35", "99kb"), ("proxyless-w0.3", "98kb")]
)
def test_with_twelve_bits_and_biases_of_sixteen_they_learn_in_144_kb(
    network: str, scheme: str, m7: BoardTarget
) -> None:
    options = Options(classes=10, weight_bits=12, bias_bits=16)
    program = compile(load(network), scheme, m7, options=options, streamed_input=True)
    result = profile(drawn_program(program), steps=1)
    assert result.exact.equal
    assert result.sram_bytes <= 144_000


def test_a_wrong_byte_is_seen_and_named(m7: BoardTarget) -> None:
    program = compile(inverted_residual(3), "last:4", m7, options=Options(CLASSES))
    files = program.sources.files
    assert ANSWER in files["model.c"]
    spoiled = files["model.c"].replace(ANSWER, f"{ANSWER}    state[0] ^= 1;\n")
    sources = replace(program.sources, files={**files, "model.c": spoiled})
    exact = profile(replace(program, sources=sources), steps=1).exact
    assert not exact.equal
    assert exact.differs is not None
    assert exact.differs.endswith("after step 1")


def test_the_time_of_a_step_is_divided_up_by_op_and_by_node(host: Host) -> None:
    program = compile(inverted_residual(3), "last:4", host, options=Options(CLASSES))
    found = time_program(program, steps=2, runs=3)
    times = found.times
    assert times.step is not None
    assert 0 < times.forward < times.step
    for costs in (times.by_op, times.by_node):
        assert sum(cost.microseconds for cost in costs) + times.between == pytest.approx(times.step)
        assert sum(cost.macs for cost in costs) == sum(node.op.macs(node) for node in program.graph.nodes)
    assert {cost.name for cost in times.by_node} == {
        program.graph.nodes[index].outs[0].name for index in program.sources.calls
    }
    assert (found.exact.steps, found.exact.equal) == (2, True)
    shown = Console(width=120)
    with shown.capture() as text:
        shown.print(found, found.layers())
    assert "2 of 2 steps give the bytes of the reference" in text.get()


def test_the_node_whose_call_is_slow_is_the_one_that_takes_the_time(host: Host) -> None:
    program = compile(inverted_residual(3), target=host)
    slow = program.graph.nodes[2].out.name
    files, call = program.sources.files, f"(&p_{slow},"
    assert files["model.c"].count(call) == 1
    spin = "static const void *spin(const void *p) { for (volatile int i = 0; i < 1000000; i++) {} return p; }\n"
    text = f"{spin}{files['model.c'].replace(call, f'(spin(&p_{slow}),')}"
    sources = replace(program.sources, files={**files, "model.c": text})
    costs = time_program(replace(program, sources=sources), steps=1, runs=3).times.by_node
    assert max(costs, key=lambda cost: cost.microseconds).name == slow


def test_a_program_is_timed_on_this_machine_alone(m7: BoardTarget, host: Host) -> None:
    with pytest.raises(InputError, match="no time is measured on cortex-m7, which is emulated; name host"):
        time_program(compile(inverted_residual(3), target=m7))
    with pytest.raises(InputError, match="0 runs cannot be timed"):
        time_program(compile(inverted_residual(3), target=host), runs=0)


def test_the_verb_times_a_program_on_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr("smidgen.targets.host.cache_folder", lambda: cache)
    write_smg(inverted_residual(3), tmp_path / "net.smg")
    words = ["profile", str(tmp_path / "net.smg"), "--target", "host", "--steps", "1", "--runs", "2"]
    run = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    printed = json.loads(run.stdout)
    assert (printed["target"], printed["exact"]["equal"]) == ("host", True)
    assert set(printed["times"]) == {"forward", "step", "between", "by_op", "by_node"}
    with pytest.raises(InputError, match="--sram applies to boards"):
        CliRunner().invoke(app, [*words, "--sram", "32KB"], catch_exceptions=False)


def test_only_boards_are_measured(host: Host, m7: BoardTarget) -> None:
    with pytest.raises(InputError, match="not counted on host; name a board"):
        profile(compile(inverted_residual(3), target=host))
    with pytest.raises(InputError, match="0 steps cannot be measured"):
        profile(compile(inverted_residual(3), target=m7), steps=0)


def test_an_image_that_cannot_be_streamed_is_held_whole_and_nothing_is_said_of_what_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr("smidgen.targets.firmware.cache_folder", lambda: cache)
    write_smg(dense_network(), tmp_path / "dense.smg")
    words = ["profile", str(tmp_path / "dense.smg"), "--steps", "1"]
    run = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert run.stderr == ""
    printed = json.loads(run.stdout)
    assert (printed["streamed_input"], printed["exact"]["equal"]) == (False, True)
    with pytest.raises(StreamError, match="needs it whole"):
        CliRunner().invoke(app, [*words, "--input", "streamed"], catch_exceptions=False)


def dense_network() -> Graph:
    g = Builder("dense")
    x = g.input("x", Type((1, 12), "int8", QParams.per_tensor(0.1)))
    w = g.constant("w", np.arange(-30, 30, dtype=np.int8).reshape(5, 12), QParams.per_channel((0.1,) * 5, 0))
    return g.graph(g.emit(Dense(), x, w, g.constant("b", np.zeros(5, np.int32)), q=QParams.per_tensor(0.5)))


def test_the_verb_prints_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr("smidgen.targets.firmware.cache_folder", lambda: cache)
    write_smg(inverted_residual(3), tmp_path / "net.smg")
    words = ["profile", str(tmp_path / "net.smg"), "--scheme", "last:4", "--classes", str(CLASSES), "--steps", "1"]
    run = CliRunner().invoke(app, [*words, "--weight-bits", "8", "--sram", "32KB", "--json"], catch_exceptions=False)
    printed = json.loads(run.stdout)
    assert set(printed) >= {"sram_bytes", "sram", "flash_bytes", "instructions", "plan", "exact"}
    assert set(printed["instructions"]) >= {"forward", "step", "by_op"}
    assert set(printed["plan"]) == {"peak_bytes", "lower_bound_bytes", "at_peak"}
    assert printed["exact"]["equal"] is True
    assert printed["streamed_input"] is True
    buffered = CliRunner().invoke(app, [*words, "--input", "buffered", "--layers"], catch_exceptions=False)
    assert "image buffered" in buffered.stdout
    assert "node by node" in buffered.stdout


def test_times_are_an_estimate_whose_assumption_is_said(m7: BoardTarget) -> None:
    found = profile(compile(inverted_residual(3), "last:2", m7, options=Options(CLASSES)), steps=1)
    counted, time = found.instructions, found.time
    assert (time.mhz, time.instructions_per_cycle) == (m7.board.mhz, m7.board.core.per_cycle)
    assert counted.step is not None
    for instructions, taken in ((counted.forward, time.forward_ms), (counted.step, time.step_ms)):
        assert taken == pytest.approx(1000 * instructions / (time.mhz * 1e6 * time.instructions_per_cycle), abs=1e-3)
    text = StringIO()
    Console(file=text, width=200).print(found)
    assert f"{time.mhz} MHz if it retires {time.instructions_per_cycle:g} instructions per cycle" in text.getvalue()
    assert "an estimate" in text.getvalue()


def test_a_step_of_the_papers_takes_about_the_time_it_measured() -> None:
    clock = BOARDS["stm32f746"].clock
    assert clock.mhz == 216
    # The step that was counted is of a smaller scheme than the one that was measured.
    assert 0.8 * 546 < clock.milliseconds(106_400_000) <= 1.01 * 546
    assert str(clock) == "at 216 MHz if it retires 0.9 instructions per cycle"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(1204.4, "≈ 1,204 ms"), (204.26, "≈ 204 ms"), (99.96, "≈ 100.0 ms"), (1.237, "≈ 1.24 ms")],
)
def test_times_are_shown_in_three_digits_or_so(milliseconds: float, shown: str) -> None:
    assert shown_time(milliseconds) == shown


def test_every_board_has_a_clock_and_no_core_is_faster_per_cycle_than_the_one_that_was_measured() -> None:
    assert all(25 <= board.mhz <= 480 for board in BOARDS.values())
    assert max(BOARDS.values(), key=lambda board: board.core.per_cycle).core is M7
