"""Parametrized weights beside torch's: orthogonal ones of every map, files that torch wrote, originals that stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import nn
from genesis.nn.utils import parametrize
from genesis.nn.utils.parametrizations import orthogonal

X = np.random.default_rng(0).standard_normal((6, 5))


def layer(T: Any, outs: int, ins: int, scale: float = 1.0) -> Any:
    """A layer with the same weights in both libraries."""
    made = T.nn.Linear(ins, outs, bias=False, dtype=T.float64)
    with T.no_grad():
        made.weight.copy_(T.tensor(X[:outs, :ins] * scale))
    return made


def trained(T: Any, made: Any) -> list[Any]:
    """The weight before and after three steps of gradient descent."""
    found = [made.weight.detach()]
    optimizer = T.optim.SGD(made.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        (made.weight * T.tensor(X[::-1][:made.weight.shape[0], :made.weight.shape[1]].copy())).sin().sum().backward()
        optimizer.step()
    return [*found, made.weight.detach(), *[p.detach() for p in made.parameters()]]


def same(ours: list[Any], theirs: list[Any]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trivialized", [True, False])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder", None])
def test_square_orthogonal_weights_start_and_train_as_torchs(how: str | None, trivialized: bool) -> None:
    def run(T: Any) -> list[Any]:
        made = layer(T, 4, 4, 0.3)
        made = T.nn.utils.parametrizations.orthogonal(made, orthogonal_map=how, use_trivialization=trivialized)
        *weights, original = trained(T, made)
        return [*weights, original.tril()]  # nothing reads what is above, where torch has left R
    same(run(genesis), run(torch))


@pytest.mark.parametrize("shape", [(6, 3), (3, 5)], ids=["tall", "wide"])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
def test_a_state_that_torch_saved_gives_torchs_weights(how: str, shape: tuple[int, int]) -> None:
    """The base of a weight that is not square is completed by random columns in torch: it comes with the state."""
    def run(T: Any, state: Any = None) -> tuple[Any, list[Any]]:
        made = T.nn.utils.parametrizations.orthogonal(layer(T, *shape), orthogonal_map=how)
        with T.no_grad():
            made.parametrizations.weight.original += T.tensor(X[:shape[0], :shape[1]]).tril(-1) * 0.2
        if state is not None:
            made.load_state_dict({name: genesis.tensor(x.numpy()) for name, x in state.items()})
        start = {name: x.clone() for name, x in made.state_dict().items()}
        return start, trained(T, made)
    state, theirs = run(torch)
    same(run(genesis, state)[1], theirs)


def test_an_orthogonal_weight_is_assigned_to() -> None:
    made = orthogonal(layer(genesis, 3, 5))
    rows = genesis.linalg.qr(genesis.tensor(X[:5, :3]))[0].mT
    made.weight = rows
    assert genesis.allclose(made.weight, rows) and made.weight.requires_grad
    free = orthogonal(layer(genesis, 4, 4), "weight", "cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="Cayley parametrizations when use_trivialization=False"):
        free.weight = genesis.eye(4, dtype=genesis.float64)


@pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])
def test_an_original_is_the_parameter_that_was_there(T: Any) -> None:
    """An optimizer that was made before goes on with it, though a `right_inverse` has set it."""
    class Exponential(T.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.exp()

        def right_inverse(self, x: Any) -> Any:
            return x.abs().log()
    made = layer(T, 2, 2)
    before = made.weight
    optimizer = T.optim.SGD(made.parameters(), lr=0.1)
    T.nn.utils.parametrize.register_parametrization(made, "weight", Exponential())
    assert made.parametrizations.weight.original is before
    start = made.weight.detach().clone()
    np.testing.assert_allclose(start.numpy(), np.abs(X[:2, :2]))
    made.weight.sum().backward()
    optimizer.step()
    assert (made.weight < start).all()


@pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])
def test_a_parametrization_that_changes_shape_or_dtype_is_refused(T: Any) -> None:
    class Part(T.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x[:1]

    class Half(T.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.half()
    register = T.nn.utils.parametrize.register_parametrization
    with pytest.raises(ValueError, match="may not change the shape of the tensor"):
        register(layer(T, 2, 2), "weight", Part())
    with pytest.raises(ValueError, match="may not change the dtype of the tensor"):
        register(layer(T, 2, 2), "weight", Half())
    second = register(layer(T, 2, 2), "weight", T.nn.Identity())
    with pytest.raises(ValueError, match="may not change the shape of the tensor"):
        register(second, "weight", Part())
    assert register(second, "weight", Part(), unsafe=True).weight.shape == (1, 2)


def test_an_error_inside_of_a_parametrization_is_not_called_a_missing_name() -> None:
    """Python drops an AttributeError of a property, and asks for the name as if it were none: the message says where
    the error can be seen, and suggests no name that is there."""
    class Broken(nn.Module):
        def forward(self, x: genesis.Tensor) -> genesis.Tensor:
            return x.no_such_method()
    layer = nn.Linear(2, 3)
    parametrize.register_parametrization(layer, "weight", Broken(), unsafe=True)
    with pytest.raises(AttributeError, match=r"its property raised .*weight\.fget\(module\)` shows"):
        getattr(layer, "weight")  # noqa: B009
    with pytest.raises(AttributeError, match="no_such_method"):
        type(layer).weight.fget(layer)
