"""A model that nobody holds any more goes, though its gradients were never read, whatever Python its backward runs.

What that Python holds (a hook's module, a function's `ctx`) holds gradients that are still pending, and these are
recorded over the value that holds the hook or the function. Python's collector has to see the whole circle.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import genesis
from genesis import nn
from genesis.frontend.pending import live_pending
from genesis.frontend.state import state
from genesis.utils.checkpoint import checkpoint


class Held(genesis.autograd.Function):
    """Twice its argument; its ctx holds what it is given."""

    @staticmethod
    def forward(ctx: Any, x: Any, held: Any) -> Any:
        ctx.held = held
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2, None


def backward(result: Any) -> None:
    result.square().sum().backward()


def hook_of_module(model: Any) -> None:
    model.register_full_backward_hook(lambda module, inner, outer: None)
    backward(model(genesis.ones(3, 4)))


def pre_hook_of_module(model: Any) -> None:
    model.register_full_backward_pre_hook(lambda module, outer: None)
    backward(model(genesis.ones(3, 4)))


def hook_of_parameter(model: Any) -> None:
    model.weight.register_hook(lambda gradient: gradient + model.weight.shape[0])
    backward(model(genesis.ones(3, 4)))


def hook_of_result(model: Any) -> None:
    result = model(genesis.ones(3, 4))
    result.register_hook(lambda gradient: gradient + model.weight.shape[0])
    backward(result)


def hook_that_holds_what_is_made_of_its_value(model: Any) -> None:
    """No backward runs: the hook belongs to a value, and holds another one that was made of it."""
    result = model(genesis.ones(3, 4))
    model.later = result.exp()
    result.register_hook(lambda gradient: gradient + model.weight.shape[0])


def hook_after_accumulation(model: Any) -> None:
    model.weight.register_post_accumulate_grad_hook(lambda parameter: setattr(model, "accumulated", True))
    backward(model(genesis.ones(3, 4)))


def function_of_the_users(model: Any) -> None:
    backward(Held.apply(model(genesis.ones(3, 4)), model))


def second_derivative(model: Any) -> None:
    """Its gradients have boundaries of their own: the function's backward is differentiated."""
    (found,) = genesis.autograd.grad(Held.apply(model(genesis.ones(3, 4)), model).square().sum(), model.weight,
                                     create_graph=True)
    backward(Held.apply(found, model))


def checkpointed(model: Any) -> None:
    backward(checkpoint(model, genesis.ones(3, 4, requires_grad=True), use_reentrant=False))


def checkpointed_function(model: Any) -> None:
    """The boundary is inside of the segment, and a hook behind it."""
    result = checkpoint(lambda x: Held.apply(model(x), model), genesis.ones(3, 4, requires_grad=True),
                        use_reentrant=False)
    result.register_hook(lambda gradient: gradient + model.weight.shape[0])
    backward(result)


def optimizer_step(model: Any) -> None:
    model.register_full_backward_hook(lambda module, inner, outer: None)
    model.optimizer = genesis.optim.AdamW(model.parameters(), lr=0.1)
    backward(model(genesis.ones(3, 4)))
    model.optimizer.step()


EXPECTED: dict[Callable[[Any], None], float | None] = {
    hook_of_module: 12.0, pre_hook_of_module: 12.0, hook_of_parameter: 12.0 + 4, hook_of_result: 12.0 + 12,
    hook_that_holds_what_is_made_of_its_value: None, hook_after_accumulation: 12.0, function_of_the_users: 48.0,
    second_derivative: 36864.0, checkpointed: 12.0, checkpointed_function: 48.0 + 24, optimizer_step: 12.0}
"""Each element of the weight's gradient, of weights of 0.5 and no bias, as torch has it."""


def name(program: Any) -> str:
    return str(program.__name__)


def counts() -> tuple[int, int]:
    """What is pending and what backward leaves the program at, once everything that nobody holds is gone."""
    gc.collect()
    return len(live_pending()), len(state.crossings)


@pytest.mark.parametrize("program", EXPECTED, ids=name)
def test_a_dropped_model_whose_gradients_were_never_read_goes(program: Callable[[Any], None]) -> None:
    program(nn.Linear(4, 4))  # what earlier tests have left is gone then
    before = counts()
    model: Any = nn.Linear(4, 4)
    program(model)
    gone = weakref.ref(model)
    del model
    assert counts() == before
    assert gone() is None


@pytest.mark.parametrize("program", EXPECTED, ids=name)
def test_a_gradient_that_is_held_can_be_read_though_its_model_was_dropped(program: Callable[[Any], None]) -> None:
    model: Any = nn.Linear(4, 4)
    with genesis.no_grad():
        model.weight.fill_(0.5)
        model.bias.zero_()
    program(model)
    found, gone = model.weight.grad, weakref.ref(model)
    del model
    gc.collect()
    expected = EXPECTED[program]
    assert (None if found is None else found.tolist()) == (expected and [[expected] * 4] * 4)
    gc.collect()
    assert gone() is None, "what was read has no history, and keeps nothing"


def test_a_boundary_is_found_as_long_as_a_backward_can_come_to_it() -> None:
    """Only the value that is read through it holds it: the function's result is dropped, the loss is not."""
    x = genesis.ones(3, requires_grad=True)
    loss = Held.apply(x, None).square().sum()
    gc.collect()
    loss.backward(retain_graph=True)
    gc.collect()
    loss.backward()
    assert x.grad.tolist() == [16.0] * 3
