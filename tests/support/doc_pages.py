"""The pages that users read, in parts: their code blocks, the text before each, and commands within sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.house import TOP

RUN = ("bash", "python", "c")
SHOWN = ("", "cmake", "cpp", "ini", "json", "text", "toml", "yaml")  # no part of them is run
# Why a block is not run; it is checked all the same.
REASONS = (
    "needs a GPU", "needs a board", "needs ../shared", "takes minutes", "serves until Ctrl-C", "needs the network",
    "a sketch",
    "the folder is yours",
)  # fmt: skip
ELSEWHERE = re.compile(r"(tests/\w+\.py) runs it$")
COMMANDS = ("smidgen", "python", "make", "pip")
FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<language>[^\s`]*)(?P<rest>[^`\n]*)$")
COMMENT = re.compile(r"<!-- *(not run|setup|given): *(.*?) *-->", re.DOTALL)
SPAN = re.compile(r"(?<!`)`((?:smidgen|python) [^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """Code between two fences; `line` is the page's that its first one has."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None  # why it is not run
    given: str  # declarations that C is compiled behind

    @property
    def place(self) -> str:
        """The file and line, as compilers print them."""
        return f"{self.page.relative_to(TOP)}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page's blocks, what it needs to be there before they run, and its text without them."""

    path: Path
    blocks: tuple[Block, ...]
    setups: tuple[str, ...]
    prose: str

    @property
    def runs(self) -> tuple[Block, ...]:
        """The blocks that are run, in order."""
        return tuple(b for b in self.blocks if b.language in ("bash", "python") and b.reason is None)

    def spans(self) -> list[str]:
        """Commands within sentences, each on one line."""
        return [" ".join(found.split()) for found in SPAN.findall(self.prose)]


def paths() -> list[Path]:
    """Return every page: the README, the documents, and each example's README."""
    return [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md")), *sorted((TOP / "examples").rglob("README.md"))]


def read(path: Path) -> Page:
    """A page, taken apart."""
    return parse(path, path.read_text())


def parse(path: Path, text: str) -> Page:
    """A page of this text."""
    blocks: list[Block] = []
    prose, setups = [], []
    before: list[str] = []  # lines since the last block
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        opened = FENCE.match(line)
        if opened is None:
            before.append(line)
            continue
        comments = _comments(before)
        setups += [name for kind, name in comments if kind == "setup"]
        directly = dict(_comments(_tail(before)))
        code = "\n".join(_code(lines, opened["mark"], len(opened["indent"])))
        reason = directly.get("not run")
        blocks.append(Block(path, number, opened["language"], code + "\n", reason, directly.get("given", "")))
        prose += before
        before = []
    setups += [name for kind, name in _comments(before) if kind == "setup"]
    return Page(path, tuple(blocks), tuple(setups), "\n".join([*prose, *before]))


def _code(lines: Iterator[tuple[int, str]], mark: str, indent: int) -> Iterator[str]:
    """The lines up to the fence that ends them."""
    for _, line in lines:
        if line.strip() == mark:
            return
        yield line[indent:] if not line[:indent].strip() else line


def _comments(lines: list[str]) -> list[tuple[str, str]]:
    return COMMENT.findall("\n".join(lines))


def _tail(lines: list[str]) -> list[str]:
    """The comments right above a fence: the lines behind the last one that is neither empty nor part of one."""
    tail = "\n".join(lines).rstrip()
    found = ""
    while tail.endswith("-->"):
        begin = tail.rindex("<!--")
        found, tail = tail[begin:] + "\n" + found, tail[:begin].rstrip()
    return found.splitlines()


def _holds(reason: str) -> bool:
    """Return whether a reason is a known one, or names a test that runs the block."""
    test = ELSEWHERE.search(reason)
    return reason in REASONS or (test is not None and (TOP / test[1]).is_file())


def complaints(page: Page) -> list[str]:
    """Return what breaks the convention in a page's fences and comments."""
    found = []
    for block in page.blocks:
        if block.language not in (*RUN, *SHOWN):
            found.append(f"{block.place}: a fence of `{block.language}`; one of {', '.join(filter(None, RUN + SHOWN))}")
        if block.reason is not None and not _holds(block.reason):
            found.append(f"{block.place}: `not run: {block.reason}`; one of {', '.join(REASONS)}")
        if block.reason is not None and block.language not in RUN:
            found.append(f"{block.place}: it has a reason not to be run, but its fence names no language that is run")
        commands = [line for line in block.text.splitlines() if re.match(rf"(\$ )?({'|'.join(COMMANDS)}) ", line)]
        if block.language in ("", "text") and commands:
            found.append(f"{block.place}: a command in a fence without a language: {commands[0]}")
    return found
