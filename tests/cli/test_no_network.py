"""Smidgen needs no network and asks for none: verbs run while sockets are watched, and without a network at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache as once
from pathlib import Path

import numpy as np
import pytest

from smidgen.frontends.native import write_smg
from tests.support.float_graphs import dequantized
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

# Python announces whatever opens a socket or asks for a name, also where C code of its own library does it.
WATCH = """
import sys

def watch(event, arguments):
    if event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.")):
        raise SystemExit(f"a socket: {event} {arguments}")

sys.addaudithook(watch)
"""
VERBS = """
from smidgen.cli import main
for line in open("verbs"):
    sys.argv = ["smidgen", *line.split()]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
STEP = """
from pathlib import Path
import smidgen as sm
from smidgen.targets.host import Host
graph = sm.import_model("tiny.smg")
program = sm.compile(graph, "last:1", Host(cache=Path(sys.argv[1])), options=sm.Options(4))
with program.start() as device:
    import numpy as np
    assert device.train(np.zeros(graph.inputs[0].type.shape, np.int8), 1, 0.01) > 0
print("a step was taken")
"""
COMMANDS = (
    "info tiny.smg",
    "import tiny.smg -o tiny.tflite",
    "import tiny.smg -o tiny.onnx",
    "import tiny.onnx -o again.smg",
    "quantize float.smg --data images.npz --pixels -1,1 -o int8.smg",
    "compile tiny.smg --scheme last:1 --classes 4 -o project",
    "analyze tiny.smg --data images.npz -o contributions.json --quick --reach 1 --epochs 1 --workers 2",
)


@once
def isolation() -> tuple[str, ...]:
    """A command before others that leaves them no network, where the kernel permits one."""
    words = ("unshare", "--map-root-user", "--net")
    able = shutil.which(words[0]) and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return words if able else ()


def execute(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*isolation(), sys.executable, "-c", WATCH + code, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    graph, data = small_network(), draw_shapes(12, 1)
    write_smg(graph, tmp_path / "tiny.smg")
    write_smg(dequantized(graph), tmp_path / "float.smg")
    np.savez(tmp_path / "images.npz", x=np.stack(data.train.images), y=np.array(data.train.labels))
    (tmp_path / "verbs").write_text("\n".join(COMMANDS))
    return tmp_path


def test_importing_smidgen_opens_nothing(tmp_path: Path) -> None:
    done = execute("import smidgen, smidgen.cli, smidgen.learning", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_verb_opens_a_socket_or_needs_a_network(folder: Path) -> None:
    done = execute(VERBS, folder)
    assert done.returncode == 0, done.stderr[-2000:]
    written = {"tiny.tflite", "tiny.onnx", "again.smg", "int8.smg", "project", "contributions.json"}
    assert written <= {path.name for path in folder.iterdir()}


def test_a_program_is_built_and_learns_without_a_network(folder: Path, cache: Path) -> None:
    done = execute(STEP, folder, str(cache))
    assert (done.returncode, done.stdout) == (0, "a step was taken\n"), done.stderr[-2000:]


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import socket; socket.getaddrinfo('localhost', 80)",
        "import urllib.request; urllib.request.urlopen('http://localhost')",
    ],
)
def test_whoever_asks_for_a_network_is_seen(code: str, tmp_path: Path) -> None:
    done = execute(code, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("a socket: ")
