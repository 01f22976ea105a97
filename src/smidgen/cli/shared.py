"""Steps that several verbs share: checking files, reading models, and choosing how and what a program learns."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import get_args

from smidgen.cli import verbs
from smidgen.cli.options import MEMORY, Counting, Cropping, DataReading, Learning, Limited, Naming, Pixelled, Sounding
from smidgen.cli.terminal import say, spinner, warn
from smidgen.data import Augment, Data, load_data
from smidgen.data.audio import with_audio_front_end, with_front_end
from smidgen.data.files import read_text
from smidgen.errors import InputError
from smidgen.ir import Graph, LabelKind
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import Extended, extend
from smidgen.ops.loss import Loss
from smidgen.ops.rules import Momentum, Sgd
from smidgen.pipeline import with_classes
from smidgen.quantization import CONVENTIONS, GivenPixels, is_float
from smidgen.selection import search
from smidgen.selection.estimates import shipped_or_estimated
from smidgen.targets.boards import parse_size
from smidgen.targets.device import Target
from smidgen.training import HeadStart, Options
from smidgen.training.scheme import Scheme
from smidgen.zoo import load

LARGEST_NAMES = 2**22  # bytes of a file of names
CROP = 0.08  # the smallest share of an image that a random crop keeps by default


def memory_bytes(text: str = MEMORY) -> int:
    """Return the option --memory in bytes."""
    if (size := parse_size(text)) < 1:
        raise InputError(f"--memory {text} leaves nothing to read a file with; give a size such as 1GB")
    return size


def load_model(asked: Limited, model: str) -> Graph:
    """Read a model within the memory that a verb allows, with the sizes and the names of classes that it gives."""
    shapes = {}
    for text in asked.shape or ():
        name, _, sizes = text.rpartition("=")
        if not re.fullmatch(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8}){0,7}", sizes) or not name:
            raise InputError(f"--shape {text[:60]} is not an input's name and its sizes; write it like x=1,3,96,96")
        shapes[name] = tuple(int(size) for size in sizes.split(","))
    graph = load(model, memory_bytes(asked.memory), shapes)
    if isinstance(asked, Naming) and asked.class_names is not None:
        return with_classes(graph, class_names(asked.class_names))
    return graph


def class_names(text: str) -> tuple[str, ...]:
    """Return the names in a file, one a line, or in a list separated by commas."""
    path = Path(text)
    if "," in text or not path.is_file():
        return tuple(name.strip() for name in text.split(","))
    way_out = "give a file with the name of a class on each line"
    return tuple(line.strip() for line in read_text(path, LARGEST_NAMES, way_out).splitlines() if line.strip())


def read_model(asked: Limited, model: str, learns: bool = False) -> Graph:
    """Read a model with a spinner; raise if it is float32 and is to learn."""
    with spinner(f"reading {model}"):
        graph = load_model(asked, model)
    if learns:
        check_int8(graph, model)
    return graph


def read_data(asked: DataReading, source: str) -> Data:
    """Read data as a verb's options ask for, and print the notes on them."""
    data = load_data(source, memory_bytes(asked.memory), asked.short_side, asked.label)
    for note in data.notes:
        warn(note)
    return data


def read_both(asked: verbs.Analyze | verbs.Fit | verbs.Train) -> tuple[Graph, Data]:
    """Read a verb's model and its data with a spinner; the model takes audio as --audio asks for."""
    with spinner(f"reading {asked.source}"):
        graph, data = load_model(asked, asked.model), read_data(asked, asked.source)
        return with_front_end(graph, data.train.images, asked.audio), data


def given_pixels(asked: Pixelled, graph: Graph) -> GivenPixels:
    """Return the preprocessing that the options and the model give together, or what to try; None without options."""
    was = graph.preprocessing if isinstance(graph.preprocessing, Preprocessing) else None
    if asked.pixels is not None:
        if (known := CONVENTIONS.get(asked.pixels)) is None:
            if len(ends := _numbers("--pixels", asked.pixels)) != 2:
                names = ", ".join(name for name in CONVENTIONS if name.isalpha())
                raise InputError(
                    f"--pixels {asked.pixels[:40]} must be the two numbers that pixels 0 and 255 stand for, such as "
                    f"0,1, or one of {names}"
                )
            known = Preprocessing((0.0,), (1.0,), range=(ends[0], ends[1]))
        was = known
    elif was is None and (asked.mean is not None or asked.std is not None):
        was = Preprocessing()
    elif asked.mean is None and asked.std is None and asked.order is None and asked.shape_fit is None:
        return None
    if was is None:
        return {name: _arranged(asked, usual) for name, usual in CONVENTIONS.items()}
    mean = was.mean if asked.mean is None else _numbers("--mean", asked.mean)
    std = was.std if asked.std is None else _numbers("--std", asked.std)
    return _arranged(asked, replace(was, mean=mean, std=std))


def _arranged(asked: Pixelled, was: Preprocessing) -> Preprocessing:
    """Return a preprocessing with the order of channels and the fit that the options ask for."""
    return replace(was, order=asked.order or was.order, fit=asked.shape_fit or was.fit)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text[:40]} is not a list of numbers; write them like 0.5,0.4,0.4") from None


