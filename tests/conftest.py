"""Fixtures and options that all tests share."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from smidgen.targets.host import Host
from tests.support import tiers
from tests.support.native import Kernels
from tests.support.once import Once

KEPT = 7 * 24 * 3600  # seconds that a built program stays in the cache


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="draw a share of the examples and of the repeated cases")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis loads the profile that its option names
def pytest_configure(config: pytest.Config) -> None:
    tiers.set_quick(config.getoption("quick"))
    # `make test` draws the same examples on every machine and day; `make properties` draws new ones each time.
    drawn = tiers.examples(100)
    settings.register_profile("same", derandomize=True, deadline=None, max_examples=drawn)
    settings.register_profile("new", derandomize=False, print_blob=True, deadline=None, max_examples=drawn)
    settings.load_profile("same")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Drop programs that were built long ago."""
    if not hasattr(session.config, "workerinput"):
        for folder in _cache(session.config).glob("*"):
            with suppress(OSError):  # another run may remove it, too
                if folder.stat().st_mtime < time.time() - KEPT:
                    shutil.rmtree(folder, ignore_errors=True)


def _cache(config: pytest.Config) -> Path:
    return config.rootpath / "build" / "cache" / "smidgen"


@pytest.fixture(scope="session")
def cache(pytestconfig: pytest.Config) -> Path:
    """The folder of built programs, by content: it outlives the run, and all workers share it."""
    return _cache(pytestconfig)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_commands(cache: Path) -> Iterator[None]:
    """Let commands, and programs that are given no cache, build into the same one, and leave the user's alone."""
    zig = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zig"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache.parent))
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(zig)))  # its own libraries
        yield


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Once:
    """Make what a session needs once, not once per worker."""
    own = tmp_path_factory.getbasetemp()
    return Once((own.parent if hasattr(request.config, "workerinput") else own) / "once")


@pytest.fixture(scope="session")
def host(cache: Path) -> Host:
    return Host(cache=cache, frugal=True)  # so that tests run what boards run


@pytest.fixture(scope="session")
def kernels(cache: Path) -> Kernels:
    return Kernels(cache)
