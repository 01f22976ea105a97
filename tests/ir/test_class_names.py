"""The names of classes travel with a model, through files, rewritings and learning into C, and change no byte."""

from __future__ import annotations

import ctypes
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen.codegen.spelling import text_literal
from smidgen.errors import GraphError, InputError, SmidgenError
from smidgen.frontends import export_model
from smidgen.frontends.tflite import write_tflite
from smidgen.frontends.tflite.codec import decode
from smidgen.frontends.tflite.metadata import with_class_file
from smidgen.ir import Graph, verify
from smidgen.ir.rewriting import prune, rewrite
from smidgen.ir.text import fingerprint, parse_graph, print_graph
from smidgen.learning import Course, learn
from smidgen.results.profile import profile
from smidgen.targets.host import Host, HostDevice
from smidgen.training import Options
from tests.cli.test_cli import fail, folder, invoke, photographs  # noqa: F401  (a fixture)
from tests.frontends.test_tflite_metadata import with_metadata
from tests.support.float_graphs import FloatNet, dequantized
from tests.support.litert import run_litert
from tests.support.release_files import SHARED
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import examples

SCORES = 10
NAMES = ("cat", "dog", "bird", "fish", "frog", "horse", "ship", "truck", "plane", "car")
HOSTILE = (
    'quote"d', "back\\slash", "??/trigraph ??'", "*/ comment //", "é ü 猫 🐈", "line\nbreak\r\n", "\x1b[31m\x07\x7f",
    "%s %n", '"};int x=1;//', "\\0011",
)  # fmt: skip
names = st.lists(st.text(max_size=20), min_size=SCORES, max_size=SCORES).map(tuple)
# What a file of lines holds without a change: no line breaks, and whole characters.
lines = st.lists(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=20), min_size=SCORES, max_size=SCORES
).map(tuple)


def named(classes: tuple[str, ...] = NAMES) -> Graph:
    return replace(small_network(), classes=classes)


@given(names)
def test_the_text_of_a_graph_gives_its_names_back(classes: tuple[str, ...]) -> None:
    graph = named(classes)
    again = parse_graph(print_graph(graph), graph.constants)
    assert again.classes == classes
    assert again == graph
    assert replace(again, classes=()) != graph


@given(lines)
@settings(max_examples=examples(25))
def test_files_of_every_kind_give_names_back(
    tmp_path_factory: pytest.TempPathFactory, classes: tuple[str, ...]
) -> None:
    place = tmp_path_factory.mktemp("named")
    for suffix in (".smg", ".tflite", ".onnx"):
        export_model(named(classes), place / f"net{suffix}")
        assert sm.load(place / f"net{suffix}").classes == classes, suffix
    export_model(named(classes), place / "net.onnx", plain=True)
    assert sm.load(place / "net.onnx").classes == classes


def test_names_that_are_no_lines_are_put_on_one_in_tflite_and_kept_elsewhere(tmp_path: Path) -> None:
    odd = ("a\nb", "c\r\nd\n", "\udc80", *NAMES[3:])
    for suffix in (".smg", ".onnx"):
        export_model(named(odd), tmp_path / f"net{suffix}")
        assert sm.load(tmp_path / f"net{suffix}").classes == odd
    export_model(named(odd), tmp_path / "net.tflite")
    assert sm.load(tmp_path / "net.tflite").classes == ("a b", "c d", "?", *NAMES[3:])


def test_litert_runs_a_model_with_names_and_any_unzip_finds_them() -> None:
    plain, with_names = write_tflite(small_network()), write_tflite(named())
    image = np.random.default_rng(0).integers(-128, 128, small_network().image.type.shape).astype(np.int8)
    assert np.array_equal(run_litert(plain, image)[0], run_litert(with_names, image)[0])
    with zipfile.ZipFile(io.BytesIO(with_names)) as archive:
        assert archive.testzip() is None
        assert archive.getinfo("labels.txt").date_time == (1980, 1, 1, 0, 0, 0)
        assert archive.read("labels.txt").decode().splitlines() == list(NAMES)
    assert write_tflite(named()) == with_names
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(plain))


def test_labels_that_are_not_the_outputs_leave_a_model_without_names(tmp_path: Path) -> None:
    path, whole = tmp_path / "net.tflite", write_tflite(named())
    start = whole.index(b"PK\x03\x04")
    empty = b"PK\x05\x06" + bytes(18)
    others = [with_class_file(whole[:start], classes) for classes in ((*NAMES, "more"), NAMES[1:], ("n" * 256,) * 10)]
    for file in (whole[:start], whole[:-1], whole[:start] + empty, *others):
        path.write_bytes(file)
        graph = sm.load(path)
        assert graph.classes == ()
        assert graph.nodes
    metadata = decode(whole).metadata
    path.write_bytes(with_metadata(write_tflite(small_network()), metadata))
    assert sm.load(path).classes == ()


