"""Contributions that come with the package, known by a network's layers, not by its name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from smidgen.ir import Graph
from smidgen.selection.contributions import Contributions, ContributionsError, layer_names
from smidgen.selection.estimating import estimate

FOLDER = files("smidgen.zoo") / "contributions"


def shipped_contributions(graph: Graph) -> Contributions:
    """What was measured on a network of these layers, or ContributionsError where none ships."""
    names = layer_names(graph)
    for known in _all():
        if known.layers == names:
            return known
    shipped = ", ".join(known.model for known in _all()) or "no network"
    raise ContributionsError(
        f"nobody has measured what the layers of {graph.name} are worth (the package knows {shipped}); run smidgen "
        f"analyze {graph.name} --data DATA -o contributions.json and give that file with --contributions"
    )


def shipped_or_estimated(graph: Graph) -> Contributions:
    """What was measured on a network of these layers, or where nothing ships what a rule says."""
    try:
        return shipped_contributions(graph)
    except ContributionsError:
        return estimate(graph)


@cache
def _all() -> tuple[Contributions, ...]:
    if not FOLDER.is_dir():
        return ()
    found = sorted((file for file in FOLDER.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return tuple(Contributions.from_json(file.read_text(), file.name) for file in found)
