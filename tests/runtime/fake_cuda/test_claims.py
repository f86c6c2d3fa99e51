"""What kernels say of their addresses is checked while they are interpreted."""

from __future__ import annotations

import numpy as np
import pytest

from genesis.runtime.fake_cuda.claims import check

ROWS = np.arange(6)[:, None] * 12 + np.arange(8)[None, :]


@pytest.mark.parametrize(("data", "multiples", "runs"), [
    (np.arange(16) + 8, (8,), (8,)), (ROWS, (1, 4), (1, 4)), (ROWS.T, (2, 1), (2, 1)),
    (np.arange(16) + 3, (1,), (2,)), (ROWS + 1, (1, 1), (1, 2))], ids=str)
def test_what_is_so_or_nothing_is_relied_on_passes(data: np.ndarray, multiples: tuple[int, ...],
                                                   runs: tuple[int, ...]) -> None:
    check(data, multiples, runs)


@pytest.mark.parametrize(("data", "multiples", "runs", "says"), [
    (np.arange(16) + 2, (4,), (4,), "multiples of 4, and one begins at 2"),
    (ROWS, (1, 8), (1, 8), "multiples of 8, and one begins at 12"),
    (np.arange(16) * 2, (2,), (2,), "neighbours, and are not"), (ROWS + 1, (1, 2), (1, 2), "begins at 1")], ids=str)
def test_what_is_not_so_is_an_error(data: np.ndarray, multiples: tuple[int, ...], runs: tuple[int, ...],
                                    says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check(data, multiples, runs)
