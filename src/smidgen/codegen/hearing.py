"""What a program that hears is made of: the front end's tables, its parameters and its buffers, as C spells them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from smidgen.codegen.spelling import wrapped
from smidgen.ir import Array, Graph, Type
from smidgen.ir.log_mel import LogMel
from smidgen.numerics.log_mel import LogMelTables, log_mel_tables, scaling

SYMBOLS = ("smg_hear",)
PLACES = 20  # bytes of smg_heard on a chip, whose addresses take four


@dataclass(frozen=True)
class Hearing:
    """The front end of a program, by the input that it fills."""

    spec: LogMel
    type: Type
    prefix: str

    @property
    def tables(self) -> dict[str, Array]:
        """What lies in flash, by its name in C."""
        tables = log_mel_tables(self.spec)
        arrays = ((f.name, getattr(tables, f.name)) for f in fields(LogMelTables))
        return {f"{self.prefix}_audio_{name}": a for name, a in arrays if isinstance(a, np.ndarray) and a.size}

    @property
    def bytes(self) -> int:
        """SRAM that it takes: samples of a window, features of all frames, a transform, and where these lie."""
        return 2 * self.spec.window + self.type.size + 4 * self.spec.size + PLACES

    def fields(self, streamed: bool) -> dict[str, object]:
        """The fields of its templates."""
        spec, shape, prefix = self.spec, self.type.shape, self.prefix
        rows, row = spec.rows(shape)
        copies = f"for (int i = 0; i < {rows}; i++) {prefix}_audio_row(0, (int8_t *){prefix}_input(0) + i * {row}, i);"
        show = f"{prefix}_source({prefix}_audio_row, 0);" if streamed else copies
        return {
            "rate": spec.rate, "frames": spec.frames(shape), "samples": spec.samples(shape), "audio_bytes": self.bytes,
            "audio_params": "\n    ".join(wrapped("", self._params())[1:]), "window": spec.window,
            "size": self.type.size, "scratch": spec.size, "show": show,
        }  # fmt: skip

    def _params(self) -> list[str]:
        spec, tables, by = self.spec, log_mel_tables(self.spec), scaling(self.spec, self.type)
        numbers = {
            "window": spec.window, "hop": spec.hop, "size": spec.size, "bands": spec.bands,
            "coefficients": spec.coefficients, "bins": int((tables.first + tables.count).max()),
            "frames": spec.frames(self.type.shape), "across": int(spec.across),
            "multiplier": by.multiplier, "shift": by.shift, "zero": by.zero, "offset": f"INT64_C({tables.offset})",
        }  # fmt: skip
        places = {name.removeprefix(f"{self.prefix}_audio_"): name for name in self.tables}
        return [f".{name} = {item}" for name, item in (numbers | places).items()]


def audio_bytes(graph: Graph) -> int:
    """SRAM that a program of this graph takes to hear, besides arena and state."""
    heard = hearing(graph, "")
    return heard.bytes if heard else 0


def hearing(graph: Graph, prefix: str) -> Hearing | None:
    """The front end of a model that hears; None where the input is not made of sound, or not int8."""
    spec = graph.preprocessing
    if not isinstance(spec, LogMel) or graph.image.type.dtype != "int8" or graph.image.type.q is None:
        return None
    return Hearing(spec, graph.image.type, prefix)
