"""Damaged and hostile model files are refused in one sentence: nothing runs, nothing hangs, nothing balloons."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from smidgen.data.pickles import Pending, read_pickle
from smidgen.errors import ImportModelError, SmidgenError
from smidgen.frontends import import_model
from smidgen.frontends.native import write_smg
from smidgen.frontends.network import build
from tests.support.release_files import archived, npz_members, pickled, tiny_network, zipped

CASES = 240
SECONDS = 2.0  # for one file, on a busy machine
BYTES = 2**26  # at most, while reading files of a few kilobytes


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip, splice, overwrite or repeat a piece."""
    at, other = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    length = rng.randrange(1, 16)
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 2:
            return data[:at] + rng.randbytes(length) + data[at + length :]
        case 3:
            return data[:at] + data[other : other + length] + data[at:]
        case 4:
            return data[:at] + data[other:]
        case _:
            return data[:at] + bytes([rng.choice((0x00, 0x7F, 0x80, 0xFF))]) * length + data[at + length :]


def mutated_smg(folder: Path, rng: random.Random) -> bytes:
    """Half of the cases damage the header, where the graph is."""
    path = folder / "whole.smg"
    if not path.exists():
        write_smg(build(tiny_network(), "tiny"), path)
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    if rng.randrange(2):
        return mutate(data, rng)
    damaged = mutate(data[8:header], rng)
    return len(damaged).to_bytes(8, "little") + damaged + data[header:]


def mutated_npz(folder: Path, rng: random.Random) -> bytes:
    """Most cases damage a member inside a sound archive."""
    members = npz_members(tiny_network())
    if not rng.randrange(4):
        return mutate(zipped(members), rng)
    name = rng.choice(("meta.npy", *members))
    return zipped(members | {name: mutate(members[name], rng)})


def mutated_pkl(folder: Path, rng: random.Random) -> bytes:
    """Most cases damage the pickle inside a sound archive, or a bare one."""
    data = pickled(tiny_network())
    match rng.randrange(4):
        case 0:
            return mutate(archived(data), rng)
        case 1:
            return mutate(data, rng)
        case _:
            return archived(mutate(data, rng))


@pytest.mark.parametrize(
    ("suffix", "mutated"), [("smg", mutated_smg), ("npz", mutated_npz), ("pkl", mutated_pkl)], ids=["smg", "npz", "pkl"]
)
def test_damaged_files_raise_nothing_but_smidgen_errors(
    tmp_path: Path, suffix: str, mutated: Callable[[Path, random.Random], bytes]
) -> None:
    said: list[str] = []
    path = tmp_path / f"damaged.{suffix}"
    tracemalloc.start()
    try:
        for seed in range(CASES):
            path.write_bytes(mutated(tmp_path, random.Random(seed)))
            began = time.monotonic()
            try:
                import_model(path)
            except SmidgenError as error:
                said.append(str(error))
            assert time.monotonic() - began < SECONDS, f"seed {seed}"
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()
    assert len(said) > CASES / 3
    assert not any("\n" in sentence for sentence in said)


