"""The page's end of the link against the C end: state over, a picture shown, and a line that spoils bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smidgen.data import as_input, pixel_encoding
from smidgen.ir.text import fingerprint
from smidgen.pipeline import compile
from smidgen.targets.device import state_block
from smidgen.targets.host import Host
from tests.link.test_replay_link import built
from tests.support.node import coded, decoded, needs_node, run_script
from tests.support.play_pages import page_of
from tests.support.shapes import SHAPES, draw_shape
from tests.support.small_network import small_network

pytestmark = needs_node
TALK = """
import { spawn } from "node:child_process";
const [program, ...words] = given.command, child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
let came = [], wake = () => {}, sent = 0;
child.stdout.on("data", (data) => { came.push(data); wake(); });
let seed = 1;
const spoiled = (data) => data.map((byte) => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32 < given.spoils ? byte ^ (1 << (seed & 7)) : byte;
});
const stream = {
  async write(data) { sent += 1; child.stdin.write(spoiled(data)); },
  async read(milliseconds) {
    if (!came.length) await new Promise((resolve) => { wake = resolve; setTimeout(resolve, milliseconds); });
    const all = Buffer.concat(came);
    came = [];
    return spoiled(new Uint8Array(all));
  },
};
const line = new frames.Line(stream, { again: 40, slowest: 200, silent: 5000 });
const hello = await line.hello(), progress = [];
const kept = await line.writeState(bytes(given.state), (done) => progress.push(done));
const labels = [];
for (const one of given.inputs) labels.push(await line.predict(bytes(one)));
const state = text(await line.take(frames.ASK.read, hello.stateBytes));
const found = { hello, kept, labels, last: progress.at(-1), state };
found.refused = await line.ask(99).catch((error) => error.message);
child.kill();
tell({ ...found, sent });
"""


@pytest.mark.parametrize("spoils", [0, 0.0005], ids=["clean", "noisy"])
def test_a_board_gets_the_state_byte_for_byte_and_predicts_as_c_does(spoils: float, host: Host, tmp_path: Path) -> None:
    page = page_of(small_network())
    program = compile(page.graph, page.asked.scheme, host, options=page.asked.options, one_pass=True)
    command = built(program, tmp_path / "out").removeprefix("exec:").split()
    rng = np.random.default_rng(0)
    inputs = [as_input(draw_shape(SHAPES[i % 3], rng), pixel_encoding(page.graph)) for i in range(6)]
    with program.start() as device:
        for i, one in enumerate(inputs):
            device.observe(one, i % 3)
        device.solve()
        state, labels = state_block(device.graph, device.state()), [device.predict(one) for one in inputs]
    given = {
        "command": command, "state": coded(state), "inputs": [coded(one.tobytes()) for one in inputs], "spoils": spoils,
    }  # fmt: skip
    found = run_script(TALK, given, "frames")
    assert found["hello"]["fingerprint"] == fingerprint(program.graph)[:16]
    assert found["hello"]["stateBytes"] == found["last"] == len(state)
    assert found["labels"] == labels
    assert decoded(found["state"]) == state
    assert found["kept"] is True
    assert "refused" in found["refused"]


def test_a_silent_board_is_given_up_in_a_sentence() -> None:
    script = """
    const read = (ms) => new Promise((resolve) => setTimeout(resolve, ms, new Uint8Array()));
    const stream = { async write() {}, read };
    const line = new frames.Line(stream, { again: 5, slowest: 20, silent: 60 });
    tell(await line.hello().catch((error) => error.message));
    """
    assert "silent" in run_script(script, {}, "frames")
