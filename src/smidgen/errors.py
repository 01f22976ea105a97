"""The errors a user can meet: one class a layer, all under SmidgenError, each one whole sentence."""

import difflib
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

OPS_PAGE = "docs/internals/ops.md lists what is read"
CUT = "replace it, or cut the model before it"
_LINE_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # those of str.splitlines


class SmidgenError(Exception):
    """Something the user can mend; its message says what, where, the numbers and the way out.

    Names from files stand in messages: their line breaks are spelled out, so that a message stays one line.
    """

    def __str__(self) -> str:
        return _LINE_BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), super().__str__())


class GraphError(SmidgenError):
    """A graph breaks a rule of the intermediate representation."""


class ImportModelError(SmidgenError):
    """A model file cannot be read, or holds something Smidgen does not support."""


class UnsupportedOperatorError(ImportModelError):
    """An operator that no rule reads: where the first one is, its name, and a way out."""

    def __init__(self, where: str, code: str, instead: str = CUT) -> None:
        super().__init__(f"{where} is not supported; {instead} ({OPS_PAGE})")
        self.where, self.code, self.instead = where, code, instead


def refuse(wrong: object, sentence: str) -> None:
    """Raise ImportModelError with a sentence on what is wrong, where something is."""
    if wrong:
        raise ImportModelError(sentence)


def nearest(code: str, known: Iterable[str], closeness: float) -> str:
    """Return what to do about an operator without a rule: use the one with the nearest name, if any is near."""
    near = difflib.get_close_matches(code, known, 1, closeness)
    return f"nearest is {near[0]}" if near else CUT


@contextmanager
def located(where: str, advice: str = "", again: str = "") -> Iterator[None]:
    """Begin the errors of a reader with their place; end the graph's, and those that name no way out, with advice."""
    try:
        yield
    except (GraphError, ImportModelError) as error:
        end = advice if isinstance(error, GraphError) else "" if "; " in str(error) else again
        raise ImportModelError(f"{where}: {error}{end}") from None


def with_others(error: ImportModelError, others: Counter[str]) -> ImportModelError:
    """Return the same error with the count of every other unsupported operator further on in the file."""
    if not others:
        return error
    if isinstance(error, UnsupportedOperatorError):
        counted = _counted(others + Counter([error.code]))
        return ImportModelError(
            f"not supported are {counted}; the first is {error.where}: {error.instead} ({OPS_PAGE})"
        )
    return ImportModelError(f"{error}; not supported either, further on: {_counted(others)} ({OPS_PAGE})")


def further(
    calls: Iterable[tuple[str, Iterable[Any], Iterable[Any]]], computed: set[Any], known: Container[str]
) -> Counter[str]:
    """Count the operators without a rule that read anything computed, given each one's name, inputs and outputs."""
    found: Counter[str] = Counter()
    for code, ins, outs in calls:
        if not computed.isdisjoint(ins):
            computed.update(outs)
            found[code] += code not in known
    return +found


def _counted(codes: Counter[str]) -> str:
    return ", ".join(f"{count} × {code}" for code, count in sorted(codes.items()))


class ExportError(SmidgenError):
    """A graph has no equivalent in the file format asked for."""


class InputError(SmidgenError):
    """A tensor, option or path handed in at run time does not fit."""


class PlanError(SmidgenError):
    """A memory plan is impossible or inconsistent."""


class StreamError(PlanError):
    """A model cannot take its image row by row."""


class TrainingError(SmidgenError):
    """A model cannot be turned into a training program."""


class TargetError(SmidgenError):
    """A target cannot build or run the program."""
