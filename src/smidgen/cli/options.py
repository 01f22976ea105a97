"""The options of the verbs: each declared once, and sets of them as classes that a verb inherits.

Nothing here imports what computes: `smidgen --help` and the completion of a shell read this module alone. So do the
defaults that the library also has; a test compares them.
"""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, dataclass_transform

import typer

from smidgen.errors import InputError

WORDS = "words"  # under which a context keeps the words of the command line
AUTO = "auto"
MEMORY, SHORT_SIDE, TOP, BAUD = "1GB", 512, 3, 115_200
MOST, EVALUATIONS, POINTS = "256KB", 20_000, 16

Head = Literal["keep", "new", "extend"]
HeadDtype = Literal["float32", "int8"]
LossName = Literal["auto", "softmax", "sigmoid", "mse", "reconstruction", "cells"]
Schedule = Literal["cosine", "constant"]
ImageInput = Literal["streamed", "buffered"]
CompilerName = Literal["zig", "gcc"]
Package = Literal["arduino", "zephyr", "platformio", "esp-idf", "cmsis-pack", "cmake", "npm"]
SumsAction = Literal["get", "put", "merge", "forget"]
SearchMethod = Literal["exact", "evolutionary", "random"]
CalibrationMethod = Literal["minmax", "average", "percentile", "mse"]
Channels = Literal["rgb", "bgr", "gray"]
ImageFit = Literal["crop", "stretch"]
Analysis = Literal["quick", "full"]
Effort = Literal["quick", "normal", "thorough"]
Machine = Literal["host", "cuda"]


def networks(incomplete: str) -> list[str]:
    from smidgen.zoo import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def targets(*others: str) -> Callable[[str], list[str]]:
    """Return what completes a board, or one of the other targets."""

    def names(incomplete: str) -> list[str]:
        from smidgen.targets.boards import BOARDS

        return [name for name in (*others, *BOARDS) if name.startswith(incomplete)]

    return names


def schemes(incomplete: str) -> list[str]:
    from smidgen.training.published import PUBLISHED

    published = dict.fromkeys(name for network in PUBLISHED for name in network.schemes)
    return [name for name in (*published, "full", "head", "last:", "bias:") if name.startswith(incomplete)]


def option(default: Any, help: str, *names: str, **more: Any) -> Any:
    """Declare an option as a field of a verb; a required one has `...` as its default."""
    return _field(default, typer.Option(*names, help=help, **more))


def argument(default: Any, help: str, **more: Any) -> Any:
    """Declare an argument as a field of a verb."""
    return _field(default, typer.Argument(help=help, **more))


def path(default: Any, help: str, *names: str) -> Any:
    """Declare an option that is a path as a field of a verb."""
    return _field(default, path_option(*names, help=help))


