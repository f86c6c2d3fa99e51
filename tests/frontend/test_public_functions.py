"""The functions that users call stand before those that do the work, and are seen as the lines of these."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import genesis
from genesis.nn import functional as F


@pytest.mark.parametrize("function", [
    genesis.zeros_like,  # of one argument
    genesis.where,  # of several that may be left out
    genesis.einsum,  # of any number
    F.interpolate, F.cross_entropy,
])
def test_all_of_a_bound_function_is_the_line_of_its_def(function: Callable[..., object]) -> None:
    """A traceback, and what goes by code objects and lines, shows one line of it: the user's reader knows that one."""
    line = function.__code__.co_firstlineno
    assert "def " in open(function.__code__.co_filename).read().splitlines()[line - 1]  # noqa: SIM115
    assert set(function.__code__.co_positions()) == {(line, line, None, None)}
