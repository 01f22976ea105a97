"""Rules that the tools of two ecosystems check in a package, taken from their sources, where they are not installed.

A pack: PACK.xsd 1.7.32 of Open-CMSIS-Pack-Spec, and packchk's messages, which are named as it numbers them. A module
and a sample: the schemas of Zephyr's scripts/zephyr_module.py and scripts/schemas/twister/testsuite-schema.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

NAME = r"[-_A-Za-z0-9]+"
PACK_VERSION = r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
COMPONENT_VERSION = r"(0|[1-9]\d*)\.\d+(\.\d+)?(-[0-9A-Za-z.-]+)?"
ENDINGS = {"sourceC": (".c",), "sourceAsm": (".s", ".S"), "header": (".h",), "doc": (".md", ".txt", ".html", ".pdf")}
CATEGORIES = {*ENDINGS, "include", "library", "object", "source", "sourceCpp", "linkerScript", "utility", "other"}
CORES = {f"Cortex-M{core}" for core in ("0", "0+", "1", "23", "3", "33", "35P", "4", "52", "55", "7", "85")}
COMPILERS = {"GCC", "ARMCC", "IAR", "Tasking", "GHS", "Cosmic", "G++", "XC", "CLANG", "Renesas", "*"}


def pack_faults(folder: Path) -> list[str]:
    """Return packchk's complaints about an unpacked pack."""
    return list(_pack_faults(folder))


def _pack_faults(folder: Path) -> Iterator[str]:
    (path,) = folder.glob("*.pdsc")
    package = ElementTree.parse(path).getroot()
    texts = {child.tag: (child.text or "").strip() for child in package}
    for message, tag in (("M302", "vendor"), ("M303", "name"), ("M304", "url"), ("M306", "description")):
        if not texts.get(tag):
            yield f"{message}: no <{tag}>"
    for tag in ("vendor", "name"):
        if not re.fullmatch(NAME, texts.get(tag, "")):
            yield f"M383: <{tag}> is {texts.get(tag)!r}"
    if path.name != f"{texts.get('vendor')}.{texts.get('name')}.pdsc":
        yield f"M207: the file is named {path.name}"
    if not re.fullmatch(r"https?://[^\\]+/", texts.get("url", "")):
        yield f"M316: the URL is {texts.get('url')!r}"
    if len(texts) != len(package):
        yield "schema: an element stands twice"
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", package.get("schemaVersion", "")):
        yield "M376: no schema version"
    if "license" in texts and not (folder / texts["license"]).is_file():
        yield f"M323: {texts['license']} is not there"
    yield from _release_faults(package)
    yield from _condition_faults(package)
    for component in package.iterfind("components/component"):
        yield from _component_faults(component, folder)


def _release_faults(package: ElementTree.Element) -> Iterator[str]:
    releases = package.findall("releases/release")
    if not releases:
        yield "M305: no release"
    for release in releases:
        if not re.fullmatch(PACK_VERSION, release.get("version", "")):
            yield f"M394: release {release.get('version')!r}"
        if not (release.text or "").strip():
            yield "M329: a release without a description"
    numbers = [[int(n) for n in re.findall(r"\d+", r.get("version", ""))[:3]] for r in releases]
    if numbers != sorted(numbers, reverse=True):
        yield "M396: the newest release is not first"


def _condition_faults(package: ElementTree.Element) -> Iterator[str]:
    named = [condition.get("id") for condition in package.iterfind("conditions/condition")]
    used = {element.get("condition") for element in package.iter() if "condition" in element.attrib}
    if len(named) != len({*named}):
        yield "M330: a condition stands twice"
    yield from (f"M331: condition {name} is not used" for name in named if name not in used)
    yield from (f"M332: condition {name} is not defined" for name in used if name not in named)
    for rule in package.iterfind("conditions/condition/*"):
        if rule.tag not in ("description", "accept", "require", "deny"):
            yield f"schema: <{rule.tag}> in a condition"
        if rule.get("Dcore", "Cortex-M7") not in CORES or rule.get("Tcompiler", "GCC") not in COMPILERS:
            yield f"schema: a condition on {rule.attrib}"


