"""The kept corpus, tests/corpus: for each parser small sound files, from which fuzzing starts.

python -m tests.support.seeds        # writes them again; files of findings, whose names begin with "found", stay
"""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from onnx import helper
from PIL import Image

from smidgen.errors import SmidgenError
from smidgen.frontends.native import write_smg
from smidgen.frontends.network import Network
from smidgen.frontends.onnx import write_onnx, write_plain
from smidgen.frontends.tflite import write_tflite
from smidgen.frontends.tflite.codec import encode
from smidgen.ir import Array, Graph
from smidgen.ir.text import print_graph
from smidgen.learning.checkpoint import Checkpoint, write_checkpoint
from smidgen.learning.course import Course, Epoch, RunPosition
from smidgen.link.frames import ANSWER, Command, Status, frame, request_frame
from smidgen.link.line import HELLO, STATISTICS
from smidgen.training import Options, build_training
from smidgen.training.passes import run
from smidgen.training.scheme import Scheme, load_scheme
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import BlockTable, Stage
from tests.frontends.test_fuzz_structures import onnx_files, pt2_members
from tests.frontends.test_keras import import_keras, nested
from tests.frontends.test_moving import TAKEN, sizes_computed
from tests.frontends.test_onnx import model
from tests.frontends.test_tflite_folding import reshaped_by_its_own_shape
from tests.frontends.test_tflite_metadata import normalized_tflite
from tests.frontends.test_tflite_reductions import Reduction
from tests.frontends.test_unsigned import dense, legacy
from tests.ops.test_attention import spelled
from tests.support.audio_signals import listener
from tests.support.cases import GRAPHS
from tests.support.networks import CLASSES, NETWORKS
from tests.support.release_files import npz_members, pickled
from tests.support.streams import streaming_network
from tests.support.training_cases import TRAINING_GRAPHS
from tests.support.wav_files import FLOAT, wav

CORPUS = Path(__file__).parents[1] / "corpus"
Files = Iterator[tuple[str, bytes]]
EXACT = ("dense-3", "add-1", "mean-1", "matmul-False-True", "normalize-map", "normalize-rows")  # cases with functions
IMAGES = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
SAME_DAY = (2020, 1, 1, 0, 0, 0)  # of every member, so that the same contents are the same archive


def ops_of(graph: Graph) -> set[str]:
    return {type(node.op).__name__ for node in graph.nodes}


def one_per_op(graphs: Iterable[Graph]) -> Iterator[tuple[str, Graph]]:
    """Graphs that hold an op which none before them held, by its name."""
    seen: set[str] = set()
    for graph in graphs:
        if new := sorted(ops_of(graph) - seen):
            seen |= set(new)
            yield new[0], graph


def packed(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, SAME_DAY), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def written(write: Callable[[Path], None], folder: Path) -> bytes:
    path = folder / "written"
    write(path)
    data = path.read_bytes()
    path.unlink()
    return data


def small_release() -> Network:
    """A block without expansion and one with a residual."""
    return draw(BlockTable(2, (Stage(1, 3, 2, 2), Stage(2, 3, 1, 2))), 16, 3, seed=5)


def training_step(skip_below: float = 0.0) -> Graph:
    """Return the compiled graph of a network that trains its last two layers."""
    graph = NETWORKS[0](0)
    return run(build_training(graph, load_scheme("last:2", graph), Options(CLASSES, skip_below=skip_below)).step)


def written_by(write: Callable[[Graph], bytes]) -> Files:
    """For every op that a format has, a graph with it."""
    seen: set[str] = set()
    for graph in GRAPHS.values():
        if new := sorted(ops_of(graph) - seen):
            with suppress(SmidgenError):
                yield new[0], write(graph)
                seen |= set(new)


def named() -> Graph:
    """A graph whose scores have names."""
    graph = GRAPHS["dense-3"]
    return replace(graph, classes=tuple(f"class {i}" for i in range(graph.scores.type.shape[-1])))


