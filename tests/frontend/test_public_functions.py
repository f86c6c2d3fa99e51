"""The functions that users call stand before those that do the work, and are seen as the lines of these."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import genesis
from genesis.frontend.public_functions import bound
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


@pytest.mark.parametrize(("given", "taken"), [
    ((2, 3.0), (2, 3.0, None)),
    ((genesis.tensor(2), genesis.tensor(3.0)), (2, 3.0, None)),
    ((genesis.nn.Parameter(genesis.tensor(2.0)), 1.0, (1, genesis.tensor(4))), (2.0, 1.0, (1, 4))),
    ((1, 1.0, [genesis.tensor(4), 5]), (1, 1.0, [4, 5])),
])
def test_a_tensor_that_stands_for_a_number_is_one_before_the_call(given: tuple[object, ...],
                                                                 taken: tuple[object, ...]) -> None:
    """The function fails, and is not called again."""
    calls = []

    def work(times: int, scale: float, sizes: tuple[int, ...] | None = None) -> None:
        calls.append((times, scale, sizes))
        raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        bound(work, "genesis", "work")(*given)  # type: ignore[arg-type]
    assert calls == [taken]


def test_a_tensor_stays_one_where_a_tensor_is_wanted() -> None:
    def work(x: genesis.Tensor, times: int = 1) -> genesis.Tensor:
        return x

    x = genesis.tensor(2.0)
    assert bound(work, "genesis", "work")(x, genesis.tensor(3)) is x  # type: ignore[arg-type]
