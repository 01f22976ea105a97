"""Keras → Graph: each layer becomes a node or a few, models within models too; the result is float32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from smidgen.data.files import MEMORY, Budget
from smidgen.errors import GraphError, ImportModelError
from smidgen.frontends.keras.calls import Call
from smidgen.frontends.keras.layers import LAYERS
from smidgen.frontends.keras.stored import Stored, read_stored
from smidgen.frontends.release.fields import Record
from smidgen.frontends.tidy import tidy
from smidgen.ir import Builder, Graph, Type, Value
from smidgen.ir.types import identifier

MODELS = ("Functional", "Model", "Sequential")
MAX_LAYERS = 4096
MAX_DEPTH = 8  # of models within models
Tensor = tuple[str, int, int]  # what a call of a layer gives: the layer, which of its calls, which of its outputs


def read_keras(path: Path, memory: int = MEMORY) -> Graph:
    """The model in a `.keras` archive or an `.h5` file as a float32 graph."""
    budget = Budget(memory)
    try:
        stored = read_stored(path, budget)
        _check_known(stored.model)
        reading = _Reading(stored, budget, Builder(identifier(path.stem) or "model"))
        outputs = reading.model(stored.model, (), "", 0)
        return tidy(reading.builder.graph(*outputs))
    except ImportModelError as error:
        said = str(error)
        raise ImportModelError(said if said.startswith(path.name) else f"{path.name}: {said}") from None
    except GraphError as error:
        raise ImportModelError(f"{path.name}: {error}; fix the model before saving it") from None


def _check_known(model: Record) -> None:
    """Raise where layers have no rule, all of them at once."""
    unknown = Counter(kind for kind in _kinds(model, 0) if kind not in (*LAYERS, *MODELS, "InputLayer"))
    if unknown:
        counted = ", ".join(f"{count} × {kind[:60]}" for kind, count in sorted(unknown.items()))
        raise ImportModelError(
            f"not supported are {counted}; convert it to .tflite or .onnx, or leave them out "
            "(docs/internals/keras.md lists what is read)"
        )


def _kinds(layer: Record, depth: int) -> Iterator[str]:
    """The class of a layer, and of all layers in it."""
    kind = layer.entry("class_name")
    if depth > MAX_DEPTH or not isinstance(kind, str):
        raise ImportModelError(f"{layer.where[:80]}: models lie {depth} deep, or a layer has no class")
    yield kind
    if kind in MODELS:
        for inner in _layers(layer):
            yield from _kinds(inner, depth + 1)


def _layers(model: Record) -> tuple[Record, ...]:
    found = model.entry("config")
    # A Sequential of the oldest files is the list of its layers.
    held = Record({"layers": found}, model.where) if isinstance(found, list) else Record.of(found, model.where)
    layers = held.records("layers")
    if len(layers) > MAX_LAYERS:
        raise ImportModelError(f"a model has {len(layers):,} layers; up to {MAX_LAYERS:,} are read")
    return layers


def _name(layer: Record) -> str:
    name = layer.record("config").values.get("name") if isinstance(layer.values.get("config"), dict) else None
    return str(name if isinstance(name, str) else layer.values.get("name", ""))


@dataclass(frozen=True, eq=False)
class _Reading:
    """An import under way."""

    stored: Stored
    budget: Budget
    builder: Builder
    applied: list[str] = field(default_factory=list)  # layers, so far

    def model(self, model: Record, ins: tuple[Value, ...], top: str, depth: int) -> tuple[Value, ...]:
        """What a model gives for values, or for inputs of the graph where there are none."""
        if depth > MAX_DEPTH:
            raise ImportModelError(f"models lie {depth} deep")
        if model.entry("class_name") == "Sequential":
            return self._sequential(model, ins, top, depth)
        return self._functional(model, ins, top, depth)

    def _sequential(self, model: Record, ins: tuple[Value, ...], top: str, depth: int) -> tuple[Value, ...]:
        layers = _layers(model)
        if not ins:
            ins = (self._input(layers[0] if layers else model, model),)
        for layer in layers:
            if layer.entry("class_name") != "InputLayer":
                ins = self._apply(layer, ins, top, depth)
        return ins

    def _input(self, layer: Record, model: Record | None = None) -> Value:
        """An input of the graph, by the shape that a layer, or the model around it, says."""
        config = layer.record("config")
        build = model.optional("build_config") if model else None
        stated = [config.values.get(key) for key in ("batch_shape", "batch_input_shape")]
        if model is not None and isinstance(model.values.get("config"), dict):
            stated.append(model.record("config").values.get("build_input_shape"))
        stated.append(build.values.get("input_shape") if build else None)
        shape = next((found for found in stated if isinstance(found, list)), None)
        if shape is None or not shape or not all(isinstance(d, int) and d > 0 for d in shape[1:]):
            raise ImportModelError(
                f"input '{_name(layer)[:60]}' has the shape {str(shape)[:60]}: only the batch may be open; build the "
                "model with a fixed Input and save it again"
            )
        return self.builder.input(identifier(_name(layer)) or "x", Type((1, *shape[1:]), "float32"))

    def _functional(self, model: Record, ins: tuple[Value, ...], top: str, depth: int) -> tuple[Value, ...]:
        config, values = model.record("config"), dict[Tensor, Value]()
        layers = {_name(layer): layer for layer in _layers(model)}
        names = list(_tensors(config.entry("input_layers")))
        for place, tensor in enumerate(names):
            if tensor[0] not in layers:
                raise ImportModelError(f"the input '{tensor[0][:60]}' is none of the layers")
            given = ins[place] if place < len(ins) else None
            values[tensor] = self._input(layers[tensor[0]]) if given is None else given
        if ins and len(ins) != len(names):
            raise ImportModelError(f"a model of {len(names)} inputs is given {len(ins)}")
        self._call_all(layers, values, top, depth)
        outputs = list(_tensors(config.entry("output_layers")))
        if not outputs or not all(tensor in values for tensor in outputs):
            raise ImportModelError("an output is not given by any layer")
        return tuple(values[tensor] for tensor in outputs)

    def _call_all(self, layers: Mapping[str, Record], values: dict[Tensor, Value], top: str, depth: int) -> None:
        """Every call of every layer, each as soon as all that it reads is there."""
        calls = {(name, i): list(_tensors(node)) for name, one in layers.items() for i, node in enumerate(_nodes(one))}
        lacks = {call: len({t for t in read if t not in values}) for call, read in calls.items()}
        readers: dict[Tensor, set[tuple[str, int]]] = {}
        for call, read in calls.items():
            for tensor in read:
                readers.setdefault(tensor, set()).add(call)
        ready = [call for call, count in lacks.items() if count == 0]
        while ready:
            name, index = ready.pop(0)
            if (name, index, 0) in values:  # an input
                continue
            made = self._apply(layers[name], tuple(values[t] for t in calls[name, index]), top, depth)
            for place, value in enumerate(made):
                values[name, index, place] = value
                for call in sorted(readers.get((name, index, place), ())):
                    lacks[call] -= 1
                    if lacks[call] == 0:
                        ready.append(call)
        if waiting := [name for (name, index), count in lacks.items() if count > 0]:
            raise ImportModelError(f"'{waiting[0][:60]}' reads what no layer gives, or itself")

    def _apply(self, layer: Record, ins: tuple[Value, ...], top: str, depth: int) -> tuple[Value, ...]:
        kind, name = str(layer.entry("class_name")), _name(layer)
        self.applied.append(name)
        if len(self.applied) > MAX_LAYERS:
            raise ImportModelError(f"the model applies more than {MAX_LAYERS:,} layers")
        if kind in MODELS:
            return self.model(layer, ins, top or name, depth + 1)
        if kind == "InputLayer":
            return ins
        weights = self.stored.of((top or name, name), self.budget)
        config = layer.record("config")
        call = Call(
            self.builder, self.budget, identifier(name) or kind.lower(), kind, config, ins, weights, self.stored.version
        )
        try:
            return (LAYERS[kind](call),)
        except (ImportModelError, GraphError) as error:
            raise ImportModelError(f"'{name[:60]}' ({kind}): {error}") from None


def _nodes(layer: Record) -> list[object]:
    found = layer.values.get("inbound_nodes", [])
    if not isinstance(found, list):
        raise ImportModelError(f"{layer.where[:80]} does not say what it reads")
    return found


def _tensors(said: object, depth: int = 0) -> Iterator[Tensor]:
    """What is read, of a call or as a list of outputs, as Keras 3 and as those before it write it."""
    if depth > MAX_DEPTH:
        raise ImportModelError(f"what a layer reads is written {depth} lists deep")
    if isinstance(said, dict):
        if said.get("class_name") == "__keras_tensor__":
            yield from _tensors(Record.of(said.get("config"), "a tensor").entry("keras_history"), depth + 1)
        elif "args" in said:
            yield from _tensors(said["args"], depth + 1)
        return
    if not isinstance(said, list):
        return
    if len(said) >= 3 and isinstance(said[0], str) and isinstance(said[1], int) and isinstance(said[2], int):
        yield said[0], said[1], said[2]
        return
    for one in said:
        yield from _tensors(one, depth + 1)