def _field(default: Any, parameter: Any) -> Any:
    metadata = {"parameter": parameter}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def path_option(*names: str, help: str) -> Any:
    """Return an option that is a path; an empty one, often an unset variable of the shell, is refused."""

    def parse(text: str | Path) -> Path:
        if not str(text):
            raise InputError("a path in the command is empty; name a file or folder, '.' for the working folder")
        return Path(text)

    return typer.Option(*names, parser=parse, metavar="<path>", help=help)


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A network of the zoo, or a model file.", autocompletion=networks)
]
DataSource = Annotated[
    str,
    typer.Option(
        "--data",
        help="A folder of images or recordings by label, a published data set, a .zip of either, an .npz, .npy or .csv "
        "file, or cifar10.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        help="host (this machine), wasm (WebAssembly), or a board: cortex-m7, stm32f746, esp32-c3, …",
        autocompletion=targets("host", "wasm"),
    ),
]
Board = Annotated[str, typer.Option(help="A board: cortex-m7, stm32f746, esp32-c3, …", autocompletion=targets())]
InferenceTarget = Annotated[
    str | None,
    typer.Option(
        help="host (C on this machine, the default), reference (numpy, also for float32 models), wasm, or a board: …",
        autocompletion=targets("host", "wasm", "reference"),
    ),
]
Input = Annotated[
    ImageInput, typer.Option("--input", help="Whether the image arrives row by row or is held whole in SRAM.")
]
SchemeName = Annotated[
    str | None,
    typer.Option(
        help="What learns; without it the program only infers, or learns what --budget has room for.",
        autocompletion=schemes,
    ),
]
SramBudget = Annotated[
    str | None,
    typer.Option(
        help="Limit for SRAM, such as 128KB (1 KB is 1,024 bytes); without --scheme the best known scheme for it learns"
    ),
]
AlignedOnly = Annotated[
    bool, typer.Option("--aligned-only", help="For a board: read and write aligned words only. Slower.")
]
LearningRate = Annotated[
    str, typer.Option("--learning-rate", "--lr", help="Per sample: auto (short trials), a number, or as in 0.1/256.")
]
ScheduleName = Annotated[Schedule, typer.Option(help="How the learning rate changes over the run.")]
Crop = Annotated[
    float | None,
    typer.Option(help="Smallest share of an image that a random crop keeps; 1 for no crops. For classes 0.08."),
]
ContributionFiles = Annotated[
    list[Path] | None, path_option(help="Contributions that smidgen analyze wrote; several files are averaged.")
]
Workers = Annotated[int | None, typer.Option(help="Cores to use for trials. By default all.")]
Ray = Annotated[str | None, typer.Option(help="Run trials on a Ray cluster: auto, or its address such as host:6379.")]
Picture = Annotated[Path | None, path_option(help="Also draw the result in this HTML file.")]
ModelFile = Annotated[Path, path_option("--output", "-o", help="The file to write: .smg, .tflite or .onnx.")]
SampleLimit = Annotated[int | None, typer.Option(help="Test with at most this many samples, evenly spaced.")]
Likeliest = Annotated[int, typer.Option(help="How many of the likeliest classes to show.")]
Seed = Annotated[int, typer.Option(help="Fixes the head's first weights, the order and the crops.")]


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb with its options as fields; its docstring is its help. Each class that inherits from it is a dataclass."""

    context: typer.Context
    as_json: bool = option(False, "Print one JSON object.", "--json")

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def again(self, **changed: str) -> str:
        """Return this command as one can paste it into a shell, with options set to these values."""
        words = [os.fsencode(word).decode(errors="backslashreplace") for word in self.context.meta[WORDS]]
        for option, value in changed.items():
            words = [*_without(words, f"--{option}"), f"--{option}", value]
        return shlex.join(("smidgen", *words))


def _without(words: list[str], option: str) -> list[str]:
    """Return the words without an option and its value."""
    kept: list[str] = []
    places = iter(words)
    for word in places:
        if word == option:
            next(places, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


class Limited(Verb):
    """Reading a file: the memory it may take, and sizes of inputs that a model leaves open."""

    memory: str = option(MEMORY, "Most memory that the contents of one file may take, such as 4GB.")
    shape: list[str] | None = option(
        None, "Sizes of an input that an .onnx file leaves open, as in input=1,3,96,96.", "--shape"
    )


class Pixelled(Verb):
    """The numbers that pixels become for a float32 model; what is left out is the model's own, or found out."""

    pixels: str | None = option(
        None,
        "Values of pixels 0 and 255 before mean and deviation: 0,255 or 0,1 or -1,1; or imagenet, caffe. By "
        "default the model's, or found by trials.",
    )
    mean: str | None = option(None, "Mean of the pixels: one number, or one per channel, as in 0.5,0.4,0.4.")
    std: str | None = option(None, "Standard deviation of the pixels, given like --mean.")
    order: Channels | None = option(None, "Order of the channels the network expects.")
    shape_fit: ImageFit | None = option(None, "Crop or stretch images of another shape.", "--fit")


class Naming(Limited):
    """Names of the classes that a model scores."""

    class_names: str | None = option(
        None, "Names of the classes the model scores, in order: cat,dog, or a text file with one a line."
    )


class Cropping(Verb):
    """Random changes to an image before a step learns from it."""

    crop: Crop = None
    flip: bool | None = option(
        None, "Mirror images at random, half of the time. On by default for classes.", "--flip/--no-flip"
    )


class Overwriting(Verb):
    """Permission to overwrite."""

    force: bool = option(False, "Overwrite existing files.", "--force")


class Sounding(Verb):
    """The front end for audio."""

    audio: str | None = option(
        None, "How audio becomes the input: mfcc or yamnet, and changes to it: mfcc,window=640,hop=320."
    )


class Labelled(Limited):
    """Columns of a table that are labels."""

    label: str | None = option(
        None,
        "Label column of a .csv table, or several as in a,b; none for a table without labels. By default the "
        "last column.",
        "--label",
    )


class DataReading(Labelled):
    """Options for reading data."""

    short_side: int = option(SHORT_SIDE, "Reduce larger image files to this short side, in pixels.")


class Learning(Verb):
    """Options for learning."""

    weight_bits: int | None = option(
        None, "Bits stored for a trained weight: 8, 10 or 12. By default the scheme's, or 12."
    )
    bias_bits: int = option(32, "Bits of SRAM for a trained bias of a convolution: 32, or 16 for the difference to it.")
    head: Head | None = option(
        None,
        "The model's last layer: keep it, start a new one, or extend it by classes it lacks. By default it is "
        "kept where it scores the data's classes: by name, or by its scores of training samples.",
    )
    head_dtype: HeadDtype | None = option(
        None, "Type the head computes in. By default that of the model's head; a new head is float32."
    )
    momentum: float = option(0.0, "Momentum, from 0 up to 1.")
    accumulate: int = option(1, "Samples whose gradients make one step.")
    qas: bool = option(True, "Quantization-aware scaling of gradients.", "--qas/--no-qas")
    skip_below: float = option(0.0, "Skip the backward pass of a sample whose loss is below this.")
    loss: LossName = option("auto", "The loss to minimize; auto: the one that fits the data, without data softmax.")
    seed: Seed = 0


class Counting(Learning):
    """Options for learning so many classes."""

    classes: int | None = option(None, "Classes to learn. By default the data's, or those of the model.")
