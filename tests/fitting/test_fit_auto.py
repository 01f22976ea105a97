"""`smidgen fit auto`: a network is found for the data, fitted as any other, and found once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smidgen import cli
from smidgen.errors import SmidgenError
from smidgen.fitting import networks
from smidgen.fitting.auto import NETWORK
from smidgen.frontends.native import read_smg
from tests.support.windows import PACES, draw_windows


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = draw_windows(20, 8)
    parts = {"x": data.train.images, "x_test": data.test.images}
    labels = {"y": data.train.labels, "y_test": data.test.labels}
    path = tmp_path_factory.mktemp("data") / "windows.npz"
    named = {name: np.array(PACES)[list(of)] for name, of in labels.items()}
    np.savez(path, **{name: np.stack(of) for name, of in parts.items()}, **named)  # type: ignore[arg-type]
    return path


def run(*words: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(cli.app, [str(word) for word in words])
    return found.exit_code, found.stdout, found.stderr


def test_one_command_makes_a_network_and_firmware_and_a_second_call_finds_nothing_twice(
    windows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "SEEN", dict.fromkeys(networks.SEEN, 3_000))
    folder = tmp_path / "out"
    command = (
        "fit", "auto", "--data", windows, "--budget", "16KB", "--effort", "quick", "--epochs", 1, "--workers", 1,
        "-o", folder,
    )  # fmt: skip
    code, out, err = run(*command, "--json")
    assert code == 0, err
    found = json.loads(out)
    kept = found["network"]["rows"][found["network"]["chosen"]]
    assert found["model"]["name"] == kept["name"]
    assert found["model"]["classes"] == sorted(PACES)
    assert found["board"]["sram_bytes"] <= kept["sram_bytes"] <= 16 * 1024
    assert found["board"]["exact"]
    assert found["learned"]["accuracy"] > 0.9
    assert "judged by networks that had not seen them" in err
    assert "Which network" in (folder / "report.html").read_text()
    assert read_smg(folder / NETWORK).classes == tuple(sorted(PACES))

    monkeypatch.setattr(networks, "train_network", None)
    code, again, err = run(*command)
    assert code == 0, err
    assert again.count("(reused)") == len(found["stages"]) + 1
    assert again.startswith(f"network       {kept['name']}, trained from nothing")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--head", "extend"), "auto makes one with all of them; leave it out"),
        (("--budget", "1KB"), "a budget of 1,024 bytes is too small"),
    ],
    ids=["extended", "small"],
)
def test_what_cannot_be_made_is_refused_and_leaves_nothing(
    windows: Path, tmp_path: Path, option: tuple[str, str], said: str
) -> None:
    folder = tmp_path / "out"
    found = CliRunner().invoke(cli.app, ["fit", "auto", "--data", str(windows), *option, "-o", str(folder)])
    assert isinstance(found.exception, SmidgenError)
    assert said in str(found.exception)
    assert not folder.exists()
