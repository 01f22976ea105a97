"""Five devices learn CIFAR-10 in one pass, each from its own pictures, and a Flower server adds up their sums.

Three run their program on this machine and two on emulated boards at the end of a line. What comes out equals, byte for
byte, what one device learns that sees all pictures; one of them then leaves, as if it had never been there.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import smidgen as sm
from smidgen.data import Samples
from smidgen.learning.sums import write_taught

sys.path.append(str(Path(__file__).parents[2]))
from examples import common

APP = Path(__file__).parent
MODEL = "mbv2-w0.35"
BOARDS = ("cortex-m7", "cortex-m4")
FEW, TESTED = 16, 8  # pictures of a board, to learn from and to test with: an emulated one takes a second for each
BIN = Path(sys.executable).parent
PATIENCE = 60.0  # seconds, for a server to come up


@dataclass(frozen=True)
class Fleet:
    """What came of a fleet: shares of 500 test pictures, and whether bytes are equal."""

    pictures: tuple[int, ...]  # of each device
    alone: tuple[float, ...]  # right by what a device on this machine learns alone, each
    together: float
    without: float  # the device that left
    whole_same: bool  # as one device that saw everything
    rest_same: bool  # as one device that saw everything but the pictures of the device that left
    heads: int  # devices that have the fleet's head
    heads_same: bool

    def __str__(self) -> str:
        devices, alone = len(self.pictures), ", ".join(f"{share:.1%}" for share in self.alone)
        return (
            f"{devices} devices saw {', '.join(map(str, self.pictures))} pictures\n"
            f"each alone recognizes {alone}; together {self.together:.1%}\n"
            f"the fleet's model: {compared(self.whole_same)} one device that saw all {sum(self.pictures)}\n"
            f"a device leaves, {self.without:.1%}: {compared(self.rest_same)} one that never saw its pictures\n"
            f"{self.heads} devices made their heads of the sums: {compared(self.heads_same)} each other"
        )


def compared(same: bool) -> str:
    return "the same bytes as" if same else "NOT the bytes of"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=3, help="devices whose program runs on this machine")
    parser.add_argument("--boards", nargs="*", default=BOARDS, help="emulated ones, by name")
    parser.add_argument("-o", "--output", type=Path, help="a folder for what the server writes, and all logs")
    parser.add_argument("--seed", type=int, default=0, help="shares out the pictures")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = (given.output or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        fleet = run(folder, ("host",) * given.hosts + tuple(f"emulated:{name}" for name in given.boards), given.seed)
    print(json.dumps(asdict(fleet), indent=2) if given.json else fleet)


def run(folder: Path, ports: tuple[str, ...], seed: int) -> Fleet:
    """Let a fleet learn, the first device of which leaves, and compare it with one device."""
    if not (BIN / "flower-superlink").exists():
        raise sm.InputError("this example needs Flower, which is not installed; run: pip install 'smidgen[flower]'")
    parts = shares(sm.load_data("cifar10"), ports, seed)
    everything = together(parts)
    whole, rest = (learned(data, folder / name) for data, name in (
        (everything, "one.smg"), (together(parts[1:]), "one-without.smg"),
    ))  # fmt: skip
    alone = tuple(
        learned(part, folder / "alone.smg") for part, port in zip(parts, ports, strict=True) if port == "host"
    )
    adopted = with_flower(folder, parts, ports)
    heads = {answer["head"] for answer in adopted.values()}
    return Fleet(
        tuple(len(part.train) for part in parts), alone, whole, rest,
        same(folder / "whole.smg", folder / "one.smg"), same(folder / "rest.smg", folder / "one-without.smg"),
        len(adopted), len(heads) == 1,
    )  # fmt: skip


def shares(data: sm.Data, ports: tuple[str, ...], seed: int) -> list[sm.Data]:
    """Give each board a few pictures, and each device on this machine most of the pictures of its own classes."""
    drawn, hosts = np.random.default_rng(seed).permutation(len(data.train)), ports.count("host")
    few = FEW * (len(ports) - hosts)
    by_class = sorted(drawn[few:].tolist(), key=lambda place: data.train.labels[place])
    own = iter(np.array_split(by_class, max(hosts, 1)))
    cut = iter(np.array_split(drawn[:few], max(len(ports) - hosts, 1)))
    return [
        sm.Data("cifar10", data.classes, data.train.at([*map(int, next(own if port == "host" else cut))]), data.test)
        for port in ports
    ]


def together(parts: list[sm.Data]) -> sm.Data:
    """Return all pictures of some devices."""
    images, labels = (sum((getattr(part.train, name) for part in parts), ()) for name in ("images", "labels"))
    return sm.Data(parts[0].name, parts[0].classes, Samples(images, labels), parts[0].test)


def learned(data: sm.Data, file: Path) -> float:
    """Learn on one device, write the model with its sums, and return the share of test pictures that it recognizes."""
    options = sm.Options(len(data.classes))
    program = sm.compile(sm.load(MODEL), one_pass=True, options=options, class_names=data.classes)
    learned = sm.learn(program, data)
    assert learned.sums is not None
    write_taught(learned.model, learned.sums, file)
    return learned.accuracy


def with_flower(folder: Path, parts: list[sm.Data], ports: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Run Flower's server and one of its nodes for each device; return what devices say of the head they get."""
    server, result = f"127.0.0.1:{free_port()}", folder / "adopted.json"
    result.unlink(missing_ok=True)
    with ExitStack() as running:
        link = ("flower-superlink", "--port", server.partition(":")[2], "--disable-runtime-dependency-installation")
        running.enter_context(process(folder, "server", *link))
        for number, (part, port) in enumerate(zip(parts, ports, strict=True)):
            write_part(part, folder / f"{number}.npz", None if port == "host" else TESTED)
            (folder / f"{number}.sums").unlink(missing_ok=True)
            config = f'number={number} port="{port}" data="{folder}/{number}.npz" sums="{folder}/{number}.sums"'
            config += f" leaves={str(number == 0).lower()}"
            node = ("flower-supernode", "--superlink", server, "--port", str(free_port()), "--node-config", config)
            running.enter_context(process(folder, f"device-{number}", *node))
        wait_for(server)
        (folder / "server" / "config.toml").write_text(f'[superlink.here]\naddress = "{server}"\ninsecure = true\n')
        asked = f'devices={len(ports)} model="{MODEL}" output="{folder}"'
        command = [str(BIN / "flwr"), "run", str(APP), "here", "--stream", "--run-config", asked]
        log = subprocess.run(command, env=environment(folder / "server"), capture_output=True, text=True, check=False)
    (folder / "run.log").write_text(log.stdout + log.stderr)
    if not result.exists():
        raise sm.InputError(f"the fleet came to no result; its log ends: {(log.stdout + log.stderr).strip()[-600:]}")
    found: dict[str, dict[str, str]] = json.loads(result.read_text())
    return found


