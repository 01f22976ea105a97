"""A program as a package that another ecosystem's own tools take: its layout, what describes it, one example.

The example serves a host over a byte stream (`link.h`); sources lie flat in `src/`, so that they find each other's
headers whatever the include path is.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from smidgen.codegen.entries import label_facts, ring_header
from smidgen.codegen.project import link_files, link_header, listed, project_fields, serves, store_files
from smidgen.codegen.runtime import RUNTIME, is_source, render
from smidgen.codegen.sources import Sources
from smidgen.codegen.wasm import module_facts
from smidgen.errors import InputError
from smidgen.ir import Graph

KIB = 1024
STACK_KIB, CODE_KIB = 8, 64  # beside what is known exactly: as much as any example takes
FLAGS = "smidgen_flags.h"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in a pack, so that the same program gives the same bytes


class PackageKind(StrEnum):
    """Ecosystems that a program can be packaged for."""

    arduino = "arduino"
    zephyr = "zephyr"
    platformio = "platformio"
    esp_idf = "esp-idf"
    cmsis_pack = "cmsis-pack"
    cmake = "cmake"
    npm = "npm"


FLAGGED = (PackageKind.arduino, PackageKind.cmsis_pack)  # whose sources bring the flags: the package cannot
ISAS = {PackageKind.esp_idf: ("riscv",), PackageKind.cmsis_pack: ("thumb",)}  # where tools build for some only


def package_files(
    kind: PackageKind, graph: Graph, sources: Sources, arena_bytes: int, core: tuple[str, str] | None
) -> dict[str, str | bytes]:
    """Return a package by path. `core` is the title and instruction set of its kernels' core, None for any."""
    if not serves(graph):
        raise InputError(
            f"{graph.name} takes {len(graph.prediction_inputs)} inputs, and the example of a package is shown one over "
            "a byte stream; leave out --export for a project without that"
        )
    title, isa = core or ("", "")
    if core and isa not in ISAS.get(kind, (isa,)):
        raise InputError(f"{kind} builds for no {title}; compile for the host, whose kernels are for any core")
    code = dict(_code(graph, sources, kind in FLAGGED))
    about = {**project_fields(graph, sources, arena_bytes), **_about(graph, sources, title, code, arena_bytes)}
    about["how"] = render(f"how/{kind}.md", **about)
    files: dict[str, str | bytes] = {f"src/{name}": text for name, text in code.items()}
    place = RUNTIME / "project" / "packages" / kind
    for path in sorted(p.relative_to(place) for p in place.rglob("*.in")):
        name = str(path.with_suffix("")).replace("component.pdsc", f"{about['component']}.pdsc")
        files[name] = _filled(f"{kind}/{path.with_suffix('')}", about)
    files |= {"LICENSE": _filled("LICENSE", about), "README.md": _filled("README.md", about)}
    if sources.learns:
        files |= {f"extras/{path}": text for path, text in store_files().items() if path.startswith("flash/")}
    return listed({**files, str(about["pack_name"]): _zipped(files)} if kind is PackageKind.cmsis_pack else files)


def npm_files(graph: Graph, sources: Sources, modules: Mapping[str, bytes]) -> dict[str, str | bytes]:
    """Return a package of a program's modules, by path: an ES module around them, its types, and what describes it."""
    facts, plain = module_facts(graph, sources), re.sub(r"[^\w.-]", "_", graph.name, flags=re.ASCII)
    name = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    does = "a network that learns where it runs" if sources.learns else "a quantized network"
    portable, simd = (-(-len(modules[f"{sources.prefix}{end}"]) // KIB) for end in (".wasm", ".simd.wasm"))
    label = label_facts(graph, sources.prefix)
    about = {
        **facts, "package": f"smidgen-{name}", "version": version("smidgen"), "prefix": sources.prefix,
        "name": plain, "simd_kb": simd, "portable_kb": portable, "sentence": f"{plain}, {does}, for browsers and Node",
        "example": {"classes": "0", "nothing": "undefined"}.get(str(label["kind"]), "label"),
    }  # fmt: skip
    place = RUNTIME / "project" / "packages" / PackageKind.npm
    files: dict[str, str | bytes] = {**modules, "LICENSE": _filled("LICENSE", {})}
    for one in sorted(path.with_suffix("").name for path in place.glob("*.in")):
        files[one] = _filled(f"npm/{one}", about)
    return listed(files)


def _filled(template: str, fields: Mapping[str, object]) -> str:
    return render(f"packages/{template}", **fields)


def _code(graph: Graph, sources: Sources, flags: bool) -> Iterator[tuple[str, str]]:
    """Program, kernels, link and store, by name."""
    kernels = {path.name: path.read_text("utf-8") for path in sources.runtime}
    store = {Path(path).name: text for path, text in store_files().items() if path.startswith("smidgen/")}
    shared = {**kernels, **link_files(), **(store if sources.learns else {})}
    ring = ring_header(graph, sources.latent, sources.prefix)
    for name, text in {**shared, **sources.files, **link_header(graph, sources), **ring}.items():
        yield name, f'#include "{FLAGS}"\n\n{text}' if flags and name.endswith(".c") else text
    if flags:
        yield FLAGS, _filled("flags.h", {})


def _about(graph: Graph, sources: Sources, title: str, code: Mapping[str, str], sram: int) -> dict[str, object]:
    """Return the description of a package, as fields of its templates; `sram` is the arena's."""
    name = re.sub(r"[^\w.-]", "_", graph.name, flags=re.ASCII)
    component = f"smidgen_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}"
    learns, prefix = sources.learns, sources.prefix
    compiled = sorted(file for file in code if is_source(file))
    return {
        "name": name, "component": component, "CONFIG": component.upper(), "version": version("smidgen"),
        "sentence": f"{name} in plain C, {'a network that learns on the device' if learns else 'a quantized network'}",
        "paragraph": f"Compiled by Smidgen for {title or 'any core'}, without operating system, heap or libraries.",
        "core_text": f"; its kernels are for a {title}" if title else "", "architectures": "*",
        "verb": "train" if learns else "test", "kept": _filled("kept.c", {"prefix": prefix}) if learns else "",
        "ram_kib": -(-(sram + sources.state_bytes) // KIB) + STACK_KIB,
        "stack_bytes": STACK_KIB * KIB,
        "flash_kib": -(-sources.constant_bytes // KIB) + CODE_KIB,
        "pack_name": f"Smidgen.{component}.{version('smidgen')}.pack", "idf_target": "esp32c3" if title else "esp32s3",
        "languages": "C ASM" if any(file.endswith(".S") for file in compiled) else "C",
        "assembly": " src/*.S" if any(file.endswith(".S") for file in compiled) else "",
        "title": title, "compiled": compiled,
    }  # fmt: skip


def _zipped(files: Mapping[str, str | bytes]) -> bytes:
    """Return the files as a pack, which is a zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path, EPOCH), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
