"""A soak of seconds: long and rough runs differ in nothing, and a soak would notice if they did. See `make soak`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.house import TOP

COUNTS = {"board": 40, "host": 2000, "extremes": 3, "rates": 2, "saves": 40, "flips": 15, "brownouts": 24}
START = """
import sys
sys.path.insert(0, "tools")
import soak, soaking
from smidgen.targets.firmware import BoardDevice
{}
sys.exit(soak.main(sys.argv[1:]))
"""
# What would be wrong with a program or a board, and the parts that must tell.
WRONG = {
    "another step": (
        "right = BoardDevice.train\n"
        "BoardDevice.train = lambda self, image, label, rate: right(self, image, label, 2 * rate)",
        ("board", "extremes", "rates", "flips"),
    ),
    "another definition": (
        "right = soaking.Soaked.step_in_numpy\n"
        "soaking.Soaked.step_in_numpy = lambda self, *step: (right(self, *step)[0], step[0])",
        ("host", "extremes", "rates"),
    ),
    "every save accepted": ("soaking.Powered.load = lambda *_: True", ("saves", "brownouts")),
    "a write too far": (
        "right = BoardDevice.train\n"
        "def train(self, *step):\n"
        "    sram = self._running().board.sram\n"
        "    self._running()._uc.mem_write(sram.origin + sram.bytes - 1, b'0')\n"
        "    return right(self, *step)\n"
        "BoardDevice.train = train",
        ("flips",),
    ),
}


def soaked(cache: Path, parts: dict[str, int], wrong: str = "") -> tuple[int, dict[str, int]]:
    """The exit code, and how many differences each part found."""
    options = [word for part in COUNTS for word in (f"--{part}", str(parts.get(part, 0)))]
    command = [sys.executable, "-c", START.format(wrong), "--json", "--cache", str(cache), *options]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["part"], r["count"]) for r in results] == list(parts.items()), done.stderr[-2000:]
    return done.returncode, {result["part"]: len(result["differences"]) for result in results}


@pytest.mark.slow
def test_long_and_rough_runs_differ_in_nothing(cache: Path) -> None:
    assert soaked(cache, COUNTS) == (0, dict.fromkeys(COUNTS, 0))


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_what_differs_is_told(what: str, cache: Path) -> None:
    wrong, parts = WRONG[what]
    code, found = soaked(cache, {part: min(COUNTS[part], 6) for part in COUNTS if part in parts}, wrong)
    assert code == 1
    assert all(found.values()), found
