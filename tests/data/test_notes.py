"""What was left out of data, or makes a test of little worth, is told in notes; what nothing learns from is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.data import Data, DataError, Samples, load_data, load_labelled
from smidgen.data.load import notes_on
from smidgen.ir import Array
from tests.cli.test_wrong_turns import refusal, run
from tests.data.test_data import png, tree
from tests.support.output_networks import in_a_folder_of_photographs
from tests.support.tiers import examples


def photographs() -> dict[str, bytes]:
    return {f"{label}/{i}.png": png(10 * i + place) for place, label in enumerate(("cat", "dog")) for i in range(10)}


def test_files_that_are_not_read_and_empty_folders_are_named_in_a_folder_and_its_archive(tmp_path: Path) -> None:
    others = ("notes.txt", "cat/a.txt", "cat/b.TXT", "dog/c.txt", "cat/old/1.heic", "loose.png", "fish/list.csv")
    place = tree(
        tmp_path / "photos", photographs() | dict.fromkeys((*others, ".DS_Store", "__MACOSX/cat/._1.png"), b"x")
    )
    (place / "bird").mkdir()
    shutil.make_archive(str(place), "zip", place)
    for source in (place, tmp_path / "photos.zip"):
        assert load_data(source).notes == (
            f"{source}: only images in the folders of classes are read; left out: "
            "4 .txt ('cat/a.txt', 'cat/b.TXT', 'dog/c.txt', …), 1 .heic ('cat/old/1.heic'), 1 .csv ('fish/list.csv'), "
            "1 .png ('loose.png')",
            f"{source}: a folder without images is no class; left out: 2 ('bird', 'fish')",
        )
        labelled = load_labelled(source, 9)
        assert labelled is not None
        assert labelled.notes == load_data(source).notes


def test_of_divided_folders_those_beside_both_parts_are_named(tmp_path: Path) -> None:
    files = {
        f"{part}/{name}": png(shade)
        for shade, part in enumerate(("train", "test"))
        for name in ("cat/1.png", "dog/2.png")
    }
    place = tree(tmp_path / "d", files | {"val/cat/1.png": png(7), "train/bird/x.avi": b"x"})
    (place / "test" / "bird").mkdir()
    assert load_data(place).notes[1:2] == (
        f"{place}: a folder without images is no class; left out: 2 ('test/bird', 'train/bird')",
    )
    assert "1 .avi ('train/bird/x.avi'), 1 .png ('val/cat/1.png')" in load_data(place).notes[0]


def test_data_of_which_all_is_read_have_no_notes(tmp_path: Path) -> None:
    assert load_data(tree(tmp_path / "d", photographs())).notes == ()
    assert load_data("cifar10").notes == ()


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=12), st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.sampled_from((np.uint8, np.float32)),
)  # fmt: skip
@settings(max_examples=examples(60))
def test_test_samples_that_are_training_samples_are_counted(train: list[int], test: list[int], dtype: type) -> None:
    """Some differ in their shape alone."""

    def sample(number: int) -> Array:
        shape = (2, 3, 1) if number % 2 else (3, 2, 1)
        return np.full(shape, number // 2, dtype)

    parts = (Samples(tuple(map(sample, numbers)), (0,) * len(numbers)) for numbers in (train, test))
    notes = notes_on(Data("drawn", (), *parts))
    count = sum(number in train for number in test)
    assert notes == (() if not count else (
        f"drawn: {count} of {len(test)} test samples are training samples, too; accuracy on them says nothing of new "
        "ones",
    ))  # fmt: skip


def test_classes_of_one_part_alone_are_named() -> None:
    images = tuple(np.full((2, 2, 1), shade, np.uint8) for shade in range(6))
    train, test = Samples(images[:3], (0, 1, 1)), Samples(images[3:], (1, 2, 3))
    assert notes_on(Data("d", ("a", "b", "c", "d"), train, test)) == (
        "d: 2 classes have no samples to learn from ('c', 'd')",
        "d: 1 class has no samples to test with ('a')",
    )


def made(train: list[Array], test: list[Array]) -> Data:
    return Data("d", ("a", "b"), *(Samples(tuple(part), (0, 1, *(1,) * (len(part) - 2))) for part in (train, test)))


def test_what_nothing_can_be_learned_from_is_refused() -> None:
    one, two = (np.full((4, 4, 3), shade, np.uint8) for shade in (0, 1))
    made([one, two], [one, one]).check_several()
    with pytest.raises(DataError, match="all 3 samples of d to learn from are the same; add others"):
        made([one, one.copy(), one.copy()], [one, two]).check_several()
    good, bad = np.arange(4, dtype=np.float32), np.array([0, 1, np.nan, np.inf], np.float32)
    with pytest.raises(DataError, match="sample 2 to learn from of d holds a number that is not finite"):
        made([good, good + 1, bad], [good, good]).check_several()
    with pytest.raises(DataError, match="sample 1 to test with of d holds a number that is not finite"):
        made([good, good + 1], [good, bad]).check_several()


def test_commands_print_the_notes_as_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_folder_of_photographs(tmp_path, monkeypatch)
    (first, *_), (again, *_) = (sorted(Path("photos", part).rglob("*.png")) for part in ("train", "test"))
    shutil.copy(first, again)
    Path("photos/readme.txt").write_text("x")
    learn = "train net.smg --data photos --scheme last:1 --lr 0.01 --epochs 1 -o out"
    for command in ("test net.smg --data photos", "test net.smg --data photos --json", learn):
        result = run(command)
        assert "smidgen: photos: only images in the folders of classes are read; left out: 1 .txt" in result.stderr
        assert "smidgen: photos: 1 of " in result.stderr
        assert "readme.txt" not in result.stdout


def test_fit_and_train_refuse_samples_that_are_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_folder_of_photographs(tmp_path, monkeypatch)
    tree(tmp_path / "same", {f"{label}/{i}.png": png(7) for label in "abcd" for i in range(10)})
    for verb in ("fit net.smg --budget 64KB", "train net.smg --scheme last:1 --lr 0.01"):
        assert "all 32 samples of same to learn from are the same" in refusal(f"{verb} --data same -o out")
    assert not Path("out").exists()
