"""Ranks that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

import genesis
from tests.distributed.ranks import VARIABLE, Ranks


def _ranks(count: int) -> Callable[[], Iterator[Ranks]]:
    @pytest.fixture(scope="session")
    def ranks() -> Iterator[Ranks]:
        if os.environ.get(VARIABLE) == "cuda" and genesis.cuda.device_count() < count:
            pytest.skip(f"a GPU for each of {count} ranks")
        found = Ranks(count)
        yield found
        found.close()
    return ranks


two, four, eight = _ranks(2), _ranks(4), _ranks(8)
"""As many ranks; eight are for long sweeps."""


@pytest.fixture(params=["two", "four"])
def ranks(request: pytest.FixtureRequest) -> Ranks:
    """Two ranks, and four: where there are as many GPUs as two, tests of both run with two."""
    found: Ranks = request.getfixturevalue(request.param)
    return found
