"""The page's script in Node: pictures, frames, archives and states are those of Python, byte for byte."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from smidgen.data import as_input, load_images
from smidgen.data.audio import middle
from smidgen.data.pixels import PixelEncoding, pixel_table
from smidgen.ir import Array, QParams, Type
from smidgen.ir.log_mel import MFCC
from smidgen.ir.preprocessing import Preprocessing
from smidgen.link.frames import content_of, frame
from smidgen.numerics import quantize
from smidgen.play.bundle import bundle
from smidgen.play.pieces import pieces_of
from smidgen.targets.saved import HEAD
from tests.support.node import coded, decoded, needs_node, run_script
from tests.support.tiers import some

pytestmark = needs_node
MOST_SCRIPT = 60_000  # bytes, without the model
SIZES = [(64, 64), (33, 17), (7, 90), (640, 480), (1, 1), (31, 32), (513, 700), (1200, 801), (96, 513), (2000, 1100)]
STATED = {
    "by the scale": None, "gray": Preprocessing(order="gray"), "bgr": Preprocessing((0.4, 0.5, 0.6), order="bgr"),
    "stretched": Preprocessing(range=(0.0, 255.0), mean=(127.5,), std=(127.5,), fit="stretch"),
}  # fmt: skip


def encoding(shape: tuple[int, ...], stated: Preprocessing | None) -> PixelEncoding:
    return PixelEncoding(Type(shape, "int8", QParams((2 / 255,), 0)), stated)


def rule(of: PixelEncoding) -> dict[str, Any]:
    """A rule of pixels as the page has it."""
    _, rows, columns, colours = of.type.shape
    stated = of.preprocessing or Preprocessing()
    return {
        "rows": rows, "columns": columns, "colours": colours, "gray": stated.order == "gray",
        "bgr": stated.order == "bgr", "stretch": stated.fit == "stretch", "table": coded(pixel_table(of).tobytes()),
    }  # fmt: skip


@pytest.mark.parametrize("stated", STATED)
@pytest.mark.parametrize("shape", [(1, 32, 32, 3), (1, 20, 48, 1), (1, 128, 96, 3)])
def test_a_picture_becomes_the_input_that_python_makes_of_its_file(
    shape: tuple[int, ...], stated: str, tmp_path: Path
) -> None:
    if stated == "bgr" and shape[-1] == 1:
        pytest.skip("one channel has no order")
    of, rng = encoding(shape, STATED[stated]), np.random.default_rng(7)
    pictures = []
    for at, (width, height) in enumerate(some(SIZES, 2)):
        pixels = rng.integers(0, 256, (height, width, 1 if at % 4 == 3 else 3), np.uint8)
        Image.fromarray(pixels.squeeze(-1) if pixels.shape[2] == 1 else pixels).save(tmp_path / f"{at:02}.png")
        pictures.append(
            {"data": coded(pixels.tobytes()), "width": width, "height": height, "channels": pixels.shape[2]}
        )
    script = """
    const rule = { ...given.rule, table: new Int8Array(bytes(given.rule.table).buffer) };
    const seen = (one) => pixels.seen(pixels.reduced({ ...one, data: bytes(one.data) }), rule);
    tell(given.pictures.map((one) => text(pixels.encoded(seen(one), rule))));
    """
    found = run_script(script, {"pictures": pictures, "rule": rule(of)}, "pixels")
    wanted = [as_input(image, of) for image in load_images(str(tmp_path), len(pictures))]
    assert [decoded(one) for one in found] == [one.tobytes() for one in wanted]


def test_what_a_canvas_holds_is_the_picture_without_its_transparency() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (9, 5, 3), np.uint8)
    canvas = np.concatenate([pixels, np.full((9, 5, 1), 255, np.uint8)], axis=2)
    script = """
    const canvas = { data: bytes(given.canvas), width: 5, height: 9, channels: 4 };
    tell([false, true].map((gray) => text(pixels.inColours(canvas, gray).data)));
    """
    colours, gray = run_script(script, {"canvas": coded(canvas.tobytes())}, "pixels")
    assert decoded(colours) == pixels.tobytes()
    assert decoded(gray) == np.asarray(Image.fromarray(pixels).convert("L")).tobytes()


def contents() -> list[bytes]:
    rng = np.random.default_rng(3)
    drawn = [
        rng.integers(0, int(rng.integers(1, 256)), int(size), np.uint8).tobytes() for size in rng.integers(0, 480, 60)
    ]
    return [b"", b"\0", b"\0\0", b"\1" * 250, b"\1" * 254, b"\1" * 490, b"\0" + b"\1" * 254, *drawn]


def test_frames_are_those_of_the_link_and_damaged_ones_are_noticed() -> None:
    script = """
    const made = given.map((one) => frames.framed(bytes(one)));
    const damaged = (one) => one.map((byte, i) => (i === one.length >> 1 ? byte ^ 4 || 9 : byte));
    const whole = new frames.Frames(), hit = new frames.Frames();
    tell({
      made: made.map(text),
      back: made.flatMap((one) => whole.take(one)).map((one) => one && text(one)),
      hit: made.flatMap((one) => hit.take(damaged(one))).filter(Boolean).length,
    });
    """
    given = contents()
    found = run_script(script, [coded(one) for one in given], "frames")
    assert [decoded(one) for one in found["made"]] == [frame(one) for one in given]
    assert [decoded(one) for one in found["back"]] == given
    assert found["hit"] == 0
    assert content_of(decoded(found["made"][5])[1:-1]) == given[5]


def test_samples_are_taken_along_in_a_zip_of_pictures_that_others_read() -> None:
    rng = np.random.default_rng(5)
    pictures = [rng.integers(0, 256, (12, 9, channels), np.uint8) for channels in (3, 1)]
    script = """
    const taken = new Set(), files = [];
    for (const [i, one] of given.entries()) {
      const folder = archive.folderName(i ? " Tasse/ü? " : "..", taken);
      files.push({ name: `${folder}/1.png`, bytes: await archive.png(bytes(one.data), 9, 12, one.channels) });
    }
    files.push({ name: `${archive.folderName("TASSE_ü_", taken)}/empty`, bytes: new Uint8Array() });
    tell(text(archive.zipped(files)));
    """
    given = [{"data": coded(one.tobytes()), "channels": one.shape[2]} for one in pictures]
    with zipfile.ZipFile(io.BytesIO(decoded(run_script(script, given, "archive")))) as found:
        assert found.testzip() is None
        assert found.namelist() == ["class/1.png", "Tasse_ü_/1.png", "TASSE_ü_ 2/empty"]
        for name, wanted in zip(found.namelist(), pictures, strict=False):
            read = np.asarray(Image.open(io.BytesIO(found.read(name))))
            assert np.array_equal(read.reshape(wanted.shape), wanted)


FINGERPRINT = "0123456789abcdef"


def test_a_state_is_the_file_that_a_board_takes_and_another_programs_is_refused() -> None:
    state = np.random.default_rng(2).integers(0, 256, 1000, np.uint8).tobytes()
    file = HEAD.pack(0x01234567, 0x89ABCDEF, len(state), zlib.adler32(state)) + state
    script = """
    const said = (work) => { try { return text(work()); } catch (error) { return error.message; } };
    const file = bytes(given.file), damaged = file.slice();
    damaged[500] ^= 1;
    tell([
      text(states.stateFile(bytes(given.state), given.fingerprint)),
      said(() => states.stateIn(file, given.fingerprint, 1000)),
      said(() => states.stateIn(damaged, given.fingerprint, 1000)),
      said(() => states.stateIn(file, "f" + given.fingerprint.slice(1), 1000)),
      said(() => states.stateIn(file.subarray(0, 9), given.fingerprint, 1000)),
    ]);
    """
    given = {"state": coded(state), "file": coded(file), "fingerprint": FINGERPRINT}
    written, read, damaged, other, short = run_script(script, given, "states")
    assert decoded(written) == file
    assert decoded(read) == state
    assert "damaged" in damaged
    assert "another program" in other
    assert "smidgen play" in other
    assert "9 bytes" in short


def test_numbers_and_recordings_become_the_input_that_python_makes_of_them() -> None:
    rng = np.random.default_rng(4)
    numbers = np.concatenate([rng.normal(0, 40, 500), [0.5, -0.5, 1.5, -1.5, 1e30, -1e30]]).astype(np.float32)
    q = QParams((0.0126,), -8)
    shape, sounds = (1, 49, 10, 1), [rng.integers(-(2**15), 2**15, size).astype(np.int16) for size in (1, 9000, 40001)]
    script = """
    const numbers = new Float32Array(bytes(given.numbers).buffer);
    tell({
      numbers: text(worker.quantized(numbers, given.scale, given.zero)),
      sounds: given.sounds.map((one) => text(worker.middle(new Int16Array(bytes(one).buffer), given.wanted))),
    });
    """
    given = {
        "numbers": coded(numbers.tobytes()), "scale": q.one, "zero": q.zero, "wanted": MFCC.samples(shape),
        "sounds": [coded(one.tobytes()) for one in sounds],
    }  # fmt: skip
    found = run_script(script, given, "worker")
    assert decoded(found["numbers"]) == quantize(numbers, q).tobytes()
    assert [decoded(one) for one in found["sounds"]] == [middle(one, MFCC, shape).tobytes() for one in sounds]


def builds() -> list[tuple[bytes, bytes]]:
    rng = np.random.default_rng(6)
    blocks: list[Array] = [rng.integers(0, 256, size, np.uint8) for size in (3000, 700, 5000, 90, 2000)]
    one = b"".join(block.tobytes() for block in blocks)
    other = b"begin" + blocks[2].tobytes() + b"between" + blocks[0].tobytes() + blocks[4].tobytes()[50:] + b"end"
    return [(one, other), (one, one), (b"", b"short"), (one, b""), (bytes(4000), bytes(9000))]


def test_a_build_is_made_of_another_and_what_differs() -> None:
    given = []
    for whole, other in builds():
        pieces, rest = pieces_of(whole, other)
        given.append({"whole": coded(whole), "rest": coded(rest), "pieces": pieces})
    script = "tell(given.map((one) => text(engine.pieced(bytes(one.whole), bytes(one.rest), one.pieces))));"
    found = run_script(script, given, "engine")
    assert [decoded(one) for one in found] == [other for _, other in builds()]
    assert len(pieces_of(*builds()[0])[1]) < 300


def test_tables_are_read_below_a_line_of_names_or_without_one() -> None:
    script = """
    const read = (text) => Array.from(sources.tableIn(text, "x.csv").table);
    tell(given.map((text) => { try { return read(text); } catch (error) { return error.message; } }));
    """
    texts = ["1,2\n3,4\n", "time;a;b\n0;1;2\n1;3;4\n", "a\tb\r\n1\t2\r\n3\t4", "", "what?\nno", "a,b\n1,two\n"]
    *good, empty, words, cell = run_script(script, texts, "sources")
    assert good == [[1, 2, 3, 4]] * 3
    assert all("no table of numbers" in one for one in (empty, words, cell))


def test_every_fifth_sample_of_a_class_is_held_back() -> None:
    script = """
    const places = [];
    for (let id = 0; id < 24; id++) places.push({ id, label: id % 2, held: session.isHeld(places, id % 2) });
    tell([0, 1].map((label) => places.filter((one) => one.label === label).map((one) => one.held)));
    """
    wanted = [place % 5 == 4 for place in range(12)]
    assert run_script(script, {}, "session") == [wanted, wanted]


def test_the_script_is_small_and_whole(tmp_path: Path) -> None:
    scripts = {name: bundle(name) for name in ("app.js", "worker.js")}
    assert sum(len(text.encode()) for text in scripts.values()) <= MOST_SCRIPT
    for name, text in scripts.items():
        assert "import " not in text
        assert "/**" not in text
        file = tmp_path / name.replace(".js", ".mjs")
        file.write_text(text)
        subprocess.run(("node", "--check", str(file)), check=True)  # a name that two modules have is an error, too


@pytest.mark.skipif(shutil.which("tsc") is None, reason="NO TSC HERE: npm install -g typescript to check the types")
def test_the_script_is_typed() -> None:
    done = subprocess.run(("tsc", "-p", str(Path(__file__).parent)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
