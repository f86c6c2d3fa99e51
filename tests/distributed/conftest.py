"""Ranks that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import genesis
from tests.distributed.ranks import VARIABLE, Ranks


@pytest.fixture(scope="session")
def two() -> Iterator[Ranks]:
    """Two ranks."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def four() -> Iterator[Ranks]:
    """Four ranks."""
    if os.environ.get(VARIABLE) == "cuda" and genesis.cuda.device_count() < 4:
        pytest.skip("a GPU for each of four ranks")
    ranks = Ranks(4)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def eight() -> Iterator[Ranks]:
    """Eight ranks, for long sweeps."""
    if os.environ.get(VARIABLE) == "cuda" and genesis.cuda.device_count() < 8:
        pytest.skip("a GPU for each of eight ranks")
    ranks = Ranks(8)
    yield ranks
    ranks.close()
