"""Several analyses count as their mean, where they tried the same; otherwise a sentence says why not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import smidgen as sm
from smidgen.cli import app
from smidgen.results.choices import contributions_page
from smidgen.selection.contributions import (
    Contributions,
    ContributionsError,
    read_contributions,
    read_several,
    write_contributions,
)
from smidgen.selection.estimates import shipped_contributions
from smidgen.zoo import load_zoo
from tests.support.contributions import measured

ANALYSES = Path(__file__).parents[2] / "benchmarks" / "results" / "analyses"


@pytest.fixture(scope="module")
def three() -> list[Contributions]:
    graph = load_zoo("mcunet-5fps")
    found = [measured(graph, seed) for seed in range(3)]
    return [replace(one, conditions=replace(one.conditions, epochs=10 + 5 * i)) for i, one in enumerate(found)]


def accuracies(one: Contributions) -> list[float]:
    depths, shares, bits = ([part.accuracy for part in parts] for parts in (one.depths, one.shares, one.bits))
    return depths + shares + bits


def test_every_accuracy_is_the_mean(three: list[Contributions]) -> None:
    found = sm.average_contributions(three)
    np.testing.assert_allclose(accuracies(found), np.mean([accuracies(one) for one in three], axis=0), rtol=1e-12)
    gains = [one.biases_gain(15) for one in three]
    assert found.biases_gain(15) == pytest.approx(np.mean(gains))


def test_one_alone_stays_as_it_is(three: list[Contributions]) -> None:
    assert sm.average_contributions(three[:1]) is three[0]


def test_conditions_of_all_are_kept_and_written(three: list[Contributions]) -> None:
    found = sm.average_contributions([three[0], sm.average_contributions(three[1:])])
    assert (found.conditions, *found.averaged) == tuple(one.conditions for one in three)
    assert Contributions.from_json(found.to_json()) == found
    assert "10 and 15 and 20 epochs" in contributions_page(found)


def test_what_diverged_once_counts_as_diverged(three: list[Contributions]) -> None:
    gone = replace(three[1], shares=(replace(three[1].shares[0], accuracy=0.0), *three[1].shares[1:]))
    found = sm.average_contributions([three[0], gone])
    assert found.shares[0].accuracy == 0
    assert found.shares[1].accuracy > 0


def test_files_of_contributions_before_averages_are_read(three: list[Contributions]) -> None:
    from smidgen.selection.contributions import _digest

    plain = json.loads(three[0].to_json())
    del plain["averaged"], plain["sha256"]
    assert Contributions.from_json(json.dumps({**plain, "sha256": _digest(plain)})) == three[0]


def test_what_differs_cannot_be_averaged(three: list[Contributions]) -> None:
    one = three[0]
    for other, said in (
        (measured(load_zoo("mbv2-w0.35")), "their layers differ"),
        (sm.estimate(load_zoo("mcunet-5fps")), "an estimate of"),
        (replace(one, depths=one.depths[:-1]), "other depths of biases"),
        (replace(one, shares=one.shares[1:]), "other shares of layers"),
        (replace(one, bits=one.bits[1:]), "other bits"),
    ):
        with pytest.raises(ContributionsError, match=said):
            sm.average_contributions([one, other])
    with pytest.raises(ContributionsError, match="give one at least"):
        sm.average_contributions([])


def test_a_search_takes_several_files(three: list[Contributions], tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.json" for i in range(2)]
    for one, file in zip(three, files, strict=False):
        write_contributions(one, file)
    given = [text for file in files for text in ("--contributions", str(file))]
    wanted = ["search", "mcunet-5fps", "--budget", "100KB", "--analytic", "--classes", "5", "--json"]
    done = CliRunner().invoke(app, [*wanted, *given])
    assert done.exit_code == 0, done.output
    found = sm.search(load_zoo("mcunet-5fps"), read_several(files), "100KB", analytic=True, options=sm.Options(5))
    assert json.loads(done.stdout)["gain"] == pytest.approx(found.gain)


@pytest.mark.parametrize("name", ["mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3"])
def test_what_ships_is_the_mean_of_the_analyses_that_are_kept(name: str) -> None:
    first, second, longer = (
        read_contributions(ANALYSES / f"{name}-{which}.json")
        for which in ("16-epochs-seed-0", "16-epochs-seed-1", "24-epochs-seed-0")
    )
    shipped = sm.average_contributions([sm.average_contributions([first, second]), longer])
    assert shipped == shipped_contributions(load_zoo(name))
