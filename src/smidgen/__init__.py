"""Smidgen trains neural networks on microcontrollers.

import smidgen as sm

model = sm.load("mcunet-5fps")           # a network of the zoo, or a file that imports
model = sm.quantize(sm.import_model("float.onnx"), images).graph      # or your own float model
found = sm.search(model, contributions, budget="128KB", target="cortex-m7")   # what is worth training: found.scheme
program = sm.compile(model, "99kb", target="host", options=sm.Options(classes=10))
print(program.memory)
program.write("out/")
with program.start() as device:
    loss = device.train(image, label, learning_rate)
    device.predict(image)
data = sm.load_data("flowers/")
course = sm.make_course(program, data, epochs=12, learning_rate="auto")      # a rate by short trials, or a number
learned = sm.learn(program, data, course)
sm.analyze(model, data)                  # what each bias depth and each layer's weights add
sm.predict(learned.model, "photo.jpg")    # its classes by name, with probabilities
sm.test(learned.model, data)             # accuracy, per class, confusion; errors where there are no classes
sm.fit(model, data, "out/", budget="128KB", target="cortex-m7")               # all of it, each stage a file
with sm.connect("/dev/ttyACM0", program) as board:                           # a board that runs it, over a line
    board.train(image, label, learning_rate)
sm.play_page("mcunet-5fps").write("page.html")        # a page that sees and learns in a browser, with a board's bytes
sm.simulate([program, …], data, course)  # many devices at once on a GPU, in the bytes each would learn
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smidgen.data import Augment, Data, DataError, load_data
    from smidgen.errors import (
        ExportError,
        GraphError,
        ImportModelError,
        InputError,
        PlanError,
        SmidgenError,
        TargetError,
        TrainingError,
    )
    from smidgen.fitting import FitError, Fitted, fit
    from smidgen.frontends import from_torch, import_model
    from smidgen.inference import Predictions, Tested, predict, test
    from smidgen.ir import Graph, evaluate
    from smidgen.ir.log_mel import LogMel
    from smidgen.ir.preprocessing import Preprocessing
    from smidgen.learning import CheckpointError, Course, Learned, LearningError, learn, learned_graph
    from smidgen.link import LinkError, connect
    from smidgen.ops.rules import Momentum, Sgd, UpdateRule
    from smidgen.pipeline import Program, compile
    from smidgen.play import PlayPage, play_page
    from smidgen.quantization import QuantizationError, Quantized, Recipe, quantize
    from smidgen.selection import (
        Contributions,
        ContributionsError,
        Found,
        Pareto,
        SearchError,
        analyze,
        average_contributions,
        estimate,
        pareto,
        search,
    )
    from smidgen.selection.rates import ChosenRate, choose_rate, make_course
    from smidgen.simulation import simulate
    from smidgen.training import Options
    from smidgen.training.scheme import Scheme, SchemeError, load_scheme
    from smidgen.zoo import load

    __version__: str

__all__ = [
    "Augment", "CheckpointError", "ChosenRate", "Contributions", "ContributionsError", "Course", "Data", "DataError",
    "ExportError", "FitError", "Fitted", "Found", "Graph", "GraphError", "ImportModelError", "InputError", "Learned",
    "LearningError", "LinkError", "LogMel", "Momentum", "Options", "Pareto", "PlanError", "PlayPage", "Predictions",
    "Preprocessing", "Program", "QuantizationError", "Quantized", "Recipe", "Scheme", "SchemeError", "SearchError",
    "Sgd", "SmidgenError", "TargetError", "Tested", "TrainingError", "UpdateRule", "__version__", "analyze",
    "average_contributions", "choose_rate", "compile", "connect", "estimate", "evaluate", "fit", "from_torch",
    "import_model", "learn", "learned_graph", "load", "load_data", "load_scheme", "make_course", "pareto", "play_page",
    "predict", "quantize", "search", "simulate", "test",
]  # fmt: skip
_MODULES = {  # where each name is defined; a module is imported when a name of it is first used
    "data": "Augment Data DataError load_data",
    "errors": "ExportError GraphError ImportModelError InputError PlanError SmidgenError TargetError TrainingError",
    "fitting": "FitError Fitted fit",
    "frontends": "from_torch import_model",
    "inference": "Predictions Tested predict test",
    "ir": "Graph evaluate",
    "ir.log_mel": "LogMel",
    "ir.preprocessing": "Preprocessing",
    "learning": "CheckpointError Course Learned LearningError learn learned_graph",
    "link": "LinkError connect",
    "ops.rules": "Momentum Sgd UpdateRule",
    "pipeline": "Program compile",
    "play": "PlayPage play_page",
    "quantization": "QuantizationError Quantized Recipe quantize",
    "selection": "Contributions ContributionsError Found Pareto SearchError analyze average_contributions "
    "estimate pareto search",
    "selection.rates": "ChosenRate choose_rate make_course",
    "simulation": "simulate",
    "training": "Options",
    "training.scheme": "Scheme SchemeError load_scheme",
    "zoo": "load",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import smidgen` and short commands start quickly."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("smidgen")
    elif name in _HOMES:
        value = getattr(_import(name), name)
    else:
        raise AttributeError(f"module 'smidgen' has no attribute {name!r}")
    globals()[name] = value
    return value


def _import(name: str) -> Any:
    try:
        return import_module(f"smidgen.{_HOMES[name]}")
    except ImportError:
        if name != "simulate":
            raise
    from smidgen.errors import InputError

    raise InputError("simulate() needs PyTorch, which is not installed; run: pip install 'smidgen[torch]'")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
