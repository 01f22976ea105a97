"""Smidgen trains neural networks on microcontrollers.

import smidgen as sm

model = sm.load("mcunet-5fps")           # a network of the zoo, or a file that imports
program = sm.compile(model, target="host")
print(program.memory)
program.write("out/")
with program.start() as device:
    device.predict(image)
"""

from importlib.metadata import version

from smidgen.errors import (
    ExportError,
    GraphError,
    ImportModelError,
    InputError,
    PlanError,
    SmidgenError,
    TargetError,
)
from smidgen.frontends import import_model
from smidgen.ir import Graph, evaluate
from smidgen.loading import load
from smidgen.pipeline import compile

__version__ = version("smidgen")
__all__ = [
    "ExportError",
    "Graph",
    "GraphError",
    "ImportModelError",
    "InputError",
    "PlanError",
    "SmidgenError",
    "TargetError",
    "__version__",
    "compile",
    "evaluate",
    "import_model",
    "load",
]
