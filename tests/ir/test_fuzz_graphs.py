"""Graph texts whose lines are well formed and whose sizes, types and attributes are not: one sentence, no crash."""

from __future__ import annotations

import random
import re
from dataclasses import fields

import pytest

from smidgen.errors import SmidgenError
from smidgen.ir import DTYPES, OPS, Array, Graph
from smidgen.ir.text import parse_graph, print_graph
from smidgen.pipeline import compile
from smidgen.results.inspection import describe
from tests.support.cases import GRAPHS
from tests.support.training_cases import TRAINING_GRAPHS

MUTATIONS = 100  # of each op's text
NUMBER = re.compile(r"(?<![\w.%])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
DECLARED = re.compile(r"(%[\w.]+): (\w+)\[([\d,]*)\]( q\([^)]*\))?")
NUMBERS = (
    "0", "1", "-1", "2", "3", "127", "-129", "256", "65536", "999999999", "2147483648", "-9223372036854775809",
    "9" * 40, "9" * 400, "9" * 5000, "0.0", "-1.5", "1e-45", "1e-300", "3.5e38", "1e308", "1e999", "-1e999", "nan",
    "True", "None",
)  # fmt: skip
LITERALS = (
    "()", "(1,)", "(0, 0)", "(1, 1, 1, 1, 1)", "(-1, -1)", "(999999999, 999999999)", "(0.5, 0.5)", "('a', 'b')", "'x'",
    "''", "{}", "[]", "b'x'", "1j", "1.5", "-3", "(1e999, 1e999)", "((1, 1), (1, 1))", "Momentum(momentum=2.0)",
    "Sgd()", "...", "Conv2D(stride=(0, 0))", "(0, 0, 0, 0)", "(3, 2, 1, 0)", "(9, 9, 9, 9)", "True", *NUMBERS,
)  # fmt: skip
SHAPES = (
    "",
    "1",
    "0",
    "7",
    "1,1",
    "1,1,1,1",
    "3,2,1",
    "1,2,2,1",
    "1,16384,16384,1",
    "999999999,999999999",
    "1,1,1,1,1",
)
QUANTIZATIONS = ("", " q(0.1; 0)", " q(1e-45; 127)", " q(3e38; -128)", " q(0.1, 0.2; 0; axis 0)", " q(0.1; 0; axis 3)")


def texts() -> dict[str, tuple[str, dict[str, Array]]]:
    """For every op a small graph that holds it, as text and data."""
    found: dict[str, tuple[str, dict[str, Array]]] = {}
    for graph in (*GRAPHS.values(), *TRAINING_GRAPHS.values()):
        for node in graph.nodes:
            found.setdefault(type(node.op).__name__, (print_graph(graph), _held(graph)))
    return found


def _held(graph: Graph) -> dict[str, Array]:
    return {value.name: array for value, array in (*graph.constants.items(), *graph.state.items())}


def mutate(text: str, name: str, rng: random.Random) -> str:
    """The text with one to three changes, mostly to the line of the op."""
    if rng.randrange(2):  # constants become inputs, which may be of any size
        text = re.sub(r"^(const|state) ", "input ", text, flags=re.MULTILINE)
    lines = text.splitlines()
    for _ in range(rng.randrange(1, 4)):
        own = [i for i, line in enumerate(lines) if f" = {name}(" in line]
        at = rng.choice(own if own and rng.randrange(3) else range(len(lines)))
        lines[at] = _changed(lines[at], name, rng)
    return "\n".join(lines) + "\n"


def _changed(line: str, name: str, rng: random.Random) -> str:
    numbers, declared = list(NUMBER.finditer(line)), list(DECLARED.finditer(line))
    match rng.randrange(5):
        case 0 if numbers:
            found = rng.choice(numbers)
            return line[: found.start()] + rng.choice(NUMBERS) + line[found.end() :]
        case 1 if declared:
            found = rng.choice(declared)
            dtype = rng.choice((found[2], *DTYPES))
            shape = rng.choice((found[3], *SHAPES))
            q = rng.choice((found[4] or "", *QUANTIZATIONS))
            return line[: found.start()] + f"{found[1]}: {dtype}[{shape}]{q}" + line[found.end() :]
        case 2 if f" = {name}(" in line and fields(OPS[name]):
            field = rng.choice(fields(OPS[name])).name
            return re.sub(rf" {field}=.*?(?= [a-z_0-9]+=|$)", "", line) + f" {field}={rng.choice(LITERALS)}"
        case 3 if "(" in line and ")" in line:
            start, end = line.rindex("(%") + 1 if "(%" in line else 0, line.rindex(")")
            inputs = line[start:end].split(", ")
            inputs = rng.choice((inputs[1:], inputs[:-1], inputs + inputs[:1], inputs[::-1], [], inputs[:1] * 3))
            return line[:start] + ", ".join(inputs) + line[end:]
        case _:
            return re.sub(r" = \w+\(", f" = {rng.choice(sorted(OPS))}(", line)


TEXTS = texts()


def test_every_op_has_a_text() -> None:
    assert OPS.keys() - TEXTS.keys() == {"BatchNorm", "DequantizeGrad"}  # which no C program holds


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_graph_texts_raise_nothing_but_smidgen_errors(name: str) -> None:
    text, data = TEXTS[name]
    said = set()
    for seed in range(MUTATIONS):
        damaged = mutate(text, name, random.Random(f"{name} {seed}"))
        kept = data if re.search("^(const|state) ", damaged, re.MULTILINE) else {}
        try:
            graph = parse_graph(damaged, kept)
            describe(graph)
            compile(graph)
        except SmidgenError as error:
            said.add(str(error))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} for\n{damaged[:2000]}") from error
    assert len(said) > 10
    assert not any("\n" in sentence for sentence in said)
