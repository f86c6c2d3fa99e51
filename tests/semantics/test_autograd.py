"""Gradients: what torch gives, for what requires them, once or twice differentiated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_programs import check

import genesis

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


@program
def gradients_only_for_what_requires_them(T, nn, optim, np):
    a = T.tensor([1.0, 2.0], requires_grad=True)
    b = T.tensor([3.0, 4.0])
    c = T.tensor([5.0, 6.0], requires_grad=True)
    (a * b + b.exp()).sum().backward()
    return a.grad, b.grad is None, c.grad is None, (b * b).requires_grad, (a * b).requires_grad


@program
def a_value_used_many_times(T, nn, optim, np):
    x = T.tensor([0.5, -1.5], requires_grad=True)
    h = x * x
    (h.sin() + h * x + h.exp() / (1 + h)).sum().backward()
    return x.grad


@program
def accumulation_over_backwards(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    for i in range(3):
        (x ** (i + 1)).sum().backward()
        seen.append(x.grad.clone())
    x.grad = None
    (x * 2).sum().backward()
    return seen, x.grad


@program
def a_gradient_is_written_in_place(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    alias = x.grad
    (x * 3).sum().backward()
    x.grad.mul_(10)
    return alias, x.grad, alias is x.grad


@program
def a_weight_for_each_element(T, nn, optim, np):
    x = T.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (x.t() * 2).backward(T.tensor([[1.0, 0.0], [2.0, -1.0]]))
    return x.grad


@program
def detach_is_a_constant(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    (y.detach() * x + y).sum().backward()
    return x.grad, y.detach().requires_grad, y.detach().is_leaf, y.requires_grad, y.is_leaf


@program
def detach_in_place(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.detach_()
    return y.requires_grad, y.is_leaf, (y * 3).requires_grad


@program
def no_grad_and_enable_grad(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    with T.no_grad():
        a = x * 2
        with T.enable_grad():
            b = x * 3
        leaf = T.ones(2, requires_grad=True)
    c = x * a + b
    flags = a.requires_grad, b.requires_grad, c.requires_grad, leaf.requires_grad
    with T.set_grad_enabled(False):
        flags += ((x * 1).requires_grad,)

    @T.no_grad()
    def inside():
        return (x * 2).requires_grad, T.is_grad_enabled()

    c.sum().backward()
    return flags, inside(), T.is_grad_enabled(), x.grad


@program
def no_grad_survives_an_error(T, nn, optim, np):
    try:
        with T.no_grad():
            raise ValueError
    except ValueError:
        pass
    return T.is_grad_enabled()


@program
def backward_of_a_view_of_the_loss(T, nn, optim, np):
    x = T.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    y[1].backward(retain_graph=True)
    y[2:].sum().backward()
    return x.grad


@program
def retain_graph_allows_a_second_backward(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = (x.exp() * x).sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, y


@program
def backward_twice_is_an_error(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = (x.exp() * x).sum()
    y.backward()
    try:
        y.backward()
    except RuntimeError as error:
        return x.grad, "second time" in str(error), "retain_graph=True" in str(error), y.detach()


@program
def two_losses_of_one_graph(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    h = x.tanh()
    a, b = h.sum(), (h * h).sum()
    a.backward(retain_graph=True)
    first = x.grad.clone()
    b.backward()
    return first, x.grad


@program
def second_derivatives(T, nn, optim, np):
    x = T.tensor([0.5, 1.5], requires_grad=True)
    y = (x ** 3).sum()
    (g,) = T.autograd.grad(y, x, create_graph=True)
    (h,) = T.autograd.grad(g.sum(), x, create_graph=True)
    (third,) = T.autograd.grad(h.sum(), x)
    return g, h, third, x.grad is None


@program
def backward_through_a_gradient(T, nn, optim, np):
    w = T.tensor([0.5, -0.3], requires_grad=True)
    x = T.tensor([1.0, 2.0], requires_grad=True)
    out = (x * w).sum().sin()
    (g,) = T.autograd.grad(out, x, create_graph=True)
    penalty = (g.norm() - 1) ** 2
    (out + penalty).backward()
    return w.grad, x.grad


@program
def backward_with_create_graph(T, nn, optim, np):
    x = T.tensor([0.5, 1.5], requires_grad=True)
    (x ** 3).sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    (g * g).sum().backward()
    return g, x.grad


@program
def second_derivatives_of_networks(T, nn, optim, np):
    results = []
    for act in ["tanh", "sigmoid", "exp", "softmax", "gelu", "silu", "log_softmax"]:
        x = T.tensor([[0.1, -0.4, 0.7]], requires_grad=True)
        w = T.tensor([[0.3, 0.2], [-0.5, 0.4], [0.1, 0.9]], requires_grad=True)
        z = x @ w
        f = getattr(nn.functional, act, None) or getattr(T, act)
        y = (f(z, dim=-1) if "softmax" in act else f(z)) * T.tensor([1.0, 3.0])
        (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
        (g * g).sum().backward()
        results += [g, w.grad, x.grad]
    return results


@program
def autograd_grad_of_several(T, nn, optim, np):
    a = T.tensor([1.0, 2.0], requires_grad=True)
    b = T.tensor([3.0, 4.0], requires_grad=True)
    c = T.tensor(2.0, requires_grad=True)
    h = a * b
    first = T.autograd.grad([h.sum(), (h * c).sum()], [a, b, h, c], retain_graph=True)
    second = T.autograd.grad(h, [a, a], grad_outputs=T.tensor([1.0, -1.0]), retain_graph=True)
    third = T.autograd.grad(h.sum(), [a, c], allow_unused=True)
    try:
        T.autograd.grad((a * 1).sum(), c)
    except RuntimeError as error:
        said = "not have been used in the graph" in str(error)
    return first, second, third[0], third[1] is None, said, a.grad is None


@program
def backward_to_chosen_inputs(T, nn, optim, np):
    a = T.tensor([1.0, 2.0], requires_grad=True)
    b = T.tensor([3.0, 4.0], requires_grad=True)
    (a * b).sum().backward(inputs=[a])
    return a.grad, b.grad is None


@program
def errors_of_backward(T, nn, optim, np):
    words = ("does not require grad", "implicitly created only for scalar", "floating", "leaf", "in-place",
             "mismatch in shape")
    said = []
    for action in [lambda: T.ones(2).sum().backward(), lambda: T.ones(2, requires_grad=True).backward(),
                   lambda: T.ones(2, dtype=T.int64).requires_grad_(),
                   lambda: (T.ones(2, requires_grad=True) * 2).requires_grad_(False),
                   lambda: T.ones(2, requires_grad=True).add_(1),
                   lambda: T.ones(2, requires_grad=True)[0].add_(1),
                   lambda: (T.ones(2, requires_grad=True) * 2).backward(T.ones(3))]:
        try:
            action()
            said.append("nothing")
        except RuntimeError as error:
            said.append([word in str(error).lower() for word in words])
    return said


@program
def gradients_through_integer_and_bool_paths_stop(T, nn, optim, np):
    x = T.tensor([0.4, 1.6, 2.5], requires_grad=True)
    mask = x > 1
    index = x.argmax()
    y = (x * mask).sum() + x[index] + x.round().sum() + T.where(mask, x * x, -x).sum()
    y.backward()
    return x.grad, mask.requires_grad, index.requires_grad, x.long().requires_grad


@program
def gradients_through_casts(T, nn, optim, np):
    x = T.tensor([0.5, 1.5], requires_grad=True)
    y = x.double() ** 2
    z = x.half() * 3
    (y.sum() + z.float().sum()).backward()
    return x.grad, y, z


@program
def gradients_of_broadcasting(T, nn, optim, np):
    a = T.tensor([[1.0], [2.0]], requires_grad=True)
    b = T.tensor([1.0, 2.0, 3.0], requires_grad=True)
    c = T.tensor(4.0, requires_grad=True)
    ((a + b) * (b / c) - a * c).sum().backward()
    return a.grad, b.grad, c.grad


@program
def a_graph_read_in_the_middle(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    a = x.exp()
    first = a.tolist()
    b = a * x
    second = b.sum().item()
    c = b.sin() + a
    c.tolist()
    c.sum().backward()
    return first, second, x.grad, a.requires_grad, b.requires_grad


@program
def parts_read_in_any_order_before_backward(T, nn, optim, np):
    w = T.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = w * 2
    z = w * 2
    y.tolist(), z.tolist()
    (y * 3 + z).sum().backward()
    return w.grad, y.requires_grad, z.requires_grad


@program
def a_source_without_gradient_is_overwritten_before_backward(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    x = T.tensor([5.0, 6.0])
    loss = (w + x).sum()
    loss.item()
    x.add_(1)
    x.tolist()
    loss.backward()
    return w.grad, loss, x


@program
def an_input_is_overwritten_before_backward(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    x = T.tensor([0.5, 0.6])
    seen = []
    for i in range(3):
        loss = (w * x.exp()).sum() + (w * (x + 1)).sum()
        seen.append(loss.item())
        x.copy_(T.tensor([float(i), 2.0]))
        seen.append(x.tolist())
        loss.backward()
        seen.append(w.grad.clone())
    return seen


@program
def an_input_is_overwritten_between_two_evaluations(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    x = T.tensor([0.5, 0.6])
    for i in range(4):
        y = w * x.exp()
        y.tolist()
        x.copy_(T.tensor([float(i), 2.0]))
        x.tolist()
    y.sum().backward()
    return w.grad, y


@program
def an_activation_is_overwritten_in_place(T, nn, optim, np):
    w = T.tensor([[0.5, -0.2], [0.1, 0.7]], requires_grad=True)
    cache = T.zeros(3, 2)
    h = T.ones(1, 2)
    for t in range(3):
        h = (h @ w).tanh()
        cache[t] = h.detach()[0]
        cache.sum().item()
    (h * cache.sum(0)).sum().backward()
    return w.grad, cache


@program
def a_recurrent_network(T, nn, optim, np):
    w = T.tensor([[0.5, -0.2], [0.1, 0.7]], requires_grad=True)
    h = T.zeros(1, 2)
    losses = []
    for t in range(6):
        h = (h @ w + float(t) / 6).tanh()
        losses.append(h.sum())
        if t == 2:
            h = h.detach()
    sum(losses).backward()
    return w.grad, h


@program
def a_leaf_made_from_a_value(T, nn, optim, np):
    x = T.tensor([1.0, 2.0]) * 2
    x.requires_grad_()
    y = (x * x).sum()
    y.backward()
    return x.grad, x.is_leaf


@program
def a_view_taken_before_its_base_wants_gradients(T, nn, optim, np):
    """It requires grad too, and no gradient goes on from it; writing to it is refused."""
    x = T.tensor([1.0, 2.0, 3.0])
    view, turned, detached = x[1:], x.view(1, 3).t(), x.detach()[:2]
    x.requires_grad_()
    ((view * 2).sum() + (turned * turned).sum() + (x * 3).sum()).backward()
    seen = x.grad, view.requires_grad, turned.requires_grad, detached.requires_grad, view.is_leaf, view.grad
    try:
        view.mul_(2)
    except RuntimeError:
        with T.no_grad():
            view.mul_(2)
    return *seen, x


@program
def views_of_a_detached_tensor_follow_it_and_those_of_its_base_do_not(T, nn, optim, np):
    x = T.tensor([1.0, 2.0, 3.0])
    of_base, detached = x[1:], x.detach()
    of_detached = detached[:2]
    detached.requires_grad_()
    (detached * 2).sum().backward()
    return of_base.requires_grad, of_detached.requires_grad, of_detached.is_leaf, x.requires_grad, detached.grad


@program
def a_view_that_wants_gradients_is_a_leaf_of_its_own(T, nn, optim, np):
    x = T.tensor([1.0, 2.0, 3.0])
    view, other = x[1:], x[:2]
    view.requires_grad_()
    ((view * 2).sum() + (x * 3).sum() + (other * 3).sum()).backward()
    return view.grad, x.requires_grad, other.requires_grad, view.is_leaf


@program
def requires_grad_switched_off_and_on(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    x.requires_grad_(False)
    a = x * 2
    x.requires_grad = True
    b = x * 2
    b.sum().backward()
    return a.requires_grad, b.requires_grad, x.grad


@program
def zero_times_unused(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    u = T.tensor([1.0], requires_grad=True)
    (x.sum() + 0 * u.sum()).backward()
    return x.grad, u.grad


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_program(run):
    check(run)


def test_gradient_with_respect_to_one_of_two_equal_values():
    def run(T, nn, optim, np):
        x = T.tensor([1.0, 2.0], requires_grad=True)
        a, b = x * 2, x * 2
        return T.autograd.grad((a * b).sum(), a)
    check(run)


def test_backward_twice_where_nothing_was_saved():
    def run(T, nn, optim, np):
        x = T.tensor([1.0, 2.0], requires_grad=True)
        y = (-x.t() + 1).sum()
        y.backward()
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            z = (x * 2).sum()
            z.backward()
            z.backward()
        return x.grad
    check(run)


def test_a_parameter_that_backward_needs_was_overwritten():
    """The gradient raises, everything else goes on."""
    w = genesis.tensor([1.0, 2.0], requires_grad=True)
    x = genesis.tensor([5.0, 6.0], requires_grad=True)
    other = genesis.zeros(2).add_(3)
    loss = (w * x).sum()
    loss.item()
    with genesis.no_grad():
        x.add_(1)
    x.tolist()
    optimizer = genesis.optim.SGD([w], lr=0.1)
    loss.backward()
    other.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w.grad.tolist()
    assert w.tolist() == [1, 2] and other.tolist() == [6, 6]
    w.grad = x.grad = None
    (w * x).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(w.tolist(), [1 - 0.6, 2 - 0.7], rtol=1e-6)


def test_grad_of_a_function():
    x = genesis.tensor([1.0, 2.0])

    def f(x, scale=1.0):
        return (x ** 3).sum() * scale

    assert genesis.grad(f)(x).tolist() == [3, 12]
    assert not genesis.grad(f)(x).requires_grad and x.grad is None and not x.requires_grad
    assert genesis.grad(f)(x, scale=2.0).tolist() == [6, 24]
    assert genesis.grad(lambda x: genesis.grad(f)(x).sum())(x).tolist() == [6, 12]
    value, gradient = genesis.value_and_grad(f)(x)
    assert value.item() == 9 and gradient.tolist() == [3, 12]


def test_grad_of_a_function_with_respect_to_several_arguments():
    a, b = genesis.tensor([1.0, 2.0]), genesis.tensor([3.0, 4.0])
    da, db = genesis.grad(lambda a, b: (a * a * b).sum(), (0, 1))(a, b)
    assert da.tolist() == [6, 16] and db.tolist() == [1, 4]


def test_grad_of_a_function_differentiates_through_what_it_closes_over():
    w = genesis.tensor([2.0, 3.0], requires_grad=True)
    gradient = genesis.grad(lambda x: (x * x * w).sum())(genesis.tensor([1.0, 1.0]))
    gradient.sum().backward()
    assert gradient.tolist() == [4, 6] and w.grad.tolist() == [2, 2]


def test_numerical_gradients_of_a_composed_program():
    """Against finite differences in float64, which owe nothing to torch."""
    def f(T, x):
        h = (x @ x.t()).softmax(-1)
        return (h[:, 1:] * x.sum(1, keepdim=True)).tanh().sum() + h.max()

    start = np.random.default_rng(0).standard_normal((3, 3))
    x = genesis.tensor(start, requires_grad=True)
    f(genesis, x).backward()
    for i in range(9):
        step = np.zeros(9)
        step[i] = 1e-6
        up, down = (f(torch, torch.tensor(start + s * step.reshape(3, 3))).item() for s in (1, -1))
        assert abs(x.grad.reshape(-1)[i].item() - (up - down) / 2e-6) < 1e-7
