"""Learning in one pass from data, and what becomes of it in files: taught, merged, forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from smidgen import inference
from smidgen.data import Data, Samples
from smidgen.errors import InputError
from smidgen.frontends.native import write_smg
from smidgen.inference import ClassesTested, predict
from smidgen.learning import Course
from smidgen.learning.sums import KeptSums, check_belongs, measuring, read_sums, with_head, write_sums, write_taught
from smidgen.numerics.one_pass import Sums
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.cli.test_cli import invoke
from tests.support.networks import inverted_residual
from tests.targets.test_one_pass import images

NAMES = ("a", "b", "c")


def data(count: int = 12) -> Data:
    samples = images(count)
    arrays = tuple(np.ascontiguousarray(image[0]) for image, _ in samples)
    whole = Samples(arrays, tuple(label for _, label in samples))
    return Data("patterns", NAMES, whole, whole)


def taught(host: Host, scheme: str | None = None, course: Course | None = None, seed: int = 0) -> sm.Learned:
    program = compile(inverted_residual(seed), scheme, host, options=Options(3), one_pass=True, class_names=NAMES)
    return sm.learn(program, data(), course)


def test_one_pass_alone_makes_the_head_that_its_sums_give(host: Host, tmp_path: Path) -> None:
    learned = taught(host)
    assert learned.taught is not None
    assert learned.sums is not None
    assert learned.taught == learned.last
    assert learned.accuracy > 0.8
    assert learned.sums.sums.samples == 12
    write_taught(learned.model, learned.sums, tmp_path / "a.smg")
    model, kept = sm.load(str(tmp_path / "a.smg")), read_sums(tmp_path / "a.smg")
    assert model == learned.model
    assert kept.sums == learned.sums.sums
    assert kept.classes == NAMES
    assert with_head(model, kept) == model


def test_of_more_samples_than_sums_hold_one_pass_takes_an_even_spread_and_says_so(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = taught(host)
    monkeypatch.setattr("smidgen.learning.run.MOST_SAMPLES", 6)
    learned = taught(host)
    assert every.sums is not None
    assert learned.sums is not None
    assert (learned.sums.sums.samples, every.sums.sums.samples) == (6, 12)
    assert learned.warnings == ("one pass saw 6 of 12 samples, spread evenly: sums hold no more",)
    assert every.warnings == ()
    assert taught(host, "head", Course(1, 0.1)).warnings[-1:] == learned.warnings


def test_files_of_two_parts_merge_to_that_of_the_whole(host: Host, tmp_path: Path) -> None:
    learned = taught(host)
    assert learned.sums is not None
    n, m, g = (getattr(learned.sums.sums, name) for name in "nmg")
    whole, half = learned.sums, replace(learned.sums, sums=Sums(n // 2 * 0, m * 0, g * 0))
    for kept, name in ((whole, "whole"), (half, "half")):
        write_sums(kept, tmp_path / name)
    assert read_sums(tmp_path / "half").merged(read_sums(tmp_path / "whole")).sums == whole.sums
    assert whole.merged(whole, -1).sums == half.sums
    with pytest.raises(InputError, match="is not in the sums"):
        half.merged(whole, -1)


@pytest.mark.parametrize("scheme", ["head", "last:2"])
def test_steps_go_on_from_the_head_of_one_pass(host: Host, scheme: str) -> None:
    once, after = taught(host, scheme), taught(host, scheme, Course(1, 0.001, augment=None))
    assert once.taught == after.taught
    assert once.sums is not None
    assert after.sums is not None
    assert once.sums.sums == after.sums.sums
    assert len(after.record) == 1
    head = "head.w"
    assert not np.array_equal(once.state[head], after.state[head])
    check_belongs(once.model, once.sums)
    if scheme == "head":
        check_belongs(after.model, after.sums)
    else:
        with pytest.raises(InputError, match="steps changed them since"):
            check_belongs(after.model, after.sums)


def test_only_what_belongs_together_merges(host: Host) -> None:
    kept, other = taught(host).sums, taught(host, seed=1).sums
    assert kept is not None
    assert other is not None
    with pytest.raises(InputError, match="frozen layers differ"):
        kept.merged(other)
    with pytest.raises(InputError, match="the sums are of other classes: a, b, c and a, c, b"):
        kept.merged(replace(kept, classes=("a", "c", "b")))
    small = Sums.empty(2, kept.sums.m.shape[1])
    with pytest.raises(InputError, match="room for 3 and 2 classes"):
        kept.merged(KeptSums(small, kept.features, kept.classes))


def test_sums_do_not_depend_on_the_scheme_that_steps_would_follow(host: Host) -> None:
    first, second = taught(host).sums, taught(host, "last:2").sums
    assert first is not None
    assert second is not None
    assert first.digest == second.digest


def test_a_damaged_file_of_sums_is_refused(host: Host, tmp_path: Path) -> None:
    kept, path = taught(host).sums, tmp_path / "sums"
    assert kept is not None
    write_sums(kept, path)
    good = path.read_bytes()
    refused = 0
    for at in range(len(good) - 40, len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(InputError):
            read_sums(path)
        refused += 1
    assert refused == 40
    path.write_bytes(good[:-8])
    with pytest.raises(InputError):
        read_sums(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_sums(tmp_path / "none")


def test_what_is_none_of_the_classes_is_told_by_the_distance_that_the_device_measures(
    host: Host, tmp_path: Path
) -> None:
    learned = taught(host)
    assert learned.sums is not None
    write_taught(learned.model, learned.sums, path := tmp_path / "a.smg")
    model, known = measuring(learned.model, path), data()
    samples = (*known.train.images[:4], images(1, 5)[0][0][0])
    found = predict(model, samples, target=host)
    numpys = predict(model, samples, target="reference").predictions
    assert [one.distance for one in numpys] == [one.distance for one in found.predictions]
    assert [one.verdict for one in found.predictions] == ["", "", "", "", "none of these"]
    assert found.predictions[4].text.startswith("none of these (distance ")
    program = compile(inverted_residual(0), None, host, options=Options(3), one_pass=True)
    with program.start() as device:
        device.merge(learned.sums.sums)
        device.solve()
        for sample, one in zip(samples, found.predictions, strict=True):
            device.predict(sample[None])
            assert device.distance() == one.distance
    tested = inference.test(model, known, target=host)
    assert isinstance(tested, ClassesTested)
    assert tested.rejected == 0
    assert "0.00% are none of the classes" in str(tested)
    assert measuring(learned.model, tmp_path / "none.smg") == learned.model
    write_smg(learned.model, tmp_path / "bare.smg")
    assert measuring(learned.model, tmp_path / "bare.smg") == learned.model


def test_one_class_alone_is_told_from_anything_else(tmp_path: Path) -> None:
    write_smg(inverted_residual(0), tmp_path / "m.smg")
    usual = np.stack([image[0] for image, label in images(60) if label == 0])
    others = np.stack([image[0] for image, label in images(30) if label])
    half, names = len(usual) // 2, np.array(["usual", "not usual"])
    zeros = np.zeros(len(usual), int)
    parts = {"x": usual[:half], "y": zeros[:half], "x_test": usual[half:], "y_test": zeros[half:], "classes": names[:1]}
    np.savez(tmp_path / "usual.npz", **parts)  # type: ignore[arg-type]
    both = np.concatenate([usual[half:], others])
    labels = np.arange(len(both)) >= len(usual) - half
    np.savez(tmp_path / "both.npz", x=both, y=labels.astype(int), x_test=both, y_test=labels.astype(int), classes=names)
    out = tmp_path / "out"
    made = json.loads(
        invoke("train", f"{tmp_path}/m.smg", "--one-pass", "--data", f"{tmp_path}/usual.npz", "-o", str(out), "--json")
    )
    assert made["classes"] == ["usual", "not usual"]
    assert made["samples"] == [half, 0]
    assert made["accuracy"] is None
    (model,) = out.glob("*.smg")
    tested = json.loads(invoke("test", str(model), "--data", f"{tmp_path}/both.npz", "--json"))
    assert tested["accuracy"] > 0.8
    assert tested["auc"] > 0.95
    np.save(tmp_path / "other.npy", others[0])
    shown = json.loads(invoke("predict", str(model), f"{tmp_path}/other.npy", "--json"))
    assert shown["kind"] == "distance"
    assert shown["predictions"][0]["verdict"] == "not usual"
    assert shown["predictions"][0]["distance"] > 1
