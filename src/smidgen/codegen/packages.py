"""A program as a package that another ecosystem's own tools take: its layout, what describes it, one example.

The example serves a host over a byte stream (`link.h`); sources lie flat in `src/`, so that they find each other's
headers whatever the include path is.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from smidgen.codegen.entries import ring_header
from smidgen.codegen.generating import Sources
from smidgen.codegen.project import link_files, link_header, listed, project_fields, serves, store_files
from smidgen.codegen.runtime import is_source, render
from smidgen.errors import InputError
from smidgen.ir import Graph

KIB = 1024
STACK_KIB, CODE_KIB = 8, 64  # beside what is known exactly: as much as any example takes
FLAGS = "smidgen_flags.h"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in a pack, so that the same program gives the same bytes


class Core(Protocol):
    """The core that a package's kernels are for."""

    @property
    def title(self) -> str: ...

    @property
    def isa(self) -> str: ...


class Kind(StrEnum):
    """Ecosystems that a program can be packaged for."""

    arduino = "arduino"
    zephyr = "zephyr"
    platformio = "platformio"
    esp_idf = "esp-idf"
    cmsis_pack = "cmsis-pack"
    cmake = "cmake"


@dataclass(frozen=True)
class Layout:
    """Files of a package in addition to sources, licence and README: templates by path."""

    templates: Mapping[str, str]
    flags: bool = False  # sources bring the compiler's flags, because the package cannot
    isas: tuple[str, ...] = ("thumb", "riscv")  # the instruction sets of the cores that its tools build for


LAYOUTS = {
    Kind.arduino: Layout(
        {
            "library.properties": "arduino/library.properties",
            "keywords.txt": "arduino/keywords.txt",
            "examples/Train/Train.ino": "arduino/Train.ino",
        },
        flags=True,
    ),
    Kind.zephyr: Layout(
        {
            "zephyr/module.yml": "zephyr/module.yml",
            "zephyr/CMakeLists.txt": "zephyr/CMakeLists.txt",
            "zephyr/Kconfig": "zephyr/Kconfig",
            "samples/train/CMakeLists.txt": "zephyr/sample_CMakeLists.txt",
            "samples/train/prj.conf": "zephyr/prj.conf",
            "samples/train/sample.yaml": "zephyr/sample.yaml",
            "samples/train/src/main.c": "zephyr/main.c",
        }
    ),
    Kind.platformio: Layout(
        {
            "library.json": "platformio/library.json",
            "examples/train/platformio.ini": "platformio/platformio.ini",
            "examples/train/src/main.cpp": "platformio/main.cpp",
        }
    ),
    Kind.esp_idf: Layout(
        {
            "idf_component.yml": "esp_idf/idf_component.yml",
            "CMakeLists.txt": "esp_idf/CMakeLists.txt",
            "examples/train/CMakeLists.txt": "esp_idf/example_CMakeLists.txt",
            "examples/train/sdkconfig.defaults": "esp_idf/sdkconfig.defaults",
            "examples/train/main/CMakeLists.txt": "esp_idf/main_CMakeLists.txt",
            "examples/train/main/idf_component.yml": "esp_idf/main_idf_component.yml",
            "examples/train/main/main.c": "esp_idf/main.c",
        },
        isas=("riscv",),
    ),
    Kind.cmsis_pack: Layout(
        {"Smidgen.$component.pdsc": "cmsis/pack.pdsc", "examples/train/main.c": "cmsis/main.c"},
        flags=True,
        isas=("thumb",),
    ),
    Kind.cmake: Layout({"CMakeLists.txt": "cmake/CMakeLists.txt", "examples/train/main.c": "cmake/main.c"}),
}


def package_files(
    kind: Kind, graph: Graph, sources: Sources, arena_bytes: int, core: Core | None
) -> dict[str, str | bytes]:
    """Return a package by path. `core` is that of its kernels, None where they are for any."""
    layout, folder = LAYOUTS[kind], kind.replace("-pack", "").replace("-", "_")
    if not serves(graph):
        raise InputError(
            f"{graph.name} takes {len(graph.prediction_inputs)} inputs, and the example of a package is shown one over "
            "a byte stream; leave out --export for a project without that"
        )
    if core and core.isa not in layout.isas:
        raise InputError(f"{kind} builds for no {core.title}; compile for the host, whose kernels are for any core")
    code = dict(_code(graph, sources, layout.flags))
    about = {**project_fields(graph, sources, arena_bytes), **_about(graph, sources, core, code, arena_bytes)}
    about["how"] = render(f"packages/{folder}/how.md", **about)
    files: dict[str, str | bytes] = {f"src/{name}": text for name, text in code.items()}
    files |= {
        path.replace("$component", str(about["component"])): _filled(t, about) for path, t in layout.templates.items()
    }
    files |= {"LICENSE": _filled("LICENSE", about), "README.md": _filled("README.md", about)}
    if sources.learns:
        files |= {f"extras/{path}": text for path, text in store_files().items() if path.startswith("flash/")}
    return listed({**files, str(about["pack_name"]): _zipped(files)} if kind is Kind.cmsis_pack else files)


def _filled(template: str, fields: Mapping[str, object]) -> str:
    return render(f"packages/{template}", **fields)


def _code(graph: Graph, sources: Sources, flags: bool) -> Iterator[tuple[str, str]]:
    """Program, kernels, link and store, by name."""
    kernels = {path.name: path.read_text() for path in sources.runtime}
    store = {Path(path).name: text for path, text in store_files().items() if path.startswith("smidgen/")}
    shared = {**kernels, **link_files(), **(store if sources.learns else {})}
    ring = ring_header(graph, sources.latent, sources.prefix)
    for name, text in {**shared, **sources.files, **link_header(graph, sources), **ring}.items():
        yield name, f'#include "{FLAGS}"\n\n{text}' if flags and name.endswith(".c") else text
    if flags:
        yield FLAGS, _filled("flags.h", {})


def _about(graph: Graph, sources: Sources, core: Core | None, code: Mapping[str, str], sram: int) -> dict[str, object]:
    """Return the description of a package, as fields of its templates; `sram` is the arena's."""
    name = re.sub(r"[^\w.-]", "_", graph.name, flags=re.ASCII)
    component = f"smidgen_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}"
    learns, prefix, title = sources.learns, sources.prefix, core.title if core else ""
    compiled = sorted(file for file in code if is_source(file))
    return {
        "name": name, "component": component, "CONFIG": component.upper(), "version": version("smidgen"),
        "sentence": f"{name} in plain C, {'a network that learns on the device' if learns else 'a quantized network'}",
        "paragraph": f"Compiled by Smidgen for {title or 'any core'}, without operating system, heap or libraries.",
        "core_text": f"; its kernels are for a {title}" if core else "", "architectures": "*",
        "verb": "train" if learns else "test", "kept": _filled("kept.c", {"prefix": prefix}) if learns else "",
        "ram_kib": -(-(sram + sources.state_bytes) // KIB) + STACK_KIB,
        "stack_bytes": STACK_KIB * KIB,
        "flash_kib": -(-sources.constant_bytes // KIB) + CODE_KIB,
        "pack_name": f"Smidgen.{component}.{version('smidgen')}.pack", "idf_target": "esp32c3" if core else "esp32s3",
        "languages": "C ASM" if any(file.endswith(".S") for file in compiled) else "C",
        "assembly": " src/*.S" if any(file.endswith(".S") for file in compiled) else "",
        "title": title, "compiled": compiled,
    }  # fmt: skip


def _zipped(files: Mapping[str, str | bytes]) -> bytes:
    """The files as a pack, which is a zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path, EPOCH), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
