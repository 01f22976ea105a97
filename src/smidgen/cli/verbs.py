"""The verbs: what each takes, in the order and the groups of `smidgen --help`, and which function does its work."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import typer

from smidgen.cli import options as given
from smidgen.cli.options import Verb, argument, option, path


class Demo(given.Overwriting):
    """Fit a network that ships to images that ship, and let an emulated board learn the same bytes."""

    output: Path = path(Path("out/demo"), "The folder to write.", "--output", "-o")


class Fit(
    given.Learning, given.Pixelled, given.Sounding, given.DataReading, given.Naming, given.Cropping, given.Overwriting
):
    """From a model and samples to C that learns within a budget; the model `auto` is made for the samples."""

    model: given.Model
    source: given.DataSource
    output: Path = path(..., "The folder for all files; finished stages are reused.", "--output", "-o")
    budget: str = option("128KB", "All SRAM of the program, such as 128KB (1 KB is 1,024 bytes).")
    target: given.Board = "cortex-m7"
    epochs: int | None = option(None, "Epochs to learn. By default chosen by the number of images.")
    rate: given.LearningRate = given.AUTO
    contributions: given.ContributionFiles = None
    analysis: given.Analysis | None = option(
        None, "Measure what each part adds, even if contributions are known.", "--analyze"
    )
    effort: given.Effort = option("normal", "How much work goes into judging candidates on the samples.")
    machine: given.Machine = option("host", "Where trials and learning run.", "--on")
    workers: given.Workers = None
    ray: given.Ray = None


class Info(given.Pixelled, given.Limited):
    """Show the layers of a model: shapes, MACs, parameters, quantization."""

    model: given.Model


class Run(given.Limited, given.Overwriting):
    """Run a model on raw tensors."""

    model: given.Model
    inputs: list[Path] = path(..., "A .npy file for each input, in order.", "--input", "-i")
    outputs: list[Path] | None = path(None, "A .npy file for each output.", "--output", "-o")
    target: str = option(
        "reference",
        "Where to run: reference (numpy), host (this machine's C), wasm (WebAssembly), or a board.",
        autocompletion=given.targets("reference", "host", "wasm"),
    )


class Import(given.Naming, given.Overwriting):
    """Read a model of another format and write it as .smg, .tflite or .onnx."""

    source: str = argument(
        ..., "A model file, or a network of the zoo.", metavar="SOURCE", autocompletion=given.networks
    )
    output: given.ModelFile
    plain: bool = option(
        False, "Write .onnx with ONNX's own operators only: faster, rounded by the runtime.", "--plain"
    )
    class_names: str | None = option(
        None,
        "Names of the classes the model scores, in order: cat,dog, or a text file with one a line.",
        "--class-names",
        "--classes",
    )


class Quantize(given.Pixelled, given.Sounding, given.Labelled, given.Naming, given.Overwriting):
    """Quantize a float32 model to int8, calibrated on samples, and report how close it stays."""

    model: str = argument(..., "A float32 model file: .onnx, .pt2, .tflite or .smg.", metavar="MODEL")
    source: str = option(..., "Calibration samples, in any form that train reads.", "--data")
    output: given.ModelFile
    images: int = option(128, "How many samples to use at most, evenly spaced.")
    method: given.CalibrationMethod = option("mse", "Calibration method that finds the ranges.")
    percentile: float = option(99.99, "Percent of elements that --method percentile keeps.")
    equalise: bool = option(True, "Cross-layer equalization of channel ranges.", "--equalise/--no-equalise")
    correct: bool = option(True, "Bias correction by each channel's mean error.", "--correct/--no-correct")
    layers: bool = option(False, "Also show the signal-to-noise ratio of every layer.", "--layers")


class Test(given.Pixelled, given.Sounding, given.DataReading, given.Naming, given.Overwriting):
    """Test a model: accuracy, precision and recall by class, confusion; or errors where there are no classes."""

    model: given.Model
    source: str = option(..., "As for train; its test samples are used, or every fifth where it has none.", "--data")
    target: given.InferenceTarget = None
    images: given.SampleLimit = None
    output: Path | None = path(None, "Also write an HTML page with pictures.", "--output", "-o")


class Predict(given.Pixelled, given.Sounding, given.Labelled, given.Naming):
    """Show what a model predicts: classes with probabilities, cells of a map, numbers, or reconstruction errors."""

    model: given.Model
    source: str = argument(
        ..., "A photograph or recording, a folder or .zip of them, or rows (.npy .npz .csv).", metavar="FILE|DIR"
    )
    target: given.InferenceTarget = None
    top: given.Likeliest = given.TOP
    numbers: bool = option(False, "Show the outputs as numbers: they are not scores of classes.", "--numbers")


class Analyze(given.Sounding, given.DataReading, given.Overwriting):
    """Measure by training what each depth of biases and each layer's weights add to accuracy."""

    model: given.Model
    source: given.DataSource
    output: Path = path(..., "The file of contributions to write.", "--output", "-o")
    quick: bool = option(False, "Do at most 100,000 steps, and list what is left out.", "--quick")
    target: str | None = option(None, "host (this machine's cores) or cuda (a GPU).")
    workers: given.Workers = None
    ray: given.Ray = None
    seeds: int = option(1, "Runs of each kind, which are averaged.")
    epochs: int | None = option(None, "Epochs of a run. By default chosen by the number of images.")
    learning_rate: str = option("1/256", "Learning rate per sample: a number or a quotient such as 0.4/256.")
    limit: int | None = option(None, "Learn from at most this many images.")
    most: str = option(given.MOST, "Leave out what takes more analytic memory than this.")
    reach: int | None = option(None, "Measure the weights of the last so many layers only.")
    picture: given.Picture = None


