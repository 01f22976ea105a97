"""The host as a target: building, caching, running, and what the user hears when it fails."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smidgen import compiler, ops
from smidgen.codegen import RUNTIME
from smidgen.compiler import probe
from smidgen.errors import InputError, SmidgenError, TargetError
from smidgen.ir import Array, Builder, Graph, QParams, Type, evaluate, evaluate_step
from smidgen.pipeline import Program, compile
from smidgen.targets.host import Host

Q = QParams.per_tensor
ZIG = (sys.executable, "-m", "ziglang", "cc")


def network(name: str = "network") -> Graph:
    """A convolution, a residual addition, a dense layer and softmax, from float to float."""
    rng = np.random.default_rng(0)
    g = Builder(name)
    x = g.emit(ops.Quantize(), g.input("x", Type((1, 6, 6, 3), "float32")), q=Q(0.02, -1))
    w = g.constant("conv.w", rng.integers(-127, 128, (3, 3, 3, 3)).astype(np.int8), Q(0.01))
    b = g.constant("conv.b", rng.integers(-500, 500, 3).astype(np.int32))
    y = g.emit(ops.Conv2D(pad=(1, 1, 1, 1), activation="relu6"), x, w, b, q=Q(6 / 255, -128))
    y = g.emit(ops.Add(), y, x, q=Q(0.04, -60))
    y = g.emit(ops.Mean(), y, q=Q(0.02, -60))
    w = g.constant("dense.w", rng.integers(-127, 128, (10, 3)).astype(np.int8), Q(0.01))
    b = g.constant("dense.b", rng.integers(-500, 500, 10).astype(np.int32))
    y = g.emit(ops.Softmax(), g.emit(ops.Dense(), y, w, b, q=Q(0.05)))
    return g.graph(g.emit(ops.Dequantize(), y))


def image(seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(0, 1, (1, 6, 6, 3)).astype(np.float32)


def test_a_device_runs_and_predicts_as_numpy_does(host: Host) -> None:
    graph = network()
    with compile(graph, target=host).start() as device:
        for seed in range(5):
            (expected,) = evaluate(graph, image(seed))
            (got,) = device.run(image(seed))
            np.testing.assert_array_equal(got, expected)
            assert device.predict(image(seed)) == int(expected.argmax())


def test_zig_builds_the_same_program(tmp_path: Path) -> None:
    graph = network()
    with compile(graph, target=Host(probe(ZIG), tmp_path)).start() as device:
        np.testing.assert_array_equal(device.run(image())[0], evaluate(graph, image())[0])


def test_zig_stands_in_where_there_is_no_cc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert compiler.find_compiler().command == ZIG


def test_without_any_compiler_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TargetError, match="pip install ziglang"):
        compiler.find_compiler()


def test_a_compiler_that_does_not_start_or_fails_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be started"):
        probe((str(tmp_path / "absent"),))
    broken = tmp_path / "broken"
    broken.write_text(
        "#!/bin/sh\ncase $1 in --version) echo broken 1.0;; *) echo 'error: out of luck' >&2; exit 1;; esac\n"
    )
    broken.chmod(0o755)
    with pytest.raises(TargetError, match=r"could not build the program: error: out of luck$"):
        compile(network(), target=Host(probe((str(broken),)), tmp_path / "cache")).start()
    assert "-march=native" not in probe((str(broken),)).flags


def test_two_devices_share_no_memory(host: Host) -> None:
    program = compile(network(), target=host)
    with program.start() as one, program.start() as two:
        (first,) = one.run(image(1))
        (second,) = two.run(image(2))
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(one.run(image(1))[0], first)


def test_inputs_that_do_not_fit_are_refused(host: Host) -> None:
    with compile(network(), target=host).start() as device:
        with pytest.raises(InputError, match=r"float32\[1, 6, 6, 3\]"):
            device.run(image()[:, :5])
        with pytest.raises(InputError, match="takes 1 input"):
            device.run(image(), image())


def test_a_closed_device_says_so(host: Host) -> None:
    device = compile(network(), target=host).start()
    device.close()
    device.close()
    with pytest.raises(TargetError, match="closed"):
        device.run(image())


def test_arrays_of_any_layout_are_taken(host: Host) -> None:
    graph, x = network(), image()
    strided = np.asfortranarray(x)
    with compile(graph, target=host).start() as device:
        np.testing.assert_array_equal(device.run(strided)[0], device.run(x)[0])


def test_what_is_built_once_is_found_again(tmp_path: Path) -> None:
    host = Host(cache=tmp_path)
    compile(network(), target=host).start().close()
    before = {path: path.stat().st_mtime_ns for path in host.cache.iterdir()}
    compile(network(), target=host).start().close()
    assert {path: path.stat().st_mtime_ns for path in host.cache.iterdir()} == before
    compile(network("another"), target=host).start().close()
    assert len([path for path in host.cache.iterdir() if path not in before]) == 1, "kernels were built again"


def test_the_cache_follows_the_platform_s_convention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Host().cache == tmp_path / "smidgen"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert Host().cache == Path.home() / ".cache" / "smidgen"


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TargetError, match="cannot be written"):
        compile(network(), target=Host(cache=tmp_path / "file" / "cache")).start()


def build_in_process(cache: Path) -> bytes:
    with compile(network(), target=Host(cache=cache)).start() as device:
        return device.run(image())[0].tobytes()


def test_processes_may_build_the_same_program_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        results = pool.map(build_in_process, [tmp_path] * 3)
    assert len(set(results)) == 1
    assert not list(tmp_path.glob("build-*"))


def test_a_float_graph_is_to_be_quantized_first() -> None:
    g = Builder("float")
    x = g.input("x", Type((1, 4), "float32"))
    with pytest.raises(TargetError, match="quantize the model first"):
        compile(g.graph(g.emit(ops.Activate(), x)))


def test_an_unknown_target_names_the_known() -> None:
    with pytest.raises(TargetError, match="known are host"):
        compile(network(), target="toaster")


TAKEN = "int while main string stdint printf reset step smidgen smg_x conv2d multiply startup w map float32 test"


@pytest.mark.parametrize("prefix", TAKEN.split())
def test_a_prefix_that_meets_other_names_is_refused(prefix: str) -> None:
    with pytest.raises(
        InputError, match=rf"^the prefix '{prefix}' is taken by .*; use another, such as 'my_{prefix}'$"
    ):
        compile(network(), prefix=prefix)


def test_no_file_of_the_runtime_is_overwritten_by_a_program() -> None:
    for name in sorted({path.stem for path in RUNTIME.rglob("*.[chS]")}):
        with pytest.raises(InputError, match="is taken by"):
            compile(network(), prefix=name)


@pytest.mark.parametrize("prefix", ["", "2nd", "a-b", "Model", "a b"])
def test_a_prefix_that_is_no_c_name_is_refused(prefix: str) -> None:
    with pytest.raises(InputError, match="prefix"):
        compile(network(), prefix=prefix)


def odd_names() -> Graph:
    """Names that meet in C unless they are told apart, that are keywords, that generated code uses itself."""
    g = Builder("a */ name")
    x = g.input("int", Type((1, 4), "int8", Q(0.1)))
    for name in ("a.b", "a_b", "arena", "run", "init", "at_x", "model", "while"):
        x = g.emit(ops.Add(), x, g.constant(f"{name}.c", np.ones(4, np.int8), Q(0.1)), q=Q(0.1), name=name)
    return g.graph(x)


def test_names_of_values_never_meet_in_c(host: Host) -> None:
    graph, x = odd_names(), np.arange(4, dtype=np.int8)[None]
    with compile(graph, target=host).start() as device:
        np.testing.assert_array_equal(device.run(x)[0], evaluate(graph, x)[0])


def test_inputs_and_constants_may_be_outputs(host: Host) -> None:
    g = Builder("passing")
    x = g.input("x", Type((1, 4), "int8", Q(0.1)))
    c = g.constant("c", np.arange(4, dtype=np.int8), Q(0.1))
    graph = g.graph(x, c, g.emit(ops.Reshape((2, 2)), c), g.emit(ops.Activate(), x, q=Q(0.1)))
    array = np.array([[-3, 5, 0, 1]], np.int8)
    with compile(graph, target=host).start() as device:
        for got, expected in zip(device.run(array), evaluate(graph, array), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_state_is_loaded_at_the_start_and_outlives_a_run(host: Host) -> None:
    g = Builder("counting")
    x = g.input("x", Type((1, 4), "int8", Q(0.1)))
    total = g.persistent("total", np.arange(4, dtype=np.int8)[None], Q(0.1))
    fixed = g.persistent("fixed", np.full((1, 4), 7, np.int8), Q(0.1))
    after = g.emit(ops.Add(), total, x, q=Q(0.1), name="next")
    g.update((total,), (after,))
    graph = g.graph(g.emit(ops.Add(), after, fixed, q=Q(0.1)))
    state = dict(graph.state)
    with compile(graph, target=host).start() as device:
        for step in range(4):
            array = np.array([[step, -step, 3, 0]], np.int8)
            expected, state = evaluate_step(graph, state, array)
            np.testing.assert_array_equal(device.run(array)[0], expected[0])


@pytest.mark.parametrize("graph", [network(), odd_names()], ids=["network", "odd-names"])
def test_a_written_project_builds_by_make_alone(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    compile(graph).write(folder)
    command = ["make", "-s", "CFLAGS=-O1 -Werror"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([folder / "example"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("output 0 is largest at ")


def test_a_written_project_holds_only_the_kernels_it_uses(tmp_path: Path) -> None:
    compile(odd_names()).write(tmp_path / "out")
    kernels = {path.name for path in (tmp_path / "out" / "smidgen").iterdir()}
    assert "add.c" in kernels
    assert "conv2d.c" not in kernels


def test_writing_replaces_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = compile(odd_names())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    program.write(tmp_path / "empty")
    with pytest.raises(SmidgenError, match="not an empty folder"):
        program.write(tmp_path / "full")
    with pytest.raises(SmidgenError, match="cannot be written"):
        program.write(tmp_path / "full" / "file" / "out")
    assert sorted(os.listdir(tmp_path)) == ["empty", "full"]
    assert os.listdir(tmp_path / "full") == ["file"]


def test_half_a_project_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile(odd_names())

    def broken(self: Program) -> dict[str, str]:
        return {"model/model.h": "", "model/model.h/below a file": ""}

    monkeypatch.setattr(Program, "files", broken)
    with pytest.raises(SmidgenError, match="cannot be written"):
        program.write(tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_memory_says_what_the_program_takes() -> None:
    program = compile(network())
    memory = program.memory
    assert memory.peak == program.plan.peak >= memory.lower_bound
    assert f"{memory.constants:,} bytes of flash" in str(memory)
    assert memory.at_peak.parts[0].name in str(memory)
