"""What was learned kept in flash, measured: what a save writes and wears, and what the store costs on a chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.asking import HEADER, Asked
from experiments.flash import PARTS, EmulatedFlash, Kept, Store
from smidgen.codegen import store_files
from smidgen.compiler import Cache
from smidgen.data import Data, as_input, pixel_encoding
from smidgen.ir import Array, Graph
from smidgen.memory import state_bytes, state_offsets
from smidgen.pipeline import compile
from smidgen.targets import toolchain
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import read_image
from smidgen.targets.toolchain import start_files
from smidgen.training import Options

MAIN = Path(__file__).parent / "keeping.c"
KEPT_BYTES = 32768  # the state that keeping.c keeps
PER_YEAR = 365.25
RATE = 0.1 / 256  # the paper's, for one sample
LARGE = {"stm32f7": 2, "stm32f7-small": 3}  # sectors of parts that have no more; of others twice what two states take


@dataclass(frozen=True)
class Wear:
    """What saves of a program cost a part of flash; averages over all saves but the first."""

    network: str
    scheme: str
    state: int  # bytes
    steps: int  # from one save to the next
    changed: float  # share of the state's bytes that differ from one save to the next
    part: str
    sectors: int
    written: float  # bytes per save
    erases: float  # sectors per save
    busy_ms: float  # per save
    saves: float  # until a sector reaches what it is good for

    def years(self, per_day: float) -> float:
        """How long the part lasts at so many saves per day."""
        return self.saves / per_day / PER_YEAR


@dataclass(frozen=True)
class StoreCost:
    """The store on a chip; instructions for a state of KEPT_BYTES, with a driver that copies byte by byte."""

    board: str
    code: int  # bytes of flash
    sram: int  # bytes of the store itself
    stack: int  # bytes at its deepest, of the driver and of main, too
    open: int
    save_all: int
    save_one: int
    load: int


def learned(network: Graph, scheme: str, data: Data, steps: int, saves: int) -> Iterator[bytes]:
    """The state of a program that learns, each so many steps after the last."""
    program = compile(network, scheme, options=Options(len(data.classes), weight_bits=8))
    encoding, order = pixel_encoding(program.graph), np.random.default_rng(0)
    with program.start() as device:
        for _ in range(saves):
            for index in order.integers(0, len(data.train.labels), steps):
                sample = as_input(data.train.images[index], encoding)
                device.train(sample, int(data.train.labels[index]), RATE)
            block: Array = np.zeros(state_bytes(program.graph), np.uint8)
            state = device.state()
            for value, at in state_offsets(program.graph).items():
                block[at : at + value.type.bytes] = state[value.name].reshape(-1).view(np.uint8)
            yield block.tobytes()


def wear(states: list[bytes], part: str, told: tuple[str, str, int]) -> Wear | None:
    """What saves of these states one after the other cost; None where a region of this part holds no two of them."""
    memory: Array = np.frombuffer(states[0], np.uint8).copy()
    needed = Store(EmulatedFlash(PARTS[part], 1), memory, Kept(1)).needed
    flash = EmulatedFlash(PARTS[part], LARGE.get(part, 2 * needed))
    if needed > flash.sectors:
        return None
    store = Store(flash, memory, Kept(flash.sectors))
    store.save()
    programs, erases, busy = flash.programs, int(flash.erases.sum()), flash.busy_ms
    changed = []
    for state in states[1:]:
        after = np.frombuffer(state, np.uint8)
        changed.append(float((memory != after).mean()))
        memory[:] = after
        store.save()
    count = len(states) - 1
    erased = (int(flash.erases.sum()) - erases) / count
    return Wear(
        *told[:2], memory.size, told[2], sum(changed) / count, part, flash.sectors,
        (flash.programs - programs) * PARTS[part].unit_bytes / count, erased, (flash.busy_ms - busy) / count,
        PARTS[part].erases * flash.sectors / erased if erased else float("inf"),
    )  # fmt: skip


def store_cost(board: str) -> StoreCost:
    """The store measured on an emulated board."""
    target = BoardTarget(BOARDS[board])
    store = {Path(name).name: text for name, text in store_files().items() if name.startswith("smidgen/")}
    files = {**start_files(target.board), **store, HEADER.name: HEADER.read_text(), "main.c": MAIN.read_text()}
    cache = Cache(target.cache, toolchain.find(target.toolchain, target.board.core))
    own = [name for name in files if name.endswith(".c")]
    link = toolchain.link_flags(target.toolchain, target.board.core)
    image = read_image(cache.build(".elf", files, "-I.", "-T", "board.ld", *link, *own))
    asked = Asked(target, image)
    asked.instructions(b"o")
    asked.instructions(b"w")
    counts = {request: asked.instructions(request) for request in (b"s", b"o", b"l", b"w")}
    code = sum(s.bytes for s in image.symbols if s.is_code and (s.name.startswith("smg_") or s.file in store))
    sram = next(s.bytes for s in image.symbols if s.name == "store")
    return StoreCost(
        board, code, sram, asked.board.peak_stack(), counts[b"o"], counts[b"w"], counts[b"s"], counts[b"l"]
    )