def with_audio(asked: Sounding, graph: Graph) -> Graph:
    """Return a model that takes audio as --audio asks for."""
    return graph if asked.audio is None else with_audio_front_end(graph, asked.audio)


def check_int8(graph: Graph, model: str, source: str = "DATA", otherwise: str = "") -> None:
    """Raise if a model that is to learn is float32, with the command that quantizes it."""
    if is_float(graph):
        to = f"{Path(model).stem or graph.name}-int8.smg"
        command = shlex.join(("smidgen", "quantize", model, "--data", source, "-o", to))
        raise InputError(f"{model} is float32, and what learns computes in int8; quantize it: {command}{otherwise}")


def check_file(path: Path | None, force: bool, coming: Path = Path()) -> None:
    """Raise unless this file, if any, may be written: its folder exists or is `coming`, and it does not, or may go."""
    if path is None:
        return
    if path.is_dir() or not path.name:
        raise InputError(f"{path} is a folder; name a file to write")
    if path.parent.absolute() != coming.absolute() and not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if not force and path.exists():
        raise InputError(f"{path} exists already; give --force to overwrite it, or name another file")


def parse_rate(text: str) -> float:
    """Return a learning rate, given as a number or as a quotient of two."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"a learning rate of {text} cannot be used; give auto, a number, or a quotient such as 0.1/256"
        ) from None


def augmentation(asked: Cropping, labels: LabelKind) -> Augment | None:
    """Return how images are cropped and flipped; off by default for maps and vectors, where position has meaning."""
    crop, flip, fixed = asked.crop, asked.flip, labels in ("maps", "vectors")
    if labels == "maps" and (flip or (crop is not None and crop < 1)):
        raise InputError(
            "the labels are a class for each cell of an image, which crops and flips would move; leave out --crop and "
            "--flip"
        )
    scale, flips = (1.0 if fixed else CROP) if crop is None else crop, not fixed if flip is None else flip
    return None if fixed and scale == 1 and not flips else Augment((scale, 1.0), flip=flips)


def extended(graph: Graph, data: Data) -> Extended:
    """Add the classes of the data that a model lacks to its head, and print which."""
    with spinner(f"adding classes to {graph.name}"):
        found = extend(graph, data)
    say(f"{graph.name} knows {len(graph.classes)} classes; added: {', '.join(found.added)}", err=True)
    return found


def learning_options(asked: Learning, classes: int | None) -> Options:
    """Return a verb's options of learning for this many outputs; an extended head is kept once it is extended."""
    head: HeadStart | None = None if asked.head is None else "new" if asked.head == "new" else "keep"
    rule = Momentum(asked.momentum, accumulate=asked.accumulate) if asked.momentum else Sgd(accumulate=asked.accumulate)
    loss = chosen_loss(asked) or "softmax"
    return Options(
        classes, asked.weight_bits, asked.qas, rule, asked.head_dtype, asked.seed, head, loss, asked.bias_bits,
        asked.skip_below, asked.project,
    )  # fmt: skip


def options_for(asked: Counting, model: str, scheme: str | None, budget: str | None) -> Options | None:
    """Return the same where a scheme, or classes and a budget to choose one for, decide whether the program learns.

    None for a program that only infers.
    """
    if asked.head == "extend":
        raise InputError(
            f"the head of {model} is extended by examples of new classes; run `smidgen train --head extend`, and give "
            "the model that it writes"
        )
    if scheme is None and asked.classes is None:
        return None
    if scheme is None and budget is None:
        raise InputError(
            f"{asked.classes} classes can only be learned with a scheme; give --scheme, or --budget to have one chosen"
        )
    return learning_options(asked, asked.classes)


def chosen_loss(asked: Learning) -> Loss | None:
    """Return the loss that is asked for; None where the data are to decide."""
    return next((loss for loss in get_args(Loss) if loss == asked.loss), None)


def choose_scheme(
    graph: Graph,
    scheme: str | None,
    budget: str | None,
    target: str | Target,
    options: Options | None,
    streamed_input: bool,
) -> str | Scheme | None:
    """Return the scheme given, or the best known for the budget if the program learns; None if it only infers."""
    if scheme is not None or budget is None or options is None:
        return scheme
    with spinner(f"choosing what {graph.name} learns"):
        known = shipped_or_estimated(graph)
        found = search(graph, known, budget, target, options=options, streamed_input=streamed_input)
    if known.measured:
        warn(
            f"what learns is a guess: what each part adds was measured on {known.conditions.data}, not on your "
            f"samples; smidgen fit {graph.name} --data DATA tries it on them against the head alone and other schemes"
        )
    else:
        warn(
            f"the contributions of the layers of {graph.name} were not measured; a rule about their shapes chose. To "
            f"measure them: smidgen analyze {graph.name} --data DATA -o contributions.json, then smidgen search"
        )
    say(str(found), err=True)
    return found.scheme