def _component_faults(component: ElementTree.Element, folder: Path) -> Iterator[str]:
    for name in ("Cclass", "Cgroup", "Cversion"):
        if not component.get(name):
            yield f"M308: a component without {name}"
    if not re.fullmatch(COMPONENT_VERSION, component.get("Cversion", "")):
        yield f"schema: Cversion is {component.get('Cversion')!r}"
    if "condition" not in component.attrib:
        yield "M333: a component without a condition"
    if not component.findtext("description"):
        yield "schema: a component without a description"
    files = component.findall("files/file")
    for file in files:
        yield from _file_faults(file, folder)
    compiled = {str(file.get("name")) for file in files}
    sources = {path.relative_to(folder).as_posix() for path in folder.glob("src/*.[cS]")}
    yield from (f"{name} belongs to no component" for name in sorted(sources - compiled))


def _file_faults(file: ElementTree.Element, folder: Path) -> Iterator[str]:
    name, category = file.get("name", ""), file.get("category", "")
    path = folder / name
    if category not in CATEGORIES:
        yield f"schema: {name} is of category {category!r}"
    if name.startswith("/") or ".." in Path(name).parts or ":" in name or "\\" in name or " " in name:
        yield f"M326: {name} is no path within a pack"
    if category == "include" and not (name.endswith("/") and path.is_dir()):
        yield f"M340: {name} is no folder to include from"
    if category != "include" and not path.is_file():
        yield f"M323: {name} is not there"
    if category in ENDINGS and not name.endswith(ENDINGS[category]):
        yield f"M337: {name} is no {category}"
    if file.get("attr") == "template" and not file.get("select"):
        yield f"M343: the template {name} is not described"
    if file.get("attr") not in (None, "template", "config"):
        yield f"schema: {name} has attr {file.get('attr')!r}"


TEXTS, FLAGS = ("cmake", "kconfig", "sysbuild-cmake", "sysbuild-kconfig"), ("cmake-ext", "kconfig-ext")
MODULE = {"name", "build", "tests", "samples", "boards", "blobs", "security", "package-managers", "runners"}


def module_faults(module: Mapping[str, object], folder: Path) -> list[str]:
    """Return zephyr_module.py's complaints about a module's description and the paths in it."""
    return list(_module_faults(module, folder))


def _module_faults(module: Mapping[str, object], folder: Path) -> Iterator[str]:
    yield from (f"{key} is unknown" for key in module if key not in MODULE)
    if not isinstance(module.get("name", ""), str):
        yield "name is no text"
    build = module.get("build", {})
    if not isinstance(build, dict):
        yield "build is no mapping"
        return
    yield from (f"build.{key} is unknown" for key in build if key not in (*TEXTS, *FLAGS, "depends", "settings"))
    yield from (f"build.{key} is no text" for key in TEXTS if not isinstance(build.get(key, ""), str))
    if not (folder / str(build.get("cmake", "zephyr")) / "CMakeLists.txt").is_file():
        yield "build.cmake names a folder without CMakeLists.txt"
    if not (folder / str(build.get("kconfig", "zephyr/Kconfig"))).is_file():
        yield "build.kconfig names no file"
    samples = module.get("samples", [])
    if not isinstance(samples, list) or not all(isinstance(path, str) for path in samples):
        yield "samples is no list of texts"
    elif not all(any((folder / path).rglob("sample.yaml")) for path in samples):
        yield "samples names a folder without a sample"


SCENARIO = {"build_only": bool, "min_ram": int, "min_flash": int, "harness": str, "filter": str, "timeout": int}
ANY = {"tags", "platform_allow", "platform_exclude", "arch_allow", "depends_on", "integration_platforms"}


def sample_faults(sample: Mapping[str, object]) -> list[str]:
    """Return twister's complaints about a sample's description."""
    return list(_sample_faults(sample))


def _sample_faults(sample: Mapping[str, object]) -> Iterator[str]:
    yield from (f"{key} is unknown" for key in sample if key not in ("sample", "common", "tests"))
    about, tests = sample.get("sample"), sample.get("tests")
    if not isinstance(about, dict) or not isinstance(about.get("name"), str):
        yield "sample has no name"
    if not isinstance(tests, dict) or not tests:
        yield "there are no tests"
        return
    for name, scenario in tests.items():
        if not re.fullmatch(r"\w+(\.\w+)+", name):  # twister wants sections, parted by dots
            yield f"{name} is no name of a test"
        for key, value in scenario.items():
            if key not in ANY and (key not in SCENARIO or type(value) is not SCENARIO[key]):
                yield f"{name}.{key} is {value!r}"
