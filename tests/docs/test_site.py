"""The documents as a site: it builds without a warning, fetches nothing, and its references name what is there."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import smidgen as sm
from experiments import mapped
from tests.support import c_api, doc_pages
from tests.support.house import ORDER, TOP
from tests.support.once import Once

FETCHED = {
    "src",
    "srcset",
    "poster",
    "data",
}  # attributes by which a browser fetches; and `href`, but of links to follow
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


class Fetches(HTMLParser):
    """Addresses elsewhere that a page fetches by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (name in FETCHED or (name == "href" and tag != "a")) and re.match(r"(?:\w+:)?//", value or ""):
                self.found.append(f"{tag} {name}={value}")


def fetched(text: str) -> list[str]:
    page = Fetches()
    page.feed(text)
    return page.found + re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//[^)'\"]*", text)


@pytest.fixture(scope="module")
def site(once: Once) -> Path:
    return once("site", build_site)


def build_site(folder: Path) -> Path:
    pytest.importorskip("mkdocs", reason="the site is not built without: pip install 'smidgen[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=TOP, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_document_is_a_page_of_the_site(site: Path) -> None:
    pages = {path.relative_to(TOP / "docs").with_suffix(".html") for path in (TOP / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_pages_from_elsewhere_are_on_the_site_and_links_lead_to_them(site: Path) -> None:
    assert (site / "changelog.html").is_file()
    trees = {TOP / "CHANGELOG.md": "changelog.md", TOP / "examples" / "a" / "README.md": "examples/a/README.md"}
    docs = TOP / "docs"
    hook = runpy.run_path(str(TOP / "tools" / "site.py"))

    def shown(text: str, here: Path, uri: str) -> str:
        said: str = hook["LINK"].sub(lambda found: hook["linked"](found, here, uri, docs, trees), text)
        return said

    page, card, example = docs / "data.md", docs / "models" / "m.md", TOP / "examples" / "a" / "README.md"
    assert shown("[a](../examples/a/README.md#b)", page, "data.md") == "[a](examples/a/README.md#b)"
    assert shown("[a](../../CHANGELOG.md)", card, "models/m.md") == "[a](../changelog.md)"
    assert shown("[d](../../docs/data.md)", example, "examples/a/README.md") == "[d](../../data.md)"
    assert shown("[`s`](../src/smidgen/errors.py), [x](https://x.org)", page, "data.md") == "`s`, [x](https://x.org)"
    assert shown("[limits.md](limits.md)", page, "data.md") == "[Limits](limits.md)"
    for code in ("```python\nf[0](x)\n```", "`f[0](x)`"):
        assert shown(code, page, "data.md") == code
    assert shown("![p](pictures/p.svg)", page, "data.md") == "![p](pictures/p.svg)"


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert fetched(path.read_text()) == [], path
        assert 'class="mermaid"' not in path.read_text(), "its script would be fetched"


def test_a_page_that_fetches_is_seen() -> None:
    for text in (
        '<script src="https://x.org/a.js"></script>', '<link href="//x.org/a.css">', "<style>@import 'https://x'</style>",
        '<img src="http://x.org/a.png">', "p { background: url(https://x.org/a.png) }",
    ):  # fmt: skip
        assert len(fetched(text)) == 1
    assert fetched('<a href="https://x.org">x</a><img src="a.png">') == []


def test_the_page_of_the_python_api_shows_every_public_name_once() -> None:
    shown = re.findall(r"^::: smidgen\.(\w+)$", (TOP / "docs" / "python-api.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(set(sm.__all__) - {"__version__"})


def test_every_public_name_of_python_says_what_it_is(site: Path) -> None:
    for name in set(sm.__all__) - {"__version__", "Tested"}:
        shown = getattr(sm, name)
        assert (shown.__doc__ or "").strip(), name
        if isinstance(shown, type):
            own = {k: v for k, v in vars(shown).items() if not k.startswith("_")}
            parts = {k: v.fget if isinstance(v, property) else getattr(v, "__func__", v) for k, v in own.items()}
            silent = [k for k, v in parts.items() if callable(v) and not v.__doc__ and not _inherits(shown, k)]
            assert silent == [], name
    assert "smidgen.Tested" in (site / "python-api.html").read_text()


def _inherits(kind: type, name: str) -> bool:
    return any(name in vars(base) for base in kind.__mro__[1:])


def test_the_page_of_the_c_api_is_what_the_headers_say() -> None:
    assert c_api.PAGE.read_text() == c_api.page(), "run python -m tests.support.c_api"


def test_functions_of_c_that_pages_name_are_there() -> None:
    there = set(re.findall(r"\b(?:model|smg)_\w+", c_api.PAGE.read_text()))
    sources = (path.read_text() for path in c_api.RUNTIME.rglob("*.[ch]"))
    there |= {name for text in sources for name in re.findall(r"\bsmg_\w+", text)}
    for path in doc_pages.paths():
        named = set(re.findall(r"`((?:model|smg)_\w+)\(", doc_pages.read(path).prose))
        assert named <= there, path


def test_the_picture_of_the_architecture_is_as_it_is_drawn_and_names_packages_that_are_there() -> None:
    drawn = mapped.architecture()
    assert (TOP / "docs" / "pictures" / "architecture.svg").read_text() == drawn, "run benchmarks/illustrate.py"
    named = {said.partition(":")[0] for _, _, said, _ in mapped.WAYS if said} - {"Program.write"}
    assert named <= {name.partition(".")[0] for name in ORDER}


def test_every_link_of_a_page_leads_to_a_file() -> None:
    for path in doc_pages.paths():
        for target in LINK.findall(doc_pages.read(path).prose):
            if not re.match(r"\w+:", target):
                assert (path.parent / target).exists(), f"{path.relative_to(TOP)}: {target}"
