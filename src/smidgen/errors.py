"""The errors a user can meet: one class a layer, all under SmidgenError, each one whole sentence."""


class SmidgenError(Exception):
    """Something the user can mend; its message says what, where, the numbers and the way out."""


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


class TargetError(SmidgenError):
    """A target cannot build or run the program."""
