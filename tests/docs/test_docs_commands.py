"""Every code block of the documents works: it is run or, where that takes a board or minutes, held to what it calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smidgen.compiler import find_compiler
from smidgen.pipeline import compile
from smidgen.training import Options
from tests.support import doc_pages, doc_setups
from tests.support.audio_signals import listener
from tests.support.doc_commands import check_python_text, check_shell
from tests.support.doc_pages import Block, Page
from tests.support.house import TOP
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import first

PAGES = {str(path.relative_to(TOP)): doc_pages.read(path) for path in doc_pages.paths()}
ERRORS = ("implicit-function-declaration", "incompatible-pointer-types", "int-conversion", "return-type")
# Functions that a page leaves to its reader are declared and not defined, which compilers warn of.
STRICT = ("-std=c99", "-fsyntax-only", "-Wno-error", *(f"-Werror={name}" for name in ERRORS))
RUNNER = Path(__file__).parents[1] / "support" / "doc_runner.py"
LONGEST = 600  # seconds that a page may take


def named(*parts: str) -> list[str]:
    """Pages with a block of one of these languages that is run."""
    return [name for name, page in PAGES.items() if any(b.language in parts and b.reason is None for b in page.blocks)]


@pytest.mark.parametrize("name", PAGES)
def test_every_fence_says_what_it_holds(name: str) -> None:
    assert doc_pages.complaints(PAGES[name]) == []
    assert set(PAGES[name].setups) <= set(doc_setups.SETUPS)


def wrong_commands(page: Page) -> tuple[list[str], list[list[str]]]:
    """What of a page's commands is wrong, and the scripts it calls, each behind its place."""
    wrong: list[str] = []
    scripts: list[list[str]] = []
    for block in page.blocks:
        if block.language == "python":
            wrong += check_python_text(block.text, block.place)
        elif block.language == "bash":
            found, calls = check_shell(block.text, block.place)
            wrong += found
            scripts += ([block.place, *call] for call in calls)
    for span in page.spans():
        place = f"{page.path.relative_to(TOP)}: `{span}`"
        found, calls = check_shell(span, place, whole=False)
        wrong += found
        scripts += ([place, *call] for call in calls)
    return wrong, scripts


@pytest.mark.parametrize("name", PAGES)
def test_every_command_names_a_verb_and_options_that_are_there(name: str) -> None:
    assert wrong_commands(PAGES[name])[0] == []


def refused_scripts(scripts: list[list[str]]) -> list[str]:
    command = [sys.executable, "-m", "tests.support.doc_scripts"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOP), str(TOP / "src")])}
    told = json.dumps(scripts)
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_every_script_that_a_page_calls_takes_these_words() -> None:
    scripts = [call for page in PAGES.values() for call in wrong_commands(page)[1]]
    assert len(scripts) > 50
    assert refused_scripts(scripts) == []


def tools(folder: Path) -> str:
    """A search path that begins with `smidgen` and `python` of this environment."""
    folder.mkdir()
    for name, words in (("python", ""), ("smidgen", " -m smidgen")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def run_page(page: Page, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's blocks in order in a new folder, with what its setups make."""
    (folder / "page").mkdir()
    for name in dict.fromkeys(page.setups):
        doc_setups.SETUPS[name](folder / "page")
    blocks = [(block.place, block.language, block.text) for block in page.runs]
    (folder / "blocks.json").write_text(json.dumps(blocks))
    python = os.pathsep.join(filter(None, (str(TOP / "src"), os.environ.get("PYTHONPATH", ""))))
    env = {**os.environ, "PATH": tools(folder / "bin"), "PYTHONPATH": python}
    command = [sys.executable, str(RUNNER), str(folder / "blocks.json")]
    return subprocess.run(
        command, cwd=folder / "page", env=env, capture_output=True, text=True, check=False, timeout=LONGEST
    )


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of PyTorch's older exporter
@pytest.mark.parametrize("name", first("README.md", *(n for n in named("bash", "python") if n != "README.md")))
def test_the_commands_of_a_page_work(name: str, tmp_path: Path) -> None:
    done = run_page(PAGES[name], tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that learns, streams its image and replays, for the C of pages to be compiled with."""
    folder = tmp_path_factory.mktemp("c") / "out"
    options = Options(CLASSES)
    program = compile(inverted_residual(3), "last:2", "cortex-m7", options=options, streamed_input=True, replay="64KB")
    program.write(folder)
    return folder


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that hears and learns."""
    folder = tmp_path_factory.mktemp("c") / "out"
    compile(listener(), "head", "cortex-m7", options=Options(CLASSES)).write(folder)
    return folder


def compile_block(block: Block, project: Path) -> None:
    """Compile C behind what is given; statements alone become a function."""
    whole = any(re.match(r"#include|(?!return)\w+[ *]+\w.*\) \{", line) for line in block.text.splitlines())
    body = block.text if whole else f"void typed(void);\nvoid typed(void) {{\n{block.text}}}\n"
    (project / "typed.c").write_text(f"{block.given}\n#line {block.line + 1}\n{body}")
    includes = [f"-I{path}" for path in sorted(project.iterdir()) if path.is_dir()]
    find_compiler()(*STRICT, *includes, "typed.c", folder=project)


@pytest.mark.parametrize("name", named("c"))
def test_the_c_of_a_page_is_c(name: str, project: Path, listening: Path) -> None:
    for block in PAGES[name].blocks:
        if block.language == "c" and block.reason is None:
            compile_block(block, listening if "model_audio" in block.text else project)
