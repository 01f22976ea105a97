"""Model files come back as they were written, and bad ones are refused in one sentence."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, save

from smidgen.data import files
from smidgen.errors import ExportError, ImportModelError, InputError
from smidgen.frontends import READERS, import_model
from smidgen.frontends.native import HEADER, read_smg, write_smg
from smidgen.frontends.network import build
from smidgen.ir import Array, Builder, Graph, Type
from smidgen.ir.text import print_graph
from smidgen.ops import Activate
from smidgen.zoo import build_zoo
from smidgen.zoo import load as load_model
from tests.support.graphs import int8_graphs
from tests.support.release_files import SHARED, archived, npy, npz_members, pickled, tiny_network, zipped
from tests.support.tiers import examples

REUSE_FOLDER = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])


def tiny() -> Graph:
    return build(tiny_network(), "tiny")


@given(graph=int8_graphs(beyond=True))
@REUSE_FOLDER
def test_any_graph_comes_back_equal_from_smg(graph: Graph, tmp_path: Path) -> None:
    write_smg(graph, tmp_path / "any.smg")
    assert read_smg(tmp_path / "any.smg") == graph


def test_the_zoo_comes_back_equal_from_smg(tmp_path: Path) -> None:
    graph = build_zoo("mcunet-5fps")
    write_smg(graph, tmp_path / "m.smg")
    assert load_model(tmp_path / "m.smg") == graph


def test_a_graph_is_always_written_as_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.smg", "b.smg"):
        write_smg(tiny(), tmp_path / name)
    assert (tmp_path / "a.smg").read_bytes() == (tmp_path / "b.smg").read_bytes()


def test_smg_is_a_safetensors_file_with_the_graph_as_text(tmp_path: Path) -> None:
    graph = tiny()
    write_smg(graph, tmp_path / "m.smg")
    data = (tmp_path / "m.smg").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"] == {HEADER: "format 1\n" + print_graph(graph)}
    assert load(data).keys() == {value.name for value in graph.constants}


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="files have no largest size here")
    path = tmp_path / "m.smg"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # bytes: as if the disk were full after them
    try:
        with pytest.raises(InputError, match="cannot be written: File too large"):
            write_smg(tiny(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["m.smg"]
    assert path.read_bytes() == b"old"


def test_a_name_with_line_breaks_is_not_written(tmp_path: Path) -> None:
    g = Builder("two\nlines")
    x = g.input("x", Type((1, 4), "float32"))
    with pytest.raises(ExportError, match="line breaks"):
        write_smg(g.graph(g.emit(Activate("relu"), x)), tmp_path / "m.smg")


def smg_with(path: Path, text: str, tensors: dict[str, Array]) -> Path:
    path.write_bytes(save(tensors, {HEADER: text}))
    return path


def test_smg_files_with_missing_extra_or_foreign_content_are_refused(tmp_path: Path) -> None:
    graph, path = tiny(), tmp_path / "m.smg"
    text, tensors = "format 1\n" + print_graph(graph), {v.name: np.array(d) for v, d in graph.constants.items()}
    missing = {name: data for name, data in tensors.items() if name != "stem.w"}
    wrong = tensors | {"stem.b": tensors["stem.b"][:-1]}
    half = tensors | {"half": np.zeros(3, np.float16)}
    cases: list[tuple[str, dict[str, Array], str]] = [
        (text, missing, "no data for %stem.w"),
        (text, tensors | {"stowaway": np.zeros(3, np.int8)}, "1 tensors its graph does not declare, as 'stowaway'"),
        (text, wrong, r"int32\[8\] but holds int32\[7\]"),
        (text, half, "'half' of a type other than"),
        (text.replace("format 1", "format 2"), tensors, "reads format 1; upgrade"),
        ("", tensors, "without a Smidgen graph"),
        (text.replace("Conv2D", "Conv9D"), tensors, "there is no op Conv9D"),
        (text.replace("output %logits", ""), tensors, "no outputs"),
    ]
    for altered, held, message in cases:
        with pytest.raises(ImportModelError, match=message):
            read_smg(smg_with(path, altered, held))


def test_both_forms_of_the_release_give_the_network_they_hold(tmp_path: Path) -> None:
    network = tiny_network()
    (tmp_path / "tiny.npz").write_bytes(zipped(npz_members(network)))
    (tmp_path / "tiny.pkl").write_bytes(archived(pickled(network)))
    assert import_model(tmp_path / "tiny.npz") == tiny()
    assert import_model(tmp_path / "tiny.pkl") == tiny()
    (tmp_path / "tiny.pkl").write_bytes(pickled(network))
    assert import_model(tmp_path / "tiny.pkl") == tiny()


def test_the_released_pickle_equals_its_repacked_form() -> None:
    pkl, npz = SHARED / "models/release/mbv2-w0.35.pkl", SHARED / "models/mbv2-w0.35.npz"
    if not pkl.exists() or not npz.exists():
        pytest.skip(f"the released networks are not beside the checkout: no {pkl.name} or {npz.name}")
    assert import_model(pkl) == import_model(npz)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"x_zero": -128', '"x_zero": -127', "the layer before writes"),
        ('"stride": 2', '"stride": 0', "impossible window"),
        ('"groups": 1', '"groups": 2', r"only 1, or one per channel \(depthwise\), is supported"),
        ('"k": [3, 3]', '"k": [3, 1]', "declares a kernel"),
        ('"convs": [1, 2]', '"convs": [1, 99]', "should list 2 or 3"),
        ('"y_scale": 0.02', '"y_scale": -0.02', "should be a positive number"),
        ('"y_zero": -128', '"y_zero": 3.5', "whole number"),
        ('"sy"', '"s"', "has no entry 'sy'"),
        ('"classifier"', '"head"', "has no entry 'classifier'"),
        ("{", "[", "description cannot be read"),
    ],
)
def test_a_release_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    members = dict(npz_members(tiny_network()))
    meta = str(np.load(io.BytesIO(members["meta.npy"])))
    assert old in meta
    members["meta.npy"] = npy(np.array(meta.replace(old, new)))
    (tmp_path / "bad.npz").write_bytes(zipped(members))
    with pytest.raises(ImportModelError, match=message):
        import_model(tmp_path / "bad.npz")


def test_an_archive_that_would_unpack_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("c0_w.npy", "w") as member:
        for _ in range(260):
            member.write(bytes(2**20))
    with pytest.raises(ImportModelError, match=r"bomb\.npz would take 272,629,760 bytes .* the limit for one file is"):
        import_model(path, memory=2**28)


@given(array=hnp.arrays(st.sampled_from(["i1", "<i4", "<f4", "<f8", "?"]), hnp.array_shapes(max_dims=4, max_side=5)))
@settings(max_examples=examples(50))
def test_npy_reads_what_numpy_writes(array: Array) -> None:
    for laid_out in (array, np.asfortranarray(array)):
        read = files.parse_npy(npy(laid_out), "x.npy")
        assert read.dtype == array.dtype
        assert np.array_equal(read, array, equal_nan=array.dtype.kind == "f")


def test_npy_files_that_lie_or_hold_objects_are_refused() -> None:
    data = npy(np.arange(6, dtype=np.int8).reshape(2, 3))
    objects = data.replace(b"'|i1'", b"'|O8'")
    huge = data.replace(b"(2, 3), }        ", b"(999999999, 9), }")
    apart, digits = data.replace(b"(2, 3)", b"(2  3)"), b"\x93NUMPY\1\0\xff\x0f{'descr': '|i1', " + b"1" * 4096
    cases = [(objects, "'|O8'"), (huge, "declares"), (data[:-1], "holds 5"), (b"", "not a .npy file")]
    cases += [(apart, "cannot be read"), (digits, "cannot be read"), (data[:20], "cannot be read")]
    words = npy(np.array(["ab", "c"]))
    cases += [(words[:-4] + point.to_bytes(4, "little"), "no Unicode") for point in (0x110000, 0xD800, 2**32 - 1)]
    cases += [(npy(np.zeros((1,) * 5)), "declares 5 dimensions; up to 4 are read")]
    for bad, message in cases:
        with pytest.raises(ImportModelError, match=message.replace("|", r"\|")):
            files.parse_npy(bad, "x.npy")


def test_unsupported_missing_and_misplaced_files_are_named(tmp_path: Path) -> None:
    supported = ", ".join(READERS)
    for name in ("net.pth", "net.pb", "net"):
        with pytest.raises(ImportModelError, match=f"not supported; supported are {supported}"):
            import_model(tmp_path / name)
    with pytest.raises(ImportModelError, match="there is no file"):
        import_model(tmp_path / "absent.smg")
    (tmp_path / "folder.smg").mkdir()
    with pytest.raises(ImportModelError, match="is not a file"):
        import_model(tmp_path / "folder.smg")