def test_labels_that_tensorflows_own_writer_packed_are_read() -> None:
    path = SHARED / "models/wild/coral-mobilenet_v1_0.25_128_quant.tflite"
    if not path.exists():
        pytest.skip("models from the wild are not beside the checkout")
    classes = decode(path.read_bytes()).classes
    with zipfile.ZipFile(path) as archive:
        assert list(classes) == archive.read("imagenet_labels.txt").decode().splitlines()
    assert (len(classes), classes[0], classes[2]) == (1001, "background", "goldfish, Carassius auratus")


@given(st.data())
@settings(max_examples=examples(150))
def test_damage_to_metadata_and_labels_gives_a_model_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = write_tflite(named())
    damaged = bytearray(whole)
    places = st.one_of(
        st.integers(whole.index(b"PK\x03\x04"), len(whole) - 1),
        st.integers(whole.index(b"M001") - 4, whole.index(b"M001") + 200),
    )
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(places)] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "net.tflite"
    path.write_bytes(bytes(damaged))
    with suppress(SmidgenError):
        verify(sm.load(path))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (("names", str(dict(enumerate(NAMES)))), NAMES),
        (("classes", json.dumps(NAMES)), NAMES),
        (("classes", json.dumps(NAMES[:9])), ()),
        (("classes", "[" * 100_000), ()),
        (("classes", json.dumps([1] * 10)), ()),
        (("classes", json.dumps([*NAMES[1:], "n" * 256])), ()),
        (("names", "{0: 'a', 2: 'b'}"), ()),
        (("other", json.dumps(NAMES)), ()),
    ],
    ids=["yolo", "own", "too few", "deep", "numbers", "endless", "gaps", "other key"],
)
def test_onnx_names_are_those_of_its_metadata_or_none(
    entry: tuple[str, str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    import onnx

    export_model(small_network(), tmp_path / "net.onnx")
    proto = onnx.load(tmp_path / "net.onnx")
    onnx.helper.set_model_props(proto, dict([entry]))
    onnx.save(proto, tmp_path / "net.onnx")
    assert sm.load(tmp_path / "net.onnx").classes == expected


def test_names_fit_the_scores_or_are_refused_in_one_sentence() -> None:
    with pytest.raises(GraphError, match=r"names 9 classes, its scores are \[1, 10\]"):
        verify(named(NAMES[:9]))
    with pytest.raises(GraphError, match="up to 255 characters"):
        verify(named(("n" * 256, *NAMES[1:])))
    with pytest.raises(GraphError, match="does not name classes"):
        parse_graph(print_graph(named()).replace("('cat'", "(1"), small_network().constants)
    with pytest.raises(InputError, match=r"2 names were given for the scores \[1, 3\]"):
        sm.compile(small_network(), "last:1", options=Options(3), class_names=("a", "b"))


def test_one_score_that_says_yes_or_no_has_two_names() -> None:
    n = FloatNet(0)
    one = n.g.graph(n.conv(n.x, 1))
    for classes in (("heart rate",), ("no", "yes")):
        verify(replace(one, classes=classes))
    with pytest.raises(GraphError, match="names 3 classes"):
        verify(replace(one, classes=("a", "b", "c")))


def test_rewriting_and_quantizing_keep_names() -> None:
    graph = named()
    assert rewrite(graph, lambda g, node: None).classes == prune(graph).classes == NAMES
    real = replace(dequantized(small_network()), classes=NAMES)
    quantized = sm.quantize(real, draw_shapes(8, 3).train.images, preprocessing=sm.Preprocessing())
    assert quantized.graph.classes == NAMES


def test_what_learns_is_named_after_its_data_and_so_is_what_was_learned(host: Host) -> None:
    data = draw_shapes(4, 2)
    program = sm.compile(named(), "last:2", host, options=Options(4), class_names=data.classes)
    learned = learn(program, data, Course(1, 0.01))
    assert data.classes == program.graph.classes == learned.model.classes != NAMES
    assert sm.compile(named(), "last:2", host, options=Options(4)).graph.classes == ()


def test_a_head_that_is_kept_keeps_its_names_unless_the_data_has_others(host: Host) -> None:
    for classes, expected in (((), NAMES), (NAMES[::-1], NAMES[::-1])):
        program = sm.compile(named(), "last:2", host, options=Options(SCORES), class_names=classes)
        assert program.training is not None
        assert program.graph.classes == program.training.forward.classes == expected
    assert sm.compile(named(), "last:2", host, options=Options(SCORES, head="new")).graph.classes == ()


def test_names_change_no_state_that_was_saved(host: Host) -> None:
    plain, with_names = (
        sm.compile(small_network(), "last:2", host, options=Options(4), class_names=classes)
        for classes in ((), ("a", "b", "c", "d"))
    )
    assert fingerprint(plain.graph) == fingerprint(with_names.graph)
    assert plain.sources.files["model.c"] == with_names.sources.files["model.c"]
    assert plain.memory == with_names.memory
    assert "MODEL_CLASSES" not in plain.sources.files["model.h"]


def test_names_that_a_program_does_not_use_take_no_flash(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smidgen.targets.firmware.cache_folder", lambda: cache)
    plain, with_names = (profile(sm.compile(graph, target="cortex-m7"), 1) for graph in (small_network(), named()))
    assert plain.flash_bytes == with_names.flash_bytes
    assert plain.sram_bytes == with_names.sram_bytes


def c_names(device: HostDevice, count: int) -> list[bytes | None]:
    assert device._library is not None
    return list((ctypes.c_char_p * count).in_dll(device._library, "model_class_names"))


def test_a_program_in_c_has_the_names_byte_for_byte(host: Host) -> None:
    with sm.compile(named(HOSTILE), target=host).start() as device:
        assert isinstance(device, HostDevice)
        assert c_names(device, SCORES) == [name.encode() for name in HOSTILE]
    program = sm.compile(named(HOSTILE), "last:1", host, options=Options(2), class_names=("no", "yes?"))
    assert "#define MODEL_CLASSES 2\n" in program.sources.files["model.h"]
    assert "model_class_names[i]" in program.files()["README.md"]
    with program.start() as device:
        assert isinstance(device, HostDevice)
        assert c_names(device, 2) == [b"no", b"yes?"]


@given(st.text(max_size=40))
def test_a_literal_of_c_is_plain_text_that_says_the_same(text: str) -> None:
    literal = text_literal(text)
    assert literal.isascii()
    assert literal.isprintable()
    assert "?" not in literal
    inside = literal[1:-1]
    assert '"' not in inside
    assert bytes(inside, "ascii").decode("unicode_escape").encode("latin-1") == text.encode("utf-8", "replace")


def test_train_and_info_name_the_classes_of_the_data(folder: Path) -> None:  # noqa: F811
    photographs(folder / "photos")
    invoke(
        "train", "small.smg", "--scheme", "last:1", "--data", "photos", "--epochs", "1", "--learning-rate", "0.01",
        "-o", "out",
    )  # fmt: skip
    classes = tuple(sorted(path.name for path in Path("photos/train").iterdir()))
    for suffix in (".smg", ".tflite"):
        assert sm.load(f"out/small{suffix}").classes == classes
    assert json.loads(invoke("info", "out/small.smg", "--json"))["classes"] == list(classes)
    assert f"{len(classes)} classes: {', '.join(classes)}" in invoke("info", "out/small.tflite")
    export_model(named(("[bold]x", "[/nothing]", "\x1b[2J", *NAMES[3:])), "markup.smg")
    assert "[bold]x, [/nothing], \\x1b[2J" in invoke("info", "markup.smg")


def test_import_names_what_a_model_scores(
    folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    export_model(small_network(), "plain.tflite")
    Path("names.txt").write_text("\n".join(NAMES) + "\n")
    for given_names in (", ".join(NAMES), "names.txt"):
        invoke("import", "plain.tflite", "-o", "named.smg", "--classes", given_names)
        assert sm.load("named.smg").classes == NAMES
        Path("named.smg").unlink()
    said = fail(capsys, monkeypatch, "import", "plain.tflite", "-o", "bad.smg", "--classes", "cat,dog")
    assert "2 names were given for the scores [1, 10] of plain" in said
    assert not Path("bad.smg").exists()
    Path("names.txt").write_bytes(b"\xff\xfe")
    assert "is not text" in fail(capsys, monkeypatch, "import", "plain.tflite", "-o", "b.smg", "--classes", "names.txt")


def test_data_whose_classes_are_numbers_names_none() -> None:
    data = draw_shapes(2, 1)
    assert data.names == data.classes
    assert replace(data, classes=("0", "1", "2", "3")).names == ()