def tflite(folder: Path) -> Files:
    yield from ((f"{name}.tflite", data) for name, data in written_by(write_tflite))
    yield "network.tflite", write_tflite(NETWORKS[0](0))
    yield "metadata.tflite", normalized_tflite()
    yield "named.tflite", write_tflite(named())
    yield "sizes_computed.tflite", encode(sizes_computed())
    for name in ("backward slice", "split", "sizes split", "unpack", "tile"):
        yield f"{name.replace(' ', '_')}.tflite", encode(TAKEN[name])
    yield "unsigned.tflite", legacy(dense(np.ones((3, 4), np.int8)))
    yield "folded.tflite", encode(reshaped_by_its_own_shape())
    yield "reduced.tflite", Reduction("SUM", (1, 3, 4, 2), (1, 3), True, "int8").model()
    yield "own_functions.tflite", write_tflite(GRAPHS["tflite-leaky_relu"])
    yield "streaming.tflite", write_tflite(streaming_network())


def older_opset() -> bytes:
    """A file that ONNX's converter brings to an opset of today."""
    nodes = [helper.make_node("Pad", ["x"], ["p"], pads=[0, 0, 1, 0, 0, 0, 0, 2]),
             helper.make_node("Clip", ["p"], ["y"], min=-0.5, max=0.25)]  # fmt: skip
    return model(nodes, (1, 4, 3, 5), {}, opset=10)


def parts_taken() -> bytes:
    """A resize, a slice, a split and a gather."""
    nodes = [helper.make_node("Resize", ["x", "", "f"], ["a"]), helper.make_node("Slice", ["a", "b", "e"], ["c"]),
             helper.make_node("Split", ["c", "n"], ["p", "q"], axis=1),
             helper.make_node("Gather", ["q", "n"], ["y"], axis=2)]  # fmt: skip
    numbers = {"f": np.array([1, 1, 2, 2], np.float32), "b": np.array([0, 0]), "e": np.array([1, 4])}
    return model(nodes, (1, 5, 3, 5), {**numbers, "n": np.array([1, 3])})


def onnx(folder: Path) -> Files:
    yield "computed_shape.onnx", onnx_files()[0]
    yield "older_opset.onnx", older_opset()
    yield "parts_taken.onnx", parts_taken()
    yield from ((f"{name}.onnx", data) for name, data in written_by(write_plain))
    yield from ((f"exact_{name}.onnx", write_onnx(GRAPHS[name])) for name in EXACT)
    yield "spelled_norm.onnx", spelled("Pow")
    yield "named.onnx", write_plain(named())


def pt2(folder: Path) -> Files:
    torch.manual_seed(0)
    yield "convolution.pt2", packed(pt2_members(folder))
    net = torch.nn.Sequential(
        torch.nn.BatchNorm2d(2), torch.nn.MaxPool2d(2), torch.nn.Hardswish(), torch.nn.Flatten(), torch.nn.Softmax(1)
    )
    attention = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=True)
    for name, module, x in (("pool", net, torch.zeros(1, 2, 4, 4)), ("attention", attention, torch.zeros(1, 3, 4))):
        path = folder / "second.pt2"
        torch.export.save(torch.export.export(module.eval(), (x,)), path)
        with zipfile.ZipFile(path) as archive:
            yield f"{name}.pt2", packed({member: archive.read(member) for member in archive.namelist()})


