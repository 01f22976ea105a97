"""Power that fails at any instruction while a board observes, solves, merges or saves: never a wrong head."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smidgen.errors import TargetError
from smidgen.ir import Array
from smidgen.link import Line, LinkedDevice
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.lines import emulated_line
from smidgen.training import Options
from tests.support.networks import inverted_residual
from tests.support.tiers import examples
from tests.targets.test_one_pass import CLASSES, images, same

CUTS = examples(1000, quick=16)
MOST = 7.0  # log10 of the instructions of a request after which power fails: more than the longest takes


def test_what_was_saved_before_or_after_is_there_whatever_instruction_was_the_last(cache: Path) -> None:
    target = BoardTarget(BOARDS["cortex-m7"], cache=cache)
    program = compile(inverted_residual(0), "last:2", target, options=Options(CLASSES), one_pass=True)
    line = emulated_line("board", target, target.linked(program.graph, program.sources))
    limit, rng, cut, new = line._limit, np.random.default_rng(0), 0, 0
    samples = images(40)
    with LinkedDevice(program.graph, Line(line)) as board:
        board.observe(*samples[0])
        board.solve()
        board.save()
        saved = board.state()
    for index in range(CUTS):
        image, label = samples[index % len(samples)]
        allowed: list[dict[str, Array]] = [saved]
        with LinkedDevice(program.graph, Line(line)) as board:
            board.restore(saved)
            line._limit = limit if index % 2 else int(10 ** rng.uniform(1.5, MOST))
            try:
                board.count(image, label, 1)
                if index % 3 == 1:
                    board.merge(board.sums())
                if index % 3 != 2:
                    board.solve()
                line._limit, after = limit, board.state()
                line._limit = int(10 ** rng.uniform(1.5, MOST))
                allowed.append(after)
                board.save()
            except TargetError:
                cut += 1
            line._limit = limit
        line.reset()
        with LinkedDevice(program.graph, Line(line)) as board:
            found = board.state()
        assert any(same(found, one) for one in allowed), index
        if not same(found, saved):
            new, saved = new + 1, found
        if found["sums.n"].sum() > 500:
            with LinkedDevice(program.graph, Line(line)) as board:
                board.collect()
                board.observe(image, label)
                board.solve()
                board.save()
                saved = board.state()
    assert cut > CUTS / 4
    assert new > CUTS / 20
