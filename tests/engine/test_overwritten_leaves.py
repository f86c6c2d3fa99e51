"""Backwards after a step that wrote to their leaves (`overwritten_leaves.py`): torch saved what is read, or raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.engine import overwritten_leaves, preparation

LIBRARIES = (torch, genesis)
MANY = 2000
"""Elements of a leaf that are more than the few bytes which are copied in any case."""


def leaf(lib: Any, count: int) -> Any:
    """A leaf whose elements differ, in memory: what is recorded could be computed again."""
    return lib.tensor([i * 7 % 2011 / 1000 for i in range(count)], requires_grad=True)


def step(lib: Any, *leaves: Any) -> None:
    """Write to the leaves, in memory."""
    optimizer = lib.optim.SGD(leaves, lr=0.5)
    for each in leaves:
        each.grad = lib.ones_like(each)
    optimizer.step()
    optimizer.zero_grad()
    [each.tolist() for each in leaves]


def exponent(lib: Any, w: Any) -> Any:
    return w.exp().sum()


def sorted_values(lib: Any, w: Any) -> Any:
    return (w.sort().values * lib.arange(len(w)).float()).sum()


def softmax(lib: Any, w: Any) -> Any:
    return w.softmax(0)[0] * 100


def rectified(lib: Any, w: Any) -> Any:
    return (w - 0.5).relu().sum()


def chosen(lib: Any, w: Any) -> Any:
    return lib.where(w * 2 > 1, w, w * 3).sum()


def of_a_view(lib: Any, w: Any) -> Any:
    return w.view(-1, 2).t().tanh().tanh().sum()


def classified(lib: Any, w: Any) -> Any:
    return lib.nn.functional.cross_entropy(w.view(2, -1) * 1, lib.tensor([0, 1]))


def largest(lib: Any, w: Any) -> Any:
    return w.view(2, -1).max(1).values.sum()


SAVED = [exponent, sorted_values, softmax, rectified, chosen, of_a_view, classified, largest]


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("count", [10, MANY])
@pytest.mark.parametrize("loss", SAVED, ids=lambda f: f.__name__)
def test_what_torch_has_saved_is_differentiated(loss: Callable[..., Any], count: int, read_before: bool) -> None:
    found = []
    for lib in LIBRARIES:
        w = leaf(lib, count)
        value = loss(lib, w)
        if read_before:
            value.item()
        step(lib, w)
        value.backward()
        found.append(w.grad.tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-4, abs=1e-6)  # torch's exp, tanh and ours differ in last bits


@pytest.mark.parametrize("loss", [exponent, sorted_values], ids=lambda f: f.__name__)
def test_a_second_backward_after_the_step(loss: Callable[..., Any]) -> None:
    found = []
    for lib in LIBRARIES:
        w = leaf(lib, MANY)
        value = loss(lib, w)
        value.backward(retain_graph=True)
        before = w.grad.tolist()
        step(lib, w)
        value.backward()
        assert w.grad.tolist() == before
        found.append(before)
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize("loss", [exponent, chosen], ids=lambda f: f.__name__)
def test_a_replayed_step_leaves_what_a_plain_one_leaves(loss: Callable[..., Any]) -> None:
    """The step is a replay, and so is what made the value."""
    def program(compiled: Callable[[Any], Any]) -> list[Any]:
        w, kept = leaf(genesis, 10), genesis.ones(10)
        optimizer = genesis.optim.SGD([w], lr=0.5)
        value = compiled(lambda: loss(genesis, w) + (w * kept).sum())

        @compiled
        def train() -> None:
            optimizer.zero_grad()
            (w * 3).sum().backward()
            optimizer.step()
            with genesis.no_grad():
                kept.add_(1)
        found = []
        for turn in range(5):
            train()
            z = value()
            if turn % 2:
                z.item()
            train()
            optimizer.zero_grad()
            z.backward()
            found.append(w.grad.tolist())
        return found
    assert program(genesis.compile) == program(lambda f: f)


@pytest.mark.parametrize("loss", [
    lambda w: (w * w).sum(), lambda w: (w.view(2, -1) ** 2).sum(),
    lambda w: w.exp().clamp(max=2).sum() + w.abs().sum()])
def test_a_leaf_that_a_backward_reads_itself_is_an_error(loss: Callable[[Any], Any]) -> None:
    for lib in LIBRARIES:
        w = leaf(lib, MANY)
        value = loss(w)
        step(lib, w)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.backward()
            w.grad.tolist()


def test_nothing_is_copied_where_torch_has_let_go_or_saved_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits whose loss went backward, and rows of a table that is larger than they are."""
    copied: list[Any] = []
    asked = overwritten_leaves.leaves_to_copy
    monkeypatch.setattr("genesis.engine.preparation.leaves_to_copy",
                        lambda *given: copied.extend(found := asked(*given)) or found)
    table, w = genesis.rand(5000, 8, requires_grad=True), leaf(genesis, MANY)
    optimizer = genesis.optim.SGD([table, w], lr=0.5)
    rows = table[genesis.tensor([1, 2, 3])].tanh()
    probabilities = w.softmax(0)
    probabilities.log().sum().backward()
    optimizer.step()
    assert not copied
    probabilities = w.softmax(0).log()  # and this has not gone backward
    w.grad = genesis.ones(MANY)
    optimizer.step()
    assert copied == [w.storage]
    del rows, probabilities


