"""Notebooks of the examples: each runs from top to bottom, and gives the words that it holds."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.house import TOP

NOTEBOOKS = sorted((TOP / "examples").glob("*.ipynb"))


def results(notebook: nbformat.NotebookNode) -> list[dict[str, str]]:
    """What the cells end in, by kind: words and HTML."""
    outputs = (one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs)
    return [dict(one.data) for one in outputs if one.output_type == "execute_result"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")  # of Jupyter's own
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_gives_what_it_holds_when_it_runs_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(TOP / "src"), os.environ.get("PYTHONPATH", ""))))
    kept, again = (nbformat.read(path, as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]
    NotebookClient(again, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(results(kept)) >= 5
    assert all("text/html" in one for one in results(kept))
    assert results(again) == results(kept)
