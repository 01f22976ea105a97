"""Nothing is overwritten unasked: every verb that writes refuses what is there and names --force, which does it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from smidgen import cli
from smidgen.codegen.project import LISTING
from smidgen.errors import InputError
from smidgen.fitting import FitError, fit
from smidgen.frontends.native import write_smg
from smidgen.ir.preprocessing import Preprocessing
from smidgen.pipeline import Program, compile
from smidgen.quantization import QuantizationError
from tests.support.float_graphs import dequantized
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network

WRITING = ("--output", "--picture")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models, an input and photographs, where one works."""
    monkeypatch.chdir(tmp_path)
    graph = small_network()
    write_smg(graph, Path("small.smg"))
    write_smg(dequantized(graph, Preprocessing()), Path("float.smg"))
    np.save("x.npy", np.zeros(graph.inputs[0].type.shape, np.int8))
    data = draw_shapes(12, 2)
    for place, (image, label) in enumerate(zip(data.train.images, data.train.labels, strict=True)):
        file = Path("photos", SHAPES[label], f"{place}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return tmp_path


def call(command: str) -> BaseException | None:
    """What a command ends with: nothing, or the error."""
    result = CliRunner().invoke(cli.app, command.split())
    return None if result.exit_code == 0 else result.exception


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_ino) for path in files}


def test_every_verb_that_writes_takes_force() -> None:
    verbs = vars(get_command(cli.app))["commands"]
    flags = {name: {option for one in verb.params for option in one.opts} for name, verb in verbs.items()}
    writes = {name for name, options in flags.items() if options & {*WRITING}}
    assert {"run", "import", "quantize", "compile", "train", "analyze", "search", "fit", "demo"} <= writes
    assert writes == {name for name, options in flags.items() if "--force" in options}


SEARCH = "search small.smg --budget 64KB --estimate --classes 4"
ANALYZE = "analyze small.smg --data photos --epochs 1 --reach 1 --workers 1"
TRAIN = "train small.smg --data photos --scheme last:1 --lr 0.01 --epochs 1"
COMMANDS = (
    ("run small.smg -i x.npy -o y.npy", "y.npy"),
    ("import small.smg -o other.tflite", "other.tflite"),
    ("quantize float.smg --data photos -o q.smg", "q.smg"),
    ("compile small.smg -o c", "c"),
    ("compile small.smg -o new --picture c.html", "c.html"),
    (f"{ANALYZE} -o a.json", "a.json"),
    (f"{ANALYZE} -o new.json --picture a.html", "a.html"),
    (f"{SEARCH} -o s.json", "s.json"),
    (f"{SEARCH} --evaluations 50 --picture s.html", "s.html"),
    (f"{TRAIN} -o t", "t/small.ckpt"),
    (f"{TRAIN} -o t", "t/small.tflite"),
)


@pytest.mark.parametrize(("command", "written"), COMMANDS, ids=[f"{c.split()[0]}-{w}" for c, w in COMMANDS])
def test_what_is_there_is_refused_unless_force_is_given(folder: Path, command: str, written: str) -> None:
    there = folder / written
    if command.startswith("compile") and written == "c":
        compile(small_network("earlier")).write(there)
    else:
        there.parent.mkdir(exist_ok=True)
        there.write_text("mine")
    before = contents(folder)
    error = call(command)
    assert isinstance(error, InputError)
    assert f"{written} exists already" in str(error)
    assert "--force to " in str(error)
    assert contents(folder) == before
    assert call(f"{command} --force") is None
    assert all(after != before.get(name) for name, after in contents(folder).items() if name.startswith(str(there)))


def test_a_run_that_goes_on_overwrites_its_own_files_unasked(folder: Path) -> None:
    assert call(f"{TRAIN} -o t") is None
    assert "give --resume t/small.ckpt to go on with it, --force to overwrite it" in str(call(f"{TRAIN} -o t"))
    assert call(f"{TRAIN} -o t --resume t/small.ckpt") is None
    assert call(f"{TRAIN} -o u --resume t/small.ckpt") is None
    assert isinstance(call(f"{TRAIN} -o u --resume t/small.ckpt"), InputError)


