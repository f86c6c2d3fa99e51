"""Programs that go on behind an error of values: inside a `try` what may fail is computed at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.frontend.caught import is_caught

LIBRARIES = pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])
INDEFINITE = [[1.0, 3.0], [3.0, 1.0]]


@LIBRARIES
def test_a_diagonal_grows_until_a_matrix_has_a_cholesky_decomposition(T: Any) -> None:
    A, jitters = T.tensor(INDEFINITE, dtype=T.float64), []
    for exponent in range(-2, 3):
        try:
            L = T.linalg.cholesky(A + 10.0**exponent * T.eye(2))
            break
        except RuntimeError:
            jitters.append(exponent)
    assert jitters == [-2, -1, 0]
    np.testing.assert_allclose((L @ L.mT).numpy(), np.asarray(INDEFINITE) + 10 * np.eye(2))


def newton(T: Any, hessian: Any, gradient: Any) -> Any:
    """A step, by the pseudoinverse where the matrix is singular."""
    try:
        return solved(T, hessian, gradient)
    except (ValueError, T.linalg.LinAlgError) as error:
        assert "singular" in str(error)
        return T.linalg.pinv(hessian) @ gradient


def solved(T: Any, matrix: Any, right: Any) -> Any:
    """A solution, in a function of its own."""
    with T.no_grad():
        try:
            return T.linalg.solve(matrix, right)
        finally:
            pass


@LIBRARIES
def test_a_caller_catches_and_goes_on_otherwise(T: Any) -> None:
    singular, right = T.tensor([[1.0, 1.0], [1.0, 1.0]]), T.tensor([1.0, 3.0])
    assert [round(x, 5) for x in newton(T, singular, right).tolist()] == [1.0, 1.0]
    assert newton(T, T.eye(2), right).tolist() == [1.0, 3.0]


@LIBRARIES
@pytest.mark.parametrize("call", [
    lambda T: T.linalg.inv(T.zeros(2, 2)), lambda T: T.zeros(2, 2).inverse(),
    lambda T: T.linalg.svd(T.full((2, 2), float("nan"))), lambda T: T.linalg.cholesky(-T.eye(2)),
    lambda T: T.multinomial(T.tensor([float("nan"), 1.0]), 1), lambda T: T.bernoulli(T.tensor([2.0])),
    lambda T: T.normal(0.0, T.tensor([-1.0])),
], ids=["inv", "inverse", "svd", "cholesky", "multinomial", "bernoulli", "normal"])
def test_what_fails_by_its_values(T: Any, call: Callable[[Any], Any]) -> None:
    try:
        call(T)
    except Exception:
        return
    pytest.fail("nothing was raised")


def test_gradients_flow_through_what_was_computed_in_a_try() -> None:
    def run(T: Any) -> Any:
        A = T.tensor([[2.0, 0.5], [0.5, 1.0]], requires_grad=True)
        try:
            L = T.linalg.cholesky(A)
        except RuntimeError:
            pytest.fail("positive definite")
        L.sum().backward()
        return A.grad.numpy()
    np.testing.assert_allclose(run(genesis), run(torch), rtol=1e-6)


def test_a_captured_function_that_catches_is_recorded_each_time() -> None:
    @genesis.compile
    def factor(A: genesis.Tensor) -> genesis.Tensor:
        try:
            return genesis.linalg.cholesky(A)
        except RuntimeError:
            return genesis.zeros(2, 2)
    for _ in range(3):
        assert factor(genesis.eye(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]
        assert factor(genesis.tensor(INDEFINITE)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert "a value is read" in str(genesis.explain(factor).recorded)


def test_which_handlers_count() -> None:
    def asked(*errors: type[Exception]) -> bool:
        return is_caught(*errors or (RuntimeError,))
    assert not asked()
    found = []
    try:
        found.append(asked())
    except RuntimeError:
        raise
    try:
        found.append(asked(ValueError))
    except (KeyError, ArithmeticError):
        raise
    except ValueError:
        raise
    try:
        found.append(asked())
    except:
        raise
    try:
        try:
            found.append(asked())
        finally:
            found.append(True)
    except np.linalg.LinAlgError:  # a ValueError
        raise
    try:
        with contextlib.ExitStack():
            found.append(asked())
    except KeyboardInterrupt:
        raise
    try:
        raise KeyError
    except KeyError:
        found.append(asked(KeyError))
    try:
        pass
    except RuntimeError:
        raise
    else:
        found.append(asked())
    assert found == [True, True, True, False, True, False, False, False]


def test_without_a_handler_nothing_is_computed_early() -> None:
    y = genesis.linalg.inv(genesis.zeros(2, 2))
    with pytest.raises(RuntimeError, match="singular"):
        y.tolist()
