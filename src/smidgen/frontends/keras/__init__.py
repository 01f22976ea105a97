"""Keras models in: `.keras` archives and `.h5` files → float32 Graph, without Keras and without running their code.

Each layer becomes a node or a few; models may contain models.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from smidgen.data.files import MEMORY, Budget, read_whole, read_zip
from smidgen.errors import GraphError, ImportModelError, located, refuse
from smidgen.frontends.fields import Record
from smidgen.frontends.keras.hdf5 import SIGNATURE, Dataset, Hdf5Group, array_of, read_hdf5
from smidgen.frontends.keras.layers import LAYERS, LayerCall
from smidgen.frontends.tidy import tidy
from smidgen.ir import Array, Builder, Graph, Type, Value
from smidgen.ir.types import identifier

MODELS = ("Functional", "Model", "Sequential")
MAX_LAYERS = 4096
MAX_DEPTH = 8  # of models within models
CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
CONTAINERS = ("layers", "_layer_checkpoint_dependencies")  # of layers in a file of weights
SAVE = "save the model with keras' own model.save()"
INSTEAD = "convert it to .tflite or .onnx, or leave them out (docs/internals/keras.md lists what is read)"
Tensor = tuple[str, int, int]  # a result of a layer's call: the layer, which of its calls, which of its outputs
Owner = tuple[str, str]  # the layer of the model that contains the weights, and the layer that they belong to
Weights = Mapping[Owner, tuple[Dataset, ...]]


def read_keras(path: Path, memory: int = MEMORY) -> Graph:
    """Read the model in a `.keras` archive or an `.h5` file as a float32 graph."""
    budget = Budget(memory)
    try:
        stored = _read_stored(path, budget)
        unknown = Counter(kind for kind in _kinds(stored.model, 0) if kind not in (*LAYERS, *MODELS, "InputLayer"))
        counted = ", ".join(f"{count} × {kind[:60]}" for kind, count in sorted(unknown.items()))
        refuse(unknown, f"not supported are {counted}; {INSTEAD}")
        reading = _Reading(stored, budget, Builder(identifier(path.stem) or "model"))
        return tidy(reading.builder.graph(*reading.model(stored.model, (), "", 0)))
    except ImportModelError as error:
        text = str(error)
        raise ImportModelError(text if text.startswith(path.name) else f"{path.name}: {text}") from None
    except GraphError as error:
        raise ImportModelError(f"{path.name}: {error}; fix the model before saving it") from None


@dataclass(frozen=True, eq=False)
class _StoredModel:
    """A model as Keras describes it, and its weights by layer, in Keras' order."""

    model: Record
    version: int  # of Keras, the first number
    weights: Weights
    data: bytes

    def of(self, owner: Owner, budget: Budget) -> tuple[Array, ...]:
        """Return the weights of a layer, if it has any."""
        what = f"a weight of '{owner[1]}'"
        return tuple(array_of(one, self.data, what, budget) for one in self.weights.get(owner, ()))


def _read_stored(path: Path, budget: Budget) -> _StoredModel:
    """Read a `.keras` archive or an `.h5` file; the bytes decide which it is, not the name."""
    data = read_whole(path, budget.limit)
    if data[:8] == SIGNATURE:
        root = read_hdf5(data, path.name)
        config, version = root.attributes.get("model_config"), root.attributes.get("keras_version")
        if not isinstance(config, str):
            raise ImportModelError(f"{path.name} holds weights alone, without the model; {SAVE}")
        model = Record.from_json(config.encode(), path.name, budget)
        return _StoredModel(model, _major(version), _legacy_weights(root.group("model_weights") or Hdf5Group()), data)
    members = read_zip(path, budget, lambda name: name in (CONFIG, METADATA, WEIGHTS))
    missing = [name for name in (CONFIG, WEIGHTS) if name not in members]
    refuse(missing, f"{path.name} holds no {' and no '.join(missing)}; {SAVE}")
    stated = Record.from_json(members.get(METADATA, b"{}"), path.name, budget).values.get("keras_version")
    model, held = Record.from_json(members[CONFIG], path.name, budget), members[WEIGHTS]
    return _StoredModel(model, _major(stated), dict(_weights(read_hdf5(held, f"{path.name}, {WEIGHTS}"), model)), held)


