"""`linalg.cholesky_ex`, `inv_ex` and `solve_ex` report matrices without a result, where the others raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_programs import check

import genesis

GOOD = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]]
INDEFINITE = [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
SINGULAR = [[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 1.0]]
PROGRAMS = []


def program(function: Any) -> Any:
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


@program
def a_factor_and_its_gradient(T: Any, nn: Any, optim: Any, np: Any) -> Any:
    found = []
    for upper in (False, True):
        a = T.tensor([GOOD, GOOD]).requires_grad_()
        L, info = T.linalg.cholesky_ex(a, upper=upper)
        (L * T.arange(9.0).reshape(3, 3)).sum().backward()
        found += [L, info, a.grad]
    return found


@program
def what_has_no_factor_is_counted(T: Any, nn: Any, optim: Any, np: Any) -> Any:
    info = T.linalg.cholesky_ex(T.tensor([GOOD, INDEFINITE]))[1]
    return info, T.linalg.inv_ex(T.tensor([GOOD, SINGULAR])).info, T.linalg.solve_ex(
        T.tensor([GOOD, SINGULAR]), T.ones(3, 2)).info


@program
def inverses_and_solutions_with_gradients(T: Any, nn: Any, optim: Any, np: Any) -> Any:
    a, b = T.tensor(GOOD).requires_grad_(), T.ones(3).requires_grad_()
    inverse, info = T.linalg.inv_ex(a)
    solved = T.linalg.solve_ex(a, b)
    turned = T.linalg.solve_ex(a, T.ones(2, 3), left=False).result
    (inverse.sum() * 2 + (solved.result * T.arange(3.0)).sum() + turned[0].sum()).backward()
    return inverse, info, solved.result, solved.info, turned, a.grad, b.grad


@program
def jitter_grows_until_there_is_a_factor(T: Any, nn: Any, optim: Any, np: Any) -> Any:
    a, jitter = T.tensor(INDEFINITE), 0.0
    while True:
        L, info = T.linalg.cholesky_ex(a + jitter * T.eye(3))
        if not T.any(info):
            return L, T.tensor(jitter)
        jitter = 10 * jitter or 0.25


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Any) -> None:
    check(program, rtol=1e-5)


def test_errors_are_checked_where_that_is_asked_for() -> None:
    for T in (genesis, torch):
        for function in (T.linalg.cholesky_ex, T.linalg.inv_ex):
            with pytest.raises(RuntimeError, match="linalg"):
                np.asarray(function(T.tensor(SINGULAR) - T.tensor(GOOD) * 0, check_errors=True)[0])
        with pytest.raises(RuntimeError, match="singular"):
            np.asarray(T.linalg.solve_ex(T.tensor(SINGULAR), T.ones(3), check_errors=True)[0])
