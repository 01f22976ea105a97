"""What tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from smidgen.targets.host import Host
from tests.support.native import Kernels

# `make test` draws the same examples on every machine and day; `make properties` draws new ones each time.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False, print_blob=True)
settings.load_profile("same")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of built programs for all of pytest's workers: what one built the others need not."""
    return tmp_path_factory.getbasetemp().parent / "smidgen"


@pytest.fixture(scope="session", autouse=True)
def _cache_of_commands(cache: Path) -> Iterator[None]:
    """Commands, and programs that are told no cache, build into the same one, and leave the user's alone."""
    zig = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zig"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache.parent))
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(zig)))  # its own libraries
        yield


@pytest.fixture(scope="session")
def host(cache: Path) -> Host:
    return Host(cache=cache, frugal=True)  # so that tests run what boards run


@pytest.fixture(scope="session")
def kernels(cache: Path) -> Kernels:
    return Kernels(cache)