def write_part(part: sm.Data, file: Path, tested: int | None) -> None:
    """Write the samples of a device to a file, and some to test with."""
    test = part.test.at(range(tested)) if tested else part.test
    x, y, x_test, y_test = map(np.array, (part.train.images, part.train.labels, test.images, test.labels))
    np.savez(file, x=x, y=y, x_test=x_test, y_test=y_test, classes=np.array(part.classes))


@contextmanager
def process(folder: Path, name: str, program: str, *options: str) -> Iterator[None]:
    """Run one of Flower's programs on this machine alone, with its log in a folder, until it is done with."""
    home = folder / name
    home.mkdir(exist_ok=True)
    with (home / "log").open("w") as log:
        command = [str(BIN / program), "--insecure", *options]
        started = subprocess.Popen(command, env=environment(home), stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which Flower keeps its files in a folder, and calls nobody."""
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    return {**os.environ, **quiet, "FLWR_HOME": str(home), "PATH": path}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def wait_for(server: str) -> None:
    """Wait until a server takes connections."""
    host, _, port = server.partition(":")
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((host, int(port)), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise sm.InputError(f"Flower's server did not start within {PATIENCE:g} seconds") from None
            time.sleep(0.2)


def same(first: Path, second: Path) -> bool:
    return first.read_bytes() == second.read_bytes()


if __name__ == "__main__":
    common.start(main)
