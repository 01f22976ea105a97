"""A dataclass survives JSON, and JSON that is not a dataclass's is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar

import pytest

from smidgen.records import RecordError, from_plain, parse_object

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Inner:
    share: Fraction
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Counted(Generic[Number]):
    one: Number | None
    all: tuple[Number, ...]


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    ratio: float
    pair: tuple[float, int]
    inner: tuple[Inner, ...]
    sizes: dict[str, int]
    counted: Counted[int]
    one: Inner | None = None


WHOLE = Outer(
    "x", 3, 0.5, (1.5, 2), (Inner(Fraction(1, 8)), Inner(Fraction(1), "b")), {"a": 1}, Counted(1, (2, 3)),
    Inner(Fraction(2, 3)),
)  # fmt: skip


def plain(record: Outer = WHOLE, **changed: Any) -> Any:
    return {**json.loads(json.dumps(asdict(record), default=str)), **changed}


def test_what_was_written_is_read_again() -> None:
    assert from_plain(Outer, plain()) == WHOLE
    without = plain()
    del without["one"]
    assert from_plain(Outer, without).one is None


@pytest.mark.parametrize(
    "changed",
    [
        {"count": "3"}, {"count": True}, {"count": 3.0}, {"ratio": float("nan")}, {"ratio": "0.5"}, {"pair": [1.5]},
        {"pair": {}}, {"inner": [{"share": "1/8", "kind": "c"}]}, {"inner": [{"share": "one"}]}, {"inner": None},
        {"sizes": [1]}, {"sizes": {"a": "1"}}, {"other": 1}, {"name": None}, {"one": {}},
        {"ratio": 10**400}, {"count": 10**400}, {"name": "\ud800"}, {"inner": [{"share": float("inf")}]},
        {"inner": [{"share": "1/0"}]}, {"inner": [{"share": "1e999999999"}]},
        {"counted": {"one": 0.5, "all": []}}, {"counted": {"one": None, "all": ["2"]}},
    ],
)  # fmt: skip
def test_what_was_not_written_so_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        from_plain(Outer, plain(**changed))


def test_a_field_that_is_missing_is_refused() -> None:
    damaged = plain()
    del damaged["count"]
    with pytest.raises(RecordError):
        from_plain(Outer, damaged)
    with pytest.raises(RecordError):
        from_plain(Outer, [])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"count": 3.5}, "count is 3.5, not a whole number"),
        ({"sizes": {"a": "1"}}, "sizes 'a' is '1', not a whole number"),
        ({"inner": [{"share": "1/8", "kind": "c"}]}, "kind is 'c', not one of a, b"),
        ({"pair": [1.5]}, r"pair is \[1.5\], not a list of 2"),
        ({"more": 1}, "it has 'more', which is not known"),
    ],
)
def test_what_is_wrong_is_said_by_its_place_and_in_words(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_plain(Outer, plain(**changed))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": Infinity}', "it holds Infinity, which is not a number in JSON"),
        ('{"a": [NaN]}', "it holds NaN"),
        ('{"a": 1', "it is not whole JSON"),
        ("[" * 100_000, "it is not whole JSON"),
        (b'{"a": "\xff"}', "it is not whole JSON"),
        ("[1]", "it is not a JSON object"),
        ("{}", "it has no 'a'"),
    ],
)
def test_a_text_that_is_no_object_is_refused_in_words(text: str | bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        parse_object(text, "a")
