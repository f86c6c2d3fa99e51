"""Compiled steps that make leaf tensors of their own, return sums of losses, or write to parameters themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis

Step = Callable[[Any, int], Any]


def same_as_torch(program: Callable[[Any, Callable[[Any], Any]], Step], calls: int = 8) -> Any:
    """Call the program's step in both libraries, compiled in ours; its results are equal. Returns the compiled step."""
    compiled: list[Any] = []

    def kept(function: Any) -> Any:
        compiled.append(genesis.compile(function))
        return compiled[-1]
    ours, theirs = program(genesis, kept), program(torch, lambda f: f)
    for turn in range(calls):
        for a, b in zip(ours(genesis, turn), theirs(torch, turn), strict=True):
            assert a.requires_grad == b.requires_grad
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=2e-6)
    return compiled[0]


def data(lib: Any, seed: int, *shape: int) -> Any:
    return lib.tensor(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def penalized(lib: Any, compiled: Callable[[Any], Any]) -> Step:
    """A penalty on the gradient by a leaf that the step makes."""
    w = data(lib, 0, 4, 4).requires_grad_()
    optimizer = lib.optim.SGD([w], lr=0.05)

    def step(x: Any) -> Any:
        between = (x * 0.5).requires_grad_()
        score = (between @ w).tanh().sum()
        g, = lib.autograd.grad(score, between, create_graph=True)
        loss = (g.norm(2, dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), w.detach().clone()
    run = compiled(step)
    return lambda lib, turn: run(data(lib, turn + 1, 3, 4))


def attacked(lib: Any, compiled: Callable[[Any], Any]) -> Step:
    """Data moved along their own gradient, then a step on these."""
    w = data(lib, 0, 4, 2).requires_grad_()
    optimizer = lib.optim.SGD([w], lr=0.1)

    def step(x: Any) -> Any:
        leaf = x.clone().requires_grad_(True)
        optimizer.zero_grad()
        (leaf @ w).square().sum().backward()
        moved = x + 0.1 * leaf.grad.sign()
        optimizer.zero_grad()
        loss = (moved @ w).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), moved
    run = compiled(step)
    return lambda lib, turn: run(data(lib, turn + 1, 3, 4))


def adversaries(lib: Any, compiled: Callable[[Any], Any]) -> Step:
    """Two losses go backward one by one, and their sum is returned, which still requires grad."""
    w = data(lib, 0, 4).requires_grad_()
    optimizer = lib.optim.SGD([w], lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        real, fake = (x * w).exp().mean(), (x.flip(0) * w).square().mean()
        real.backward()
        fake.backward()
        optimizer.step()
        return real + fake, fake
    run = compiled(step)
    return lambda lib, turn: run(data(lib, turn + 1, 3, 4))


def by_hand(lib: Any, compiled: Callable[[Any], Any]) -> Step:
    """Descent without an optimizer."""
    w, b = data(lib, 0, 4, 2).requires_grad_(), data(lib, 1, 2).requires_grad_()

    def step(x: Any) -> Any:
        w.grad = b.grad = None
        loss = (x @ w + b).square().mean()
        loss.backward()
        with lib.no_grad():
            for p in (w, b):
                p.sub_(p.grad, alpha=0.1)
        return loss.detach(), w.detach().clone(), w.grad.clone()
    run = compiled(step)
    return lambda lib, turn: run(data(lib, turn + 2, 3, 4))


@pytest.mark.parametrize("program", [penalized, attacked, adversaries, by_hand])
def test_the_step_is_replayed_with_torchs_numbers(program: Any) -> None:
    compiled = same_as_torch(program)
    assert compiled.hits >= 5, genesis.explain(compiled)


def test_a_sum_of_losses_that_went_backward_cannot_go_again() -> None:
    run = adversaries(genesis, genesis.compile)
    for turn in range(4):
        total, _ = run(genesis, turn)
        with pytest.raises(RuntimeError, match="second time"):
            total.backward()


def test_a_leaf_that_others_hold_keeps_its_gradient() -> None:
    held: list[Any] = []
    w = genesis.ones(2, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.5)

    @genesis.compile
    def step(x: genesis.Tensor) -> None:
        leaf = (x * 2).requires_grad_()
        held.append(leaf)
        (leaf * w).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    for turn in range(1, 5):
        before = w.tolist()
        step(genesis.full((2,), float(turn)))
        assert held[-1].tolist() == [2.0 * turn] * 2
        gradient = held[-1].grad
        assert gradient is not None and gradient.tolist() == before
    assert len({id(x) for x in held}) == 4


def test_gradients_that_are_added_to_wait_for_more() -> None:
    def program(lib: Any, compiled: Callable[[Any], Any]) -> Step:
        w = data(lib, 0, 4).requires_grad_()

        def micro(x: Any) -> Any:
            loss = (x * w).square().sum()
            loss.backward()
            return loss.detach(),
        run = compiled(micro)

        def step(lib: Any, turn: int) -> Any:
            w.grad = None
            losses = [run(data(lib, 3 * turn + part, 2, 4))[0] for part in range(3)]
            with lib.no_grad():
                w.sub_(w.grad, alpha=0.01)
            return [*losses, w.grad, w.detach().clone()]
        return step
    same_as_torch(program)
