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
    return [(x.requires_grad, x.is_leaf, x.grad_fn is None, x.detach().clone()) for x in tensors]


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


@program
def data_takes_no_history_over(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    x = T.zeros(2)
    x.data = w * 3
    return marks(x, x * 2)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_program(program):
    check(program)


DETACHED = {
    "median": lambda T, x: x.median(0).values,
    "median of all": lambda T, x: x.median(),
    "nanmedian": lambda T, x: x.nanmedian(1).values,
    "mode": lambda T, x: x.mode(0).values,
    "kthvalue": lambda T, x: x.kthvalue(2, 0, True).values,
    "quantile": lambda T, x: x.quantile(0.3),
    "norm": lambda T, x: T.linalg.norm(x),
    "matrix_norm": lambda T, x: T.linalg.matrix_norm(x, float("inf"), keepdim=True),
    "roll": lambda T, x: x.roll(1),
    "rot90": lambda T, x: x.rot90(),
    "kron": lambda T, x: T.kron(x, x),
    "diag": lambda T, x: x[0].diag(),
    "diag_embed": lambda T, x: x.diag_embed(),
    "put": lambda T, x: x.put(T.tensor([0]), T.tensor([5.0])),
    "addr": lambda T, x: T.addr(x, x[0], x[0]),
    "solve": lambda T, x: T.linalg.solve(x, x[0]),
    "softmax of a number": lambda T, x: x[0, 0].softmax(0),
    "pixel_shuffle": lambda T, x: T.nn.functional.pixel_shuffle(x.view(1, 1, 3, 3), 1),
    "adaptive_avg_pool2d": lambda T, x: T.nn.functional.adaptive_avg_pool2d(x.view(1, 3, 3), 2),
}


@pytest.mark.parametrize("op", DETACHED)
def test_detach_of_a_result_in_place(op):
    """Some results show a part of a memory of their own: that is no view of anybody's."""
    def program(T, nn, optim, np):
        x = (T.arange(9.0).view(3, 3) * 1.3 + T.eye(3)).requires_grad_()
        y = DETACHED[op](T, x)
        before = marks(y)
        y.detach_()
        y.mul_(2)
        return before, marks(y)
    check(program, rtol=1e-4)  # a solution of linear equations


def test_a_view_of_a_tensor_that_is_there_is_not_detached_in_place():
    def program(T, nn, optim, np):
        x = T.ones(2, 3, requires_grad=True) * 2
        row = x[0]
        return refused(row.detach_), marks(row, x)
    check(program)