def _major(version: object) -> int:
    found = re.match(r"\d{1,3}", version) if isinstance(version, str) else None
    return int(found[0]) if found else 3


def _legacy_weights(root: Hdf5Group) -> Weights:
    """Return the weights of an `.h5` file, which names them by layer: the part before the last is the owner."""
    found: dict[Owner, tuple[Dataset, ...]] = {}
    for top, group in root.members.items():
        if not isinstance(group, Hdf5Group):
            continue
        # Names are in one attribute or, if they were too long for it, in several numbered ones.
        numbered = (f"weight_names{number}" for number in range(len(group.attributes)))
        given = [group.attributes.get(key, ()) for key in ("weight_names", *numbered)]
        for name in (name for names in given for name in ((names,) if isinstance(names, str) else names)):
            *parents, last = name.split("/")
            held = group.group(*parents)
            dataset = held.members.get(last) if held else None
            if not isinstance(dataset, Dataset):
                raise ImportModelError(f"the weight '{name[:80]}' is not in the file, or not of floats; {SAVE}")
            owner = top, parents[-1] if parents else top
            found[owner] = (*found.get(owner, ()), dataset)
    return found


def _weights(root: Hdf5Group, model: Record, top: str = "") -> Iterator[tuple[Owner, tuple[Dataset, ...]]]:
    """Yield the weights of a `.keras` archive: a group per layer, named by its class; an attribute holds its name."""
    names = dict(_group_names(model))
    for key, group in next((g.members for c in CONTAINERS if (g := root.group(c))), {}).items():
        if not isinstance(group, Hdf5Group):
            continue
        held, layer = group.group("vars") or Hdf5Group(), names.get(key)
        stated = held.attributes.get("name")
        name = stated if isinstance(stated, str) else _name(layer) if layer else key
        numbered = {int(number): one for number, one in held.members.items() if number.isdigit()}
        arrays = tuple(one for _, one in sorted(numbered.items()) if isinstance(one, Dataset))
        if arrays:
            yield (top or name, name), arrays
        if layer is not None and any(group.group(c) for c in CONTAINERS):
            yield from _weights(group, layer, top or name)


def _group_names(model: Record) -> Iterator[tuple[str, Record]]:
    """Yield the group of each layer in a file of weights: its class in snake case, numbered from the second on."""
    config = model.optional("config")
    counts: Counter[str] = Counter()
    for layer in config.records("layers") if config and "layers" in config.values else ():
        text = re.sub(r"\W+", "", str(layer.values.get("class_name", ""))[:80])
        text = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", text)
        stem = re.sub("([a-z])([A-Z])", r"\1_\2", text).lower()
        yield (f"{stem}_{counts[stem]}" if counts[stem] else stem), layer
        counts[stem] += 1


def _kinds(layer: Record, depth: int) -> Iterator[str]:
    """Yield the class of a layer and of all layers in it."""
    kind = layer.entry("class_name")
    if depth > MAX_DEPTH or not isinstance(kind, str):
        raise ImportModelError(f"{layer.where[:80]}: models are nested {depth} deep, or a layer has no class")
    yield kind
    if kind in MODELS:
        for inner in _layers(layer):
            yield from _kinds(inner, depth + 1)


def _layers(model: Record) -> tuple[Record, ...]:
    found = model.entry("config")
    # In the oldest files the config of a Sequential is the list of its layers.
    held = Record({"layers": found}, model.where) if isinstance(found, list) else Record.of(found, model.where)
    layers = held.records("layers")
    refuse(len(layers) > MAX_LAYERS, f"a model has {len(layers):,} layers; up to {MAX_LAYERS:,} are read")
    return layers


