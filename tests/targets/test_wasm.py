"""Programs as WebAssembly modules: the bytes of this machine's C, exports as their page lists them, sentences."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from smidgen.data.pixels import from_pixels, pixel_encoding
from smidgen.errors import InputError, SmidgenError, TargetError
from smidgen.inference.scores import real
from smidgen.ir import Array, Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.text import fingerprint
from smidgen.pipeline import Program, compile
from smidgen.targets import wasm as module_target
from smidgen.targets.device import Device
from smidgen.targets.host import Host
from smidgen.targets.wasm import Wasm, load_module, start_engine
from smidgen.targets.wasm_device import WasmDevice
from smidgen.training import Options
from tests.support.audio_signals import listener, signals
from tests.support.loss_tasks import TASKS, Task, compare
from tests.support.networks import CLASSES, inverted_residual
from tests.support.small_network import small_network
from tests.support.tiers import first
from tests.support.wasm import wasm_target

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/internals/wasm.md"
NETWORKS = (("mcunet-5fps", "99kb"), ("mbv2-w0.35", "99kb"), ("proxyless-w0.3", "98kb"))
RATE = 0.01


@pytest.fixture(scope="session")
def wasm(cache: Path) -> Wasm:
    return wasm_target(cache, simd=True)


def started(program: Program) -> WasmDevice:
    device = program.start()
    assert isinstance(device, WasmDevice)
    return device


def same(a: Device, b: Device) -> bool:
    one, other = a.state(), b.state()
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def learn_alike(program: Program, wasm: Wasm, steps: int, classes: int) -> None:
    """Let a host and a module take the same steps on noise: losses, outputs and state are the same bytes."""
    rng = np.random.default_rng(0)
    with program.start() as here, replace(program, target=wasm).start() as there:
        for step in range(steps):
            image = rng.integers(-128, 128, program.graph.image.type.shape).astype(np.int8)
            assert there.train(image, step % classes, RATE) == here.train(image, step % classes, RATE)
            assert [a.tobytes() for a in there.outputs()] == [a.tobytes() for a in here.outputs()]
        assert there.predict(image) == here.predict(image)
        assert same(there, here)


@pytest.mark.parametrize("simd", [True, False], ids=["simd", "portable"])
def test_a_module_learns_what_the_host_does(simd: bool, host: Host, cache: Path) -> None:
    program = compile(small_network(), "last:4", host, options=Options(4))
    learn_alike(program, wasm_target(cache, simd), 10, 4)


@pytest.mark.slow
@pytest.mark.parametrize("simd", [True, False], ids=["simd", "portable"])
@pytest.mark.parametrize(("name", "scheme"), NETWORKS)
def test_a_hundred_steps_of_each_network_are_the_hosts(
    name: str, scheme: str, simd: bool, host: Host, cache: Path
) -> None:
    program = compile(sm.load(name), scheme, replace(host, frugal=False), options=Options(10))
    learn_alike(program, wasm_target(cache, simd, frugal=False), 100, 10)


@pytest.mark.parametrize("steps", first(5, 100))
def test_an_audio_model_learns_what_the_host_does(steps: int, host: Host, wasm: Wasm) -> None:
    program = compile(listener(), "full", host, options=Options(4))
    sound = list(signals(16_000).values())
    with program.start() as here, replace(program, target=wasm).start() as there:
        for step in range(steps):
            samples = np.roll(sound[step % len(sound)], step)
            features = there.audio_features(samples)
            assert features.tobytes() == here.audio_features(samples).tobytes()
            assert there.train(features, step % 4, RATE) == here.train(features, step % 4, RATE)
        assert same(there, here)


@pytest.mark.parametrize("make", TASKS, ids=[make.__name__ for make in TASKS])
def test_labels_of_every_kind_teach_a_module(make: Callable[[], Task], wasm: Wasm) -> None:
    task = make()
    program = task.compile(wasm)
    with program.start() as device:
        compare(program, device, [task.sample(place) for place in range(3)], task.rate)


def test_a_module_whose_image_is_read_by_rows_computes_the_same(host: Host, wasm: Wasm) -> None:
    learn_alike(
        compile(inverted_residual(3), "last:2", host, options=Options(CLASSES), streamed_input=True), wasm, 3, CLASSES
    )


def test_a_latent_teaches_a_module_what_its_image_does(wasm: Wasm) -> None:
    program = compile(inverted_residual(7), "last:2", wasm, options=Options(CLASSES), replay="64KB")
    image = np.random.default_rng(1).integers(-128, 128, program.graph.image.type.shape).astype(np.int8)
    with program.start() as whole, program.start() as replaying:
        for _ in range(2):
            assert whole.train(image, 1, RATE) == replaying.replay(replaying.latent(image), 1, RATE)
        assert same(whole, replaying)


def one_pass(target: Host | Wasm) -> Program:
    return compile(inverted_residual(0), "last:2", target, options=Options(CLASSES), one_pass=True)


def teach(device: Device, places: range) -> None:
    for place in places:
        device.observe(sample(place), place % 3)


def sample(place: int) -> Array:
    shape = inverted_residual(0).image.type.shape
    base = np.random.default_rng(place % 3).integers(-100, 101, shape)
    return np.clip(base + np.random.default_rng(place).normal(0, 8, shape), -128, 127).astype(np.int8)


def test_a_module_learns_in_one_pass_what_the_host_does(host: Host, wasm: Wasm) -> None:
    with one_pass(host).start() as here, one_pass(wasm).start() as there, one_pass(wasm).start() as other:
        teach(other, range(12, 15))
        for device in (here, there):
            teach(device, range(12))
            device.forget(sample(5), 2)
            device.merge(other.sums())
            device.solve()
        assert same(there, here)
        assert [there.predict(sample(i)) for i in range(9)] == [here.predict(sample(i)) for i in range(9)]
        assert there.distance() == here.distance()
        for device in (here, there):
            device.merge(other.sums(), -1)
            device.forget_class(1)
        assert same(there, here)
        with pytest.raises(InputError, match="not in the sums; nothing has changed"):
            there.forget_class(1)
        assert there.train(sample(0), 0, RATE) == here.train(sample(0), 0, RATE)
        with pytest.raises(InputError, match="the sums are gone"):
            there.solve()
        there.collect()
        here.collect()
        assert same(there, here)


@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_pixels_enter_a_module_as_they_enter_python(order: str, wasm: Wasm) -> None:
    stated = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), order=order)
    model = replace(small_network(), preprocessing=stated)
    shape = model.image.type.shape[1:]
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    with started(compile(model, target=wasm)) as device:
        device.show_pixels(pixels)
        given = from_pixels(pixels, pixel_encoding(model))
        assert device._view("input", given.size, 0).tobytes() == given.tobytes()


def test_scores_are_the_numbers_that_outputs_stand_for(wasm: Wasm) -> None:
    for program in (compile(small_network(), target=wasm), compile(small_network(), "head", wasm, options=Options(4))):
        image = np.random.default_rng(0).integers(-128, 128, program.graph.image.type.shape).astype(np.int8)
        with started(program) as device:
            device.predict(image)
            scores = device.outputs()[program.graph.outputs.index(program.graph.scores)]
            wanted = real(scores, program.graph.scores.type).astype(np.float32)
            assert device.scores().tobytes() == wanted.tobytes()


NAMES = ('a "quoted" \\ name', "*/ ??/ %s é 😀", "</script>\n\t\x1b[31m")


def test_names_of_any_letters_are_told_as_they_are(wasm: Wasm) -> None:
    model = replace(small_network(), name=NAMES[0] + NAMES[1])
    program = compile(model, "head", wasm, options=Options(3), class_names=NAMES)
    with started(program) as device:
        about = device.about()
    assert (about["name"], tuple(about["classes"])) == (model.name, NAMES)
    described = json.loads(str(program.package("npm")["package.json"]))
    assert re.fullmatch(r"smidgen-[a-z0-9-]+", described["name"])


def learner(wasm: Wasm, scheme: str = "last:2") -> Program:
    return compile(inverted_residual(3), scheme, wasm, options=Options(CLASSES))


def test_what_was_learned_is_saved_in_the_format_of_devices(wasm: Wasm) -> None:
    program = learner(wasm)
    with started(program) as device, started(program) as other:
        device.train(sample(0), 1, RATE)
        saved = device.save()
        digits, state = fingerprint(program.graph), device._state().tobytes()
        words = int(digits[:8], 16), int(digits[8:16], 16)
        assert saved == struct.pack("<IIII", *words, len(state), zlib.adler32(state)) + state
        other.load(saved)
        assert same(other, device)


def test_a_state_that_is_damaged_or_of_another_program_ends_in_a_sentence(wasm: Wasm) -> None:
    with started(learner(wasm)) as device, started(learner(wasm, "last:1")) as other:
        began = device.state()
        device.train(sample(0), 1, RATE)
        saved = device.save()
        with pytest.raises(InputError, match=r"takes [\d,]+ bytes, given were"):
            device.load(other.save())
        for at in (0, 9, 13, len(saved) - 1):
            device.train(sample(0), 1, RATE)
            with pytest.raises(InputError, match="damaged, or of another program"):
                device.load(saved[:at] + bytes([saved[at] ^ 1]) + saved[at + 1 :])
            assert all(device.state()[name].tobytes() == began[name].tobytes() for name in began)


def test_a_twin_goes_on_from_the_same_state_by_itself(wasm: Wasm) -> None:
    with learner(wasm).start() as device:
        device.train(sample(0), 1, RATE)
        twin = device.twin()
        assert twin is not None
        with twin:
            assert same(twin, device)
            twin.train(sample(0), 1, RATE)
            assert not same(twin, device)


def test_a_closed_device_says_so(wasm: Wasm) -> None:
    device = learner(wasm).start()
    device.close()
    for use in (lambda: device.predict(sample(0)), lambda: device.state(), lambda: device.outputs()):
        with pytest.raises(TargetError, match="closed; start another"):
            use()


def exported(graph: Graph, wasm: Wasm, **more: object) -> set[str]:
    program = compile(graph, target=wasm, **more)  # type: ignore[arg-type]
    module = load_module(start_engine(), wasm.build(program.graph, program.sources))
    assert list(module.imports) == []
    return {one.name for one in module.exports if one.name is not None}


def test_the_page_lists_every_export_and_no_other(wasm: Wasm) -> None:
    learning = {"scheme": "last:2", "options": Options(CLASSES)}
    spectra = TASKS[4]()
    found = exported(inverted_residual(3), wasm, **learning, one_pass=True) | exported(listener(), wasm)
    found |= exported(inverted_residual(3), wasm, **learning, replay="64KB")
    found |= exported(spectra.model, wasm, scheme=spectra.scheme, options=spectra.options)
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)[(`]", row)}
    assert found | {"reset"} == listed  # `reset` is of streaming networks


FOREIGN = '(module (memory (export "memory") 1))'
TRAPPING = """
(module (memory (export "memory") 1) (data (i32.const 0) "{json}\\00")
  (func (export "about") (result i32) i32.const 0) (func (export "init"))
  (func (export "input") (param i32) (result i32) i32.const 1024)
  (func (export "output") (param i32) (result i32) i32.const 1024)
  (func (export "run") unreachable) (func (export "predict") (result i32) i32.const 0)
  (func (export "scores") (result i32) i32.const 1024) {more})
