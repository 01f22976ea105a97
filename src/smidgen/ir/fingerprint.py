"""A number for a program that learns: state saved under it means the same in every program that has it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from smidgen.ir.graph import Graph
from smidgen.ir.text import print_graph

FORMAT = "1"  # raised where the same graph comes to compute other bytes


def fingerprint(graph: Graph) -> str:
    """SHA-256 of all that gives the bytes of its state their meaning, in hexadecimal.

    That is every node with its attributes and types, the constants with their bytes, the names, types and order of
    state, the updates, the roles and the preprocessing. What a checkpoint replaces is left out: the state a program
    starts from, and with it the seed. So is what changes no byte computed: the order of nodes, which memory plans
    choose, the target, the name, and the names of classes.
    """
    lines = print_graph(replace(graph, classes=())).splitlines()[1:]
    state = [line for line in lines if line.startswith("state ")]
    rest = sorted(line for line in lines if not line.startswith("state "))
    hashed = hashlib.sha256("\n".join((FORMAT, *state, *rest)).encode())
    for value in sorted(graph.constants, key=lambda v: v.name):
        hashed.update(np.ascontiguousarray(graph.constants[value]).tobytes())
    return hashed.hexdigest()