def _name(layer: Record) -> str:
    name = layer.record("config").values.get("name") if isinstance(layer.values.get("config"), dict) else None
    return str(name if isinstance(name, str) else layer.values.get("name", ""))


@dataclass(frozen=True, eq=False)
class _Reading:
    """A model being read."""

    stored: _StoredModel
    budget: Budget
    builder: Builder
    applied: list[str] = field(default_factory=list)  # layers so far

    def model(self, model: Record, ins: tuple[Value, ...], top: str, depth: int) -> tuple[Value, ...]:
        """Return the outputs of a model on values, or on inputs of the graph if there are none."""
        refuse(depth > MAX_DEPTH, f"models are nested {depth} deep")
        if model.entry("class_name") != "Sequential":
            return self._functional(model, ins, top, depth)
        layers = _layers(model)
        ins = ins or (self._input(layers[0] if layers else model, model),)
        for layer in layers:
            if layer.entry("class_name") != "InputLayer":
                ins = self._apply(layer, ins, top, depth)
        return ins

    def _input(self, layer: Record, model: Record | None = None) -> Value:
        """Add an input of the graph, whose shape the layer or the model around it states."""
        config = layer.record("config")
        stated = [config.values.get(key) for key in ("batch_shape", "batch_input_shape")]
        if model is not None and isinstance(model.values.get("config"), dict):
            stated.append(model.record("config").values.get("build_input_shape"))
        if build := model.optional("build_config") if model else None:
            stated.append(build.values.get("input_shape"))
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
            refuse(tensor[0] not in layers, f"the input '{tensor[0][:60]}' is none of the layers")
            values[tensor] = ins[place] if place < len(ins) else self._input(layers[tensor[0]])
        refuse(ins and len(ins) != len(names), f"a model of {len(names)} inputs is given {len(ins)}")
        self._call_all(layers, values, top, depth)
        outputs = list(_tensors(config.entry("output_layers")))
        refuse(not outputs or not all(tensor in values for tensor in outputs), "an output is not given by any layer")
        return tuple(values[tensor] for tensor in outputs)

    def _call_all(self, layers: Mapping[str, Record], values: dict[Tensor, Value], top: str, depth: int) -> None:
        """Make every call of every layer, each as soon as all its inputs are there."""
        calls: dict[tuple[str, int], list[Tensor]] = {}
        for name, layer in layers.items():
            nodes = layer.items("inbound_nodes") if "inbound_nodes" in layer.values else ()
            calls |= {(name, place): list(_tensors(node)) for place, node in enumerate(nodes)}
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
        refuse(len(self.applied) > MAX_LAYERS, f"the model applies more than {MAX_LAYERS:,} layers")
        if kind in MODELS:
            return self.model(layer, ins, top or name, depth + 1)
        if kind == "InputLayer":
            return ins
        weights, config = self.stored.of((top or name, name), self.budget), layer.record("config")
        stem, version = identifier(name) or kind.lower(), self.stored.version
        call = LayerCall(self.builder, self.budget, stem, kind, config, ins, weights, version)
        with located(f"'{name[:60]}' ({kind})", again="; fix the model or save it again"):
            return (LAYERS[kind](call),)


def _tensors(given: object, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors of a call or of a list of outputs, as Keras 3 or an earlier one writes them."""
    refuse(depth > MAX_DEPTH, f"what a layer reads is written {depth} lists deep")
    if isinstance(given, dict):
        if given.get("class_name") == "__keras_tensor__":
            yield from _tensors(Record.of(given.get("config"), "a tensor").entry("keras_history"), depth + 1)
        elif "args" in given:
            yield from _tensors(given["args"], depth + 1)
    elif isinstance(given, list):
        if len(given) >= 3 and isinstance(given[0], str) and isinstance(given[1], int) and isinstance(given[2], int):
            yield given[0], given[1], given[2]
        else:
            for one in given:
                yield from _tensors(one, depth + 1)
