"""The house rules that a machine can check: which way imports point, how long things grow, and what nobody may do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import house
from tests.support.house import ORDER, ROOT, TOP, functions, imports, layer, modules, place

LONGEST_FILE, LONGEST_FUNCTION = 400, 50  # lines
KINDS = (".py", ".c", ".h", ".S", ".in")
# The folders of code, and which of the others each may import besides the library.
FOLDERS: dict[str, tuple[str, ...]] = {
    "src": (),
    "experiments": (),
    "examples": (),
    "tools": (),
    "benchmarks": ("experiments",),
    "tests": ("experiments", "examples"),
}
# Where the library asks its surroundings: the cache folder of built programs lies where the user's others do.
ASKS = {"compiler.py": {"os.environ"}}

# The folders of tests that are not named after a package of the library.
OTHER_TESTS = {"support", "oracles", "docs", "tools", "experiments", "corpus", "ecosystems"}


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (TOP / folder).rglob("*") if path.suffix in KINDS)


def test_the_table_of_layers_is_the_order_the_imports_keep() -> None:
    assert house.PAGE.read_text() == house.page(), "run python -m tests.support.house"
    assert house.table() in house.PAGE.read_text()


def test_every_module_and_package_has_its_place_in_the_house() -> None:
    there = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert there - {"__init__", "__main__", "__pycache__"} == {name for name in ORDER if "." not in name}
    assert {layer(path) for path in modules()} == set(ORDER)


def test_folders_of_tests_mirror_the_library() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    folders = {path.name for path in (TOP / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - OTHER_TESTS <= packages
    loose = {path.name for path in (TOP / "tests").glob("*.py")} - {"__init__.py", "conftest.py"}
    assert all(name.startswith("test_") for name in loose), "helpers belong into tests/support"


def test_imports_only_point_up() -> None:
    for path in modules():
        for name in imports(path):
            assert not name.startswith("."), f"{path.relative_to(ROOT)} imports {name}; write its full name"
            if name.split(".")[0] == "smidgen" and name != "smidgen.__version__":
                below = place(name.removeprefix("smidgen").removeprefix("."))
                assert below in ORDER, f"{path.relative_to(ROOT)} imports {name}, which no layer holds"
                assert ORDER.index(below) <= ORDER.index(layer(path)), (
                    f"{path.relative_to(ROOT)} imports {name}, which stands below it"
                )


def test_every_module_is_reached_from_the_command_line_or_a_public_name() -> None:
    found = house.reached("smidgen", "smidgen.cli", "smidgen.__main__")
    unreached = {str(path.relative_to(ROOT)) for path in modules() if house.module_name(path) not in found}
    folders_of_c = {"runtime/link/__init__.py", "runtime/store/__init__.py"}
    assert unreached <= folders_of_c, "research belongs in experiments/, and what only tests use in tests/"


def test_a_module_at_the_top_level_serves_more_than_one_layer() -> None:
    for file in ROOT.glob("*.py"):
        if file.stem not in ("__init__", "__main__"):
            users = {layer(path) for path in modules() for name in imports(path) if _is_of(name, file.stem)}
            assert len(users - {file.stem}) > 1, f"{file.name} belongs with {users}"


def _is_of(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"smidgen.{module}.")


def test_only_the_front_end_and_the_simulator_import_torch() -> None:
    for path in modules():
        if not path.is_relative_to(ROOT / "frontends" / "torch") and layer(path) != "simulation":
            assert not any(name.split(".")[0] == "torch" for name in imports(path)), path


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_imports_another_that_is_not_beneath_it(folder: str) -> None:
    own = {path.stem for path in (TOP / folder).glob("*.py")}
    for other in FOLDERS.keys() - {"src", folder, *FOLDERS[folder]}:
        foreign = {other} | {path.stem for path in (TOP / other).glob("*.py")} - own
        for path in (TOP / folder).rglob("*.py"):
            found = sorted(name for name in imports(path) if name.split(".")[0] in foreign)
            assert not found, f"{path.relative_to(TOP)} imports {', '.join(found)} of {other}/"


def _surroundings(path: Path) -> Iterator[str]:
    """The names by which a file prints, or reads or writes what only its process has."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in ("print", "getenv", "putenv"):
                yield called
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "sys.stdout", "sys.stderr"):
            yield ast.unparse(node)


def test_the_library_neither_prints_nor_reads_environment_variables() -> None:
    asking = {str(path.relative_to(ROOT)): set(_surroundings(path)) for path in modules() if layer(path) != "cli"}
    assert {path: names for path, names in asking.items() if names} == ASKS


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {str(path.relative_to(TOP)): len(path.read_text().splitlines()) for path in sources()}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{name} in {path.relative_to(TOP)}: {length} lines"
        for path in sources()
        for name, length in functions(path)
        if length > LONGEST_FUNCTION
    ]
    assert long == []


def test_the_length_of_functions_is_measured_in_python_and_in_c(tmp_path: Path) -> None:
    python, c = tmp_path / "one.py", tmp_path / "two.c"
    python.write_text("class A:\n    def f(self):\n        pass\n\n\ndef g(\n    x: int,\n) -> int:\n    return x\n")
    c.write_text("int a[] = {\n    1,\n};\n\nint f(int x,\n      int y) {\n    if (x) {\n    }\n    return y;\n}\n")
    assert sorted(functions(python)) == [("f", 2), ("g", 4)]
    assert list(functions(c)) == [("f", 6)]
