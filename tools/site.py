"""What mkdocs.yml adds to the pages of docs/: the examples, the changelog, a page to try, and links between them all.

mkdocs calls these functions by their names. On GitHub a page links to `../CHANGELOG.md`; on the site that file is a
page among the others. A link to a file that is no page, such as one of the sources, is shown as its text, and a link
whose text is the name of a page's file by that page's title.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from smidgen.play import draw_play, measure, plan
from smidgen.training import Options
from smidgen.zoo import load

TOP = Path(__file__).parents[1]
# Code, which stays as it is, or a link: its text, where it leads, and to which part of that.
LINK = re.compile(
    r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence)$|`[^`\n]*`"
    r"|(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<to>[^)\s#]+)(?P<part>#[^)\s]*)?\)",
    re.DOTALL | re.MULTILINE,
)


TRY, NETWORK, BOARDS = "try.html", "mcunet-5fps", ("cortex-m7",)  # a page of `smidgen play`, beside the others
FRONT_DOOR = (
    f"**[Try it]({TRY})**: a network learns what you show it in your browser, with the bytes of the chip. Nothing "
    "leaves the page."
)


def outside() -> dict[Path, str]:
    """Pages that do not lie in docs/, by file, and what they are called on the site."""
    found = {TOP / "CHANGELOG.md": "changelog.md"}
    examples = TOP / "examples"
    found |= {path: f"examples/{path.relative_to(examples).as_posix()}" for path in sorted(examples.rglob("README.md"))}
    return {path: name for path, name in found.items() if path.is_file()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The examples that are there stand behind the first pages, the changelog stands last."""
    assert config.nav is not None
    examples = [name for name in outside().values() if name.startswith("examples/")]
    if examples:
        config.nav.insert(1, {"Examples": examples})
    config.nav[-1]["Internals"].append("changelog.md")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages from elsewhere."""
    for path, name in outside().items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    files.append(File.generated(config, TRY, content=page_to_try()))
    return files


def page_to_try() -> str:
    """A network of the zoo that learns in the browser."""
    graph = load(NETWORK)
    asked = plan(graph, NETWORK, None, Options())
    return draw_play(graph, asked, measure(graph, asked, BOARDS, lambda name: None))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page whose links lead to where pages are on the site."""
    if page.file.src_uri == "index.md":
        head, _, rest = markdown.partition("\n\n")
        markdown = f"{head}\n\n{FRONT_DOOR}\n\n{rest}"
    names = outside()
    here = next((path for path, name in names.items() if name == page.file.src_uri), None)
    here = here or Path(config.docs_dir) / page.file.src_uri
    return LINK.sub(lambda found: linked(found, here, page.file.src_uri, Path(config.docs_dir), names), markdown)


def linked(found: re.Match[str], here: Path, uri: str, docs: Path, names: dict[Path, str]) -> str:
    """A link of the file `here`, which is `uri` on the site."""
    text, target, part = found["text"], found["to"], found["part"] or ""
    if target is None or re.match(r"\w+:", target):
        return found[0]
    path = Path(os.path.normpath(here.parent / target))
    if path in names:
        to = names[path]
    elif path.is_relative_to(docs):
        to = path.relative_to(docs).as_posix()
    else:
        return text
    if text == target and path.is_file():
        text = title(path)
    return f"[{text}]({posixpath.relpath(to, posixpath.dirname(uri) or '.')}{part})"


def title(path: Path) -> str:
    """A page's first heading."""
    return next(line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# "))
