"""The errors a user can meet: one class a layer, all under SmidgenError, each one whole sentence."""

import re

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