"""


@pytest.mark.parametrize(
    ("octets", "sentence"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is no WebAssembly module"),
        (b"\x7fELF", "is no WebAssembly module"),
        (b"\0asm\1\0\0\0\1\2", "is damaged"),
        (FOREIGN, "exports no 'about'"),
        (TRAPPING.format(json="", more="").replace("(memory (ex", '(import "a" "b" (func)) (memory (ex', 1), "imports"),
    ],
)
def test_a_file_that_is_no_module_of_ours_ends_in_a_sentence(
    octets: bytes | str | None, sentence: str, wasm: Wasm, tmp_path: Path
) -> None:
    import wasmtime

    file = tmp_path / "model.wasm"
    if octets is not None:
        file.write_bytes(octets if isinstance(octets, bytes) else wasmtime.wat2wasm(octets))
    with pytest.raises(TargetError, match=sentence):
        load_module(start_engine(), file)


def test_a_module_that_is_cut_short_ends_in_a_sentence(wasm: Wasm, tmp_path: Path) -> None:
    program = learner(wasm)
    whole = wasm.build(program.graph, program.sources).read_bytes()
    file = tmp_path / "model.wasm"
    for size in range(4, len(whole), len(whole) // 20):
        file.write_bytes(whole[:size])
        with pytest.raises(TargetError, match=r"is damaged|exports no"):
            load_module(start_engine(), file)


def test_a_module_of_another_program_is_refused(wasm: Wasm) -> None:
    program, other, engine = learner(wasm), learner(wasm, "last:1"), start_engine()
    module = load_module(engine, wasm.build(other.graph, other.sources))
    with pytest.raises(InputError, match="it belongs to another program"):
        WasmDevice(program.graph, program.sources, engine, module)


def test_a_module_that_traps_ends_in_a_sentence(wasm: Wasm, tmp_path: Path) -> None:
    import wasmtime

    program, engine, file = compile(small_network(), target=wasm), start_engine(), tmp_path / "model.wasm"
    facts = f'{{\\"fingerprint\\":\\"{fingerprint(program.graph)[:16]}\\"}}'
    file.write_bytes(wasmtime.wat2wasm(TRAPPING.format(json=facts, more="")))
    device = WasmDevice(program.graph, program.sources, engine, load_module(engine, file))
    with device, pytest.raises(TargetError, match=r"broke off in run: .*unreachable"):
        device.run(np.zeros(program.graph.image.type.shape, np.int8))


@pytest.mark.parametrize(
    ("package", "sentence"), [("wasmtime", r"smidgen\[wasm\]"), ("ziglang", "pip install ziglang")]
)
def test_what_is_not_installed_is_named(
    package: str, sentence: str, wasm: Wasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = learner(wasm)
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else find(name))
    module_target.find_compiler.cache_clear()
    with pytest.raises(SmidgenError, match=sentence):
        program.start()


def test_a_project_holds_both_modules_and_builds_them_again(wasm: Wasm, tmp_path: Path) -> None:
    program = learner(wasm)
    program.write(tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.wasm", "model.simd.wasm", "Makefile", "README.md", "model", "smidgen", "board"} <= files
    for simd, name in ((True, "model.simd.wasm"), (False, "model.wasm")):
        built = (tmp_path / "out" / name).read_bytes()
        assert built == replace(wasm, simd=simd).build(program.graph, program.sources).read_bytes()


@pytest.mark.slow
def test_make_in_a_project_builds_modules_that_learn_the_same(wasm: Wasm, tmp_path: Path) -> None:
    program, engine = learner(wasm), start_engine()
    program.write(tmp_path / "out")
    for file in (tmp_path / "out").glob("*.wasm"):
        file.unlink()
    subprocess.run(
        ["make", f"CC={sys.executable} -m ziglang cc"], cwd=tmp_path / "out", check=True, capture_output=True
    )
    for name in ("model.wasm", "model.simd.wasm"):
        module = load_module(engine, tmp_path / "out" / name)
        with WasmDevice(program.graph, program.sources, engine, module) as made, program.start() as device:
            assert made.train(sample(0), 1, RATE) == device.train(sample(0), 1, RATE)
            assert same(made, device)
