"""What tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from native import Kernels
from smidgen.targets.host import Host

# `make test` draws the same examples on every machine and day; `make properties` draws new ones each time.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False, print_blob=True)
settings.load_profile("same")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of built programs for all of pytest's workers: what one built the others need not."""
    return tmp_path_factory.getbasetemp().parent / "smidgen-cache"


@pytest.fixture(scope="session")
def host(cache: Path) -> Host:
    return Host(cache=cache, frugal=True)  # so that tests run what boards run


@pytest.fixture(scope="session")
def kernels(cache: Path) -> Kernels:
    return Kernels(cache)
