"""Lines to emulated boards: firmware that serves a link, switched on where its core can be emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smidgen.data.files import read_whole
from smidgen.errors import InputError
from smidgen.targets.cortex_m import CortexM
from smidgen.targets.counter import Counter
from smidgen.targets.flash import BOARD_FLASH, EmulatedFlash
from smidgen.targets.image import Image, read_image
from smidgen.targets.linked_board import KEPT, EmulatedStream, LinkedBoard
from smidgen.targets.qemu_line import QemuStream


def line_to(name: str, target: CortexM, firmware: Path, kept: Path | None = None) -> EmulatedStream | QemuStream:
    """The line to a board that is switched on with this firmware; its flash is empty, or what the file `kept` holds.

    TargetError where the core has Helium, which QEMU emulates, and QEMU is not installed.
    """
    if not target.board.core.helium:
        return emulated_line(name, target, firmware, kept)
    if kept:
        raise InputError(f"{name} runs in QEMU, whose flash goes to no file; leave --flash out, or take another core")
    return QemuStream(name, target.board, read_image(firmware))


def emulated_line(name: str, target: CortexM, firmware: Path, kept: Path | None = None) -> EmulatedStream:
    """The line to a board that is emulated in this process: its flash outlives resets."""
    image = read_image(firmware)
    flash = _flash(image, kept)

    def start() -> LinkedBoard:
        flash.restart()
        return LinkedBoard(target.board, image, Counter(image, {}, (), 0), target.cache, flash)

    return EmulatedStream(name, start, target.limit, kept)


def _flash(image: Image, kept: Path | None) -> EmulatedFlash:
    """The sectors that a program keeps what it learned in, with what a file holds of them."""
    size = image.section(KEPT).bytes
    flash = EmulatedFlash(BOARD_FLASH, max(size // BOARD_FLASH.sector_bytes, 1))
    if kept and kept.exists():
        data = read_whole(kept, max(size, 1))
        if len(data) != size:
            raise InputError(f"{kept} holds {len(data):,} bytes, the flash of this program {size:,}; name another file")
        flash.bytes[:size] = np.frombuffer(data, np.uint8)
    return flash