@pytest.mark.parametrize("in_memory", [False, True], ids=["a value that waits", "a value in memory"])
def test_a_loss_that_was_read_is_let_go_of_as_one_that_was_not(monkeypatch: pytest.MonkeyPatch,
                                                               in_memory: bool) -> None:
    """The node of a loss dies when it is read; the logits that are held are still known to have gone backward."""
    copied: list[Any] = []
    asked = overwritten_leaves.leaves_to_copy

    def noted(contents: Any, *rest: Any) -> Any:
        found = asked(contents := list(contents), *rest)
        copied.append((len(contents), len(found)))
        return found
    monkeypatch.setattr("genesis.engine.preparation.leaves_to_copy", noted)
    weights = [leaf(genesis, MANY) for _ in range(3)]
    logits = sum(w.exp() for w in weights)
    if in_memory:
        logits.tolist()
    loss = (logits * logits).sum()
    loss.backward()
    loss.item()
    with genesis.no_grad():
        for w in weights:  # a step by hand, which looks at each
            w.add_(w.grad, alpha=-0.1 / max(1.0, w.norm().item()))
    [w.tolist() for w in weights]
    assert copied and set(copied) == {(0, 0)}
    assert logits.shape == (MANY,)


def test_a_value_beside_a_graph_that_was_let_go_of_is_not_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two values of a leaf, both held while a loss of one is read and the leaf is written to."""
    copied: list[Any] = []
    asked = overwritten_leaves.leaves_to_copy
    monkeypatch.setattr("genesis.engine.preparation.leaves_to_copy",
                        lambda *given: copied.extend(found := asked(*given)) or found)
    w = leaf(genesis, MANY)
    inside, beside = w.exp(), w.softmax(0).log()
    loss = (inside * 2).sum()
    loss.backward()
    loss.item()
    step(genesis, w)
    assert copied == [w.storage]
    assert inside.shape == beside.shape


def code_book(lib: Any, wrap: Callable[..., Any]) -> list[Any]:
    """A vector-quantized autoencoder, whose step gives its losses with the history that their backward let go of, and
    writes to the codes that this has read."""
    into, out_of = lib.nn.Linear(4, 3), lib.nn.Linear(3, 4)
    parameters = [*into.parameters(), *out_of.parameters()]
    with lib.no_grad():
        for p in parameters:
            p.copy_(lib.linspace(-1, 1, p.numel()).reshape(p.shape))
    optimizer = lib.optim.SGD(parameters, lr=0.1)
    codes, counts = lib.linspace(-1, 1, 15).reshape(5, 3), lib.ones(5)

    def step(x: Any) -> Any:
        found = into(x)
        nearest = lib.cdist(found.detach(), codes).argmin(1)
        chosen = lib.nn.functional.embedding(nearest, codes)
        counts.mul_(0.9).add_(lib.nn.functional.one_hot(nearest, 5).sum(0), alpha=0.1)
        codes.data.index_add_(0, nearest, found.detach() - chosen, alpha=0.1).div_(counts.clamp(min=1)[:, None])
        near = (chosen.detach() - found).square().mean()
        far = (out_of(found + (chosen - found).detach()) - x).square().mean()
        optimizer.zero_grad()
        (far + near).backward()
        optimizer.step()
        return far, near
    step = wrap(step)
    seen = []
    for turn in range(6):
        far, near = step(lib.arange(24.0).reshape(6, 4).sin() + turn / 5)
        seen.append([far.item(), near.item(), codes.tolist()])
    return seen


def test_a_buffer_is_not_copied_for_a_loss_that_has_gone_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    needed = preparation.needed_by_backwards
    monkeypatch.setattr(preparation, "needed_by_backwards",
                        lambda *given: copied.append(found := needed(*given)) or found)
    steps: list[Any] = []

    def compiled(function: Any) -> Any:
        steps.append(genesis.compile(function))
        return steps[0]
    plain = code_book(genesis, lambda step: step)
    assert copied and not any(copied)
    assert code_book(genesis, compiled) == plain
    assert genesis.explain(steps[0]).hits >= 4, genesis.explain(steps[0])
    for ours, theirs in zip(plain, code_book(torch, lambda step: step), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("results", [1, 2])
def test_a_compiled_function_over_a_checkpoint_whose_results_are_read_after_a_step(results: int) -> None:
    """What the backward of a checkpointed region reads is not known, nor is that of what holds one."""
    def program(compiled: Callable[[Any], Any]) -> list[Any]:
        w = leaf(genesis, 10)

        @compiled
        def f(x: Any) -> Any:
            made = genesis.checkpoint(lambda x: (x * w).tanh(), x)
            return (made * x.sum(), made.exp())[:results]
        found = [f((genesis.arange(10.0) + i % 2).requires_grad_()) for i in range(4)]
        for result in found[-1]:
            result.sum().backward()
        step(genesis, w)
        return [[x.tolist() for x in each] for each in found] + [w.tolist()]
    assert program(genesis.compile) == program(lambda f: f)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("read", [True, False])
def test_a_leaf_has_its_gradient_by_each_content_that_it_had(read: bool, held: bool) -> None:
    """A sum that goes on over the steps reads the weight as it was before each: these are gone, and no backward reads
    them."""
    def trained(lib: Any) -> list[Any]:
        w, other = leaf(lib, 6), leaf(lib, 6)
        optimizer = lib.optim.SGD([w, other], lr=0.01)
        total, kept, seen = lib.zeros(6), [], []
        for turn in range(6):
            total = total + w + (other[:3].repeat(2) if turn % 2 else other) * 1
            if held:
                kept.append(total)
            optimizer.zero_grad()
            (total * lib.ones(6)).sum().backward(retain_graph=True)
            optimizer.step()
            if read:
                seen.append([w.grad.tolist(), other.grad.tolist()])
        return [*seen, [w.grad.tolist(), other.grad.tolist()], [w.tolist(), other.tolist()]]
    np.testing.assert_allclose(np.array(trained(genesis)), np.array(trained(torch)), rtol=1e-5)
