"""Every pass in the graph's text form: what it makes of a tiny graph, line by line."""

from __future__ import annotations

import pytest

from smidgen.frontends.tflite.read import FEWER
from smidgen.frontends.tidy import TIDY
from smidgen.ir import Builder, Node, Value
from smidgen.ir.rewriting import needed, producers, readers, rewrite, uses
from smidgen.ops import Activate
from smidgen.quantization.folding import FOLDS
from smidgen.training.autodiff import differentiate
from smidgen.training.lowering import fuse_requantize_grads
from smidgen.training.passes import TRAINING
from tests.support.folding_pass_cases import FOLDING_CASES
from tests.support.graph_texts import Case, graph_of, text_of
from tests.support.model_pass_cases import MODEL_CASES
from tests.support.training_pass_cases import TRAINING_CASES

CASES = (*MODEL_CASES, *FOLDING_CASES, *TRAINING_CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_pass_leaves(case: Case) -> None:
    after = case.one(graph_of(case.before))
    assert text_of(after) == text_of(graph_of(case.after or case.before))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_second_run_finds_nothing_left_to_do(case: Case) -> None:
    once = case.one(graph_of(case.before))
    assert text_of(case.one(once)) == text_of(once)


def test_every_pass_is_shown_at_work() -> None:
    shown = {case.one for case in CASES if case.after}
    assert shown == {*TIDY, *FEWER, *FOLDS, *TRAINING, fuse_requantize_grads}


def test_differentiation_appends_ordinary_nodes_and_adds_up_paths_that_meet() -> None:
    graph = graph_of("""
        input %x: float32[1,2]
        input %label: int32[1]
        state %w: float32[3,2]
        state %b: float32[3]
        %y: float32[1,3] = Dense(%x, %w, %b)
        %z: float32[1,3] = Add(%y, %y)
        %loss: float32[1], %p: float32[1,3] = SoftmaxCrossEntropy(%z, %label)
        output %loss
        """)
    w, _ = graph.state
    (loss,) = graph.outputs
    found = differentiate(graph, loss, (w,))
    assert found.gradients[w].name == "v6"
    assert text_of(found.graph) == text_of(
        graph_of("""
        input %x: float32[1,2]
        input %label: int32[1]
        state %w: float32[3,2]
        state %b: float32[3]
        %y: float32[1,3] = Dense(%x, %w, %b)
        %z: float32[1,3] = Add(%y, %y)
        %loss: float32[1], %p: float32[1,3] = SoftmaxCrossEntropy(%z, %label)
        %v3: float32[1,3] = CrossEntropyGrad(%p, %label)
        %v4: float32[1,3] = SumGrads(%v3, %v3)
        %v5: float32[1,2] = DenseGradInput(%v4, %w)
        %v6: float32[3,2] = DenseGradWeight(%x, %v4)
        %v7: float32[3] = ChannelSum(%v4)
        output %loss, %v6
        """)
    )


CHAIN = """
    input %x: int8[2] q
    %a: int8[2] q = Activate(%x)
    %b: int8[2] q = Add(%a, %a)
    %c: int8[2] q = Activate(%b)
    output %c, %a
    """


def test_values_know_who_makes_and_who_reads_them() -> None:
    graph = graph_of(CHAIN)
    first, second, third = graph.nodes
    (x,) = graph.inputs
    assert producers(graph) == {first.out: first, second.out: second, third.out: third}
    assert readers(graph) == {x: (first,), first.out: (second,), second.out: (third,)}
    assert uses(graph) == {x: 1, first.out: 3, second.out: 1, third.out: 1}
    assert needed(graph, second.out) == (first, second)


def test_what_a_rule_gives_takes_the_place_of_a_value_in_nodes_behind_it_and_in_outputs() -> None:
    def rule(g: Builder, node: Node) -> Value | None:
        return node.ins[0] if isinstance(node.op, Activate) else None

    assert text_of(rewrite(graph_of(CHAIN), rule)) == text_of(
        graph_of("""
        input %x: int8[2] q
        %b: int8[2] q = Add(%x, %x)
        output %b, %x
        """)
    )
