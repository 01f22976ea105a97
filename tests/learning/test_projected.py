"""One pass on a projection of the features: what fits a budget, what merges, and what other tools compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from smidgen.errors import InputError, PlanError
from smidgen.frontends import export_model
from smidgen.frontends.onnx import write_onnx
from smidgen.frontends.tflite import write_tflite
from smidgen.ir import Graph, evaluate
from smidgen.ir.rewriting import prune
from smidgen.learning import Course
from smidgen.learning.sums import check_belongs, features_of_head, read_sums, with_head, write_taught
from smidgen.ops import Project
from smidgen.pipeline import Program, compile
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.cli.test_cli import invoke
from tests.frontends.test_exact import results
from tests.learning.test_one_pass import NAMES, data
from tests.support.litert import run_litert
from tests.support.networks import inverted_residual
from tests.targets.test_one_pass import images

FEATURES, PROJECTED = 12, 7


def projected(host: Host, project: int | None = PROJECTED, scheme: str | None = None) -> Program:
    options = Options(3, project=project)
    return compile(inverted_residual(0), scheme, host, options=options, one_pass=True, class_names=NAMES)


def projections(graph: Graph) -> list[int]:
    return [node.op.count for node in graph.nodes if isinstance(node.op, Project)]


@pytest.mark.parametrize("scheme", [None, "last:2"])
def test_what_was_learned_projects_in_every_file_to_the_same_bytes(
    host: Host, tmp_path: Path, scheme: str | None
) -> None:
    course = None if scheme is None else Course(1, 0.001, augment=None)
    learned = sm.learn(projected(host, scheme=scheme), data(), course)
    assert learned.accuracy > 0.6
    assert projections(learned.model) == [PROJECTED]
    export_model(learned.model, tmp_path / "a.smg")
    assert sm.load(str(tmp_path / "a.smg")) == learned.model
    read = features_of_head(learned.model)[1]  # behind it the head is float32, which other tools sum in other orders
    front = prune(replace(learned.model, outputs=(read,), classes=()))
    for image, _ in images(8, 3):
        (ours,) = evaluate(front, image)
        assert run_litert(write_tflite(front), image)[0].tobytes() == ours.tobytes()
        assert results(write_onnx(front), image)[0].tobytes() == ours.tobytes()


def test_sums_of_a_projection_belong_to_it_alone(host: Host, tmp_path: Path) -> None:
    first, others = sm.learn(projected(host), data()), [sm.learn(projected(host, n), data()) for n in (None, 6)]
    assert first.sums is not None
    assert first.sums.sums.m.shape == (3, PROJECTED)
    check_belongs(first.model, first.sums)
    write_taught(first.model, first.sums, tmp_path / "a.smg")
    assert with_head(sm.load(str(tmp_path / "a.smg")), read_sums(tmp_path / "a.smg")) == first.model
    for other in others:
        assert other.sums is not None
        with pytest.raises(InputError, match="or of two projections"):
            first.sums.merged(other.sums)
        with pytest.raises(InputError, match="the layers of"):
            check_belongs(first.model, other.sums)


def test_what_a_projected_model_forgets_and_merges_is_as_if_never_seen(tmp_path: Path, host: Host) -> None:
    learned = sm.learn(projected(host), data())
    assert learned.sums is not None
    write_taught(learned.model, learned.sums, tmp_path / "a.smg")
    invoke("merge", str(tmp_path / "a.smg"), str(tmp_path / "a.smg"), "-o", str(tmp_path / "both.smg"))
    x = np.concatenate([image for image, _ in images(12)])
    y = np.array([label for _, label in images(12)])
    np.savez(tmp_path / "seen.npz", x=x, y=y, x_test=x, y_test=y, classes=np.array(NAMES))
    both = str(tmp_path / "both.smg")
    invoke("forget", both, "--data", str(tmp_path / "seen.npz"), "-o", str(tmp_path / "again.smg"))
    assert (tmp_path / "again.smg").read_bytes() == (tmp_path / "a.smg").read_bytes()


def test_a_taught_head_that_is_begun_again_reads_the_projection_it_has(host: Host) -> None:
    model = sm.learn(projected(host), data()).model
    again = compile(model, "head", host, options=Options(3, head="new"), one_pass=True)
    assert projections(again.graph) == [PROJECTED]


def test_a_budget_has_the_largest_projection_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smidgen.pipeline.EVERY", 1)
    monkeypatch.setattr("smidgen.pipeline.LEAST_PROJECTED", 2)
    graph, options = inverted_residual(0), Options(40)

    def sram(project: int | None) -> int:
        memory = compile(graph, None, options=replace(options, project=project), one_pass=True, budget="1MB").memory
        return memory.sram

    sizes = {n: sram(n) for n in range(2, FEATURES)}
    assert sorted(sizes.values()) == list(sizes.values())
    assert sram(None) > sizes[FEATURES - 1]
    for n in (3, 8, FEATURES - 1):
        for spare in (0, sizes.get(n + 1, sram(None)) - sizes[n] - 1):
            program = compile(graph, None, options=options, one_pass=True, budget=sizes[n] + spare)
            assert program.memory.sram <= sizes[n]
            assert projections(program.graph) == [n]
    assert projections(compile(graph, None, options=options, one_pass=True, budget=sram(None)).graph) == []
    with pytest.raises(PlanError, match=f"the budget is {sizes[2] - 1:,}"):
        compile(graph, None, options=options, one_pass=True, budget=sizes[2] - 1)
    with pytest.raises(PlanError, match="the budget is"):
        compile(graph, None, options=replace(options, project=9), one_pass=True, budget=sizes[3])


def test_what_cannot_be_projected_is_refused_in_a_sentence(host: Host) -> None:
    graph = inverted_residual(0)
    for project, head, said in (
        (FEATURES, "new", "has 12 features; project them to fewer, not to 12"),
        (0, "new", "features cannot be projected to 0 numbers; give 1 or more"),
        (4, "keep", "is kept and reads the features that it was made for; only a new one"),
    ):
        options = Options(5, project=project, head=head)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=said):
            compile(graph, "head", host, options=options)
