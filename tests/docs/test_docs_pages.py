"""Wrong documents are seen: commands that no verb takes, fences that say nothing, code that does not run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.test_docs_commands import refused_scripts, run_page
from tests.support import doc_pages
from tests.support.doc_commands import check_python_text, check_shell
from tests.support.house import TOP

PLACE = TOP / "docs" / "a.md"


def page(text: str) -> doc_pages.Page:
    return doc_pages.parse(PLACE, text)


WRONG = {
    "smidgen compile model.smg --sceme head -o out": "No such option: --sceme",
    "smidgen compiel model.smg -o out": "has no verb 'compiel'",
    "smidgen compile model.smg other.smg -o out": "too many words",
    "smidgen train model.smg --data photos": "output is missing",
    "smidgen train model.smg --data photos -o out --epochs twelve": "integer",
    "smidgen compile model.smg --input strem -o out": "strem",
    "smidgen device PORT trane": "has no verb 'trane'",
    "smidgen device PORT --bauds 9600 monitor": "--bauds",
    "smidgen --versoin": "--versoin",
    "for i in 1 2; do smidgen infoo x; done": "has no verb 'infoo'",
    "smidgen info x | smidgen foo > y": "has no verb 'foo'",
    "smidgen info x \\\n  --jsn": "--jsn",
    "make tset": "no target tset",
    "smidgen info 'x": "No closing quotation",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_command_that_cannot_be_is_seen(text: str) -> None:
    (said,) = check_shell(text, "here")[0]
    assert said.startswith("here: ")
    assert WRONG[text] in said


RIGHT = (
    "smidgen device emulated:cortex-m7 --project p --flash f train --model m --data p --lr 0.01",
    "smidgen --version && smidgen train --help",
    "TIMES=3 smidgen profile MODEL --steps N > out.txt",
    "cat > notes <<'END'\nsmidgen nonsense\nEND\nsmidgen info x",
    "make fuzz FUZZ_MINUTES=10  # smidgen nonsense",
)


@pytest.mark.parametrize("text", RIGHT)
def test_a_command_that_can_be_is_taken(text: str) -> None:
    assert check_shell(text, "here")[0] == []


def test_a_sentence_may_leave_out_what_a_command_needs() -> None:
    for span in ("smidgen train", "smidgen train … --epochs 3", "smidgen analyze --ray", "smidgen VERB --help"):
        assert check_shell(span, "here", whole=False)[0] == []
    assert check_shell("smidgen train … --epoch 3", "here", whole=False)[0] != []


def test_a_script_is_held_to_its_own_arguments() -> None:
    right = ["here", "benchmarks/memory.py", "--json"]
    wrong = [["here", "benchmarks/memory.py", "--jsno"], ["here", "benchmarks/gone.py"]]
    said = refused_scripts([right, *wrong])
    assert len(said) == 2
    assert "--jsno" in said[0]
    assert said[1] == "here: benchmarks/gone.py is not there"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```\nsmidgen info x\n```", "a command in a fence without a language"),
        ("```\n$ smidgen info x\n```", "a command in a fence without a language"),
        ("```sh\nls\n```", "a fence of `sh`"),
        ("<!-- not run: too tired -->\n```bash\nls\n```", "`not run: too tired`"),
        ("<!-- not run: tests/test_gone.py runs it -->\n```bash\nls\n```", "tests/test_gone.py"),
        ("<!-- not run: a sketch -->\n```\nout\n```", "no language that is run"),
    ],
)
def test_a_fence_that_breaks_the_convention_is_seen(text: str, said: str) -> None:
    (found,) = doc_pages.complaints(page(text))
    assert said in found


def test_a_page_is_taken_apart() -> None:
    found = page(
        "Do `smidgen info\nx`:\n<!-- setup: photos -->\n\n- one\n\n  ```bash\n  ls\n  ```\n"
        "<!-- not run: a sketch -->\n<!-- given: int x;\nint y; -->\n```c\nx = 1;\n```\n```\nout\n```\n"
    )
    assert [(b.language, b.text, b.reason, b.given) for b in found.blocks] == [
        ("bash", "ls\n", None, ""),
        ("c", "x = 1;\n", "a sketch", "int x;\nint y;"),
        ("", "out\n", None, ""),
    ]
    assert found.blocks[0].place == "docs/a.md:7"
    assert found.setups == ("photos",)
    assert found.spans() == ["smidgen info x"]


def test_python_that_is_not_run_is_compiled_and_its_names_are_looked_up() -> None:
    assert check_python_text("sm.load('x')\n", "here") == []
    assert check_python_text("sm.laod('x')\n", "here") == ["here: sm.laod is not there"]
    assert len(check_python_text("sm.load(\n", "here")) == 1


def ran(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    return run_page(page(text), folder)


def test_the_blocks_of_a_page_run_in_order_and_share_what_they_make(tmp_path: Path) -> None:
    written = (
        "```bash\necho 3 > number\n```\n```python\nn = int(open('number').read())\n```\n```python\nprint(n + 1)\n```"
    )
    done = ran(written, tmp_path / "one")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "4"
    failing = ("```bash\nfalse\ntrue\n```", "```bash\nfalse | true\n```", "```python\nprint(n)\n```")
    for number, text in enumerate(failing):
        assert ran(text, tmp_path / str(number)).returncode != 0
    assert "docs/a.md" in ran("\n\n```python\nprint(n)\n```", tmp_path / "two").stderr