def keras(folder: Path) -> Files:
    """Models within models, as both kinds of file; those that are there stay where Keras is not installed."""
    try:
        model = nested(import_keras())
    except ModuleNotFoundError:
        yield from ((path.name, path.read_bytes()) for path in sorted((CORPUS / "keras").glob("nested.*")))
        return
    for name in ("nested.keras", "nested.h5"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save(folder / name)
    with zipfile.ZipFile(folder / "nested.keras") as archive:
        yield "nested.keras", packed({name: archive.read(name) for name in archive.namelist()})
    yield "nested.h5", (folder / "nested.h5").read_bytes()


def smg(folder: Path) -> Files:
    for name, graph in list(one_per_op(GRAPHS.values()))[:8]:
        yield f"{name}.smg", written(lambda path, g=graph: write_smg(g, path), folder)  # type: ignore[misc]
    yield "step.smg", written(lambda path: write_smg(training_step(), path), folder)

    yield "named.smg", written(lambda path: write_smg(named(), path), folder)


def npz(folder: Path) -> Files:
    yield "network.npz", packed(npz_members(small_release()))


def pkl(folder: Path) -> Files:
    data = pickled(small_release())
    yield "bare.pkl", data
    yield "archive.pkl", packed({"archive/data.pkl": data, "archive/version": b"3\n"})


def image(folder: Path) -> Files:
    for kind in IMAGES:
        for mode in ("L", "RGB"):
            file = io.BytesIO()
            picture = Image.frombytes(mode, (6, 5), bytes(range(30 * len(mode))))
            picture.save(file, kind)
            yield f"{mode}.{kind.lower()}", file.getvalue()


def zips(folder: Path) -> Files:
    held = [data for name, data in image(folder) if name.startswith("RGB.")]
    names = ("train/a/0.png", "train/b/1.jpg", "test/a/2.gif", "test/b/3.bmp")
    yield "divided.zip", packed(dict(zip(names, held, strict=False)))
    yield "labels.zip", packed({f"{'ab'[i % 2]}/{i}.png": held[0] for i in range(10)})


def arrays(folder: Path) -> Files:
    x, y = np.arange(10 * 4 * 4 * 3, dtype=np.uint8).reshape(10, 4, 4, 3), np.arange(10) % 2
    for name, held in (
        ("whole", {"x": x, "y": y}),
        ("divided", {"x_train": x[:6], "y_train": y[:6], "x_test": x[6:], "y_test": y[6:]}),
        ("real", {"x": x.astype(np.float32), "y": y}),
        ("vectors", {"x": x.astype(np.int8), "y": np.linspace(0, 1, 20).reshape(10, 2)}),
        ("maps", {"x": x, "y": x[:, :2, :2, 0] % 3, "classes": np.array(["a", "b", "c"])}),
        ("words", {"x": x.reshape(10, -1), "y": np.array(["walk", "rest"])[y]}),
        ("alone", {"x": x[:8], "x_test": x[8:]}),
    ):
        file = io.BytesIO()
        np.savez(file, **held)
        with zipfile.ZipFile(file) as archive:
            yield f"{name}.npz", packed({member: archive.read(member) for member in archive.namelist()})


def lone_array(folder: Path) -> Files:
    for dtype in ("uint8", "int8", "float32", "float64"):
        file = io.BytesIO()
        np.save(file, np.arange(60, dtype=dtype).reshape(10, 2, 3))
        yield f"{dtype}.npy", file.getvalue()


def table(folder: Path) -> Files:
    rows = [f"{10 * i},{i / 4},{-i},{('walk', 'rest')[i % 2]}" for i in range(10)]
    yield "words.csv", "\n".join(("timestamp,x,y2,activity", *rows)).encode()
    yield "numbers.csv", "\r\n".join(("a;label;b", *(f'"{i}";{i / 8};1e-3' for i in range(10)))).encode("utf-8-sig")
    yield "recording.csv", "\n".join(f"{i}\t{i * i}" for i in range(6)).encode()


def sound(folder: Path) -> Files:
    real = np.sin(np.arange(60) ** 1.5)
    for bits in (8, 16, 24, 32):
        yield f"pcm{bits}.wav", wav(real, bits=bits)
    yield "float.wav", wav(real, 22_050, 32, FLOAT)
    yield "stereo.wav", wav(np.stack((real, -real / 2), axis=1), 44_100)
    yield "extensible.wav", wav(real, 8_000, 24, extended=True)


def ckpt(folder: Path) -> Files:
    state: dict[str, Array] = {
        "w": np.arange(6, dtype=np.int8).reshape(2, 3),
        "b": np.ones(2, np.float32),
        "s": np.ones((), np.int32),
    }
    begun = Course(2, 0.01, augment=None), RunPosition(0, 1, 2.5, 0.25, 0.0, ())
    later = (
        Course(3, 0.01, test_every=2),
        RunPosition(2, 0, 0.0, 0.25, 0.0, (Epoch(1, 2.0, None, 0.0), Epoch(2, 1.5, 0.5, 0.0))),
    )
    for name, (course, position) in {"begun": begun, "later": later}.items():
        checkpoint = Checkpoint("0" * 64, "1" * 64, course, position, state)
        yield f"{name}.ckpt", written(lambda path, c=checkpoint: write_checkpoint(c, path), folder)  # type: ignore[misc]


def text(folder: Path) -> Files:
    for name, graph in one_per_op((*GRAPHS.values(), *TRAINING_GRAPHS.values())):
        yield f"{name}.txt", print_graph(graph).encode()
    yield "step.txt", print_graph(training_step()).encode()
    yield "skipping.txt", print_graph(training_step(skip_below=0.1)).encode()
    for name, case in {"sound": "mfcc", "sound-across": "across"}.items():
        yield f"{name}.txt", print_graph(listener(case)).encode()

    yield "named.txt", print_graph(named()).encode()


def scheme(folder: Path) -> Files:
    for name in ("full", "last:2", "bias:3"):
        yield f"{name.replace(':', '-')}.json", load_scheme(name, NETWORKS[0](0)).to_json().encode()
    shares = Scheme("shares", 8, ((5, Fraction(1, 2)), (6, Fraction(1))), "random")
    yield "shares.json", shares.to_json().encode()


def answers(folder: Path) -> Files:
    """Yield a board's answers to a greeting and what follows, all of them done; and answers of refusal."""
    hello = HELLO.pack(1, 224, 0x01234567, 0x89ABCDEF, 100, 300, 4, 5, 6)
    figures, state = STATISTICS.pack(1, 2, 3, 4, 5, 6, 0.5, 0.25), bytes(range(100))
    answers = (hello, figures, state, b"", struct.pack("<i", 1), *[b""] * len(Command), hello, state, b"")
    yield "done.link", b"".join(frame(ANSWER.pack(7, 8, i, Status.DONE) + data) for i, data in enumerate(answers))


def requests(folder: Path) -> Files:
    """Yield a host's requests, with a damaged frame and a repeated one among them."""
    asked = [(Command.HELLO, b"hail"), (Command.ROWS, bytes(4) + bytes(range(200))), (Command.LABEL, bytes(8))]
    asked += [(Command.TRAIN, struct.pack("<f", 0.01)), (Command.READ, bytes(6)), (Command.SAVE, b"")]
    frames = [request_frame(7, 65534 + i & 0xFFFF, command, data) for i, (command, data) in enumerate(asked)]
    damaged, noise = frames[1][:-9] + b"\0", b"\xff" * 300
    yield "course.link", b"".join(frames)
    yield "faults.link", b"".join((b"noise", frames[0], damaged, frames[1], frames[1], frames[4], noise))


PARSERS: dict[str, Callable[[Path], Files]] = {
    "tflite": tflite, "onnx": onnx, "pt2": pt2, "keras": keras, "smg": smg, "npz": npz, "pkl": pkl, "image": image,
    "zip": zips, "arrays": arrays, "npy": lone_array, "table": table, "sound": sound, "ckpt": ckpt, "text": text,
    "scheme": scheme, "answers": answers, "requests": requests,
}  # fmt: skip


def main() -> None:
    for parser, files in PARSERS.items():
        own = CORPUS / parser
        own.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as folder:
            made = dict(files(Path(folder)))
        for path in own.iterdir():
            if not path.name.startswith("found"):
                path.unlink()
        for name, data in made.items():
            (own / name).write_bytes(data)


if __name__ == "__main__":
    main()