class Search(given.Counting, given.Limited, given.Overwriting):
    """Find the scheme that promises the most accuracy within a budget."""

    model: given.Model
    budget: str = option(..., "The most SRAM, stack included, such as 128KB (1 KB is 1,024 bytes); a curve ends there.")
    contributions: given.ContributionFiles = None
    estimated: bool = option(False, "Estimate from the shapes of layers; needs no contributions.", "--estimate")
    output: Path | None = path(None, "The scheme's file to write, or with --pareto the curve's.", "--output", "-o")
    picture: given.Picture = None
    target: given.Target = "cortex-m7"
    image: given.Input = "streamed"
    method: given.SearchMethod = option("exact", "How to search.")
    evaluations: int = option(given.EVALUATIONS, "Candidates that an evolutionary or random search tries.")
    analytic: bool = option(
        False, "Compare the budget with the paper's analytic sum, not with planned SRAM.", "--analytic"
    )
    curve: bool = option(False, "The best schemes for all budgets from the head alone up to this one.", "--pareto")
    points: int = option(given.POINTS, "With --pareto: the number of budgets.")


class Train(
    given.Counting, given.Pixelled, given.Sounding, given.DataReading, given.Naming, given.Cropping, given.Overwriting
):
    """Train on images with the device's arithmetic; write the model, a checkpoint and a report."""

    model: given.Model
    source: given.DataSource
    output: Path = path(..., "The folder for model, checkpoint and report.", "--output", "-o")
    scheme: str | None = option(
        None, "What learns: a published name, full, last:K, bias:K, head, or a JSON file.", autocompletion=given.schemes
    )
    budget: str | None = option(
        None, "Without --scheme: a board's SRAM, by default 128KB; what it allows is judged on the samples."
    )
    effort: given.Effort = option("normal", "Without --scheme: how much work goes into judging candidates.")
    target: str = option(
        "host",
        "host (this machine), cuda (the same bytes on a GPU), wasm (WebAssembly), or a board: cortex-m7, …",
        autocompletion=given.targets("host", "cuda", "wasm"),
    )
    epochs: int = option(12, "How many times to go through the images.")
    rate: given.LearningRate = given.AUTO
    schedule: given.ScheduleName = "cosine"
    warmup: float = option(0.0, "Epochs over which the learning rate rises to its full value.")
    test_every: int = option(1, "Test every this many epochs, and after the last.")
    resume: Path | None = path(None, "Continue a run from its checkpoint, to as many --epochs as it had, or more.")
    quantized: bool = option(False, "Quantize a float32 model first, calibrated on these images.", "--quantize")
    one_pass: bool = option(
        False, "Make the head of sums over all samples, in one pass; with a scheme, then learn by steps.", "--one-pass"
    )


