"""Which of a test's cases run by default, and which in the sweep only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def sweep_but(often: Callable[..., bool], *axes: Iterable[Any]) -> list[Any]:
    """All combinations of the axes as parameters; those that `often` is not true of are left to the sweep.

    >>> [case.values for case in sweep_but(lambda x, y: x == y, "ab", "ab") if not case.marks]
    [('a', 'a'), ('b', 'b')]
    """
    return [pytest.param(*case, marks=() if often(*case) else pytest.mark.sweep) for case in itertools.product(*axes)]
