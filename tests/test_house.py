"""The house rules that a machine can check: which way imports point, and who may import what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import smidgen

ROOT = Path(smidgen.__file__).parent
# Data flows down this list; a module imports only what stands above it, or its own entry.
ORDER = (
    "errors", "targets.compiler", "ir", "numerics", "ops", "data", "frontends", "quantization", "zoo", "training",
    "memory", "runtime", "codegen", "targets", "simulate", "pipeline", "learning", "results", "cli",
)  # fmt: skip


def modules() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names)


def place(name: str) -> str:
    """The entry of ORDER a module, named from `smidgen.` on, belongs to: the longest that begins its name."""
    parts = name.split(".")
    whole = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((entry for entry in whole if entry in ORDER), parts[0])


def layer(path: Path) -> str:
    return place(".".join(path.relative_to(ROOT).with_suffix("").parts))


def test_every_module_has_its_place_in_the_house() -> None:
    assert {layer(path) for path in modules()} <= set(ORDER)


def test_imports_only_point_up() -> None:
    for path in modules():
        here = ORDER.index(layer(path))
        for name in imports(path):
            parts = name.split(".")
            if parts[0] != "smidgen" or len(parts) < 2 or parts[1] == "__version__":
                continue
            assert ORDER.index(place(".".join(parts[1:]))) <= here, (
                f"{path.relative_to(ROOT)} imports {name}, which stands below it"
            )


def test_only_the_front_end_and_the_simulator_import_torch() -> None:
    for path in modules():
        if not path.is_relative_to(ROOT / "frontends" / "torch") and layer(path) != "simulate":
            assert not any(name.split(".")[0] == "torch" for name in imports(path)), path
