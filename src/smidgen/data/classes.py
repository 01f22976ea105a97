"""Which class of a model each class of some data is: by name where both name them, else by their order."""

from __future__ import annotations

from dataclasses import dataclass

from smidgen.data.samples import Data, DataError


@dataclass(frozen=True)
class Matched:
    """The place of each class of the data among a model's classes, all of them by name, and what is to be said."""

    places: tuple[int, ...]
    names: tuple[str, ...]
    note: str = ""


def match_classes(
    classes: tuple[str, ...], named: tuple[str, ...], known: tuple[str, ...], count: int, model: str
) -> Matched:
    """The classes of some data, `named` where these are more than numbers, as those of a model that scores so many.

    Where the model names all of them, they are matched by `known` names, whatever their order. Otherwise there must be
    as many, and their order tells.
    """
    if named and len(set(known)) == len(known) and set(named) <= set(known):
        return Matched(tuple(known.index(name) for name in named), known)
    if len(classes) != count:
        missing = sorted(set(named) - set(known)) if known else []
        unknown = f", and {missing[0]!r} is none of them" if missing else ""
        raise DataError(
            f"the data has {len(classes)} classes, {model} scores {count}{unknown}; give data of the model's own "
            "classes, or let the model learn those of the data first"
        )
    note = ""
    if named and known:
        note = "the data names other classes than the model; they are matched in order"
    return Matched(tuple(range(count)), known if len(known) == count else classes, note)


def renumbered(data: Data, known: tuple[str, ...]) -> Data:
    """The data with its classes in the order of these names, where they are the same names; else as it is.

    So a model whose head is kept goes on with the classes it knows, whatever their order in a folder.
    """
    if known == data.classes or sorted(known) != sorted(data.classes) or len(set(known)) < len(known):
        return data
    return data.arranged(known)
