"""A WebAssembly module as a device: wasmtime runs it, numpy sees its memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from smidgen.codegen import Sources
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array, Graph, Value, check_inputs
from smidgen.ir.text import fingerprint
from smidgen.memory import state_bytes
from smidgen.numerics.one_pass import Sums
from smidgen.targets import device

if TYPE_CHECKING:
    import wasmtime

DIGITS = 16  # of a fingerprint that a module tells


class WasmDevice(device.Device):
    """A module in its own store, so that no two devices share a memory."""

    def __init__(self, graph: Graph, sources: Sources, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        import wasmtime

        self.graph, self.learns = graph, sources.learns
        self._sources, self._engine, self._module = sources, engine, module
        self._store: wasmtime.Store | None = wasmtime.Store(engine)
        self._exports: Any = dict(wasmtime.Instance(self._store, module, []).exports(self._store))  # memory, functions
        self._memory: Array = np.ctypeslib.as_array(self._exports["memory"].get_buffer_ptr(self._store))
        about = self.about()
        if about["fingerprint"] != (own := fingerprint(graph)[:DIGITS]):
            raise InputError(
                f"the module is of {about['name']}, {about['fingerprint']}; {graph.name} is {own}: it belongs to "
                "another program"
            )
        self._call("init")
        self._latent = tuple(self._view("latent", size, i) for i, size in enumerate(sources.latent))

    @property
    def memory_bytes(self) -> int:
        """The size of the module's memory, which never grows."""
        return self._memory.size

    def about(self) -> dict[str, Any]:
        """Return what the module says of itself."""
        start = self._call("about")
        end = start + int(np.argmin(self._memory[start:] != 0))
        facts: dict[str, Any] = json.loads(self._memory[start:end].tobytes())
        return facts

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        self._feed(self.graph.inputs, arrays)
        self._call("run")
        return self.outputs()

    def predict(self, *arrays: Array) -> int:
        self._feed(self.graph.prediction_inputs, arrays)
        return int(self._call("predict"))

    def scores(self) -> Array:
        """Return the scores of the last run or step, as the float32 numbers that they stand for."""
        size = self.graph.scores.type.size
        return self._view("scores", 4 * size).view(np.float32).copy()

    def show_pixels(self, pixels: Array) -> None:
        """Make uint8 pixels [height, width, colours] the input of the next run, as a page does."""
        self._view("pixels", pixels.size)[:] = pixels.reshape(-1)
        self._call("show_pixels")

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        given = device.check_step(self, label, learning_rate)
        self._feed(self.graph.prediction_inputs, (image,))
        return self._step("train", given, learning_rate)

    def latent(self, image: Array) -> bytes:
        device.check_latent(self.graph, tuple(part.size for part in self._latent))
        self._feed(self.graph.prediction_inputs, (image,))
        self._call("front")
        return b"".join(part.tobytes() for part in self._latent)

    def replay(self, latent: bytes, label: int | Array | None, learning_rate: float) -> float:
        device.check_latent(self.graph, tuple(part.size for part in self._latent), latent)
        given = device.check_step(self, label, learning_rate)
        rest = np.frombuffer(latent, np.uint8)
        for part in self._latent:
            part[:], rest = rest[: part.size], rest[part.size :]
        return self._step("replay", given, learning_rate)

    def count(self, image: Array, label: int, sign: int) -> None:
        device.one_pass_of(self.graph)
        self.predict(image)
        device.check_code(self.graph, self._call("observe" if sign > 0 else "forget", label))

    def solve(self) -> None:
        device.one_pass_of(self.graph)
        device.check_code(self.graph, self._call("solve"))

    def distance(self) -> float:
        device.one_pass_of(self.graph)
        return float(self._call("distance"))

    def merge(self, sums: Sums, sign: int = 1) -> None:
        device.check_sums(self.graph, sums)
        other = np.concatenate([part.reshape(-1) for part in (sums.n, sums.m, sums.g)]).astype(np.int32)
        self._view("others", other.nbytes)[:] = other.view(np.uint8)
        device.check_code(self.graph, self._call("merge" if sign > 0 else "forget_sums"))

    def forget_class(self, label: int) -> None:
        device.one_pass_of(self.graph)
        device.check_code(self.graph, self._call("forget_class", label))

    def audio_features(self, samples: Array) -> Array:
        device.check_audio(self.graph, samples)
        self._call("audio_reset")
        chunk = int(self.about()["audio"]["chunk"])
        for at in range(0, samples.size, chunk):
            part = np.ascontiguousarray(samples[at : at + chunk])
            self._view("samples", part.nbytes)[:] = part.view(np.uint8)
            self._call("audio_push", part.size)
        self._call("audio_show")
        return device.tensor(self.graph.image, self._view("input", self.graph.image.type.bytes, 0).tobytes())

    def outputs(self) -> tuple[Array, ...]:
        return tuple(
            device.tensor(v, self._view("output", v.type.bytes, i).tobytes()) for i, v in enumerate(self.graph.outputs)
        )

    def state(self) -> dict[str, Array]:
        return device.read_state(self.graph, self._state().tobytes())

    def restore(self, state: Mapping[str, Array]) -> None:
        self._state()[:] = np.frombuffer(device.state_block(self.graph, state), np.uint8)

    def save(self) -> bytes:
        """Return what was learned as `smidgen device PORT save` writes it."""
        self._call("save")
        return self._view("saved", int(self.about()["saved_bytes"])).tobytes()

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave; InputError where it is of another program, and then nothing is left."""
        size = int(self.about()["saved_bytes"])
        if len(saved) != size:
            raise InputError(f"what {self.graph.name} learned takes {size:,} bytes, given were {len(saved):,}")
        self._view("saved", size)[:] = np.frombuffer(saved, np.uint8)
        if self._call("load"):
            raise InputError(
                f"{self.graph.name} did not take what was saved: it is damaged, or of another program; the device is "
                "as it began"
            )

    def twin(self) -> WasmDevice:
        """Another device that runs the same program in the same state, at the same time."""
        other = WasmDevice(self.graph, self._sources, self._engine, self._module)
        other._state()[:] = self._state()
        return other

    def close(self) -> None:
        """Drop the module's memory."""
        self._memory, self._latent, self._exports = np.empty(0, np.uint8), (), {}
        self._store = None

    def _state(self) -> Array:
        self._running()
        return self._view("state", state_bytes(self.graph)) if self.graph.state else np.empty(0, np.uint8)

    def _feed(self, inputs: tuple[Value, ...], arrays: tuple[Array, ...]) -> None:
        self._running()
        check_inputs(self.graph, arrays, inputs)
        for value, array in zip(inputs, arrays, strict=True):
            place = self._view("input", value.type.bytes, self.graph.inputs.index(value))
            place[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def _step(self, name: str, label: Array | None, learning_rate: float) -> float:
        """Take a step of the module, and return its loss; labels that are no classes lie in an input."""
        roles = self.graph.roles
        assert roles is not None
        if label is not None and label.dtype != np.int32 and roles.label is not None:
            place = self._view("input", roles.label.type.bytes, self.graph.inputs.index(roles.label))
            place[:] = np.ascontiguousarray(label).reshape(-1).view(np.uint8)
        number = int(label[0]) if label is not None and label.dtype == np.int32 else 0
        return float(self._call(name, number, learning_rate))

    def _view(self, role: str, size: int, *index: int) -> Array:
        """Return the module's own memory of an input, an output or the state, as bytes."""
        at = int(self._call(role, *index))
        return self._memory[at : at + size]

    def _running(self) -> wasmtime.Store:
        if self._store is None:
            raise TargetError(f"the device running {self.graph.name} is closed; start another")
        return self._store

    def _call(self, name: str, *arguments: float) -> Any:
        import wasmtime

        store = self._running()
        try:
            return self._exports[name](store, *arguments)
        except wasmtime.Trap as error:
            reason = str(error).splitlines()[-1].strip()
            raise TargetError(f"{self.graph.name} broke off in {name}: {reason}; start another device") from None
