"""genesis.func.vmap beside torch.func.vmap: nests of arguments, nested batches, functions of the user's, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.func import vectorize
from genesis.func.tree import flatten

LIBRARIES = (genesis, torch)


def data(lib: Any, *shape: int) -> Any:
    """The same numbers for a shape in both libraries."""
    return lib.tensor(np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32))


def same(program: Any) -> None:
    """The program gives the same in both libraries."""
    mine, theirs = (flatten(program(lib, lib.func, lib.nn.functional))[0] for lib in LIBRARIES)
    assert len(mine) == len(theirs)
    for got, want in zip(mine, theirs, strict=True):
        if not isinstance(want, torch.Tensor):
            assert got == want
            continue
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-3, 1e-4)


PROGRAMS = {
    "convolution, all of it batched": lambda lib, func, F: func.vmap(F.conv2d)(
        data(lib, 3, 2, 4, 8, 8), data(lib, 3, 6, 4, 3, 3), data(lib, 3, 6)),
    "convolution of batched images": lambda lib, func, F: func.vmap(F.conv2d, in_dims=(0, None))(
        data(lib, 3, 2, 4, 8, 8), data(lib, 6, 4, 3, 3)),
    "convolution with batched weights": lambda lib, func, F: func.vmap(
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), in_dims=(None, 0, None))(
            data(lib, 2, 4, 8, 8), data(lib, 3, 6, 4, 3, 3), data(lib, 6)),
    "a weight gradient for each example": lambda lib, func, F: func.vmap(
        func.grad(lambda w, x: F.conv2d(x, w, groups=2).sin().sum()), in_dims=(None, 0))(
            data(lib, 6, 2, 3, 3), data(lib, 3, 2, 4, 8, 8)),
    "an input gradient for each example": lambda lib, func, F: func.vmap(
        func.grad(lambda x, w: F.conv2d(x, w).sin().sum()), in_dims=(0, None))(
            data(lib, 3, 2, 4, 8, 8), data(lib, 6, 4, 3, 3)),
    "transposed convolution": lambda lib, func, F: func.vmap(F.conv_transpose2d)(
        data(lib, 3, 2, 4, 5, 5), data(lib, 3, 4, 5, 3, 3)),
    "index_add with batched indices": lambda lib, func, F: func.vmap(lambda a, i, s: a.index_add(0, i, s))(
        data(lib, 3, 4, 5), lib.tensor([[0, 2], [1, 1], [3, 0]]), data(lib, 3, 2, 5)),
    "index_add along another dimension": lambda lib, func, F: func.vmap(lambda a, i, s: a.index_add(1, i, s))(
        data(lib, 3, 4, 5), lib.tensor([[0, 2], [1, 1], [3, 0]]), data(lib, 3, 4, 2)),
    "gradients of batched indices": lambda lib, func, F: func.vmap(
        func.grad(lambda t, i: (t[i] ** 2).sum()), in_dims=(None, 0))(
            data(lib, 4, 5), lib.tensor([[0, 2], [1, 1], [3, 0]])),
    "nests": lambda lib, func, F: func.vmap(
        lambda d: {"s": d["a"] + d["b"], "t": (d["a"] * 2,)}, in_dims=({"a": 0, "b": None},),
        out_dims={"s": 1, "t": 0})({"a": data(lib, 3, 4), "b": data(lib, 4)}),
    "a batch in a batch, along other dimensions": lambda lib, func, F: func.vmap(
        func.vmap(lambda a, b: (a * b).sum(), in_dims=(None, 0)), in_dims=(0, None), out_dims=1)(
            data(lib, 3, 4), data(lib, 5, 4)),
    "dimensions from the end": lambda lib, func, F: func.vmap(
        lambda a: a.cumsum(0), in_dims=-1, out_dims=-1)(data(lib, 4, 3)),
    "results without a batch": lambda lib, func, F: func.vmap(
        lambda a: (a, 3, data(lib, 2)), out_dims=(0, None, None))(data(lib, 4, 3)),
    "chunks along a dimension": lambda lib, func, F: func.vmap(
        lambda a: a * 2, chunk_size=2, in_dims=1, out_dims=1)(data(lib, 4, 5)),
    "second derivatives of each": lambda lib, func, F: func.vmap(func.hessian(lambda a: (a ** 3).sum()))(
        data(lib, 3, 2)),
    "layers": lambda lib, func, F: func.vmap(lambda a: F.layer_norm(F.linear(a, data(lib, 5, 4)), (5,)))(
        data(lib, 3, 2, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("it ran example by example")
    monkeypatch.setattr(vectorize, "_looped", refuse)
    same(PROGRAMS[name])


def test_writing_to_an_example_writes_to_the_batch() -> None:
    def program(lib: Any, func: Any, F: Any) -> Any:
        def double(a: Any) -> Any:
            a.mul_(2)
            return a + 1
        x = data(lib, 3, 2)
        return func.vmap(double)(x), x
    same(program)


def rounded(lib: Any) -> Any:
    """A function whose backward is not its derivative."""
    class Rounded(lib.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, w: Any) -> Any:
            return x.round() * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return g * w * 3, g * x
    return Rounded.apply


def test_gradients_through_a_batched_function_of_the_users() -> None:
    def program(lib: Any, func: Any, F: Any) -> Any:
        x, w = data(lib, 3, 2).requires_grad_(), data(lib, 2).requires_grad_()
        y = func.vmap(lambda a: rounded(lib)(a, w).sum())(x)
        y.sum().backward()
        each = func.vmap(func.grad(lambda a: (rounded(lib)(a, data(lib, 2)) ** 2).sum()))(data(lib, 3, 2))
        return y, x.grad, w.grad, each
    same(program)


@pytest.mark.parametrize("randomness", ["error", "different", "same"])
def test_numbers_that_were_drawn_outside_are_the_same_for_all_examples(randomness: str) -> None:
    """Also where nothing has computed them before: weights of a new layer, a mask."""
    layer, w = genesis.nn.Linear(2, 3), genesis.nn.functional.dropout(genesis.randn(3), 0.5)
    x = genesis.ones(5, 2)
    found = genesis.func.vmap(lambda a: layer(a) * w, randomness=randomness)(x)
    assert found.flatten().tolist() == pytest.approx((layer(x) * w).flatten().tolist())


def test_derivatives_by_a_number_that_is_not_drawn_yet() -> None:
    x, w = genesis.randn(3), genesis.randn(3)
    found = genesis.func.jacrev(lambda a: a * a * w)(x)
    assert found.diagonal().tolist() == pytest.approx((2 * x * w).tolist())


def test_draws_inside_differ_beside_draws_outside() -> None:
    w = genesis.randn(4)
    found = genesis.func.vmap(lambda a: (a + w, genesis.rand(4)), randomness="different")(genesis.zeros(3, 4))
    assert found[0].tolist() == [w.tolist()] * 3
    assert len({tuple(row) for row in found[1].tolist()}) == 3


def test_the_same_numbers_in_each_chunk() -> None:
    found = genesis.func.vmap(lambda a: a + genesis.rand(2), randomness="same", chunk_size=1)(genesis.zeros(3, 2))
    assert genesis.equal(found[0], found[1]) and genesis.equal(found[0], found[2])


X = (2, 3)
REFUSED = {
    "sizes": (lambda lib, func: func.vmap(lambda a, b: a)(lib.ones(X), lib.ones(3)), "same size in the mapped dim"),
    "numbers": (lambda lib, func: func.vmap(lambda a: 3)(lib.ones(X)), "must only return Tensors, got type <class"),
    "in_dims=None": (lambda lib, func: func.vmap(lambda a: a, in_dims=None)(lib.ones(X)), "expected `in_dims` to be"),
    "in_dim=3": (lambda lib, func: func.vmap(lambda a: a, in_dims=3)(lib.ones(X)), "expected in_dim to satisfy -2 <="),
    "two in_dims": (lambda lib, func: func.vmap(lambda a: a, in_dims=(0, 0))(lib.ones(X)), "in_dims is not compatible"),
    "in_dim='a'": (lambda lib, func: func.vmap(lambda a: a, in_dims=("a",))(lib.ones(X)), "must be either an integer"),
    "out_dims": (lambda lib, func: func.vmap(lambda a: a, out_dims=(0, 0))(lib.ones(X)), "out_dims is not compatible"),
    "out_dims=None": (lambda lib, func: func.vmap(lambda a: a, out_dims=None)(lib.ones(X)), "when out_dim is None"),
    "item": (lambda lib, func: func.vmap(lambda a: a.sum().item())(lib.ones(X)), "calling .item() on a Tensor"),
    "if": (lambda lib, func: func.vmap(lambda a: a if a.sum() > 0 else -a)(lib.ones(X)), "data-dependent control flow"),
    "random": (lambda lib, func: func.vmap(lambda a: a + lib.rand(3))(lib.ones(X)), "randomness error mode"),
    "randomness": (lambda lib, func: func.vmap(lambda a: a, randomness="x")(lib.ones(X)), "Only allowed values"),
    "no tensor": (lambda lib, func: func.vmap(lambda a: a)(3), "We cannot vmap over non-Tensor arguments"),
    "nothing": (lambda lib, func: func.vmap(lambda a: a)(), "got no inputs"),
    "chunks": (lambda lib, func: func.vmap(lambda a: a, chunk_size=0)(lib.ones(X)), "chunk_size should be None or"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_torchs(name: str) -> None:
    program, words = REFUSED[name]
    kinds = []
    for lib in LIBRARIES:
        with pytest.raises((RuntimeError, ValueError)) as error:
            program(lib, lib.func)
        assert words in str(error.value).splitlines()[0]  # behind it is the line of this test, with the words
        kinds.append(error.type)
    assert kinds[0] is kinds[1]


PICKED: dict[str, Any] = {
    "a row": lambda lib, x, i: x[i], "a column": lambda lib, x, i: x[:, i], "twice": lambda lib, x, i: x[i, i],
    "beside a slice": lambda lib, x, i: x[i - 1, 1:], "with a new axis": lambda lib, x, i: x[None, i, ..., None],
    "beside indices": lambda lib, x, i: x[i, lib.tensor([0, 1])], "from the end": lambda lib, x, i: x[-i],
    "of one for all": lambda lib, x, i: lib.arange(4.0)[i] + x[1],
}


@pytest.mark.parametrize("name", PICKED)
def test_each_example_picks_its_own_element(name: str) -> None:
    found = []
    for lib in LIBRARIES:
        x, i = lib.arange(30.0).reshape(5, 2, 3).requires_grad_(), lib.tensor([0, 1, 1, 0, 1])
        y = lib.func.vmap(lambda a, b, lib=lib: PICKED[name](lib, a, b))(x, i)
        (y * y).sum().backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_solutions_in_a_try_are_found_for_all() -> None:
    """What may fail by its values is computed at once inside a `try`, but under `vmap` there are no values yet."""
    for lib in LIBRARIES:
        try:
            x = lib.func.vmap(lib.linalg.solve)(lib.eye(3).expand(4, 3, 3) * 2, lib.ones(4, 3))
        except RuntimeError:
            pytest.fail("it was refused")
        assert x.tolist() == [[0.5] * 3] * 4


def test_a_shared_tensor_is_not_written_to() -> None:
    total = genesis.zeros(3)
    with pytest.raises(RuntimeError, match="inplace arithmetic is not possible"):
        genesis.func.vmap(lambda a: total.add_(a))(genesis.ones(2, 3))
    assert total.tolist() == [0, 0, 0]
