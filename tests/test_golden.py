"""Instructions, SRAM, flash and learned bytes of five programs stand where they were last accepted."""

from __future__ import annotations

import pytest

from tests.support.golden import COMPILER, PROGRAMS, compiler, measure, read


def test_every_program_has_accepted_figures_by_this_compiler() -> None:
    assert list(read()) == list(PROGRAMS)
    assert compiler() == COMPILER, "another compiler makes other code: run `python -m tests.support.golden` and say so"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_takes_and_learns_what_was_last_accepted(name: str) -> None:
    if compiler() != COMPILER:
        pytest.skip(f"figures of {compiler()}, and this is {COMPILER}")
    found, accepted = measure(PROGRAMS[name]()), read()[name]
    assert found == accepted, "if the change means to move them, run `python -m tests.support.golden` and say so"


def test_two_cores_learned_the_same() -> None:
    learned = {name.split(",")[0]: set[str]() for name in PROGRAMS}
    for name, figures in read().items():
        learned[name.split(",")[0]].add(figures.learned_sha256)
    assert len(learned) < len(PROGRAMS)
    assert all(len(hashes) == 1 for hashes in learned.values())
