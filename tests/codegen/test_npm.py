"""A package for npm, used from Node and from a page in a browser, computes what Python does."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smidgen.codegen import PackageKind
from smidgen.data.pixels import from_pixels, pixel_encoding
from smidgen.errors import InputError
from smidgen.inference.scores import probabilities
from smidgen.ir import Array
from smidgen.pipeline import Program, compile
from smidgen.targets.device import state_block
from smidgen.targets.host import Host
from smidgen.targets.wasm import Wasm
from smidgen.training import Options
from tests.support.audio_signals import listener, signals
from tests.support.browser import browsing, chromium
from tests.support.small_network import small_network
from tests.support.tools import need

RATE, STEPS = 0.01, 3
# What both scripts do with a package: losses of some steps, probabilities, and all that was learned.
LEARN = """
export async function learn(load, image, simd) {
  const model = await load(simd === null ? {} : { simd });
  const losses = [];
  for (let step = 0; step < %d; step++) {
    model.showPixels(image);
    losses.push(model.train(step, %s));
  }
  model.showPixels(image);
  const best = model.predict();
  return { losses, best, probabilities: model.probabilities(), saved: Array.from(model.save()) };
}
"""  # % (STEPS, RATE), where it is written


@pytest.fixture(scope="module")
def program(cache: Path) -> Program:
    return compile(small_network(), "last:4", Wasm(cache=cache), options=Options(4))


@pytest.fixture(scope="module")
def package(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("npm") / "package"
    program.write(folder, export=PackageKind.npm)
    return folder


def image(program: Program) -> Array:
    return np.random.default_rng(0).integers(0, 256, program.graph.image.type.shape[1:], np.uint8)


def rgba(pixels: Array) -> dict[str, object]:
    """An image as a canvas gives it."""
    data = np.concatenate([pixels, np.full((*pixels.shape[:2], 1), 255, np.uint8)], axis=2)
    return {"data": data.reshape(-1).tolist(), "width": pixels.shape[1], "height": pixels.shape[0]}


def check(program: Program, found: dict[str, Any], cache: Path) -> None:
    """Compare what a package did with what a host does: losses, class and state to the byte."""
    graph = program.graph
    x = from_pixels(image(program), pixel_encoding(graph))
    with compile(small_network(), "last:4", Host(cache=cache), options=Options(4)).start() as host:
        assert found["losses"] == [host.train(x, step, RATE) for step in range(STEPS)]
        assert found["best"] == host.predict(x)
        state = state_block(graph, host.state())
        wanted = probabilities(graph, host.outputs()[graph.outputs.index(graph.scores)])[0]
    np.testing.assert_allclose(np.array(found["probabilities"]), wanted, rtol=1e-12)  # exp of two libraries, in double
    assert bytes(found["saved"])[16:] == state


def in_node(script: str, folder: Path) -> str:
    (folder / "script.mjs").write_text(script)
    result = subprocess.run(["node", "script.mjs"], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:4000]
    return result.stdout


@pytest.mark.parametrize("simd", ["null", "true", "false"])
def test_node_learns_what_the_host_does(
    simd: str, program: Program, package: Path, tmp_path: Path, cache: Path
) -> None:
    need("node")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "smidgen-small").symlink_to(package)  # where npm install would put it
    (tmp_path / "learn.mjs").write_text(LEARN % (STEPS, RATE))
    script = (
        'import { load } from "smidgen-small"; import { learn } from "./learn.mjs";'
        f"console.log(JSON.stringify(await learn(load, {json.dumps(rgba(image(program)))}, {simd})));"
    )
    check(program, json.loads(in_node(script, tmp_path)), cache)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_without_a_bundler_learns_what_the_host_does(
    program: Program, package: Path, tmp_path: Path, cache: Path
) -> None:
    if chromium() is None:
        pytest.skip("no browser is installed: apt install chromium")
    (tmp_path / "package").symlink_to(package)
    (tmp_path / "learn.mjs").write_text(LEARN % (STEPS, RATE))
    (tmp_path / "index.html").write_text(
        '<!doctype html><html lang="en"><title>learn</title><script type="module">'
        'import { load } from "./package/index.js"; import { learn } from "./learn.mjs";'
        "window.learned = (image) => learn(load, image, null);</script></html>"
    )
    with served(tmp_path) as address, browsing() as browser:
        page = browser.new_page()
        page.goto(f"{address}/index.html")
        page.wait_for_function("window.learned !== undefined")
        found = page.evaluate("(image) => window.learned(image)", rgba(image(program)))
    check(program, found, cache)


def test_audio_enters_a_package_as_it_enters_the_host(cache: Path, tmp_path: Path) -> None:
    need("node")
    program = compile(listener(), target=Wasm(cache=cache))
    program.write(tmp_path / "package", export="npm")
    sound = signals(12_000)["vowel"]
    script = (
        'import { load } from "./package/index.js"; const model = await load();'
        f"model.showSamples(Int16Array.from({sound.tolist()})); console.log(JSON.stringify(Array.from(model.input())));"
    )
    with compile(listener(), target=Host(cache=cache)).start() as host:
        assert json.loads(in_node(script, tmp_path)) == host.audio_features(sound).reshape(-1).tolist()


# What a script asks for, and the sentence that it ends in.
WRONG = {
    "model.showPixels({ data: [], width: 3, height: 2 })": "the image is 3 x 2, small takes 32 x 32",
    "model.showPixels({ data: new Uint8Array(2048), width: 32, height: 32 })": "the image has 2 bytes for a pixel",
    "model.showSamples(new Int16Array(4))": "small takes no audio; write its input()",
    "model.input(7)": "small has no input 7",
    "model.train(9, 0.1)": "9 is no class of small; give a number from 0 to 3",
    "model.train(0.5, 0.1)": "0.5 is no class of small",
    "model.train(0, NaN)": "NaN is no learning rate; give a number from 0 up",
    "model.solve()": "small was compiled without what solve needs",
    "model.load(new Uint8Array(5))": "given were 5",
    "model.load(new Uint8Array(model.about.saved_bytes))": "damaged, or of another program",
    "model.tensor('x')": "small has no state named x",
}


def test_wrong_use_ends_in_a_sentence(package: Path, tmp_path: Path) -> None:
    need("node")
    (tmp_path / "package").symlink_to(package)
    tries = "".join(f"attempt(() => {{ {use}; }});" for use in WRONG)
    script = (
        'import { load } from "./package/index.js"; const model = await load(), said = [];'
        "const attempt = (use) => { try { use(); said.push(null); } catch (error) { said.push(error.message); } };"
        f"{tries} console.log(JSON.stringify(said));"
    )
    for use, found, wanted in zip(WRONG, json.loads(in_node(script, tmp_path)), WRONG.values(), strict=True):
        assert found, f"{use} was taken"
        assert wanted in found, use


def test_a_file_that_is_no_module_of_ours_ends_in_a_sentence(package: Path, tmp_path: Path) -> None:
    need("node")
    (tmp_path / "package").symlink_to(package)
    script = (
        'import { readFileSync } from "node:fs"; import { load } from "./package/index.js"; const said = [];'
        'const whole = readFileSync("package/model.wasm"), empty = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0);'
        "for (const module of [new Uint8Array(0), whole.subarray(0, 5000), empty])"
        "  await load({ module }).catch((error) => said.push(error.message));"
        "console.log(JSON.stringify(said));"
    )
    nothing, cut, foreign = json.loads(in_node(script, tmp_path))
    assert nothing.startswith("the module is damaged, or Smidgen did not write it: ")
    assert cut.startswith("the module is damaged, or Smidgen did not write it: ")
    assert foreign == "the module exports no memory: Smidgen did not write it"


def test_types_declare_every_public_name_of_the_package(package: Path) -> None:
    code, types = ((package / name).read_text() for name in ("index.js", "index.d.ts"))
    methods = set(re.findall(r"^  (?:get )?([a-z]\w*)\(.*\{$", code, re.MULTILINE)) - {"constructor"}
    body = types[types.index("export class Model") :]
    assert methods == set(re.findall(r"^  (?:readonly )?([a-z]\w*)[(:]", body[: body.index("\n}")], re.MULTILINE)) - {
        "about", "classes",
    }  # fmt: skip


def test_npm_itself_installs_the_package(package: Path, tmp_path: Path) -> None:
    need("node", "npm")
    (tmp_path / "package.json").write_text('{"name": "app", "private": true, "type": "module"}')
    command = ("npm", "install", "--offline", "--no-audit", "--no-fund", str(package))
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:4000]
    script = 'import { load } from "smidgen-small"; console.log((await load()).about.fingerprint);'
    assert len(in_node(script, tmp_path).strip()) == 16
    for file in json.loads((package / "package.json").read_text())["files"]:
        assert (tmp_path / "node_modules" / "smidgen-small" / file).is_file()


def test_a_program_for_a_board_is_refused() -> None:
    program = compile(small_network(), target="cortex-m7")
    with pytest.raises(InputError, match="npm takes WebAssembly, and this program was compiled for cortex-m7"):
        program.package("npm")