class Calls:
    """Pickles as a call of the function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def attacks(mark: Path) -> Iterator[tuple[Calls, str]]:
    command = f"touch {mark}"
    yield Calls(os.system, command), r"tries to use (posix|nt)\.system"
    yield Calls(eval, f"open({str(mark)!r}, 'w')"), r"tries to use \w*builtin\w*\.eval"
    yield Calls(exec, f"open({str(mark)!r}, 'w')"), r"tries to use \w*builtin\w*\.exec"
    yield Calls(open, str(mark), "w"), r"tries to use _?io\.open"
    yield Calls(np.load, str(mark)), r"tries to use numpy\.load"
    yield Calls(np.save, str(mark), np.zeros(3)), r"tries to use numpy\.save"
    yield Calls(getattr, os, "system"), "tries to use"
    yield Calls(Path.touch, mark), "tries to use"


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_calls_anything_is_refused_by_name_and_has_no_effect(tmp_path: Path, protocol: int) -> None:
    mark, path = tmp_path / "mark", tmp_path / "evil.pkl"
    for attack, message in attacks(mark):
        try:
            data = pickle.dumps({"first_conv": attack}, protocol)
        except TypeError:  # a module among the arguments does not pickle: name it by hand
            data = b"\x80\x02cbuiltins\ngetattr\n(cos\nsystem\nX\x01\x00\x00\x00xtR."
        for wrapped in (data, archived(data)):
            path.write_bytes(wrapped)
            with pytest.raises(ImportModelError, match=message):
                import_model(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"(cos\nsystem\nX\x02\x00\x00\x00lso.",  # OBJ
        b"(X\x02\x00\x00\x00lsios\nsystem\n.",  # INST
        b"\x82\x01.",  # EXT1
        b"cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"X\x01\x00\x00\x00aQ.",  # BINPERSID
        b"cnumpy\ndtype\nX\x02\x00\x00\x00O8\x85R.",  # a dtype of objects
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x05\x85C\x01b\x87R.",  # an array of some size
        b"ccollections\nOrderedDict\n)R}b.",  # a state for a dict
    ],
)
def test_instructions_that_data_does_not_need_are_refused(body: bytes) -> None:
    with pytest.raises(ImportModelError, match="is refused: its pickle"):
        read_pickle(b"\x80\x02" + body, "x.pkl")


def test_a_pickle_cannot_make_much_out_of_little() -> None:
    far = b"\x80\x02]r\xff\xff\xff\x7f."  # stored at entry 2³¹ − 1
    deep = b"\x80\x02" + b"]" * 60_000 + b"a" * 59_999 + b"."
    wide = b"\x80\x02" + b"(" * 100_000 + b"N" * 2**19 + b"."
    text = struct.pack("<I", 9000) + b"x" * 9000
    again = (
        b"c_codecs\nencode\nq\x00X" + text + b"q\x01X\x06\x00\x00\x00latin1q\x02\x86R" + b"h\x00h\x01h\x02\x86R" * 2000
    )
    tower = b"\x80\x02}N" + b"q\x00h\x00\x86" * 100 + b"Ns."  # a key that takes 2¹⁰⁰ steps to hash
    shape = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    shape += b"(K\x01J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R\x89C\x00tb."
    tracemalloc.start()
    try:
        assert read_pickle(far, "x.pkl") == []
        assert isinstance(read_pickle(deep, "x.pkl"), list)
        for bomb in (wide, again, tower, shape):
            with pytest.raises(ImportModelError, match="is refused"):
                read_pickle(bomb, "x.pkl")
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_numbers_and_containers_are_read_as_pickle_reads_them(protocol: int) -> None:
    rng = np.random.default_rng(0)
    held = {
        "array": rng.integers(-128, 128, (2, 3, 4)).astype(np.int8),
        "fortran": np.asfortranarray(rng.normal(size=(3, 5)).astype(np.float32)),
        "numbers": [1, -7, 3.5, True, None, 2**40, np.float32(0.1), np.int64(9)],
        "tuple": (1, (2, ()), "text"),
    }
    read = read_pickle(pickle.dumps(held, protocol), "x.pkl")
    assert isinstance(read, dict)
    assert read["numbers"] == held["numbers"]
    assert read["tuple"] == held["tuple"]
    for key in ("array", "fortran"):
        assert isinstance(read[key], Pending)
        assert np.array_equal(read[key].array, held[key])  # type: ignore[arg-type]


def test_early_torch_files_are_read_past_their_preamble() -> None:
    file = io.BytesIO()
    parts: tuple[object, ...] = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"weights": [1, 2, 3]}, [])
    for part in parts:
        pickle.dump(part, file, 2)
    assert read_pickle(file.getvalue(), "x.pkl") == {"weights": [1, 2, 3]}
