"""The report that a training run leaves beside its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from smidgen.cli.terminal import spinner
from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.results.profile import Profile, profile
from smidgen.results.report import render
from smidgen.results.report.training import Trained, report_training
from smidgen.targets.boards import BOARDS


def write_report(run: Trained, path: Path) -> None:
    """The page of a run, measured on its board where it learned on one."""
    with spinner(f"writing {path}"):
        write_whole(path, render(report_training(replace(run, profile=_measured(run)))).encode())


def _measured(run: Trained) -> Profile | None:
    """The program on its board; None where instructions are not counted, as on this machine, or a step is skipped."""
    if run.program.target.name not in BOARDS:
        return None
    try:
        return profile(run.program, 1, run.course.seed)
    except InputError:
        return None
