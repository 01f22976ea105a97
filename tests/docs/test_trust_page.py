"""The page on trust names tests that are there, and the dependencies that are declared, under their licences."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "internals" / "trust.md"
NAMED = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
ROW = re.compile(r"^\| ([a-z][\w-]*) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
FAMILIES = ("Apache", "BSD", "ISC", "MIT", "MPL", "Public")  # domain


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def declared() -> set[str]:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    lists = (project["dependencies"], *project["optional-dependencies"].values())
    return {re.split(r"[<>=]", text)[0] for one in lists for text in one}


def table() -> dict[str, str]:
    return dict(ROW.findall(PAGE.read_text().partition("## Dependencies")[2]))


def stated(name: str) -> str:
    """All that a package's metadata says on its licence, or the licence itself where they say nothing."""
    found = metadata.metadata(name)
    classifiers = [c for c in found.get_all("Classifier") or () if c.startswith("License")]
    fields = (found.get_all(field) or () for field in ("License-Expression", "License"))
    said = " ".join((*classifiers, *(text for field in fields for text in field))).strip()
    files = (metadata.distribution(name).read_text(f"licenses/{file}") for file in found.get_all("License-File") or ())
    return (said or " ".join(text for text in files if text)).lower()


def test_every_test_that_the_page_names_is_there() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 30
    missing = [f"{f}::{t}" for f, t in named if not (TOP / f).exists() or (t and t not in functions(TOP / f))]
    assert missing == []


def test_the_table_holds_the_dependencies_that_are_declared() -> None:
    assert set(table()) - {"package"} == declared()


@pytest.mark.parametrize("name", sorted(declared()))
def test_licences_are_those_the_packages_state(name: str) -> None:
    try:
        text = stated(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    families = [family for family in FAMILIES if family in table()[name]]
    assert families
    assert all(family.lower() in text for family in families), text[:200]
