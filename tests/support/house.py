"""The order of the house, and its table in CONTRIBUTING.md: `python -m tests.support.house` writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = TOP / "CONTRIBUTING.md"
ROOT = TOP / "src" / "smidgen"
# Data flows down this list; a module imports only what stands above it, or its own entry.
LAYERS = {
    "errors": "the errors a user can meet, all under `SmidgenError`",
    "records": "dataclasses out of JSON",
    "callbacks": "the callback of whoever does not ask for progress",
    "threads": "work shared out among this machine's cores, results in order",
    "compiler": "the host's C compiler, and a cache of what it built",
    "ir": "the graph: types, values, ops, nodes in order; build, verify, evaluate; the graph as text and back",
    "numerics": "the arithmetic contract in numpy; random bits by counter, and rounding with them",
    "ops": "one family a file: shape rule, numpy reference, gradient, kernel's name and parameters",
    "data": "pictures, audio, arrays and tables with their labels; samples → a model's input",
    "frontends": "files → graph: `.tflite`, `.onnx` and `.smg` (and back), PyTorch, Keras, the paper's release",
    "quantization": "float graph + images → int8 graph and a report (`docs/internals/quantization.md`)",
    "zoo": "architectures in code, weights that ship; a name or a file → graph",
    "training": "graph + scheme → training graph: what learns, gradients in float32 and in int8, what makes it small",
    "memory": "rows through ring buffers, the order of nodes, where everything lies; a check that shares no code",
    "runtime": "`smidgen.h`, `smidgen_training.h` and the kernels, portable C99; in `vec8.h`, `vnni.h`, `cortex_m/`, "
    "`helium/` and `scalar/` the same for processors that can do more, or less; `link/`: frames over a byte "
    "stream; `store/`: what was learned, kept in flash; `working*.c`: the working memory of each kernel",
    "codegen": "graph + plan → C: one readable call per node",
    "targets": "this machine as a shared library; WebAssembly; Cortex-M and RISC-V boards, emulated; exported projects",
    "pipeline": "`compile()`: every stage in order",
    "link": "a board at the end of a byte stream: frames, requests that are done once, a device that outlives faults",
    "inference": "what a model says of samples, one by one, and how often it is right",
    "learning": "epochs, checkpoints, learned models",
    "simulation": "the same training graph in PyTorch: fleets of devices in lockstep, and their images",
    "selection": "what is worth training: contributions measured, schemes searched for a budget, rates chosen",
    "results": "what a stage found, and how it is shown: tables, pictures, the report",
    "fitting": "`fit()`: every stage from a model and images to firmware; files that a second call reuses",
    "play": "`play`: a program, its facts and its script as a page that learns in the browser",
    "cli": "the command line: each verb calls one stage and shows what it returns",
}
ORDER = tuple(LAYERS)
HEAD = "| module | what it is |\n| --- | --- |\n"


def table() -> str:
    """The layers as CONTRIBUTING.md shows them; a package ends in a slash."""
    shown = ((name.replace(".", "/") + "/" * (ROOT / name).is_dir(), said) for name, said in LAYERS.items())
    return HEAD + "".join(f"| `{name}` | {said} |\n" for name, said in shown)


def page() -> str:
    """CONTRIBUTING.md with the table as it has to be."""
    before, _, behind = PAGE.read_text().partition(HEAD)
    return before + table() + re.sub(r"\A(\|.*\n)*", "", behind)


def modules() -> list[Path]:
    """Every module of the library but its front doors: what `import` and what `python -m` opens."""
    return [path for path in sorted(ROOT.rglob("*.py")) if path not in (ROOT / "__init__.py", ROOT / "__main__.py")]


@cache
def imports(path: Path) -> tuple[str, ...]:
    """What a file imports by full name, at its top, for types alone and inside functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names += (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
    return tuple(names)


def place(name: str) -> str:
    """The entry of ORDER a module, named from `smidgen.` on, belongs to: the longest that begins its name."""
    parts = name.split(".")
    whole = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((entry for entry in whole if entry in ORDER), parts[0])


def layer(path: Path) -> str:
    return place(".".join(path.relative_to(ROOT).with_suffix("").parts))


def reached(*entries: str) -> set[str]:
    """The modules of the library that some modules lead to, by imports anywhere in them or by full names in strings.

    An import from a package leads to the module which the package has that name from, not to all that it exports.
    """
    files = {module_name(path): path for path in ROOT.rglob("*.py")}
    found, todo, asked = set(entries), [(entry, "") for entry in entries], set()
    while todo:
        module, name = todo.pop()
        if (module, name) in asked or module not in files:
            continue
        asked.add((module, name))
        parents = module.split(".")
        found |= {".".join(parents[:count]) for count in range(1, len(parents) + 1)}
        named = [(source, own) for source, own in _leads(files[module]) if own == name]
        if f"{module}.{name}" in files:
            todo.append((f"{module}.{name}", ""))
        elif files[module].name == "__init__.py" and name and named:
            todo += named
        else:
            todo += _leads(files[module])
    return found


def module_name(path: Path) -> str:
    """The full name by which a file of the library is imported."""
    parts = ("smidgen", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _leads(path: Path) -> tuple[tuple[str, str], ...]:
    """The modules that a file imports or names in a string, each with the name it takes from it, or none."""
    named = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
    strings = ((text, "") for text in named if isinstance(text, str) and text.startswith("smidgen."))
    return (*((name.rpartition(".")[0] or name, name.rpartition(".")[2]) for name in imports(path)), *strings)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of a file with their lengths in lines; C's end with a brace in the first column."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1
    elif path.name.endswith((".c", ".h", ".c.in", ".h.in")):
        for found in re.finditer(r"^(?:\w[^;{}=]*?)\b(\w+)\([^;{}]*\)\s*\{\n.*?^\}", text, re.MULTILINE | re.DOTALL):
            yield found[1], found[0].count("\n") + 1


if __name__ == "__main__":
    PAGE.write_text(page())
