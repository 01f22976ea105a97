"""Latent replay measured on an emulated board: what it saves of a step, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.asking import HEADER, Asked
from experiments.flash import PARTS
from smidgen import codegen
from smidgen.ir import Graph
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import read_image
from smidgen.training import Options

MAIN = Path(__file__).parent / "replaying.c"
ROOM = 256 * 1024


@dataclass(frozen=True)
class ReplayCost:
    """A step on an image and one on a latent, in instructions; what replay takes, in bytes."""

    network: str
    scheme: str
    board: str
    image_bytes: int
    latent_bytes: int
    step: int  # on an image
    kept_step: int  # on an image whose latent is written to flash, which takes its own time besides
    replayed_step: int  # on a latent, read from flash
    open: int  # the ring, with few examples in it
    arena: int  # bytes more than without replay
    sram: int  # of the ring itself
    code: int  # of the ring
    examples: dict[str, int]  # that fit into ROOM, by part


def replay_cost(network: Graph, scheme: str, board: str) -> ReplayCost:
    """Replay measured with 8-bit weights, ten classes and the image streamed."""
    target = BoardTarget(BOARDS[board])
    options = Options(10, weight_bits=8)
    plain = compile(network, scheme, target, options=options, streamed_input=True)
    program = compile(network, scheme, target, options=options, streamed_input=True, replay=ROOM)
    graph, cut, image = program.graph, program.schedule.cut, program.graph.image.type
    assert cut is not None
    store = {Path(name).name: text for name, text in codegen.store_files().items() if name.startswith("smidgen/")}
    main = MAIN.read_text().replace("ROW_BYTES", str(image.bytes // image.shape[1]))
    files = {
        **store,
        **codegen.ring_header(graph, program.sources.latent, "model"),
        HEADER.name: HEADER.read_text(),
        "main.c": main,
    }
    built = read_image(target.build(graph, program.sources, files))
    asked = Asked(target, built)

    def first(request: bytes) -> int:
        """As the first thing that is learned, so that all learn the same."""
        asked.instructions(b"i")
        return asked.instructions(request)

    asked.instructions(b"o")
    step, kept, replayed, opened = (first(one) for one in (b"t", b"k", b"r", b"o"))
    names = {name for name in store if name.startswith("replay")}
    code = sum(s.bytes for s in built.symbols if s.is_code and (s.name.startswith("smg_replay") or s.file in names))
    sram = next(s.bytes for s in built.symbols if s.name == "ring")
    size = codegen.kept_bytes(graph, cut.bytes)
    fits = {p.name: codegen.kept_examples(ROOM, size, p.sector_bytes, p.unit_bytes) for p in PARTS.values()}
    return ReplayCost(
        network.name, scheme, board, image.bytes, cut.bytes, step, kept, replayed, opened,
        program.plan.peak - plain.plan.peak, sram, code, fits,
    )  # fmt: skip
