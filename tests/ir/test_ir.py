"""The graph obeys its own rules: text round trips, verification refuses what is wrong."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.errors import GraphError, InputError
from smidgen.ir import Builder, Graph, Node, QParams, Type, Value, evaluate, verify
from smidgen.ir.text import parse_graph, print_graph
from smidgen.ops import Add, Conv2D, Reshape
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.tiers import examples


def small() -> Graph:
    g = Builder("small")
    x = g.input("x", Type((1, 4, 4, 2), "int8", QParams.per_tensor(0.1, 3)))
    w = g.constant("w", np.ones((3, 1, 1, 2), np.int8), QParams.per_channel((0.1, 0.2, 0.3), 0))
    b = g.constant("b", np.zeros(3, np.int32))
    return g.graph(g.emit(Conv2D(), x, w, b, q=QParams.per_tensor(0.2)))


@given(int8_graphs(beyond=True))
@settings(max_examples=examples(150))
def test_parsing_the_printed_graph_gives_it_back(graph: Graph) -> None:
    assert parse_graph(print_graph(graph), graph.constants) == graph


@given(int8_graphs(), st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=examples(150))
def test_damaged_text_is_a_graph_error_or_a_valid_graph(graph: Graph, at: int, byte: int) -> None:
    text = print_graph(graph)
    at %= len(text)
    with contextlib.suppress(GraphError):  # anything else fails the test
        verify(parse_graph(text[:at] + chr(byte) + text[at + 1 :], graph.constants))


def test_graphs_differ_where_a_constant_does() -> None:
    graph = small()
    (w, b) = graph.constants
    other = replace(graph, constants={w: graph.constants[w] * 2, b: graph.constants[b]})
    assert other != graph


def test_a_value_read_before_its_definition_is_refused() -> None:
    graph = small()
    with pytest.raises(GraphError, match="not defined before its use"):
        verify(replace(graph, inputs=()))


def test_a_name_defined_twice_is_refused() -> None:
    graph = small()
    with pytest.raises(GraphError, match="defined twice"):
        verify(replace(graph, nodes=(*graph.nodes, *graph.nodes)))


def test_a_wrong_declared_type_is_refused() -> None:
    graph = small()
    (node,) = graph.nodes
    wrong = Value("y", Type((1, 4, 4, 4), "int8", QParams.per_tensor(0.2)))
    with pytest.raises(GraphError, match="is declared"):
        verify(replace(graph, nodes=(Node(node.op, node.ins, (wrong,)),), outputs=(wrong,)))


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (Type((1, 1 << 20, 1 << 10, 1)), "bytes"),
        (Type((1, 2, 2, 2, 2)), "dimensions"),
        (Type((0, 2)), "positive dimensions"),
        (Type((2,), "int64"), "supported are"),
        (Type((2,), "int8", QParams((0.0,))), "positive number"),
        (Type((2,), "int8", QParams((float("nan"),))), "positive number"),
        (Type((2,), "int8", QParams((1.0,), 300)), "zero point"),
        (Type((2,), "int8", QParams((1.0, 1.0, 1.0), 0, 0)), "scales along axis"),
    ],
)
def test_impossible_types_are_refused_with_the_reason(type_: Type, message: str) -> None:
    x = Value("x", type_)
    with pytest.raises(GraphError, match=message):
        verify(Graph((x,), (x,), ()))


def test_an_op_with_the_wrong_number_of_inputs_is_refused() -> None:
    graph = small()
    (node,) = graph.nodes
    with pytest.raises(GraphError, match="does not take 1 inputs"):
        verify(replace(graph, nodes=(replace(node, ins=node.ins[:1]),)))


def test_add_refuses_shapes_that_do_not_repeat() -> None:
    g = Builder()
    q = QParams.per_tensor(0.1)
    a, b = g.input("a", Type((1, 4, 4, 2), "int8", q)), g.input("b", Type((1, 4, 1, 1), "int8", q))
    with pytest.raises(GraphError, match="match or repeat"):
        g.emit(Add(), a, b, q=q)


def test_reshape_refuses_to_change_the_number_of_elements() -> None:
    g = Builder()
    with pytest.raises(GraphError, match="number of elements"):
        g.emit(Reshape((3, 3)), g.input("x", Type((1, 8), "float32")))


def test_inputs_that_do_not_fit_are_refused_by_name() -> None:
    graph = small()
    with pytest.raises(InputError, match="%x of small is int8"):
        evaluate(graph, np.zeros((1, 4, 4, 2), np.float32))
    with pytest.raises(InputError, match="takes 1 input"):
        evaluate(graph)


@given(int8_graphs(), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(50))
def test_evaluate_gives_what_the_types_promise(graph: Graph, seed: int) -> None:
    outputs = evaluate(graph, *random_inputs(graph, np.random.default_rng(seed)))
    for value, array in zip(graph.outputs, outputs, strict=True):
        assert (array.shape, array.dtype.name) == (value.type.shape, value.type.dtype)


def test_an_unknown_activation_is_refused() -> None:
    text = print_graph(small()).replace("Conv2D(%x, %w, %b)", "Conv2D(%x, %w, %b) activation='bogus'")
    with pytest.raises(GraphError, match="no activation 'bogus'"):
        parse_graph(text, small().constants)
