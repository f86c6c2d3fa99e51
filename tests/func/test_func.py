"""genesis.func beside torch.func."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

LIBRARIES = (genesis, torch)


def flat(found: Any) -> list[Any]:
    return [y for x in found for y in flat(x)] if isinstance(found, (tuple, list)) else [found]


def both(program: Any, *shapes: tuple[int, ...], rtol: float = 1e-5) -> None:
    """The program gives the same in both libraries on the same data."""
    random = np.random.default_rng(0)
    data = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    mine, theirs = (flat(program(library, library.func, *map(library.tensor, data))) for library in LIBRARIES)
    assert len(mine) == len(theirs)
    for got, want in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol, 1e-6)


def test_gradients_of_several_arguments_with_something_beside() -> None:
    def program(lib: Any, func: Any, x: Any, w: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            y = (x @ w).tanh()
            return y.sum(), y
        (to_x, to_w), aux = func.grad(loss, (0, 1), has_aux=True)(x, w)
        return to_x, to_w, aux
    both(program, (3, 4), (4, 2))


def test_vjp_and_jvp() -> None:
    def program(lib: Any, func: Any, x: Any, t: Any) -> Any:
        y, back = func.vjp(lambda x: (x.sin(), x.prod()), x)
        (to_x,) = back((t, lib.tensor(2.0)))
        return y, to_x, func.jvp(lambda x: (x * x.sum()).exp(), (x,), (t,))
    both(program, (5,), (5,))


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
def test_jacobians(name: str) -> None:
    def program(lib: Any, func: Any, x: Any, w: Any) -> Any:
        return getattr(func, name)(lambda x: (x @ w).sigmoid())(x)
    both(program, (2, 3), (3, 2))


def test_hessian() -> None:
    both(lambda lib, func, x: func.hessian(lambda x: (x.exp() * x.flip(0)).sum())(x), (4,))


PROGRAMS = {
    "pointwise with a shared operand": lambda lib, func, x, y: func.vmap(lambda a: (a * y[0]).exp() + 1)(x),
    "reductions and views": lambda lib, func, x, y: func.vmap(lambda a: a.reshape(2, 2).T.sum(0).cumsum(0))(x),
    "two batches": lambda lib, func, x, y: func.vmap(lib.dot)(x, y),
    "other dimensions": lambda lib, func, x, y: func.vmap(lambda a, b: (a, b.sum()), in_dims=(1, None),
                                                         out_dims=(1, 0))(x, y),
    "softmax and layer_norm": lambda lib, func, x, y: func.vmap(
        lambda a: lib.nn.functional.layer_norm(lib.softmax(a, 0), (4,)))(x),
    "rows of a table": lambda lib, func, x, y: func.vmap(lambda a: lib.index_select(y, 0, (a > 0).sum().reshape(1)))(x),
    "rows of its own table": lambda lib, func, x, y: func.vmap(lambda a: a[(a > 0).to(lib.int64)])(x),
    "sort and where": lambda lib, func, x, y: func.vmap(lambda a: lib.where(a > 0, lib.sort(a)[0], a))(x),
    "matrices": lambda lib, func, x, y: func.vmap(lambda a: lib.outer(a, a) @ y.mT)(x),
    "nested": lambda lib, func, x, y: func.vmap(lambda a: func.vmap(lambda b: (a * b).sum())(y))(x),
    "a gradient for each example": lambda lib, func, x, y: func.vmap(
        func.grad(lambda a: ((a @ y.mT).tanh() ** 2).sum()))(x),
    "a gradient by shared weights": lambda lib, func, x, y: func.vmap(
        func.grad(lambda w, a: ((w @ a).sin() * w.sum()).sum()), in_dims=(None, 0))(y, x),
    "solving": lambda lib, func, x, y: func.vmap(
        lambda a: lib.linalg.solve(lib.outer(a, a) + 3 * lib.eye(4), a))(x),
    "chunks": lambda lib, func, x, y: func.vmap(lambda a: a * 2, chunk_size=2)(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_vmap(name: str) -> None:
    both(lambda lib, func, x, y: PROGRAMS[name](lib, func, x, y), (4, 4) if "other" in name else (5, 4),
         (4, 4) if "other" in name else (5, 4), rtol=2e-4)


def test_vmap_refuses_what_makes_no_sense() -> None:
    x = genesis.ones(3, 2)
    with pytest.raises(ValueError, match="same size in the mapped dimension, got sizes \\[3, 2\\]"):
        genesis.func.vmap(genesis.dot)(x, genesis.ones(2, 2))
    with pytest.raises(RuntimeError, match="random operation"):
        genesis.func.vmap(lambda a: a + genesis.rand(2))(x)
    different = genesis.func.vmap(lambda a: a + genesis.rand(2), randomness="different")(x)
    assert not genesis.allclose(different[0], different[1])
    same = genesis.func.vmap(lambda a: a + genesis.rand(2), randomness="same")(x)
    assert genesis.allclose(same[0], same[1])


def test_gradients_flow_through_vmap() -> None:
    def program(lib: Any, func: Any, x: Any, w: Any) -> Any:
        w = w.clone().requires_grad_()
        loss = func.vmap(lambda a: (w @ a).tanh().sum())(x).sum()
        return lib.autograd.grad(loss, w)
    both(program, (5, 4), (3, 4))
