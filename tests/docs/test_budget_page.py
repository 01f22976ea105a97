"""The page on budgets: the boards it lists are the boards there are, with their memory."""

from __future__ import annotations

import re

from smidgen.targets.boards import BOARDS, parse_size
from tests.support.house import TOP

EMULATORS = {"mps2-an500", "mps3-an547"}  # boards for development, which no product has


def test_the_table_of_boards_is_that_of_the_boards_there_are() -> None:
    told: dict[str, tuple[int, int]] = {}
    for line in (TOP / "docs" / "budget.md").read_text().splitlines():
        found = re.fullmatch(r"\| (`.*`) \| [^|]* \| ([\d.]+ [KM]B) \| ([\d.]+ [KM]B) \|", line)
        if found:
            told |= {name: (parse_size(found[2]), parse_size(found[3])) for name in re.findall(r"`(.+?)`", found[1])}
    there = {name: (board.sram.bytes, board.flash.bytes) for name, board in BOARDS.items() if name not in EMULATORS}
    assert told == there