class Merge(given.Overwriting):
    """Add up what several models learned in one pass: the result is that of one model that saw everything."""

    models: list[Path] = argument(..., "Models that `train --one-pass` wrote.", metavar="MODELS")
    output: Path = path(..., "The model to write, .smg.", "--output", "-o")


class Forget(given.Sounding, given.DataReading, given.Overwriting):
    """Take samples out of a model that learned in one pass: the result is that of one that never saw them."""

    model: given.Model
    source: given.DataSource
    output: Path = path(..., "The model to write, .smg.", "--output", "-o")
    all_samples: bool = option(
        False,
        "Forget all samples of the data. By default those that train learns from, not those it tests with.",
        "--all",
    )


class Compile(given.Counting, given.Sounding, given.Naming, given.Overwriting):
    """Write C sources, a header, an example main, and how to build them."""

    model: given.Model
    output: Path = path(..., "The folder to write: new or empty, or with --force an old project.", "--output", "-o")
    scheme: given.SchemeName = None
    target: given.Target = "host"
    image: given.Input = "buffered"
    budget: given.SramBudget = None
    replay: str | None = option(
        None, "Flash for features of earlier images, computed by frozen layers, to learn from again: 256KB."
    )
    one_pass: bool = option(False, "Let the program learn in one pass, too: model_observe, model_solve.", "--one-pass")
    prefix: str = option("model", "Begins the names of files and functions, so that two models can be in one program.")
    aligned: given.AlignedOnly = False
    export: given.Package | None = option(None, "Write a package for this ecosystem's tools, with an example.")
    picture: given.Picture = None


class Play(given.Sounding, given.Naming, given.Overwriting):
    """Make a page that learns in the browser with the bytes of the board, and serve it on this machine."""

    model: str = argument(
        ..., "A network of the zoo, a model file, or the folder of a fit.", metavar="MODEL",
        autocompletion=given.networks,
    )  # fmt: skip
    scheme: given.SchemeName = None
    classes: int | None = option(
        None, "Classes there is room for. By default the model's own, if it names up to 64, else 8."
    )
    boards: str = option(
        "cortex-m7", "Boards, emulated to measure costs, separated by commas: cortex-m7,cortex-m4; or none."
    )
    port: int = option(8000, "Port on this machine that serves the page; 0 for any that is free.")
    output: Path | None = path(None, "Write the page to this file, and serve nothing.", "--output", "-o")


class Profile(given.Counting, given.Limited):
    """Measure SRAM, flash, instructions and exactness on an emulated board, or time and exactness on host or wasm."""

    model: given.Model
    scheme: given.SchemeName = None
    target: given.Target = "cortex-m7"
    image: given.ImageInput | None = option(
        None, "As for compile. By default row by row if the model allows it, else whole.", "--input"
    )
    budget: given.SramBudget = None
    steps: int = option(3, "Steps to compare with the reference.")
    sram: str | None = option(None, "Pretend the board has this much SRAM, such as 128KB.")
    flash: str | None = option(None, "Pretend the board has this much flash, such as 1MB.")
    stack: str | None = option(None, "SRAM reserved for the stack, such as 4KB.")
    compiler: given.CompilerName = option("zig", "Builds the firmware: zig's, or gcc for the board's core.")
    aligned: given.AlignedOnly = False
    layers: bool = option(False, "Also show every node.", "--layers")
    runs: int = option(50, "Timed runs on host and wasm; medians are shown.")


@dataclass(frozen=True, kw_only=True)
class Port:
    """Talk to a board that runs a program: train, test, predict, replay, save, load, monitor."""

    context: typer.Context
    name: str = argument(
        ...,
        "A serial port such as /dev/ttyACM0 or COM3, emulated:cortex-m7, or exec:COMMAND for a program that serves on "
        "stdin and stdout.",
        metavar="PORT",
    )
    baud: int = option(given.BAUD, "Bits per second of a UART; ignored by USB.")
    project: Path | None = path(None, "Folder of the compiled program that an emulated board runs.", "--project")
    flash: Path | None = path(None, "File that keeps an emulated board's flash between commands.", "--flash")


