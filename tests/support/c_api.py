"""docs/c-api.md from the headers that programs come with: `python -m tests.support.c_api` writes it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from smidgen.pipeline import Program, compile
from smidgen.training import Options
from tests.support.audio_signals import listener
from tests.support.networks import CLASSES, inverted_residual
from tests.support.streams import streaming_network

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "c-api.md"
RUNTIME = TOP / "src" / "smidgen" / "runtime"
OPENED = 'extern "C" {\n#endif\n'
WIDTH = 120  # of lines of text
# Of model_link.h, whose other functions are its own.
LINKED = ("model_link_start", "model_link_poll", "model_link_learned")
HEAD = """# The C API

Made by `python -m tests.support.c_api` from the headers of the runtime and of small programs; a test keeps it true.

A project that `smidgen compile` writes ([firmware.md](firmware.md)) has the program in `model/`, what it calls in
`smidgen/` and drivers for flash in `flash/`. All of it is C99 and can be called from C++. Nothing is allocated, and no
operating system, file or clock is asked for. A program has one arena: call it from one thread at a time. `--prefix kws`
names everything `kws_…` and `KWS_…` in place of `model_…` and `MODEL_…`. Macros stand here without their values, and
numbers in the text are those of the small programs.
"""
INNER = """
## Inside

What the program's own C calls, and you need not: `smidgen.h`, `smidgen_training.h` and `smidgen_sums.h` (the kernels),
`smidgen_state.h` (how state begins), `smidgen_audio.h` (sound to features, [audio.md](internals/audio.md)) and
`smidgen_link.h` (frames over a byte stream, [device.md](device.md)). Their comments say what each function
computes; [numerics.md](internals/numerics.md) has the exact arithmetic.
"""


@dataclass(frozen=True)
class Item:
    """A comment of a header and what it is about, macros without their values."""

    said: str
    code: str


def items(header: str) -> Iterator[Item]:
    """What a header declares, part by part; a part ends at an empty line."""
    body = re.sub(r"\A/\*.*?\*/\s*(?=#ifndef)", "", header, flags=re.DOTALL)
    body = re.sub(r"^#(?:if|ifdef|ifndef|endif|include|else)\b.*\n", "", body, flags=re.MULTILINE)
    body = re.sub(r'^(?:extern "C" \{|\}|#define \w+_H)\n', "", body, flags=re.MULTILINE)
    for part in re.split(r"\n\n+", body.strip()):
        found = re.match(r"(/\*.*?\*/)\n", part, re.DOTALL)
        code = part[found.end() :] if found else part
        if code.strip() and not code.startswith("/*"):
            yield Item(comment(found[1]) if found else "", macros(code.strip()))


def comment(text: str) -> str:
    """A comment's text: its paragraphs, and lines that are set in as a list."""
    inner = text.removeprefix("/*").removesuffix("*/")
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in inner.splitlines()]
    parts: list[list[str]] = [[]]
    for line in lines:
        listed = re.match(r"  (\w[^:]*): (.*)", line)
        ended = parts[-1] and parts[-1][0].startswith("- ") and not line.startswith("  ")
        if listed or ended or not line:
            parts.append([])
        parts[-1].append(f"- `{listed[1]}`: {listed[2]}" if listed else line.strip())
    filled = [
        textwrap.fill(" ".join(part).strip(), WIDTH, subsequent_indent="  " * part[0].startswith("- "))
        for part in parts
        if part
    ]
    return "\n\n".join(text for text in filled if text)


def macros(code: str) -> str:
    """Code in which a macro of the program's own has no value, and its tensors one example each."""
    code = re.sub(r"^(#define MODEL_\w+(?:\([^)]*\))?)[^/\n]*", r"\1 ", code, flags=re.MULTILINE)
    code = re.sub(r"^#define MODEL_(?:INPUT|OUTPUT)_[1-9].*\n?", "", code, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in code.splitlines())


