"""The command line: each verb calls one stage and shows the result object it returns."""

import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from smidgen.cli import verbs
from smidgen.cli.options import WORDS, Verb
from smidgen.cli.terminal import INTERRUPTED, abandon_stdout, degrade_streams, say, warn
from smidgen.errors import SmidgenError

__all__ = ["app", "main"]
EXAMPLE = "For example: smidgen fit mcunet-5fps --data photos/ --budget 128KB --target cortex-m7 -o out/"


class Verbs(TyperGroup):
    """The verbs, whose flags are shown as flags: an option that takes no value has no type in the help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta.setdefault(WORDS, tuple(args))  # a verb of a verb leaves those of the whole command
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            warn(f"interrupted; start again with {shlex.join(('smidgen', *ctx.meta[WORDS]))}")
            raise typer.Exit(INTERRUPTED) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        verb = super().get_command(ctx, cmd_name)
        if verb is not None:
            _show_flags(verb.get_params(ctx))
        return verb

    def get_params(self, ctx: Any) -> list[Any]:
        return _show_flags(super().get_params(ctx))


class PortVerbs(Verbs):
    """Verbs behind a port, whose options may stand before it or behind it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {name for parameter in self.get_params(ctx) for name in parameter.opts if name.startswith("--")}
        at = 1
        while args and not args[0].startswith("-") and at < len(args) and args[at].partition("=")[0] in names:
            at += 1 if "=" in args[at] or args[at] == "--help" else 2
        return super().parse_args(ctx, [*args[1:at], *args[:1], *args[at:]])


def _show_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _taking(kind: type[Any], work: Callable[[Any], None]) -> Callable[..., None]:
    """Return a command: the fields of a class are its options, those of the class before those that it inherits."""

    def run(**options: Any) -> None:
        work(kind(**options))

    annotations, defaults = dict[str, Any](), {one.name: one.default for one in fields(kind)}
    declared = {one.name: one.metadata["parameter"] for one in fields(kind) if one.metadata}
    for base in kind.__mro__:
        for name, annotation in vars(base).get("__annotations__", {}).items():
            annotations[name] = Annotated[annotation, declared[name]] if name in declared else annotation
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation,
            default=inspect.Parameter.empty if defaults[name] is MISSING else defaults[name],
        )
        for name, annotation in annotations.items()
    ]  # fmt: skip
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = annotations
    return run


def _add(to: typer.Typer, module: str, kind: type[Verb], panel: str | None = None) -> None:
    """Add a verb, whose work is imported when it is called."""
    name = kind.__name__.removeprefix("Board").lower()
    run = _taking(kind, lambda asked: getattr(import_module(module), f"{name}_")(asked))
    to.command(name, help=kind.__doc__, rich_help_panel=panel)(run)


def _keep(port: verbs.Port) -> None:
    port.context.obj = port


app = typer.Typer(
    cls=Verbs,
    help="Train int8 neural networks on microcontrollers.",
    epilog=EXAMPLE,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _panel, _module, _kinds in verbs.VERBS:
    for _kind in _kinds:
        _add(app, _module, _kind, _panel)
_device = typer.Typer(cls=PortVerbs, no_args_is_help=True, callback=_taking(verbs.Port, _keep))
for _kind in verbs.BOARD_VERBS:
    _add(_device, "smidgen.cli.device", _kind)
app.add_typer(_device, name="device", help=verbs.Port.__doc__, rich_help_panel="Board")


def _version(wanted: bool) -> None:
    if wanted:
        from smidgen import __version__

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

    Typer itself ends with 1, and prints nothing, where the reader of the output has closed it.
    """
    degrade_streams()
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
