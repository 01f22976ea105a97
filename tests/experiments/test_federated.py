"""A fleet's sums, in any order and grouping, masked or plain, are those of one device; who leaves is subtracted."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.federated.fleet.adding import Content, Part, gather, leave, total
from smidgen.errors import InputError
from smidgen.learning.sums import KeptSums
from smidgen.numerics.one_pass import Sums
from tests.numerics.test_one_pass import observed, samples
from tests.support.tiers import examples

EXAMPLE = Path(__file__).parents[2] / "examples" / "federated"
NEEDS = "the fleet cannot be tried without {}, which is not installed: pip install 'smidgen[flower]'"


class Devices:
    """Devices of a fleet in this process, some of which fall out after they gave their keys."""

    def __init__(self, parts: Mapping[int, KeptSums], falls_out: frozenset[int] = frozenset()) -> None:
        self.parts, self.falls_out, self.private = parts, falls_out, dict[int, bytes]()
        self.sent: dict[int, Part] = {}

    def __call__(self, what: str, of: Mapping[int, Content]) -> dict[int, Content]:
        there = {
            device: content for device, content in of.items() if what == "query.keys" or device not in self.falls_out
        }
        return {device: getattr(self, what.partition(".")[2])(device, content) for device, content in there.items()}

    def keys(self, device: int, content: Content) -> Content:
        return {"public": str(device).encode()}

    def sums(self, device: int, content: Content) -> Content:
        assert str(device).encode() in content["keys"]
        self.sent[device] = Part.plain(self.parts[device])
        return self.sent[device].content

    def leave(self, device: int, content: Content) -> Content:
        return Part.plain(self.parts[device]).content


class Masked(Devices):
    """Devices that mask their sums."""

    def keys(self, device: int, content: Content) -> Content:
        from examples.federated.fleet.masks import new_keys

        self.private[device], public = new_keys()
        return {"public": public}

    def sums(self, device: int, content: Content) -> Content:
        from examples.federated.fleet.masks import masked

        plain, public = Part.plain(self.parts[device]), content["keys"]
        self.sent[device] = Part(masked(plain.vector, self.private[device], public), plain.of)
        return self.sent[device].content


def fleet(seed: int, fewest: int = 2, most: int = 5) -> tuple[dict[int, KeptSums], KeptSums, np.random.Generator]:
    """Sums of some devices by number, and of one that saw everything."""
    rng = np.random.default_rng(seed)
    x, labels, classes = samples(rng)
    owner, count = rng.integers(0, most, len(x)), int(rng.integers(fewest, most + 1))
    owner %= count
    kept = KeptSums(observed(x, labels, classes), "a network", tuple("abcdefgh"[:classes]))
    of = {i: replace(kept, sums=observed(x[owner == i], labels[owner == i], classes)) for i in range(count)}
    return of, kept, rng


@settings(max_examples=examples(1000, 60), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_parts_in_any_order_and_grouping_are_everything_and_who_leaves_is_subtracted(seed: int) -> None:
    of, whole, rng = fleet(seed)
    parts = [Part.read(Part.plain(of[device]).content) for device in rng.permutation(len(of)).tolist()]
    while len(parts) > 1:
        first, second = (parts.pop(int(rng.integers(0, len(parts)))) for _ in range(2))
        parts.append(first + second)
    assert total(parts).digest == whole.digest
    found, there = gather(Devices(of), of)
    assert found.digest == whole.digest
    assert set(there) == set(of)
    gone = int(rng.integers(0, len(of)))
    rest = leave(Devices(of), found, gone)
    assert rest.digest == total(Part.plain(one) for device, one in of.items() if device != gone).digest


@settings(max_examples=examples(300, 30), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_masks_cancel_and_without_one_nobody_knows_anything(seed: int) -> None:
    pytest.importorskip("cryptography", reason=NEEDS.format("cryptography"))
    of, whole, _ = fleet(seed)
    devices = Masked(of)
    assert gather(devices, of)[0].digest == whole.digest
    for device, part in devices.sent.items():
        plain = Part.plain(of[device]).vector
        assert np.mean(part.vector == plain) < 0.5
        others = [one for number, one in devices.sent.items() if number != device]
        with pytest.raises(InputError, match="masks do not cancel"):
            total(others)


@pytest.mark.parametrize("kind", [Devices, Masked])
def test_devices_that_fall_out_are_left_out_and_the_others_are_asked_again(kind: type[Devices]) -> None:
    if kind is Masked:
        pytest.importorskip("cryptography", reason=NEEDS.format("cryptography"))
    of, whole, _ = fleet(1, fewest=5)
    devices = kind(of, frozenset([1]))
    found, there = gather(devices, of)
    assert 1 not in there
    assert found.digest == whole.merged(of[1], -1).digest
    with pytest.raises(InputError, match="no device of the fleet"):
        gather(kind(of, frozenset(of)), of)
    with pytest.raises(InputError, match="the device that leaves did not give its sums"):
        leave(devices, found, 1)


def test_masks_need_another_device_and_each_key_once() -> None:
    pytest.importorskip("cryptography", reason=NEEDS.format("cryptography"))
    from examples.federated.fleet.masks import masked, new_keys

    (private, public), (_, other), (_, third) = (new_keys() for _ in range(3))
    vector = np.zeros(9, np.uint32)
    assert masked(vector, private, [public, other]).any()
    for everyone in ([], [public], [other, third], [public, public], [public, other, other]):
        with pytest.raises(InputError, match="nobody to mask sums with"):
            masked(vector, private, everyone)


def test_only_sums_of_one_network_and_its_classes_are_added() -> None:
    of, whole, _ = fleet(1, fewest=5)
    first, second = (Part.plain(of[device]) for device in (0, 1))
    for other, why in (
        (replace(second.of, features="b"), "frozen layers"),
        (replace(second.of, classes=("x",)), "classes"),
    ):
        with pytest.raises(InputError, match=why):
            total([first, Part(second.vector, other)])
    for damaged in (
        {},
        {**first.content, "of": "no"},
        {**first.content, "vector": b"12"},
        {**first.content, "of": "{}"},
    ):
        with pytest.raises(InputError, match="a device sent"):
            Part.read(damaged)
    shorter = {**first.content, "vector": first.vector[:-1].tobytes()}
    with pytest.raises(InputError, match="numbers for sums of"):
        Part.read(shorter)
    with pytest.raises(InputError, match="is not in the sums"):
        leave(Devices({0: whole}), of[0], 0)
    assert whole.sums != Sums.empty(*whole.sums.m.shape)


@pytest.mark.slow
def test_a_fleet_over_flower_learns_the_bytes_of_one_device_and_prints_what_its_page_shows(tmp_path: Path) -> None:
    if importlib.util.find_spec("flwr") is None:
        pytest.skip(NEEDS.format("Flower"))
    command = [sys.executable, str(EXAMPLE / "run.py"), "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "NOT the bytes" not in done.stdout
    assert done.stdout in (EXAMPLE / "README.md").read_text(), "run python tools/example_figures.py federated"
    adopted = json.loads((tmp_path / "adopted.json").read_text())
    assert sorted(adopted) == ["1", "2", "3", "4"]  # the first one left


def test_without_flower_the_example_says_what_to_install() -> None:
    if importlib.util.find_spec("flwr") is not None:
        pytest.skip("Flower is installed here, and the example runs")
    done = subprocess.run([sys.executable, str(EXAMPLE / "run.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "this example needs Flower, which is not installed; run: pip install 'smidgen[flower]'"
    ]
