"""`smidgen device`: a board is taught, tested, asked, saved and watched; what is wrong with a port is one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import smidgen as sm
from smidgen.frontends.native import read_smg, write_smg
from smidgen.link import Line, LinkError, Timing
from smidgen.link.frames import SerialStream
from smidgen.results.summaries import curve
from tests.cli.test_cli import fail, invoke
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network
from tests.support.tools import needs

PROGRAM = ("--model", "small.smg", "--scheme", "last:2", "--classes", str(len(SHAPES)))
STEPS = ("--data", "shapes.npz", "--lr", "0.01")
PROCESS = "exec:out/example link kept"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, samples to teach it, and its program as `smidgen compile` writes it and `make` builds it."""
    folder = tmp_path_factory.mktemp("device")
    write_smg(small_network(), folder / "small.smg")
    data = draw_shapes(4, 2)
    samples = (*data.train.images, *data.test.images)
    np.savez(folder / "shapes.npz", x=np.stack(samples), y=np.array((*data.train.labels, *data.test.labels)))
    Image.fromarray(samples[0]).save(folder / "shape.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        invoke("compile", *PROGRAM[1:], "-o", "out")
    subprocess.run(["make", "-s", "CFLAGS=-O1"], cwd=folder / "out", check=True)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_board_is_taught_tested_and_asked_and_keeps_what_it_learned(folder: Path) -> None:
    ran = ("train", *PROGRAM, *STEPS, "--epochs", "2")
    learned = json.loads(invoke("device", PROCESS, *ran, "-o", "learned.smg", "--json"))
    assert learned["saved"]
    assert [epoch["number"] for epoch in learned["epochs"]] == [1, 2]
    assert learned["statistics"]["steps"] == 2 * learned["train_images"] == len(learned["losses"])
    tested = json.loads(invoke("device", PROCESS, "test", *PROGRAM, "--data", "shapes.npz", "--json"))
    assert tested["accuracy"] == learned["epochs"][-1]["accuracy"]
    (asked,) = json.loads(invoke("device", PROCESS, "predict", "shape.png", *PROGRAM, "--json"))["predictions"]
    (model,) = json.loads(invoke("predict", "learned.smg", "shape.png", "--json"))["predictions"]
    assert asked["classes"] == model["classes"]
    assert read_smg(Path("learned.smg")).name == "small"


@pytest.mark.parametrize("name", ["cortex-m7", "esp32-c3"])
def test_the_emulated_board_learns_by_the_same_command_what_the_process_learns(name: str, folder: Path) -> None:
    steps = ("train", *PROGRAM, *STEPS, "--json")
    process, board = (json.loads(invoke("device", port, *steps)) for port in (PROCESS, f"emulated:{name}"))
    for one in (process, board):
        one.pop("port")
    assert process == board
    assert board["saved"]


@pytest.fixture(scope="module")
def firmware(made: Path) -> Path:
    """The same program as a project for a board."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        invoke("compile", *PROGRAM[1:], "--target", "cortex-m7", "-o", "board")
    return made / "board"


BOARD = ("device", "emulated:cortex-m7", "--project", "board", "--flash", "flash")


def test_an_emulated_board_runs_a_projects_own_program_and_its_flash_is_there_the_next_time(
    firmware: Path, folder: Path
) -> None:
    learned = json.loads(invoke(*BOARD, "train", *PROGRAM, *STEPS, "--json"))
    process = json.loads(invoke("device", PROCESS, "train", *PROGRAM, *STEPS, "--json"))
    assert learned["losses"] == process["losses"]
    tested = json.loads(invoke(*BOARD, "test", *PROGRAM, "--data", "shapes.npz", "--json"))
    assert tested["accuracy"] == learned["epochs"][-1]["accuracy"]
    invoke(*BOARD, "save", "-o", "saved")
    assert Path("saved").read_bytes() == Path("kept").read_bytes(), "the bytes that the process kept"
    invoke("device", *BOARD[1:4], "--flash", "other", "load", "-i", "saved")
    assert json.loads(invoke(*BOARD, "monitor", "--looks", "1", "--json"))["statistics"]["steps"] == 0


def test_a_chip_that_executes_flash_elsewhere_keeps_what_it_learned_there(folder: Path) -> None:
    invoke("compile", *PROGRAM[1:], "--target", "esp32-c3", "-o", "chip")
    chip = ("device", "emulated:esp32-c3", "--project", "chip", "--flash", "chip-flash")
    learned = json.loads(invoke(*chip, "train", *PROGRAM, *STEPS, "--json"))
    tested = json.loads(invoke(*chip, "test", *PROGRAM, "--data", "shapes.npz", "--json"))
    assert tested["accuracy"] == learned["epochs"][-1]["accuracy"]


def test_an_emulated_board_runs_what_the_project_holds_now(
    firmware: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = Path("board/board/main.c")
    main.write_text(main.read_text().replace("LINK", "NO_LINK"))
    assert "was stopped in main" in fail(capsys, monkeypatch, *BOARD, "monitor", "--looks", "1")


WRONG_BOARD = {
    "no project": (("--project", "nothing"), "nothing is not a project that Smidgen wrote; write one with: smidgen"),
    "host": (("--project", "out"), "out is a project for this machine: `make` it and take exec:out/example; or write"),
    "broken": (("--project", "broken"), "broken cannot be built with a link: "),
    "no script": (("--project", "emptied"), "emptied/board/board.ld does not name its board and memory"),
    "flash of another": (("--project", "board", "--flash", "shape.png"), "the flash of this program"),
    "flash too large": (("--project", "board", "--flash", "large"), "large"),
    "flash a folder": (("--project", "board", "--flash", "."), ". is a folder; a file is expected"),
}


@pytest.mark.parametrize("what", WRONG_BOARD)
def test_what_is_wrong_with_a_project_or_a_file_of_flash_is_said_in_one_sentence(
    what: str, firmware: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("broken", "emptied"):
        shutil.copytree("board", name)
    Path("broken/model/model.c").write_text("int wrong")
    Path("emptied/board/board.ld").write_text("")
    Path("large").write_bytes(bytes(1 << 20))
    words, said = WRONG_BOARD[what]
    message = fail(capsys, monkeypatch, "device", "emulated:cortex-m7", *words, "monitor", "--looks", "1")
    assert said in message
    assert "\n" not in message


def test_a_project_for_one_board_is_refused_for_another_and_for_ports(
    firmware: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fail(capsys, monkeypatch, "device", "emulated:cortex-m4", "--project", "board", "monitor")
    assert "board was compiled for cortex-m7, not for cortex-m4; take emulated:cortex-m7, or write one" in other
    port = fail(capsys, monkeypatch, "device", PROCESS, "--flash", "flash", "save")
    assert f"--project and --flash are for emulated boards, {PROCESS} is none; leave them out" in port


@needs("qemu-system-arm")
def test_a_board_with_helium_learns_by_the_same_command_what_the_process_learns(folder: Path) -> None:
    steps = ("train", *PROGRAM, *STEPS, "--json")
    process, board = (json.loads(invoke("device", port, *steps)) for port in (PROCESS, "emulated:cortex-m55"))
    assert process["losses"] == board["losses"]
    assert process["statistics"]["state_sum"] == board["statistics"]["state_sum"]
    assert board["saved"]


def test_a_board_with_helium_is_refused_where_qemu_is_not_installed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smidgen.targets.qemu.QEMU", "qemu-system-absent")
    message = fail(capsys, monkeypatch, "device", "emulated:cortex-m55", "train", *PROGRAM, *STEPS)
    assert "cortex-m55 is emulated by qemu-system-absent, which was not found; install it" in message


def test_a_board_goes_on_from_what_it_learned_unless_it_is_to_forget(folder: Path) -> None:
    first, second, fresh = (
        json.loads(invoke("device", PROCESS, "train", *PROGRAM, *STEPS, *more, "--json"))["losses"]
        for more in ((), (), ("--fresh",))
    )
    assert first == fresh != second


def test_what_a_board_learned_goes_to_a_file_and_back(folder: Path) -> None:
    invoke("device", PROCESS, "train", *PROGRAM, *STEPS)
    assert "written to saved" in invoke("device", PROCESS, "save", "-o", "saved")
    assert Path("saved").read_bytes() == Path("kept").read_bytes(), "the bytes of the program's own save"
    assert "on the board from saved" in invoke("device", "exec:out/example link other", "load", "-i", "saved")
    assert Path("other").read_bytes() == Path("saved").read_bytes(), "and it outlives the process"
    assert "loaded from the board's own memory" in invoke("device", PROCESS, "load")
    assert "saved in the board's own memory" in invoke("device", PROCESS, "save")


@pytest.mark.parametrize("at", [0, 9, 12, 40, -1])
def test_a_file_that_is_damaged_is_refused_and_the_board_holds_what_it_held(
    at: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("device", PROCESS, "save")
    saved = Path("kept").read_bytes()
    damaged = bytearray(saved)
    damaged[at] ^= 4
    Path("file").write_bytes(damaged)
    message = fail(capsys, monkeypatch, "device", PROCESS, "load", "-i", "file")
    assert "is cut short or damaged" in message or "was saved by another program" in message
    invoke("device", PROCESS, "save")
    assert Path("kept").read_bytes() == saved


def test_a_monitor_counts_what_a_board_did(folder: Path) -> None:
    seen = json.loads(invoke("device", PROCESS, "monitor", "--looks", "2", "--every", "0", "--json"))
    assert seen["statistics"]["steps"] == seen["restarts"] == 0
    assert len(seen["losses"]) == 2
    assert len(seen["fingerprint"]) == 16


WRONG = {
    "no port": (("device", "/dev/nothing", "monitor"), "cannot be opened: No such file or directory"),
    "no program": (("device", "exec:./nothing", "save"), "exec:./nothing cannot be started: No such file"),
    "emulated": (("device", "emulated:cortex-m7", "save"), "there is nothing on it yet"),
    "no board": (("device", "emulated:z80", "train", *PROGRAM, *STEPS), "there is no target 'z80'"),
    "nothing saved": (("device", PROCESS, "load"), "load failed on the board, its function gave 1: it has saved"),
    "another scheme": (
        ("device", PROCESS, "test", *PROGRAM[:2], "--scheme", "head", *PROGRAM[4:], "--data", "shapes.npz"),
        "runs another program",
    ),
    "no learner": (("device", PROCESS, "train", *PROGRAM[:2], *STEPS), "does not learn"),
    "another's file": (("device", PROCESS, "load", "-i", "small.smg"), "was saved by another program"),
    "ended": (("device", "exec:true", "save"), "exec:true has ended with code 0"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_lost(
    what: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, said = WRONG[what]
    message = fail(capsys, monkeypatch, *words)
    assert said in message
    assert "\n" not in message
    assert not Path("kept").exists()


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """The near end of a serial port as a file, and the name of its far end."""
    near, far = os.openpty()
    yield near, os.ttyname(far)
    os.close(near)
    os.close(far)


IMPATIENT = Timing(again=0.02, first=0.2, silent=0.2)


def test_a_port_that_is_busy_is_told(terminal: tuple[int, str]) -> None:
    first = SerialStream(terminal[1])
    with pytest.raises(LinkError, match="cannot be opened: it is busy, another program has it open"):
        SerialStream(terminal[1])
    first.close()
    SerialStream(terminal[1]).close()


def test_a_port_that_is_silent_is_told(terminal: tuple[int, str]) -> None:
    line = Line(SerialStream(terminal[1]), IMPATIENT)
    with pytest.raises(LinkError, match=r"is silent: no byte came in 0.2 s after \d+ tries of hello; check the cable"):
        line.hello()
    line.close()


def test_a_port_that_is_garbled_is_told(terminal: tuple[int, str]) -> None:
    line = Line(SerialStream(terminal[1]), IMPATIENT)
    ended = threading.Event()

    def noise() -> None:
        rng = np.random.default_rng(0)
        while not ended.wait(0.01):
            os.write(terminal[0], rng.bytes(20))
            os.read(terminal[0], 4096)

    speaker = threading.Thread(target=noise, daemon=True)
    speaker.start()
    with pytest.raises(LinkError, match=r"is garbled: [\d,]+ bytes came in 0.2 s .* check the baud rate"):
        line.hello()
    ended.set()
    line.stream.write(b"\0")  # so that it reads no longer
    speaker.join(5)
    line.close()


def test_a_serial_port_carries_a_whole_course(folder: Path, terminal: tuple[int, str]) -> None:
    near, far = terminal
    os.set_blocking(near, True)
    served = subprocess.Popen(["out/example", "link", "kept"], stdin=near, stdout=near)
    try:
        program = sm.compile(sm.load("small.smg"), "last:2", options=sm.Options(classes=len(SHAPES)))
        image = np.zeros(program.graph.image.type.shape, np.int8)
        with sm.connect(far, program) as board, program.start() as machine:
            for label in range(3):
                assert board.train(image, label, 0.01) == machine.train(image, label, 0.01)
    finally:
        served.kill()
        served.wait()


def test_a_curve_is_drawn_from_its_lowest_to_its_highest_point() -> None:
    assert curve([]) == ""
    assert curve([1.0, 1.0]) == "▁▁"
    assert curve([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"
    assert curve([0, 2, 0, 2, 8, 8], points=3) == "▁▁█"
