"""How to make a report's results again: the command, versions, seeds and digests of all that went in and came out."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from smidgen.data import Data
from smidgen.ir import Graph
from smidgen.ir.text import fingerprint
from smidgen.learning import Course
from smidgen.results.report.parts import Fact, Facts, Section


def course_facts(course: Course) -> tuple[tuple[str, str], ...]:
    """How it was learned, by name."""
    changed = course.augment
    crops = "samples as they are"
    if changed is not None:
        flips = ", flipped half of the time" if changed.flip else ""
        crops = f"random crops of {changed.scale[0]:.0%} to {changed.scale[1]:.0%} of a picture{flips}"
    rate = f"{course.learning_rate:.6g} a sample, {course.schedule}" if course.learning_rate else course.schedule
    return (("Seed", str(course.seed)), ("Course", f"{course.epochs} epochs; learning rate {rate}; {crops}"))


def reproduce_section(
    command: str, model: Graph, data: Data, settings: Iterable[tuple[str, str]], files: Iterable[Path]
) -> Section:
    """What to type, what it was given, and the digests by which to tell that the same came out."""
    facts = [Fact("Command", "", command)] if command else []
    facts += [Fact(name, said) for name, said in settings]
    made_by = f"Smidgen {version('smidgen')}, Python {platform.python_version()}, numpy {np.__version__}"
    facts.append(Fact("Versions", made_by))
    facts += [
        Fact("Model", f"{model.name}, its fingerprint", fingerprint(model)),
        Fact(
            "Data", f"{data.name}, {len(data.train):,} samples to learn from, {len(data.test):,} to test", data.digest()
        ),
    ]
    facts += [Fact(path.name, "SHA-256", hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    said = "The same input gives the same bytes: a second run ends with these digests."
    return Section("reproduce", "Do it again", said, (Facts(tuple(facts)),))
