"""What says how gradients flow through a tensor: requires_grad, is_leaf, grad_fn after writes, detach, backward."""

from __future__ import annotations

import pytest
from torch_programs import check

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


def marks(*tensors):
    """What torch and Genesis say of these tensors, as plain values."""
    return [(x.requires_grad, x.is_leaf, x.grad_fn is None, x.detach()) for x in tensors]


def refused(function):
    """Whether the call raises a RuntimeError."""
    try:
        function()
    except RuntimeError:
        return True
    return False


def _loss(T):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    return w, (w * w).sum()


@program
def a_loss_is_halved_after_its_backward(T, nn, optim, np):
    w, loss = _loss(T)
    loss.backward()
    loss /= 2
    return marks(loss, w), w.grad, refused(loss.backward)


@program
def a_total_begins_as_the_first_loss(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    total = None
    for step in range(3):
        loss = (w * w).sum() * (step + 1)
        loss.backward()
        if total is None:
            total = loss
        else:
            total += loss
    return marks(total), w.grad


@program
def a_loss_that_was_read_is_written_to(T, nn, optim, np):
    w, loss = _loss(T)
    loss.item()
    loss.backward()
    loss.item()
    loss.mul_(3)
    first = marks(loss)
    loss.add_(w.sum())
    return first, marks(loss), refused(loss.backward)


@program
def a_loss_is_replaced_after_its_backward(T, nn, optim, np):
    w, loss = _loss(T)
    loss.backward()
    seen = []
    for write in (lambda: loss.copy_(w.sum()), loss.zero_, lambda: loss.fill_(3.0)):
        write()
        seen.append((marks(loss), refused(loss.backward)))
    return seen, w.grad


@program
def a_vector_is_written_by_parts_after_its_backward(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    y.backward(T.ones(2))
    y[0] = 3
    y.mul_(w)
    return marks(y), refused(lambda: y.sum().backward())


@program
def a_view_of_a_loss_is_written_after_its_backward(T, nn, optim, np):
    _, loss = _loss(T)
    loss.backward()
    view = loss.view(1)
    view.mul_(2)
    return marks(view, loss), refused(loss.backward)


@program
def a_loss_gets_a_dimension_after_its_backward(T, nn, optim, np):
    _, loss = _loss(T)
    loss.backward()
    loss.unsqueeze_(0)
    loss.clamp_(0, 4).sqrt_()
    return marks(loss)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_program(program):
    check(program)