def programs() -> dict[str, Program]:
    """Small programs that together have everything, by what each adds to those before it."""
    net, options = inverted_residual(3), Options(CLASSES)
    names = tuple("abcde")
    return {
        "Every program": compile(net),
        "Where the image is handed over row by row (`--input streamed`)": compile(net, streamed_input=True),
        "Where classes have names": compile(net, class_names=names),
        "Programs that learn (`--scheme`)": compile(net, "last:2", options=options, class_names=names),
        "Programs with other labels than classes (`--loss mse` and others)": compile(
            net, "last:2", options=Options(2, loss="mse")
        ),
        "Programs that replay (`--replay`)": compile(net, "last:2", options=options, replay="64KB"),
        "Programs that learn in one pass (`--one-pass`)": compile(net, "last:2", options=options, one_pass=True),
        "Programs with an audio front end": compile(listener()),
        "Programs that go on from run to run": compile(streaming_network()),
    }


def fenced(code: str) -> str:
    return f"```cpp\n{code}\n```\n"


def rendered(item: Item) -> str:
    return f"\n{fenced(item.code)}" + (f"\n{item.said}\n" if item.said else "")


def of_programs(made: dict[str, Program]) -> str:
    """model.h, by which programs have what."""
    shown: set[str] = set()
    text = "\n## `model.h`\n"
    for title, program in made.items():
        text += f"\n### {title}\n"
        for item in items(program.files()["model/model.h"]):
            fresh = [line for line in item.code.splitlines() if line not in shown]
            shown |= set(fresh)
            text += rendered(Item(item.said, "\n".join(fresh))) if fresh else ""
    return text


def defined(header: str, names: tuple[str, ...] | None = None) -> Iterator[Item]:
    """The functions that a header defines, without their bodies."""
    for found in re.finditer(r"((?:/\*(?:(?!\*/).)*\*/\n)?)static inline (\w[^;{}]*\)) \{", header, re.DOTALL):
        name = re.search(r"(\w+)\(", found[2])
        if name and (names is None or name[1] in names):
            yield Item(comment(found[1].strip()) if found[1] else "", f"{' '.join(found[2].split())};")


def of_header(title: str, header: str, functions: Iterator[Item]) -> str:
    """A header of a program's own: what it says of itself, and functions."""
    found = re.match(r"/\*.*?\*/", header, re.DOTALL)
    assert found
    said = re.sub(r"^\w+ ", "The program ", comment(found[0]))
    return f"\n## `{title}`\n\n{said}\n" + "".join(map(rendered, functions))


def of_runtime(path: Path) -> str:
    """A header of the runtime: what it says of itself, its types as they stand there, its functions."""
    header = path.read_text()
    found = re.match(r"/\*.*?\*/", header, re.DOTALL)
    assert found
    body = header.partition(OPENED)[2].rpartition("#ifdef __cplusplus")[0].strip()
    functions = next(i for i, part in enumerate(body.split("\n\n")) if re.search(r"^\w[^({]*\([^{]*\);$", part, re.M))
    types = "\n\n".join(body.split("\n\n")[:functions])
    rest = "\n\n".join(body.split("\n\n")[functions:])
    text = f"\n## `{path.name}`\n\n{comment(found[0])}\n\n{fenced(types)}"
    return text + "".join(map(rendered, items(rest)))


def page() -> str:
    made = programs()
    replay = made["Programs that replay (`--replay`)"].files()
    link, ring = replay["model/model_link.h"], replay["model/model_replay.h"]
    text = HEAD + of_programs(made)
    text += of_header("model_link.h", link, defined(link, LINKED))
    text += of_header("model_replay.h", ring, defined(ring))
    for name in ("smidgen_store.h", "smidgen_replay.h"):
        text += of_runtime(RUNTIME / "store" / name)
    return text + INNER


if __name__ == "__main__":
    PAGE.write_text(page())
