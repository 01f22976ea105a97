"""One pass over a link: a host lets a board observe, solve, merge and forget, and the board survives a restart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smidgen.errors import InputError
from smidgen.frontends.native import write_smg
from smidgen.learning.sums import read_sums, write_sums
from smidgen.link import Line, LinkedDevice, connect
from smidgen.numerics.one_pass import Sums
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.lines import emulated_line
from smidgen.training import Options
from tests.cli.test_cli import invoke
from tests.link.test_replay_link import built
from tests.support.networks import inverted_residual
from tests.support.one_pass_reference import Reference
from tests.targets.test_one_pass import CLASSES, check_distances, images, same


@pytest.mark.parametrize("replay", [None, "64KB"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_program_at_the_end_of_a_line_learns_in_one_pass_as_numpy_does(
    streamed: bool, replay: str | None, host: Host, tmp_path: Path
) -> None:
    graph = inverted_residual(0)
    program = compile(
        graph, "last:2", host, options=Options(CLASSES), streamed_input=streamed, one_pass=True, replay=replay
    )
    reference, port = Reference(program.graph), built(program, tmp_path / "out")
    with connect(port, program) as board:
        for image, label in images(5):
            board.observe(image, label)
            assert reference.count(image, label) == 0
        board.predict(images(1)[0][0])
        board.forget(*images(5)[2])
        assert reference.count(*images(5)[2], -1) == 0
        with pytest.raises(InputError, match="is not in the sums"):
            board.forget_class(3)
        board.solve()
        assert reference.solve() == 0
        assert same(board.state(), reference.named())
        check_distances(board, reference)
        board.merge(board.sums())
        assert board.sums().samples == 8
        board.merge(reference.sums, -1)
        assert same(board.state(), reference.named())
        for image, label in images(2):
            assert board.train(image, label, 0.001) == reference.train(image, label, 0.001)
        assert same(board.state(), reference.named())


def test_a_board_that_restarts_while_it_observes_misses_no_sample(cache: Path) -> None:
    target = BoardTarget(BOARDS["cortex-m7"], cache=cache)
    program = compile(inverted_residual(0), "last:2", target, options=Options(CLASSES), one_pass=True)
    reference = Reference(program.graph)
    line = emulated_line("board", target, target.linked(program.graph, program.sources))
    with LinkedDevice(program.graph, Line(line)) as board:
        for index, (image, label) in enumerate(images(6)):
            board.observe(image, label)
            assert reference.count(image, label) == 0
            if index == 2:
                assert board.keep()
            if index in (1, 4):
                line.reset()
        board.solve()
        assert reference.solve() == 0
        assert same(board.state(), reference.named())
        assert board.keep()
        line.reset()
        assert same(board.state(), reference.named())
        assert board.restarts


def test_the_verbs_of_a_board_teach_it_and_move_its_sums(host: Host, tmp_path: Path) -> None:
    write_smg(inverted_residual(0), tmp_path / "m.smg")
    program = compile(inverted_residual(0), None, host, options=Options(3), one_pass=True)
    samples = [(image[0], label) for image, label in images(9)]
    for name, part in (("first", samples[:5]), ("second", samples[5:])):
        x, y = np.array([x for x, _ in part]), np.array([y for _, y in part])
        np.savez(tmp_path / f"{name}.npz", x=x, y=y, x_test=x, y_test=y, classes=np.array(["a", "b", "c"]))
    port, asked = built(program, tmp_path / "out"), ("--model", f"{tmp_path}/m.smg", "--classes", "3", "--json")

    def device(*words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(invoke("device", port, *words, *asked))
        return answer

    def whole() -> Sums:
        with program.start() as alone:
            for image, label in images(9):
                alone.observe(image, label)
            return alone.sums()

    file = tmp_path / "s.sums"
    assert device("observe", "--data", f"{tmp_path}/first.npz")["samples"]
    device("solve")
    other = images(1, 5)[0][0]
    np.save(tmp_path / "other.npy", other[0])
    (shown,) = device("predict", f"{tmp_path}/other.npy", "--one-pass")["predictions"]
    device("sums", "get", str(file))
    first = read_sums(file)
    with program.start() as alone:
        alone.merge(first.sums)
        alone.solve()
        alone.predict(other)
        assert (shown["verdict"], shown["distance"]) == ("none of these", alone.distance())
    device("observe", "--data", f"{tmp_path}/second.npz")
    device("sums", "get", str(file), "--force")
    assert read_sums(file).sums == whole()
    device("observe", "--forget", "--data", f"{tmp_path}/second.npz")
    second = replace(read_sums(file).merged(first, -1), classes=first.classes)
    write_sums(second, file)
    assert device("sums", "merge", str(file))["samples"] == [int(n) for n in whole().n[:-1]]
    device("sums", "forget", str(file))
    device("sums", "put", str(file))
    device("sums", "get", str(file), "--force")
    assert read_sums(file).sums == second.sums
