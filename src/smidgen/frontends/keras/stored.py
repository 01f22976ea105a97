"""What a Keras file holds: its layers as JSON, and the weights of each."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from smidgen.data.files import Budget, read_whole, read_zip
from smidgen.errors import ImportModelError
from smidgen.frontends.keras.hdf5 import SIGNATURE, Dataset, Group, array_of, read_hdf5
from smidgen.frontends.release.fields import Record
from smidgen.ir import Array

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
CONTAINERS = ("layers", "_layer_checkpoint_dependencies")  # of layers in a file of weights
JSON_GROWTH = 32  # bytes of Python objects for one byte of text, at most
SAVE = "save the model with keras' own model.save()"
Owner = tuple[str, str]  # the layer of the model that the weights lie in, and the layer whose they are


@dataclass(frozen=True, eq=False)
class Stored:
    """A model as Keras describes it, and its weights by layer, in Keras' order."""

    model: Record
    version: int  # of Keras, the first number
    weights: Mapping[Owner, tuple[Dataset, ...]]
    data: bytes

    def of(self, owner: Owner, budget: Budget) -> tuple[Array, ...]:
        """The weights of a layer; none where it has none."""
        return tuple(
            array_of(one, self.data, f"a weight of '{owner[1]}'", budget) for one in self.weights.get(owner, ())
        )


def read_stored(path: Path, budget: Budget) -> Stored:
    """The model in a `.keras` archive or in an `.h5` file; what the bytes are decides, not the name."""
    data = read_whole(path, budget.limit)
    if data[:8] == SIGNATURE:
        root = read_hdf5(data, path.name)
        config, version = root.attributes.get("model_config"), root.attributes.get("keras_version")
        if not isinstance(config, str):
            raise ImportModelError(f"{path.name} holds weights alone, without the model; {SAVE}")
        model = _json(config.encode(), path.name, budget)
        return Stored(model, _major(version), _legacy(root.group("model_weights") or Group()), data)
    members = read_zip(path, budget, lambda name: name in (CONFIG, METADATA, WEIGHTS))
    missing = [name for name in (CONFIG, WEIGHTS) if name not in members]
    if missing:
        raise ImportModelError(f"{path.name} holds no {missing[0]}; {SAVE}")
    stated = _json(members.get(METADATA, b"{}"), path.name, budget).values.get("keras_version")
    held = members[WEIGHTS]
    model, root = _json(members[CONFIG], path.name, budget), read_hdf5(held, f"{path.name}, {WEIGHTS}")
    return Stored(model, _major(stated), dict(_collected(root, model)), held)


def _json(data: bytes, where: str, budget: Budget) -> Record:
    budget.check(f"the description in {where}", JSON_GROWTH * len(data))
    try:
        return Record.of(json.loads(data), where)
    except (ValueError, RecursionError):
        raise ImportModelError(f"{where} is damaged: its description cannot be read; {SAVE}") from None


def _major(version: object) -> int:
    found = re.match(r"\d{1,3}", version) if isinstance(version, str) else None
    return int(found[0]) if found else 3


def _legacy(root: Group) -> dict[Owner, tuple[Dataset, ...]]:
    """An `.h5` file names the weights of each layer: the part before the last is whose they are."""
    found: dict[Owner, tuple[Dataset, ...]] = {}
    for top, group in root.members.items():
        if not isinstance(group, Group):
            continue
        for name in _weight_names(group):
            *parents, last = name.split("/")
            held = group.group(*parents)
            dataset = held.members.get(last) if held else None
            if not isinstance(dataset, Dataset):
                raise ImportModelError(f"the weight '{name[:80]}' is not in the file, or not of floats; {SAVE}")
            owner = top, parents[-1] if parents else top
            found[owner] = (*found.get(owner, ()), dataset)
    return found


def _weight_names(group: Group) -> Iterator[str]:
    """The names in one attribute or, where they were too long for it, in several that are numbered."""
    numbered = (f"weight_names{number}" for number in range(len(group.attributes)))
    for key in ("weight_names", *numbered):
        found = group.attributes.get(key, ())
        yield from found if isinstance(found, tuple) else (found,)


def _collected(root: Group, model: Record) -> Iterator[tuple[Owner, tuple[Dataset, ...]]]:
    """A `.keras` archive has a group for each layer, named by its class; an attribute says its own name."""
    for (top, name), group in _groups(root, model, ""):
        held = group.group("vars")
        numbered = {int(key): one for key, one in held.members.items() if key.isdigit()} if held else {}
        arrays = tuple(one for _, one in sorted(numbered.items()) if isinstance(one, Dataset))
        if arrays:
            yield (top or name, name), arrays


def _groups(root: Group, model: Record, top: str) -> Iterator[tuple[Owner, Group]]:
    names = dict(_group_names(model))
    for key, group in next((g.members for c in CONTAINERS if (g := root.group(c))), {}).items():
        if not isinstance(group, Group):
            continue
        held = group.group("vars")
        said = held.attributes.get("name") if held else None
        layer = names.get(key)
        name = said if isinstance(said, str) else _name(layer) if layer else key
        yield (top, name), group
        if layer is not None and any(group.group(c) for c in CONTAINERS):
            yield from _groups(group, layer, top or name)


def _group_names(model: Record) -> Iterator[tuple[str, Record]]:
    """What a file of weights calls each layer: its class in snake case, with a number from the second on."""
    config = model.optional("config")
    counts: Counter[str] = Counter()
    for layer in config.records("layers") if config and "layers" in config.values else ():
        text = re.sub(r"\W+", "", str(layer.values.get("class_name", ""))[:80])
        text = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", text)
        stem = re.sub("([a-z])([A-Z])", r"\1_\2", text).lower()
        yield (f"{stem}_{counts[stem]}" if counts[stem] else stem), layer
        counts[stem] += 1


def _name(layer: Record) -> str:
    config = layer.optional("config")
    return str(config.values.get("name", "")) if config else ""
