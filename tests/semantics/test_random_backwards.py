"""Random programs with hooks, kept gradients, equal values, copies, views, writes and functions of the user's: every
gradient and everything that a hook sees is torch's, in the first and in the second derivative."""

from __future__ import annotations

import random

import pytest
from torch_programs import check


def functions(T):
    """A function that saves its input, and one that saves its output."""
    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    class Tanh(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.tanh()
            ctx.save_for_backward(y)
            return y, y.sum()

        @staticmethod
        def backward(ctx, g, total):
            (y,) = ctx.saved_tensors
            return (g + total) * (1 - y * y)
    return Square.apply, lambda x: Tanh.apply(x)[0]


def grow(T, choose, values):
    """One more value, made of the values so far; equal ones are likely."""
    square, tanh = functions(T)
    x, y = choose.choice(values), choose.choice(values)
    makers = [lambda: x * 0.5, lambda: x.sin(), lambda: x + y, lambda: x * y, lambda: x.clone(), lambda: x.flip(0),
              lambda: x.view(2, 2).t().reshape(4), lambda: T.cat([x[2:], y[:2]]), lambda: square(x), lambda: tanh(x),
              lambda: x.detach() * y, lambda: x.exp() / (1 + x.exp())]
    return choose.choice(makers)()


def run(T, seed, second):
    """What the program's hooks saw and what gradients it left."""
    choose = random.Random(seed)
    leaves = [T.tensor([0.1 * (i + 1), -0.2, 0.3 * i, 0.4], requires_grad=True) for i in range(2)]
    values, seen, hooked, kept = list(leaves), [], 0, []
    for _ in range(choose.randint(6, 14)):
        values.append(grow(T, choose, values))
        action, target = choose.random(), choose.choice(values)
        if action < 0.3 and target.requires_grad:
            number, factor = hooked, choose.choice([None, 0.5, 2.0])
            hooked += 1
            target.register_hook(lambda g, number=number, factor=factor: (
                seen.append((number, g.detach().clone())), None if factor is None else g * factor)[1])
        elif action < 0.4 and target.requires_grad and not target.is_leaf:
            target.retain_grad()
            kept.append(target)
        elif action < 0.5 and not target.is_leaf and not second:
            target = target.clone()
            target[1:3].mul_(0.5)
            values.append(target)
        elif action < 0.6:
            target.sum().item()
    loss = sum((v * (i + 1)).sum() for i, v in enumerate(values[2:]) if v.requires_grad)
    if not loss.requires_grad:
        return "nothing"
    if second:
        first = T.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
        loss = sum((g * g).sum() for g in first)
        if not loss.requires_grad:
            return first
    loss.backward()
    # Of hooks on values that do not depend on each other torch promises no order. In a second derivative Genesis calls
    # some with zeros where torch knows that nothing arrives, a leaf may get zeros too, and a kept gradient that is
    # constant requires grad.
    return (sorted(((n, g.tolist()) for n, g in seen if g.any()), key=str),
            [x.grad.detach() for x in kept if x.grad is not None],
            [T.zeros(4) if x.grad is None else x.grad for x in leaves])


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_random_program(seed, second):
    check(lambda T, nn, optim, np: run(T, seed, second), rtol=1e-4, atol=1e-5)
