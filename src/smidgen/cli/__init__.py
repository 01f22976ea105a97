"""The command line: each verb calls one stage and shows the result object it returns."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from smidgen import __version__
from smidgen.cli.shared import app
from smidgen.cli.terminal import abandon_stdout, say, warn
from smidgen.errors import SmidgenError

# isort: off
from smidgen.cli import (  # noqa: F401  (in the order of the help)
    models, fitting, quantizing, selecting, searching, programs, learning, judging, devices,
)  # fmt: skip
# isort: on

__all__ = ["app", "main"]


def _version(wanted: bool) -> None:
    if wanted:
        say(f"smidgen {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; errors the user can fix are printed as one sentence, without a traceback.

    Typer itself ends with 1, and says nothing, where who read the output has seen enough.
    """
    try:
        app()
    except SmidgenError as error:
        _fail(str(error))
    except OSError as error:
        abandon_stdout()
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))


def _fail(message: str) -> NoReturn:
    warn(message)
    sys.exit(2)
