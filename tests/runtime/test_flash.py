"""The store over emulated flash: what is refused and in which words, what wears, and that nothing learned is lost."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.flash import (
    EMPTY,
    LAYOUT,
    OK,
    OTHER,
    PARTS,
    TORN,
    TORN_KINDS,
    EmulatedFlash,
    FlashPart,
    Kept,
    Store,
    Torn,
    check_store,
)
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array
from tests.support.tiers import examples

SMALL = FlashPart("small", 512, 8, 10_000, 1, 1)
STATE = 600  # two sectors
MAGIC = 0x53474D53


@pytest.fixture
def memory() -> Array:
    held: Array = np.random.default_rng(1).integers(0, 256, STATE, np.uint8)
    return held


def opened(flash: EmulatedFlash, memory: Array, cache: Path, kept: Kept | None = None) -> Store:
    """The store of a device that just started: its memory holds nothing yet."""
    flash.restart()
    return Store(flash, memory, kept or Kept(flash.sectors), cache)


def loaded(flash: EmulatedFlash, cache: Path, kept: Kept | None = None) -> bytes:
    memory: Array = np.zeros(STATE, np.uint8)
    opened(flash, memory, cache, kept).load()
    return memory.tobytes()


def test_what_was_saved_is_there_after_a_restart(memory: Array, cache: Path) -> None:
    for part in (SMALL, *PARTS.values()):
        flash = EmulatedFlash(part, 4 if part is not SMALL else 6)
        store = opened(flash, memory, cache)
        assert store.found == EMPTY
        store.save()
        memory[7] += 1
        store.save()
        assert loaded(flash, cache) == memory.tobytes(), part.name


def test_a_save_writes_what_changed_and_nothing_where_nothing_did(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 8)
    store = opened(flash, memory, cache)
    store.save()
    whole = flash.programs
    store.save()
    assert flash.programs == whole
    memory[100] ^= 1
    store.save()
    assert flash.programs - whole < 12, "units: head, one block of 16 bytes, CRC, and the one that says so"
    assert loaded(flash, cache) == memory.tobytes()


def test_bytes_that_change_here_and_there_cost_little_more_than_themselves(cache: Path) -> None:
    random = np.random.default_rng(2)
    memory: Array = random.integers(0, 256, 6000, np.uint8)
    flash = EmulatedFlash(SMALL, 80)
    store = opened(flash, memory, cache)
    store.save()
    before = flash.programs
    changed = random.choice(memory.size, 600, replace=False)
    memory[changed] += 1
    store.save()
    written = (flash.programs - before) * SMALL.unit_bytes
    assert 600 + 6000 / 8 < written < 1.2 * (600 + 6000 / 8), "a bit for each byte, the bytes, and heads"


def test_bytes_that_change_back_are_as_they_were(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 9)
    store = opened(flash, memory, cache)
    store.save()
    for change in ({3: 1, 300: 7}, {3: -1}, {300: -7}, {5: 1}, {5: -1, 6: 1}, {5: 1, 6: -1}):
        for at, by in change.items():
            memory[at] = (int(memory[at]) + by) % 256
        store.save()
        assert loaded(flash, cache) == memory.tobytes()
        programs = flash.programs
        store.save()
        assert flash.programs == programs, "nothing changed"


def test_all_sectors_wear_alike(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 9)
    store = opened(flash, memory, cache)
    random = np.random.default_rng(3)
    for _ in range(200):
        memory[random.integers(0, STATE, 40)] += 1
        store.save()
    assert flash.erases.min() > 10
    assert flash.erases.max() - flash.erases.min() <= 1
    assert loaded(flash, cache) == memory.tobytes()


def test_a_region_without_room_for_two_states_says_how_many_sectors_it_takes(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 3)
    store = opened(flash, memory, cache)
    for act in (store.save, store.load):
        with pytest.raises(TargetError, match=r"'state' of 3 sectors of 512 bytes, which takes 4 for 600 bytes"):
            act()
    assert flash.operations == 0
    opened(EmulatedFlash(SMALL, 4), memory, cache).save()


def test_where_sectors_wear_out_the_last_save_stays(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 4)
    store = opened(flash, memory, cache)
    store.save()
    before = memory.tobytes()
    flash.worn = set(np.flatnonzero(flash.erases == 0).tolist())
    flash.bytes[[sector * SMALL.sector_bytes + 9 for sector in flash.worn]] = 0
    memory[:] += 1
    for _ in range(3):
        with pytest.raises(TargetError, match=r"too few sectors left .* what was saved before is there"):
            store.save()
        assert loaded(flash, cache) == before
    with pytest.raises(TargetError, match="too few sectors left"):
        opened(flash, memory, cache).save()
    assert loaded(flash, cache) == before


def test_a_worn_sector_is_passed_over_where_there_are_more(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 7)
    flash.worn = {1, 4}
    flash.bytes[[sector * SMALL.sector_bytes + 300 for sector in flash.worn]] = 0
    for _ in range(12):
        store = opened(flash, memory, cache)
        memory[:] += 1
        store.save()
        assert loaded(flash, cache) == memory.tobytes()
    assert flash.erases[[0, 2, 3, 5, 6]].min() > 1


def test_what_another_program_learned_is_kept_until_the_store_is_cleared(memory: Array, cache: Path) -> None:
    flash, mine = EmulatedFlash(SMALL, 6), Kept(6, program=(1, 2))
    opened(flash, memory, cache, mine).save()
    kept = flash.bytes.copy()
    other = memory.copy()
    for theirs in (Kept(6, program=(1, 3)), Kept(6, name="replay", program=(1, 2))):
        store = opened(flash, other, cache, theirs)
        assert store.found == OTHER
        for act in (store.load, store.save):
            with pytest.raises(TargetError, match="another program learned, and keeps it"):
                act()
    shorter = opened(flash, other[:100], cache, mine)
    assert shorter.found == OTHER
    assert np.array_equal(flash.bytes, kept)
    assert loaded(flash, cache, mine) == memory.tobytes()
    store.clear()
    store.save()
    assert loaded(flash, cache, theirs) == other.tobytes()


def test_what_another_version_of_the_store_wrote_is_kept_until_the_store_is_cleared(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 6)
    head = struct.pack("<II", MAGIC, 2) + bytes(32)
    flash.program(0, head + struct.pack("<II", zlib.crc32(head), 0xFFFFFFFF)[:8])
    assert flash.operations, "the older sector is there"
    kept = flash.bytes.copy()
    store = opened(flash, memory, cache)
    assert store.found == LAYOUT
    for act in (store.load, store.save):
        with pytest.raises(TargetError, match="another version of the store"):
            act()
    assert np.array_equal(flash.bytes, kept)
    store.clear()
    store.save()
    assert loaded(flash, cache) == memory.tobytes()


def test_a_store_whose_clearing_is_cut_holds_the_last_state_or_none(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 9)
    store = opened(flash, memory, cache)
    for _ in range(20):
        memory[::7] += 1
        store.save()
    before, last = flash.bytes.copy(), memory.tobytes()
    found = []
    for erase in range(flash.sectors):
        flash.bytes[:], flash.uncertain[:] = before, 0
        store = opened(flash, memory, cache)
        flash.cut(erase)
        with pytest.raises(TargetError):
            store.clear()
        store = opened(flash, memory, cache)
        found.append(store.found)
        assert store.found in (OK, TORN, EMPTY)
        if store.found == OK:
            assert loaded(flash, cache) == last
    assert found[0] == OK != found[-1]


def test_two_regions_of_one_flash_leave_each_other_alone(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 12)
    one, other = Kept(6, 0, "state", (1, 1)), Kept(6, 6, "replay", (1, 1))
    opened(flash, memory, cache, one).save()
    first = memory.tobytes()
    memory[:] += 3
    store = opened(flash, memory, cache, other)
    for _ in range(30):
        memory[:] += 1
        store.save()
    assert loaded(flash, cache, one) == first
    assert loaded(flash, cache, other) == memory.tobytes()


def test_a_flash_that_cannot_be_read_is_said(memory: Array, cache: Path) -> None:
    flash = EmulatedFlash(SMALL, 6)
    store = opened(flash, memory, cache)
    store.save()
    flash.powered = False
    with pytest.raises(TargetError, match="cannot be read"):
        store.load()
    with pytest.raises(TargetError, match="sizes that cannot be"):
        opened(EmulatedFlash(replace(SMALL, unit_bytes=512), 6), memory, cache).save()


@settings(max_examples=examples(25))
@given(
    st.integers(0, 2**16), st.lists(st.tuples(st.integers(0, 60), st.sampled_from(TORN_KINDS)), min_size=1, max_size=12)
)
def test_no_sequence_of_cuts_loses_a_save_that_was_done(cache: Path, seed: int, cuts: list[tuple[int, Torn]]) -> None:
    flash, random = EmulatedFlash(SMALL, 6, seed), np.random.default_rng(seed)
    memory: Array = np.zeros(STATE, np.uint8)
    store = opened(flash, memory, cache)
    store.save()
    allowed = [memory.tobytes()]  # what was saved, and what was being saved since
    for after, torn in cuts:
        flash.cut(after, torn)
        while flash.powered:
            memory[random.integers(0, STATE, 1 + int(random.integers(0, 30)))] += 1
            allowed.append(memory.tobytes())
            try:
                store.save()
            except TargetError:
                assert not flash.powered
            else:
                allowed = allowed[-1:]
        memory[:] = 0
        store = opened(flash, memory, cache)
        store.load()
        assert memory.tobytes() in allowed


def test_emulated_flash_sets_bits_by_erasing_and_clears_them_by_programming() -> None:
    flash = EmulatedFlash(SMALL, 2)
    assert flash.program(8, bytes([0b1010_1010] * 8)) == 0
    assert flash.program(8, bytes([0b1111_0000] * 8)) == 0
    assert flash.read(0, 16) == bytes([255] * 8 + [0b1010_0000] * 8)
    assert flash.erase(0) == 0
    assert flash.read(0, 16) == bytes([255] * 16)
    assert (flash.erases.tolist(), flash.programs, flash.busy_ms) == ([1, 0], 2, 1 + 2 / 1000)
    for refused in (flash.erase(8), flash.erase(1024), flash.program(4, bytes(8)), flash.program(1020, bytes(8))):
        assert refused != 0
    with pytest.raises(InputError, match="0 sectors"):
        EmulatedFlash(SMALL, 0)


@pytest.mark.parametrize("torn", TORN_KINDS)
def test_a_cut_leaves_what_is_said_and_touches_nothing_else(torn: Torn) -> None:
    flash = EmulatedFlash(SMALL, 2, seed=5)
    flash.cut(1, torn)
    assert flash.program(0, bytes(16)) != 0
    assert flash.read(0, 8) is None, "the power is gone"
    assert flash.program(64, bytes(8)) != 0
    flash.restart()
    whole, first, again = flash.read(0, 8), flash.read(8, 8), {flash.read(8, 8) for _ in range(20)}
    assert whole == bytes(8)
    assert flash.read(16, 1008) == bytes([255] * 1008)
    expected = {"nothing": bytes([255] * 8), "everything": bytes(8)}
    assert first == expected.get(torn, first)
    assert (len(again) > 1) == (torn == "uncertain")
    assert (bytes(8) != first != bytes([255] * 8)) == (torn in ("some", "uncertain"))


def test_every_code_of_the_store_has_its_sentence() -> None:
    header = (Path(__file__).parents[2] / "src/smidgen/runtime/store/smidgen_store.h").read_text()
    check_store(OK)
    for code in range(-1, -9, -1):
        assert f"= {code}" in header
        with pytest.raises(TargetError) as caught:
            check_store(code)
        assert "none of a store" not in str(caught.value)
    with pytest.raises(TargetError, match="gave the code -9"):
        check_store(-9)
    assert "= -9" not in header