class BoardProgram(given.Counting, given.Sounding, given.Naming):
    """The program that a board runs."""

    model: str = option(
        ..., "The model that the board's program was compiled from.", "--model", autocompletion=given.networks
    )
    scheme: str | None = option(None, "What learns on the board, as given to compile.", autocompletion=given.schemes)
    image: given.Input = "buffered"
    one_pass: bool = option(False, "As given to compile.", "--one-pass")

    @property
    def port(self) -> Port:
        """The board's port."""
        return cast(Port, self.context.obj)


class BoardTrain(BoardProgram, given.DataReading, given.Overwriting):
    """Teach a board, sample by sample, starting from what it has learned; the board saves what it learns."""

    source: given.DataSource
    epochs: int = option(1, "How many times to go through the samples.")
    rate: given.LearningRate = given.AUTO
    schedule: given.ScheduleName = "constant"
    fresh: bool = option(False, "Let the board forget what it learned before.", "--fresh")
    save_every: int = option(1000, "Let the board save every this many steps, and at the end; 0 for only at the end.")
    output: Path | None = path(None, "Also write the learned model: .smg, .tflite or .onnx.", "--output", "-o")


class BoardTest(BoardProgram, given.DataReading):
    """Test what a board has learned, as `smidgen test` does with a model."""

    source: given.DataSource
    images: given.SampleLimit = None


class BoardPredict(BoardProgram, given.Labelled):
    """Show what a board predicts, as `smidgen predict` does with a model."""

    source: str = argument(..., "As for `smidgen predict`.", metavar="FILE|DIR")
    top: given.Likeliest = given.TOP


class BoardObserve(BoardProgram, given.DataReading):
    """Let a board add samples to its sums, or take them out again (compile --one-pass), and save them."""

    source: given.DataSource
    forget: bool = option(False, "Take the samples out of the sums.", "--forget")


class BoardSolve(BoardProgram):
    """Let a board make its head of the samples it observed, and save."""


class BoardSums(BoardProgram, given.Overwriting):
    """Read a board's sums into a file, replace them, or add or take out what another device saw."""

    action: given.SumsAction = argument(..., "get, put, merge or forget.", metavar="get|put|merge|forget")
    file: Path = argument(..., "A file of sums, or for all but get a model that learned in one pass.", metavar="FILE")


class BoardReplay(Verb):
    """Let a board learn again from the features it kept of earlier images (compile --replay)."""

    steps: int = argument(..., "How many examples to learn from, drawn by the board.", metavar="N")
    rate: str = option(..., "Per sample: a number, or as in 0.1/256.", "--learning-rate", "--lr")
    save: bool = option(True, "Let the board save at the end.", "--save/--no-save")


class BoardSave(given.Overwriting):
    """Save what a board has learned: in its memory, or in a file."""

    output: Path | None = path(None, "Write this file here, instead of the board's memory.", "--output", "-o")


class BoardLoad(Verb):
    """Restore what a board saved: from its memory, or from a file."""

    file: Path | None = path(None, "Read this file, instead of the board's memory.", "--input", "-i")


class BoardMonitor(Verb):
    """Watch a board learn: steps, losses, faults of the line; Ctrl-C ends it."""

    every: float = option(1.0, "Seconds between two looks.")
    looks: int = option(0, "How often to look; 0 until Ctrl-C.")


# Groups of the help, each with the modules that do the work of its verbs, in functions named like the verb with a "_".
VERBS: tuple[tuple[str, str, tuple[type[Verb], ...]], ...] = (
    ("Start", "smidgen.cli.start", (Demo, Fit)),
    ("Model", "smidgen.cli.models", (Info, Run, Import, Quantize, Test, Predict)),
    ("Learn", "smidgen.cli.search", (Analyze, Search)),
    ("Learn", "smidgen.cli.train", (Train,)),
    ("Learn", "smidgen.cli.one_pass", (Merge, Forget)),
    ("Board", "smidgen.cli.programs", (Compile, Profile)),
    ("Board", "smidgen.cli.play", (Play,)),
)
BOARD_VERBS: tuple[type[Verb], ...] = (
    BoardTrain, BoardObserve, BoardSolve, BoardSums, BoardTest, BoardPredict, BoardReplay, BoardSave, BoardLoad,
    BoardMonitor,
)  # fmt: skip