def mine(project: Path) -> None:
    (project / "mine.c").write_text("")


def mine_within(project: Path) -> None:
    (project / "board" / "driver.c").write_text("")


def no_listing(project: Path) -> None:
    (project / LISTING).unlink()


def a_repository(project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("")


def a_link(project: Path) -> None:
    project.rename(project.with_name("elsewhere"))
    project.symlink_to("elsewhere")


@pytest.mark.parametrize("change", [mine, mine_within, no_listing, a_repository, a_link])
def test_force_replaces_no_folder_that_holds_a_strangers_file(tmp_path: Path, change: Callable[[Path], None]) -> None:
    program, project = compile(small_network()), tmp_path / "out"
    program.write(project)
    change(project)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"--force (replaces only|deletes nothing)"):
        program.write(project, force=True)
    assert contents(tmp_path) == before


def test_force_replaces_a_project_whole_with_what_make_left_in_it(tmp_path: Path) -> None:
    project = tmp_path / "out"
    compile(small_network(), prefix="kws").write(project)
    (project / "example").write_text("built")
    (project / "build").mkdir()
    (project / "build" / "CMakeCache.txt").write_text("")
    program = compile(small_network())
    program.write(project, force=True)
    found = {str(path.relative_to(project)): path.read_text() for path in project.rglob("*") if path.is_file()}
    assert found == program.files()
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("rename", [1, 2])
def test_a_replacement_that_fails_leaves_the_old_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rename: int
) -> None:
    project, renamed, usual = tmp_path / "out", list[Path](), os.replace
    compile(small_network(), prefix="kws").write(project)
    before = contents(tmp_path)

    def fails(source: Path, target: Path) -> None:
        renamed.append(source)
        if len(renamed) == rename:
            raise OSError(28, "No space left on device")
        usual(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(InputError, match="out cannot be written: No space left on device"):
        compile(small_network()).write(project, force=True)
    assert contents(tmp_path) == before


def test_a_project_whose_files_fail_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "out"
    compile(small_network()).write(project)
    before = contents(tmp_path)
    monkeypatch.setattr(Program, "files", lambda _: {"a": "", "a/below a file": ""})
    with pytest.raises(InputError, match="cannot be written"):
        compile(small_network()).write(project, force=True)
    assert contents(tmp_path) == before


def test_a_fit_leaves_a_folder_alone_that_no_fit_made_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model.smg").write_text("mine")
    data = draw_shapes(12, 6)
    with pytest.raises(FitError, match=r"holds files and no fit\.json, so no fit made them; give --force"):
        fit(small_network(), data, tmp_path, budget="48KB", epochs=1)
    assert sorted(os.listdir(tmp_path)) == ["model.smg", "notes.txt"]
    found = fit(small_network(), data, tmp_path, budget="48KB", epochs=1, force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "scheme.json").write_text("{}")
    (tmp_path / "project" / "firmware.elf").write_text("built")
    with pytest.raises(FitError, match="changed since; move it away, give --force to overwrite it"):
        fit(small_network(), data, tmp_path, budget="48KB", epochs=1)
    again = fit(small_network(), data, tmp_path, budget="48KB", epochs=1, force=True)
    assert [one.stage for one in again.stages if not one.reused] == ["choice", "project"]
    assert (again.choice, again.learned) == (found.choice, found.learned)
    assert not (tmp_path / "project" / "firmware.elf").exists()


def test_a_fit_that_fails_at_once_leaves_no_folder(tmp_path: Path) -> None:
    def fails(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small_network(), draw_shapes(12, 6), tmp_path / "deep" / "out", on_progress=fails)
    with pytest.raises(QuantizationError):
        fit(dequantized(small_network()), draw_shapes(12, 6), tmp_path / "deep" / "out", epochs=1)
    assert os.listdir(tmp_path) == []
