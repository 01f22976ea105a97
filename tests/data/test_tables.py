"""Tables of numbers: rows with what they tell, recordings in folders by label, bad lines named by their number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.data import DataError, load_data, load_images, load_labelled
from tests.support.release_files import zipped
from tests.support.tiers import examples

HEAD = "timestamp,x,y2,activity"
ROWS = [f"{10 * i},{i},{-i / 4},{('walk', 'rest')[i % 2]}" for i in range(20)]


def table(folder: Path, *lines: str, name: str = "t.csv", ending: str = "\n") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((ending.join(lines) + ending).encode())
    return path


def recordings(folder: Path, files: dict[str, list[str]]) -> Path:
    for name, lines in files.items():
        table(folder, *lines, name=name)
    return folder


def moving(count: int = 10, rows: int = 4) -> dict[str, list[str]]:
    """Recordings of two labels, by the number of the recording and the row."""
    return {f"{label}/{i}.csv": [f"{i},{row}" for row in range(rows)] for label in ("a", "b") for i in range(count)}


def test_words_in_the_last_column_are_classes_in_order(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, HEAD, *ROWS))
    assert (data.label_kind, data.classes) == ("classes", ("rest", "walk"))
    assert data.test.labels == (1, 0, 1, 0)
    assert [image.tolist() for image in data.test.images] == [[8, -2], [9, -2.25], [18, -4.5], [19, -4.75]]
    assert data.train.images[0].dtype == np.float32
    assert len(load_images(table(tmp_path, HEAD, *ROWS), 3)) == 3
    labelled = load_labelled(table(tmp_path, HEAD, *ROWS), 2)
    assert labelled is not None
    assert labelled.test.labels == (1, 0)


@pytest.mark.parametrize("name", ["label", "Class", "TARGET", "y"])
def test_a_column_of_a_usual_name_tells_wherever_it_stands(tmp_path: Path, name: str) -> None:
    data = load_data(table(tmp_path, f"a,{name},b", *(f"{i},{i % 3},{2 * i}" for i in range(20))))
    assert data.classes == ("0", "1", "2")
    assert data.train.images[1].tolist() == [1, 2]


def test_integers_are_classes_by_value_and_other_numbers_are_told_as_numbers(tmp_path: Path) -> None:
    integers = load_data(table(tmp_path, "a,y", *(f"{i},{(2, 10)[i % 2]}" for i in range(20))))
    assert integers.classes == ("2", "10")
    numbers = load_data(table(tmp_path, "a,y", *(f"{i},{i}.0" for i in range(20))))
    assert (numbers.label_kind, numbers.classes) == ("vectors", ())
    assert [target.tolist() for target in numbers.test.targets] == [[4], [9], [14], [19]]
    assert load_labelled(table(tmp_path, "a,y", "1,2.5", "2,1"), 3) is None


def test_columns_that_tell_are_chosen_by_name(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b,c", *("1,2,3",) * 10)
    both = load_data(path, label="c,a")
    assert both.label_kind == "vectors"
    assert both.train.targets[0].tolist() == [3, 1]
    assert both.train.images[0].tolist() == [2]
    nothing = load_data(path, label="none")
    assert nothing.label_kind == "nothing"
    assert nothing.train.images[0].tolist() == [1, 2, 3]
    numbered = load_data(table(tmp_path, "0,1,walks", *(f"{i % 2},5,{i}" for i in range(20))), label="0")
    assert numbered.classes == ("0", "1")
    assert numbered.train.images[1].tolist() == [5, 1]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_separators_endings_quotes_blanks_and_a_byte_order_mark_change_nothing(
    tmp_path: Path, separator: str, ending: str
) -> None:
    plain = load_data(table(tmp_path, HEAD, *ROWS))
    lines = [
        "\ufeff" + HEAD.replace(",", separator),
        "",
        *(
            separator.join(f' "{cell}"' if i > 1 else f" {cell} " for i, cell in enumerate(row.split(",")))
            for row in ROWS
        ),
        " ",
    ]
    again = load_data(table(tmp_path, *lines, ending=ending))
    assert again.digest() == plain.digest()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=15, max_size=15))
@settings(max_examples=examples(40))
def test_numbers_come_back_as_they_were_written(numbers: list[float]) -> None:
    with TemporaryDirectory() as folder:
        lines = ["a,b,c", *(",".join(map(repr, numbers[i : i + 3])) for i in range(0, 15, 3))]
        read = load_images(table(Path(folder), *lines), 5, label="none")
    assert np.array_equal(np.concatenate(read), np.array(numbers, np.float32))


def test_a_folder_or_archive_of_two_tables_says_what_to_test_with(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    for name, rows in (("train.csv", ROWS[:12]), ("test.csv", ROWS[12:])):
        table(folder, HEAD, *rows, name=name)
    packed = tmp_path / "both.zip"
    packed.write_bytes(zipped({path.name: path.read_bytes() for path in sorted(folder.iterdir())}))
    for source in (folder, packed):
        data = load_data(source, label="activity")
        assert (len(data.train), len(data.test), data.classes) == (12, 8, ("rest", "walk"))
    table(folder, "a,b,c,d", "1,2,3,4", name="test.csv")
    with pytest.raises(DataError, match=r"test\.csv has other columns than .*train\.csv; give both the same"):
        load_data(folder)


def test_recordings_are_samples_of_rows_and_columns(tmp_path: Path) -> None:
    data = load_data(recordings(tmp_path / "plain", moving()))
    assert (data.label_kind, data.classes, data.test.labels) == ("classes", ("a", "b"), (0, 0, 1, 1))
    assert data.test.images[0].tolist() == [[4, 0], [4, 1], [4, 2], [4, 3]]
    named = {name: ["time;x;y", *(f"7;{line.replace(',', ';')}" for line in lines)] for name, lines in moving().items()}
    assert load_data(recordings(tmp_path / "named", named)).digest() == data.digest()
    packed = tmp_path / "packed.zip"
    packed.write_bytes(zipped({name: "\n".join(lines).encode() for name, lines in moving().items()}))
    assert load_data(packed).digest() == data.digest()
    divided = {f"{split}/{name}": lines for split in ("train", "test") for name, lines in moving(2).items()}
    assert load_data(recordings(tmp_path / "divided", divided)).test.labels == (0, 0, 1, 1)
    assert len(load_images(tmp_path / "plain", 6)) == 6


def line(place: int, text: str) -> list[str]:
    return [HEAD, *ROWS[: place - 2], text, *ROWS[place - 2 :]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda d: table(d, *line(7, "1,2,3")),
            "line 7 of .*t.csv has 3 cells, the first line 4; give all rows the same",
        ),
        (lambda d: table(d, *line(3, "1,2,3,walk,5")), "line 3 of .*t.csv has 5 cells"),
        (lambda d: table(d, *line(9, "1,,3,walk")), "line 9 of .*t.csv has nothing in column 'x'; fill it, or leave"),
        (lambda d: table(d, *line(9, "1,2,3,")), "line 9 of .*t.csv has nothing in column 'activity'"),
        (
            lambda d: table(d, *line(2, "1,left,3,walk")),
            "line 2 of .*t.csv has 'left' in column 'x', which is no finite",
        ),
        (lambda d: table(d, *line(2, "1,2,nan,walk")), "line 2 of .*t.csv has 'nan' in column 'y2'"),
        (lambda d: table(d, *line(2, "1,2,1e39,walk")), "has '1e39' in column 'y2'"),
        (lambda d: table(d, *line(2, "1,1_0,3,walk")), "has '1_0' in column 'x'"),
        (lambda d: table(d, *line(4, '1,2,3,"walk')), "line 4 of .*t.csv cannot be cut into cells"),
        (lambda d: table(d, *line(5, f"1,2,3,{'w' * 2**20}")), "line 5 of .*t.csv has more than 1,048,576 bytes"),
        (lambda d: table(d, *ROWS), "line 1 of .*t.csv holds numbers; name the columns in a line above"),
        (lambda d: table(d, "1,2,3", "4,5,6"), "line 1 of .*t.csv holds numbers; name the columns"),
        (lambda d: table(d, "a,,b", "1,2,3"), "line 1 of .*t.csv gives column 2 no name"),
        (lambda d: table(d, "a,b,a", "1,2,3"), "line 1 of .*t.csv names two columns 'a'"),
        (lambda d: table(d, "a,label,y", "1,2,3"), "names columns 'label' and 'y'; choose one with --label"),
        (lambda d: table(d, "time,y", "1,2"), "names 2 columns, none of them a feature"),
        (lambda d: table(d, HEAD), "holds the names of 4 columns and no rows"),
        (lambda d: table(d, ""), "t.csv is empty; give a line with the names of its columns"),
        (
            lambda d: table(d, "a,y", *(f"{i},{i}" for i in range(5000))),
            "column 'y' of .* holds 5,000 labels, up to 4,096",
        ),
        (
            lambda d: recordings(d, moving(3) | {"b/1.csv": ["1,2"]}),
            "b/1.csv holds 1 rows of 2 numbers, a/0.csv 4 rows",
        ),
        (lambda d: recordings(d, moving(3) | {"b/1.csv": ["x,y"]}), "b/1.csv holds no numbers; leave it out"),
        (lambda d: recordings(d, moving(3) | {"b/1.csv": ["1,2", "3,up"]}), "line 2 of b/1.csv has 'up' in column '2'"),
        (lambda d: recordings(d, moving(3) | {"b/1.csv": ["1,2", "3"]}), "line 2 of b/1.csv has 1 cells"),
        (lambda d: recordings(d, {"1.csv": ["1,2"], "2.csv": ["1,2"]}), "2 recordings, none in a folder by its label"),
        (lambda d: recordings(d, {f"train/{k}": v for k, v in moving().items()}), "no recordings in test/"),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        load_data(make(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("speed", "names no column 'speed'; --label takes some of timestamp, x, y2, activity"),
        ("activity,x", "has the label 'walk' but others have numbers; give classes as words in one column"),
    ],
)
def test_columns_that_cannot_tell_are_refused(tmp_path: Path, label: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(table(tmp_path, HEAD, *ROWS), label=label)


def test_what_is_no_text_and_what_is_no_table_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n1,ä\n".encode("latin1"))
    with pytest.raises(DataError, match=r"line 2 of .*t\.csv is not text in UTF-8"):
        load_data(path)
    path.write_bytes((HEAD + "\n").encode("utf-16"))
    with pytest.raises(DataError, match="is not text in UTF-8; save the file as such"):
        load_data(path)
    with pytest.raises(DataError, match="is no table, so column 'x' cannot be chosen"):
        load_data(recordings(tmp_path / "r", moving()), label="x")


def test_rows_count_against_the_memory_they_take(tmp_path: Path) -> None:
    path = table(tmp_path, "a,y", *("1,2",) * 5000)
    with pytest.raises(DataError, match=r"t\.csv would take .* bytes of memory beside .*; where you trust the file"):
        load_data(path, memory=2**20)
    assert load_data(table(tmp_path, "a,y", *("1,2", "1,3") * 100), memory=2**20).label_kind == "classes"
    with pytest.raises(DataError, match=r"\d\.csv would take .* bytes of memory beside .* before"):
        load_data(recordings(tmp_path / "r", moving(10, 400)), memory=2**15)
    with pytest.raises(DataError, match=r"0\.csv would take 54,890 bytes of memory beside 256 before, the limit"):
        load_data(recordings(tmp_path / "one", moving(1, 8000)), memory=2**15)


@pytest.mark.parametrize("chosen", [False, True])
def test_the_time_for_a_line_of_names_grows_as_the_line_does(tmp_path: Path, chosen: bool) -> None:
    """Four times the columns take about four times as long; sixteen times where each is compared with each."""

    def seconds(columns: int) -> float:
        names = [f"c{place}" for place in range(columns)]
        path, label = table(tmp_path, ",".join(names)), ",".join(names[::2]) if chosen else None
        took = []
        for _ in range(3):
            start = process_time()
            with pytest.raises(DataError, match="and no rows"):
                load_data(path, label=label)
            took.append(process_time() - start)
        return min(took)

    assert seconds(40_000) < 9 * seconds(10_000)
