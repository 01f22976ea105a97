"""A checkpoint is read by the program that wrote it and by none that would take its bytes for something else."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from smidgen.compiler import find_compiler
from smidgen.ir import Graph
from smidgen.ir.text import fingerprint
from smidgen.ops.rules import Momentum, Sgd
from smidgen.pipeline import compile
from smidgen.targets.firmware import BoardTarget
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import Scheme
from tests.support.native import SANITIZE
from tests.support.networks import CLASSES, inverted_residual

HALF = Fraction(1, 2)
SCHEME = Scheme("half", 5, ((3, HALF), (5, HALF), (6, Fraction(1))), "largest")
OPTIONS = Options(CLASSES)
FLAGS = (*SANITIZE, "-O0")  # quicker to build


def backbone() -> Graph:
    return inverted_residual(0)


def other_constant(name: str) -> Graph:
    graph = backbone()
    data = {v: (-array).astype(array.dtype) if v.name == name else array for v, array in graph.constants.items()}
    return replace(graph, constants=data)


def step(graph: Graph, scheme: Scheme = SCHEME, options: Options = OPTIONS) -> Graph:
    return passes.run(build_training(graph, scheme, options).step)


def others() -> Mapping[str, Graph]:
    """Steps whose state has the names and shapes of the first one's, or nearly so, and another meaning."""
    graph = backbone()
    return {
        "channels": step(graph, replace(SCHEME, channels="smallest")),
        "frozen weights": step(other_constant("w")),
        "QAS": step(graph, options=replace(OPTIONS, qas=False)),
        "weight bits": step(graph, options=replace(OPTIONS, weight_bits=10)),
        "rule": step(graph, options=replace(OPTIONS, rule=Momentum(0.9))),
        "samples accumulated": step(graph, options=replace(OPTIONS, rule=Sgd(accumulate=2))),
        "momentum": step(graph, options=replace(OPTIONS, rule=Momentum(0.8))),
        "head": step(graph, options=replace(OPTIONS, head_dtype="float32")),
        "new head": step(graph, options=replace(OPTIONS, head="new", head_dtype="int8")),
        "layers": step(graph, replace(SCHEME, biases=6)),
    }


def test_programs_that_differ_in_what_their_state_means_have_fingerprints_of_their_own() -> None:
    found = {fingerprint(graph) for graph in (step(backbone()), *others().values())}
    assert len(found) == 1 + len(others())


def test_what_changes_no_byte_of_what_is_computed_from_state_leaves_the_fingerprint_alone(cache: Path) -> None:
    graph = backbone()
    image = np.zeros(graph.inputs[0].type.shape, np.int8)
    plain = compile(graph, SCHEME, options=OPTIONS)
    alike = {
        "seed": compile(graph, SCHEME, options=replace(OPTIONS, seed=7)),
        "first exponents": compile(graph, SCHEME, options=OPTIONS, images=(image,)),
        "target": compile(graph, SCHEME, BoardTarget(cache=cache), options=OPTIONS),
        "plan": compile(graph, SCHEME, options=OPTIONS, streamed_input=True),
        "prefix": compile(graph, SCHEME, options=OPTIONS, prefix="other"),
        "name": compile(replace(graph, name="other"), SCHEME, options=OPTIONS),
    }
    assert {name for name, one in alike.items() if fingerprint(one.graph) != fingerprint(plain.graph)} == set()


def write(folder: Path, graph: Graph) -> Path:
    """The files of a program that saves and loads; kernels are the same for all."""
    sources = compile(graph).sources
    folder.mkdir()
    for name, text in sources.files.items():
        (folder / name).write_text(text)
    (folder / "main.c").write_text((Path(__file__).parents[1] / "support" / "checkpoint_main.c").read_text())
    for path in sources.runtime:
        (folder.parent / path.name).write_text(path.read_text())
    return folder


@pytest.mark.slow
def test_a_load_that_fails_in_any_way_leaves_the_program_as_after_init(tmp_path: Path) -> None:
    compiler, alike = find_compiler(), ("channels", "frozen weights", "QAS")
    folders = [write(tmp_path / str(i), g) for i, g in enumerate((step(backbone()), *(others()[n] for n in alike)))]
    compiler(*FLAGS, "-I.", "-c", *(path.name for path in tmp_path.glob("*.c")), folder=tmp_path)
    for folder in folders:
        compiler(*FLAGS, "-I.", "-I..", "-o", "program", *folder.glob("*.c"), *tmp_path.glob("*.o"), folder=folder)
        subprocess.run([folder / "program", folder / "kept"], check=True)
    for folder in folders[1:]:
        subprocess.run([folder / "program", folder / "kept", folders[0] / "kept"], check=True)
