"""Latent replay: where a step is cut, so that what its frozen front makes of an image can stand for the image."""

from __future__ import annotations

from smidgen.errors import InputError, StreamError
from smidgen.ir import Graph, Value, memory_read, virtual_sources
from smidgen.ir.graph import refuse_variables
from smidgen.ir.rewriting import prune
from smidgen.memory.lives import roots_of
from smidgen.memory.rows import Cut


def cut(graph: Graph, streamed_input: bool = False) -> Cut:
    """The cut with the fewest bytes at or before the first node that reads what learns; of several, the last.

    Where even the first layer learns the latent is the image, which then has to lie in memory.
    """
    if graph.roles is None:
        raise InputError(f"{graph.name} is compiled without a scheme: there is nothing to replay; name one")
    refuse_variables(graph, "replay")
    cuts = [Cut(at, crossing(graph, at)) for at in range(_first_learned(graph) + 1)]
    if streamed_input:
        cuts = [one for one in cuts if graph.image not in one.latent]
    if not cuts:
        raise StreamError(
            f"the first layer of {graph.name} learns, and so its image is what is replayed, and cannot be streamed; "
            "hold it whole, or freeze the first layers"
        )
    return min(cuts, key=lambda one: (one.bytes, -one.at))


def crossing(graph: Graph, at: int) -> tuple[Value, ...]:
    """What nodes from `at` on read of the image and of the nodes before, each piece of memory once."""
    roots, sources = roots_of(graph), virtual_sources(graph)
    made = {graph.image, *(v for node in graph.nodes[:at] for v in node.outs)}
    read = [v for node in graph.nodes[at:] for v in memory_read(node, sources)]
    found: dict[Value, Value] = {}
    for value in (*read, *graph.outputs):
        if value in made and value in roots:
            found.setdefault(roots[value], value)
    return tuple(found.values())


def front(graph: Graph, where: Cut) -> Graph:
    """The graph from the image to the latent: programs with the same one understand each other's latents."""
    nodes = graph.nodes[: where.at]
    return prune(
        Graph((graph.image,), where.latent, nodes, graph.constants, graph.name, preprocessing=graph.preprocessing)
    )


def _first_learned(graph: Graph) -> int:
    """The first node that computes with state."""
    sources = virtual_sources(graph)
    for index, node in enumerate(graph.nodes):
        if not node.op.view and any(v in graph.state for v in memory_read(node, sources)):
            return index
    raise InputError(f"nothing of {graph.name} learns: there is nothing to replay")
