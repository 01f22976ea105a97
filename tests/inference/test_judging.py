"""`test` says how often a model is right: by LiteRT's measure, alike on every target; or by how much it is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smidgen as sm
from smidgen.data import Data, Samples, centre, pixel_encoding
from smidgen.data.samples import match_classes, renumbered
from smidgen.errors import SmidgenError
from smidgen.frontends import export_model
from smidgen.inference import CellsTested, ClassesTested, LabelsTested, NumbersTested, ReconstructionTested
from smidgen.inference.evaluation import count_confusion, judge_classes
from smidgen.inference.scores import area_under_curve
from smidgen.ir import Graph, evaluate
from smidgen.ir.preprocessing import Preprocessing
from smidgen.results.report.learned import draw_tested
from tests.cli.test_cli import fail, invoke
from tests.support.float_graphs import dequantized
from tests.support.house import TOP
from tests.support.litert import LiteRT
from tests.support.output_networks import (
    in_a_folder_of_photographs,
    labelled,
    named_network,
    of_cells,
    of_rows,
    rows,
    scores,
    shapes,
)
from tests.support.release_files import SHARED
from tests.support.shapes import SHAPES


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return in_a_folder_of_photographs(tmp_path, monkeypatch)


def judged_classes(model: Graph, data: Data, **how: object) -> ClassesTested:
    found = sm.test(model, data, **how)  # type: ignore[arg-type]
    assert isinstance(found, ClassesTested)
    return found


@pytest.mark.slow
def test_the_person_detector_is_as_good_as_litert_says() -> None:
    file, images = SHARED / "models/mlperf-tiny/vww_96_int8.tflite", SHARED / "data/vww.zip"
    if not file.exists() or not images.exists():
        pytest.skip("the person detector and its images are not beside the checkout")
    printed = json.loads(invoke("test", str(file), "--data", str(images), "--json"))
    data, oracle, graph = sm.load_data(images), LiteRT(file.read_bytes()), sm.load(file)
    said = [int(oracle.run(centre(image, pixel_encoding(graph)))[0].argmax()) for image in data.test.images]
    right = sum(a == b for a, b in zip(said, data.test.labels, strict=True))
    assert printed["samples"] == len(said) == 1600
    assert printed["accuracy"] == right / len(said)
    pairs = list(zip(data.test.labels, said, strict=True))
    page = (TOP / "docs" / "predicting.md").read_text()
    assert f"accuracy {right / len(said):.2%}: {right:,} of {len(said):,} right" in page
    assert printed["confusion"] == [[pairs.count((true, other)) for other in (0, 1)] for true in (0, 1)]


def test_test_counts_what_the_definition_says_and_every_target_agrees(place: Path, cache: Path) -> None:
    model, data = named_network(), shapes()
    said = [int(scores(model, image).argmax()) for image in data.test.images]
    printed = json.loads(invoke("test", "net.smg", "--data", "photos", "--json"))
    assert printed["accuracy"] == np.mean([a == b for a, b in zip(said, data.test.labels, strict=True)])
    for true, row in enumerate(printed["confusion"]):
        assert row == [sum(a == b and c == true for a, c in zip(said, data.test.labels, strict=True)) for b in range(4)]
    others = [
        json.loads(invoke("test", "net.smg", "--data", "photos", "--target", target, "--json"))
        for target in ("host", "reference", "cortex-m7")
    ]
    for one in others:
        target = one.pop("target")
        assert {**one, "target": "host"} == printed, target


def test_test_shows_accuracy_classes_and_confusion_and_draws_a_page(place: Path) -> None:
    printed = invoke("test", "net.smg", "--data", "photos", "-o", "page.html", "--images", "12")
    assert "shapes_net on host, 12 samples of photos" in printed
    assert "Precision" in printed
    assert "confusion: true class down, predicted across" in printed
    assert "drawn in page.html" in printed
    page = Path("page.html").read_text()
    assert "shapes_net tested on photos" in page
    assert all(name in page for name in SHAPES)
    for word in ("accuracy", "Confusion", "Precision and recall"):
        assert word in page


def test_two_classes_by_one_output_are_tested_at_one_half() -> None:
    model, samples = of_rows(1), rows(40)
    said = [int(sm.predict(model, one).predictions[0].numbers[0] > 0) for one in samples]
    labels = tuple(int(i % 3 == 0) for i in range(40))
    held = Samples(samples, labels)
    found = judged_classes(model, Data("two", ("no", "yes"), held, held))
    assert found.accuracy == np.mean([a == b for a, b in zip(said, labels, strict=True)])
    assert [one.name for one in found.classes] == ["no", "yes"]
    assert 0 < found.accuracy < 1


def test_an_autoencoder_is_judged_by_what_it_makes_of_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, samples = of_rows(6, "auto"), rows(12)
    export_model(model, "auto.smg")
    np.save("rows.npy", np.stack(samples))
    errors = []
    for sample in samples:
        given = np.clip(np.rint(sample * 16), -128, 127).astype(np.int8)[None]
        (made,) = evaluate(model, given)
        errors.append(np.mean((made / 16 - given / 16) ** 2))
    printed = json.loads(invoke("predict", "auto.smg", "rows.npy", "--json"))
    assert printed["kind"] == "reconstruction"
    assert [one["error"] for one in printed["predictions"]] == pytest.approx(errors)
    assert "reconstruction error" in invoke("predict", "auto.smg", "rows.npy")
    found = json.loads(invoke("test", "auto.smg", "--data", "rows.npy", "--json"))
    held = errors[4::5]  # every fifth
    assert (found["told"], found["samples"]) == ("nothing", len(held))
    assert found["error"] == pytest.approx(np.mean(held))
    np.savez("faults.npz", x=np.stack(samples), y=np.arange(12) % 2, x_test=np.stack(samples), y_test=np.arange(12) % 2,
             classes=np.array(["broken", "normal"]))  # fmt: skip
    found = json.loads(invoke("test", "auto.smg", "--data", "faults.npz", "--json"))
    normal, broken = errors[1::2], errors[::2]
    assert found["normal"] == "normal"
    assert found["auc"] == pytest.approx(np.mean([(b > n) + (b == n) / 2 for b in broken for n in normal]))
    assert [one["error"] for one in found["classes"]] == pytest.approx([np.mean(broken), np.mean(normal)])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_the_area_is_how_often_a_fault_has_the_larger_error(normal: list[int], others: list[int]) -> None:
    expected = np.mean([(b > n) + (b == n) / 2 for b in others for n in normal])
    assert area_under_curve(np.array(normal), np.array(others)) == pytest.approx(expected)


def test_maps_are_tested_cell_by_cell_where_their_class_is_known() -> None:
    model, rng = replace(of_cells(), classes=("ground", "face", "hand")), np.random.default_rng(2)
    images = tuple(rng.integers(0, 256, (5, 16, 16, 3), np.uint8))
    maps = rng.integers(0, 4, (5, 4, 4), np.uint8)  # 3 is no class of the model
    found = sm.test(model, labelled(images, tuple(maps)))
    assert isinstance(found, CellsTested)
    said = np.stack([evaluate(model, centre(image, pixel_encoding(model)))[0][0].argmax(-1) for image in images])
    known = maps < 3
    assert found.cells == known.sum() < 80
    assert found.accuracy == (said == maps)[known].mean()
    for place, one in enumerate(found.classes):
        both = ((said == place) & (maps == place)).sum()
        assert one.precision == both / ((said == place) & known).sum()
        assert one.recall == both / (maps == place).sum()


def test_vectors_are_tested_by_their_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, samples, rng = of_rows(3), rows(20), np.random.default_rng(3)
    wanted = rng.normal(0, 3, (20, 3)).astype(np.float32)
    wanted[:, 2] = 1.5
    export_model(model, "net.smg")
    np.savez("told.npz", x=np.stack(samples), y=wanted, x_test=np.stack(samples), y_test=wanted)
    found = json.loads(invoke("test", "net.smg", "--data", "told.npz", "--json"))
    got = np.stack([sm.predict(model, one, numbers=True).predictions[0].numbers for one in samples])
    off = got - wanted
    assert found["mean_absolute"] == pytest.approx(np.abs(off).mean())
    assert found["root_mean_squared"] == pytest.approx(np.sqrt((off**2).mean()))
    for place, one in enumerate(found["outputs"]):
        assert one["mean_absolute"] == pytest.approx(np.abs(off[:, place]).mean())
        assert one["root_mean_squared"] == pytest.approx(np.sqrt((off[:, place] ** 2).mean()))
    explained = [1 - (off[:, i] ** 2).sum() / ((wanted[:, i] - wanted[:, i].mean()) ** 2).sum() for i in range(2)]
    assert [one["r_squared"] for one in found["outputs"][:2]] == pytest.approx(explained, rel=1e-5)
    assert found["outputs"][2]["r_squared"] is None
    assert "RMSE" in invoke("test", "net.smg", "--data", "told.npz", "-o", "page.html")
    assert "Error of each output" in Path("page.html").read_text()


def test_vectors_of_yes_and_no_are_tested_output_by_output() -> None:
    samples, rng = rows(30), np.random.default_rng(8)
    wanted = rng.integers(0, 2, (30, 3)).astype(np.float32)
    for model, limit in ((of_rows(3), 0.0), (of_rows(3, ending="sigmoid"), 0.5)):
        found = sm.test(model, labelled(samples, tuple(wanted)))
        assert isinstance(found, LabelsTested)
        got = np.stack([sm.predict(model, one, numbers=True).predictions[0].numbers for one in samples])
        said, truth = got > limit, wanted > 0
        assert found.accuracy == (said == truth).mean()
        for place, one in enumerate(found.outputs):
            both = (said[:, place] & truth[:, place]).sum()
            assert (one.samples, one.precision) == (truth[:, place].sum(), both / said[:, place].sum())
            assert one.recall == both / truth[:, place].sum()
        assert "each yes or no" in str(found)
        assert "Precision and recall" in draw_tested(found)


def test_a_page_of_a_thousand_classes_is_no_burden() -> None:
    model, count = of_rows(1000), 40
    held = Samples(rows(count), tuple(range(count)))
    data = Data("many", tuple(f"class {i}" for i in range(1000)), held, held)
    page = draw_tested(judged_classes(model, data))
    assert len(page) < 2**20


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_precision_and_recall_are_their_definitions(pairs: list[tuple[int, int]]) -> None:
    truth, said = (np.array(part) for part in zip(*pairs, strict=True))
    confusion = count_confusion(truth, said, 4)
    assert sum(map(sum, confusion)) == len(pairs)
    for place, one in enumerate(judge_classes("abcd", confusion)):
        both = pairs.count((place, place))
        called, are = int((said == place).sum()), int((truth == place).sum())
        assert one.samples == are
        assert one.precision == (both / called if called else None)
        assert one.recall == (both / are if are else None)


def test_classes_are_matched_by_name_whatever_their_order() -> None:
    data, model = shapes(), named_network()
    turned = replace(model, classes=SHAPES[::-1])
    plain, found = judged_classes(model, data), judged_classes(turned, data)
    assert [one.name for one in found.classes] == list(SHAPES[::-1])
    said = [int(scores(model, image).argmax()) for image in data.test.images]
    assert found.accuracy == np.mean([a == 3 - b for a, b in zip(said, data.test.labels, strict=True)])
    assert found.accuracy != plain.accuracy
    assert found.note == plain.note == ""
    unnamed = judged_classes(replace(model, classes=()), data)
    assert (unnamed.accuracy, unnamed.confusion) == (plain.accuracy, plain.confusion)
    others = judged_classes(replace(model, classes=("a", "b", "c", "d")), data)
    assert others.accuracy == plain.accuracy
    assert "matched in order" in others.note


def test_some_of_a_models_classes_are_enough_where_they_have_names() -> None:
    model, data = named_network(), shapes()
    kept = [i for i, label in enumerate(data.test.labels) if label in (1, 3)]
    held = replace(data.test.at(kept), labels=tuple(data.test.labels[i] // 2 for i in kept))
    found = judged_classes(model, Data("some", ("disc", "square"), held, held))
    said = [int(scores(model, data.test.images[i]).argmax()) for i in kept]
    assert found.accuracy == np.mean([said[i] == data.test.labels[k] for i, k in enumerate(kept)])
    assert [one.samples for one in found.classes] == [0, 6, 0, 6]
    with pytest.raises(SmidgenError, match=r"2 classes, shapes_net scores 4, and 'oval' is none of them; give data"):
        sm.test(model, Data("other", ("disc", "oval"), held, held))
    with pytest.raises(SmidgenError, match="the data has 2 classes, shapes_net scores 4; give data"):
        sm.test(replace(model, classes=()), Data("other", ("0", "1"), held, held))


def test_a_kept_head_learns_classes_in_its_own_order() -> None:
    data = shapes()
    turned = renumbered(data, SHAPES[::-1])
    assert turned.classes == SHAPES[::-1]
    assert all(turned.classes[a] == data.classes[b] for a, b in zip(turned.test.labels, data.test.labels, strict=True))
    assert turned.train.images == data.train.images
    for other in ((), ("a", "b", "c", "d"), SHAPES, SHAPES[:3]):
        assert renumbered(data, other) is data
    with pytest.raises(SmidgenError, match="3 classes"):
        match_classes(("a", "b", "c"), (), (), 4, "net")


def test_a_float_model_runs_in_numpy_and_says_so_where_c_is_asked_for() -> None:
    model, data = dequantized(named_network(), Preprocessing()), shapes(2)
    found = judged_classes(replace(model, classes=SHAPES), data)
    assert found.target == "reference"
    said = [int(evaluate(model, centre(image, pixel_encoding(model)))[0].argmax()) for image in data.test.images]
    assert found.accuracy == np.mean([a == b for a, b in zip(said, data.test.labels, strict=True)])
    with pytest.raises(SmidgenError, match="quantize the model first"):
        sm.predict(model, data.test.images[0], target="host")


def test_a_page_shows_the_most_hostile_names_as_text() -> None:
    bad = "</script><script>alert(1)</script>"
    found = judged_classes(replace(named_network(), classes=(bad, "<b>", "&amp;", "d")), shapes(1))
    page = draw_tested(found)
    assert "<script>alert(1)" not in page
    assert "&lt;b&gt;" in page
    others = [
        sm.test(of_rows(6), labelled(rows(3))),
        sm.test(of_cells(2), labelled((np.zeros((16, 16, 3), np.uint8),) * 2, (np.zeros((4, 4), np.uint8),) * 2)),
    ]
    assert isinstance(others[0], ReconstructionTested)
    assert all("</html>" in draw_tested(one) for one in others)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "net.smg", "nothing.png"), "there is no nothing.png; give a photograph"),
        (("predict", "net.smg", ""), "there is no file without a name"),
        (("predict", "net.smg", "net.smg"), "net.smg is nothing that can be shown to a model"),
        (("predict", "net.smg", "empty"), "empty holds nothing that can be shown"),
        (("predict", "net.smg", "bad.png"), "bad.png cannot be read as an image"),
        (("predict", "net.smg", "bad.zip"), "bad.zip is not a complete archive"),
        (("predict", "net.smg", "photos", "--top", "0"), "the 0 likeliest classes"),
        (("predict", "net.smg", "photos", "--target", "moon"), "there is no target 'moon'"),
        (("test", "net.smg", "--data", "photos", "--images", "0"), "cannot be tested on 0 samples"),
        (("test", "net.smg", "--data", "photos", "-o", "no/page.html"), "there is no folder no"),
        (("test", "net.smg", "--data", "cifar10"), "the data has 10 classes, shapes_net scores 4"),
        (("test", "net.smg", "--data", "told.npz"), "has 3 numbers for each sample, shapes_net gives 4"),
        (("test", "net.smg", "--data", "rows.npy"), "has no label for each sample"),
    ],
)
def test_bad_requests_are_answered_in_one_sentence(
    place: Path,
    arguments: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("empty").mkdir()
    Path("bad.png").write_bytes(b"not an image")
    Path("bad.zip").write_bytes(b"PK\x03\x04 not an archive")
    images = np.arange(6, dtype=np.uint8).repeat(32 * 32 * 3).reshape(6, 32, 32, 3)
    np.save("rows.npy", images)
    np.savez("told.npz", x=images, y=np.zeros((6, 3), np.float32))
    said = fail(capsys, monkeypatch, *arguments)
    assert message in said
    assert "\n" not in said


def test_numbers_of_the_wrong_count_and_maps_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(SmidgenError, match="has 2 numbers for each sample, rows gives 3"):
        sm.test(of_rows(3), labelled(rows(3), (np.zeros(2, np.float32),) * 3))
    picture = np.zeros((16, 16, 3), np.uint8)
    with pytest.raises(SmidgenError, match=r"a map of \[2, 2\] cells, cells gives \[4, 4\]"):
        sm.test(of_cells(), labelled((picture,), (np.zeros((2, 2), np.uint8),)))
    with pytest.raises(SmidgenError, match="hold none of the 3 classes"):
        sm.test(of_cells(), labelled((picture,), (np.full((4, 4), 9, np.uint8),)))
    assert isinstance(sm.test(of_rows(3), labelled(rows(3), (np.full(3, 0.5, np.float32),) * 3)), NumbersTested)
