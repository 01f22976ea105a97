"""What tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from native import Kernels
from smidgen.targets.host import Host


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
