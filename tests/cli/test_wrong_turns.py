"""Each wrong turn is answered by one sentence with the way out, and the commands in these sentences work."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import smidgen as sm
from smidgen import cli
from smidgen.errors import InputError, SmidgenError
from smidgen.frontends.native import write_smg
from smidgen.ir.preprocessing import Preprocessing
from smidgen.quantization import quantize_with
from tests.support.float_graphs import dequantized
from tests.support.networks import inverted_residual
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network

LEARN = "--scheme last:2 --lr 0.01 --epochs 2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A float model, the same in int8, and photographs, where one works."""
    monkeypatch.chdir(tmp_path)
    write_smg(dequantized(small_network(), Preprocessing()), Path("my float.smg"))
    write_smg(small_network(), Path("small.smg"))
    data = draw_shapes(8, 3)
    for split, samples in (("train", data.train), ("test", data.test)):
        for place, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
            file = Path("photos", split, SHAPES[label], f"{place}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    return tmp_path


def run(command: str) -> Result:
    result = CliRunner().invoke(cli.app, shlex.split(command), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def refusal(command: str) -> str:
    with pytest.raises(SmidgenError) as raised:
        run(command)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("command", "data"),
    [
        (f"train 'my float.smg' --data photos {LEARN} -o out", "photos"),
        ("analyze 'my float.smg' --data photos -o out.json", "photos"),
        ("compile 'my float.smg' --scheme last:2 --classes 4 -o out", "DATA"),
        ("compile 'my float.smg' --budget 64KB --classes 4 -o out", "DATA"),
        ("profile 'my float.smg' --scheme last:2 --classes 4", "DATA"),
        ("search 'my float.smg' --budget 64KB --estimate --classes 4", "DATA"),
    ],
    ids=lambda text: text.split()[0],
)
def test_a_float_model_that_is_to_learn_is_answered_by_the_command_that_quantizes_it(
    folder: Path, command: str, data: str
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    said = refusal(command)
    assert said.startswith("my float.smg is float32, and what learns computes in int8; quantize it: smidgen ")
    assert ("or give --quantize" in said) == command.startswith("train")
    assert sorted(path.name for path in folder.iterdir()) == before
    found = re.search(r"smidgen (quantize .*?\.smg'?)(,|$)", said)
    assert found
    words = shlex.split(found[1])
    assert words[:4] == ["quantize", "my float.smg", "--data", data]
    run(found[1].replace("DATA", "photos"))
    assert sm.load(words[-1]).inputs[0].type.dtype == "int8"


def test_training_quantizes_on_the_way_where_that_is_asked_for(folder: Path) -> None:
    told = run(f"train 'my float.smg' --quantize --data photos {LEARN} -o out").stderr
    assert "12 layers in int8" in told
    assert "pixels as -1,1, as the model states" in told
    graph = sm.load("my float.smg")
    write_smg(quantize_with(sm.load_data("photos"), graph, lambda _: None).graph, Path("by hand.smg"))
    run(f"train 'by hand.smg' --data photos {LEARN} -o hand")
    (learned,) = Path("hand").glob("*.tflite")
    assert (folder / "out" / f"{graph.name}.tflite").read_bytes() == learned.read_bytes()
    again = run(f"train small.smg --quantize --data photos {LEARN} -o again")
    assert "small.smg is int8 already, and --quantize has nothing to do" in again.stderr


def test_a_run_goes_on_to_more_epochs_and_says_what_becomes_of_its_rates(folder: Path) -> None:
    usual = "train small.smg --data photos --scheme last:2 --lr 0.01"
    for schedule, said in (
        ("cosine", "from here on the rates are those of a cosine over 4 epochs, not of one over 2"),
        ("constant", "the rate stays the same"),
    ):
        start = f"{usual} --schedule {schedule}"
        run(f"{start} --epochs 2 -o {schedule}")
        told = run(f"{start} --epochs 4 -o {schedule} --resume {schedule}/small.ckpt").stderr
        assert f"{schedule}/small.ckpt is of a run of 2 epochs, which goes on to 4; {said}\n" in told
        assert "goes on to" not in run(f"{start} --epochs 4 -o {schedule} --resume {schedule}/small.ckpt").stderr
        fewer = refusal(f"{start} --epochs 3 -o {schedule} --resume {schedule}/small.ckpt")
        assert "in epoch 4 of its run, which cannot end after 3; ask for 4 epochs or more, or start again" in fewer
    run(f"{usual} --schedule constant --epochs 4 -o once")
    for name in ("small.smg", "small.tflite", "small.ckpt"):
        assert (folder / "constant" / name).read_bytes() == (folder / "once" / name).read_bytes()


def test_a_scheme_of_another_network_is_refused_wherever_it_is_given(folder: Path) -> None:
    write_smg(inverted_residual(0), Path("other.smg"))
    run("search small.smg --budget 64KB --estimate --classes 4 -o scheme.json")
    assert json.loads(Path("scheme.json").read_text())["made_for"]["network"] == "small"
    run("compile small.smg --scheme scheme.json --classes 4 -o fits")
    for command in (
        "compile other.smg --scheme scheme.json --classes 4 -o out",
        "profile other.smg --scheme scheme.json --classes 4",
        "train other.smg --scheme scheme.json --data photos --lr 0.01 -o out",
    ):
        assert "searched was made for small, whose layers are not those of net0; search one for it" in refusal(command)
    assert not Path("out").exists()
    assert "was published for mbv2-w0.35, mcunet-5fps" in refusal("compile small.smg --scheme 99kb --classes 4 -o out")


def test_a_fit_and_a_training_run_that_cannot_begin_leave_no_folder(folder: Path) -> None:
    assert "1 classes" in refusal(f"train small.smg --data photos {LEARN} --classes 1 -o deep/out")
    with pytest.raises(InputError, match="not a size"):
        run("fit small.smg --data photos --budget lots -o deep/out")
    assert "the least" in refusal("compile small.smg --scheme last:2 --classes 4 --budget 1KB -o deep/out")
    assert not Path("deep").exists()
