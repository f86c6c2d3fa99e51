"""Hooks on tensors, as torch calls them: when, with what, in which order, and what they change."""

from __future__ import annotations

import gc
import weakref

import pytest
from torch_programs import check

import genesis

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


@program
def a_hook_sees_what_was_made_before_it_was_registered(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    before = (y * y).sum()
    seen = []
    y.register_hook(lambda g: (seen.append(g.clone()), g * 10)[1])
    (before + y.sum()).backward()
    return seen, x.grad


@program
def a_value_that_was_read_before(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    z = (y * y).sum()
    values = y.tolist(), z.item()
    seen = []
    y.register_hook(lambda g: seen.append(g.clone()))
    z.backward()
    return values, seen, x.grad


@program
def of_two_equal_values_each_has_hooks_of_its_own(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    a, b = x * 3, x * 3
    loss = (a * 2).sum() + (b * 5).sum()
    seen = []
    b.register_hook(lambda g: (seen.append(g.clone()), g * 10)[1])
    loss.backward()
    return seen, x.grad


@program
def a_copy_is_made_of_its_original(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    a = x * 3
    c, d = a.clone(), x.clone()
    loss = (a * 2).sum() + (c * 5).sum() + (d * 7).sum()
    seen = []
    a.register_hook(lambda g: seen.append(("a", g.clone())))
    c.register_hook(lambda g: (seen.append(("c", g.clone())), g * 2)[1])
    d.register_hook(lambda g: seen.append(("d", g.clone())))
    loss.backward()
    return sorted(seen, key=lambda x: x[0]), x.grad


@program
def on_the_root(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.register_hook(lambda g: g * 3)
    loss.retain_grad()
    loss.backward()
    return loss.grad, x.grad


@program
def on_a_view(T, nn, optim, np):
    x = T.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x * x
    row, turned = y[0], y.t()
    loss = (row * 3).sum() + (turned * turned).sum()
    seen = []
    row.register_hook(lambda g: (seen.append(("row", g.clone())), g * 2)[1])
    turned.register_hook(lambda g: seen.append(("turned", g.clone())))
    (loss + y.sum()).backward()
    return sorted(seen, key=lambda x: x[0]), x.grad


@program
def on_a_view_that_nothing_was_made_of_yet(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x.view(2, 1).t()
    seen = []
    y.register_hook(lambda g: (seen.append(g.clone()), g * 3)[1])
    (y * 2).sum().backward()
    return seen, x.grad


@program
def a_second_derivative_that_does_not_depend_on_a_value_calls_no_hook_there(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x.sin()
    seen = []
    y.register_hook(lambda g: seen.append(g.detach().clone()))
    (g,) = T.autograd.grad((y * 2).sum() + (x ** 3).sum(), x, create_graph=True)
    (x * 0 + g.detach()).sum().backward()
    g.sum().backward()
    return seen, x.grad


@program
def users_before_what_they_were_made_of(T, nn, optim, np):
    x = T.tensor([0.5, 2.0], requires_grad=True)
    a = x.exp()
    b = a * 2
    loss = (b.sin() + a * a + b * a).sum()
    order = []
    a.register_hook(lambda g: (order.append("a"), g.clamp(max=1.0))[1])
    b.register_hook(lambda g: (order.append("b"), g * 0.25)[1])
    loss.register_hook(lambda g: order.append("loss"))
    loss.backward()
    return order, x.grad


@program
def several_in_order_and_one_taken_away(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g + 1)
    handle = y.register_hook(lambda g: g * 100)
    y.register_hook(lambda g: g * 3)
    handle.remove()
    with y.register_hook(lambda g: g * 100):
        pass
    y.sum().backward()
    return x.grad


@program
def taken_away_between_two_backwards(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    handle.remove()
    y.sum().backward()
    return first, x.grad


@program
def a_hook_belongs_to_the_value_a_kept_gradient_to_the_tensor(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    seen = []
    y.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])
    y.mul_(3)
    (y * y).sum().backward()
    return seen, y.grad, x.grad


@program
def a_write_without_gradients_keeps_the_value_that_hooks_belong_to(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = y * 3
    with T.no_grad():
        y.add_(1)
    seen = []
    y.register_hook(lambda g: seen.append(g.clone()))
    (z + y * 4).sum().backward()
    return seen, x.grad


@program
def retain_grad_after_it_was_used_and_twice(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    y.retain_grad()
    y.retain_grad()
    kept = y.retains_grad, x.retains_grad
    z.backward(retain_graph=True)
    z.backward()
    return kept, y.grad, x.grad, y.grad is None, y.is_leaf


@program
def a_kept_gradient_is_what_the_hooks_leave(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 5)
    y.sum().backward()
    return y.grad, x.grad


@program
def what_grad_returns_of_values_with_hooks(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    y.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)
    both = T.autograd.grad(z, (y, x), retain_graph=True)
    return both, T.autograd.grad(z, y, retain_graph=True), T.autograd.grad(z, x)


@program
def hooks_run_again_in_a_second_derivative(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x.sin()
    z = (y ** 3).sum()
    seen = []
    y.register_hook(lambda g: (seen.append(g.detach().clone()), g * 2)[1])
    (g,) = T.autograd.grad(z, x, create_graph=True)
    g.sum().backward()
    return seen, g, x.grad


@program
def no_hook_where_nothing_is_asked_for(T, nn, optim, np):
    x, w = T.tensor([1.0], requires_grad=True), T.tensor([2.0], requires_grad=True)
    y = w * 3
    seen = []
    y.register_hook(lambda g: seen.append(1))
    (x * 5 + y).sum().backward(inputs=[x])
    return seen, x.grad, w.grad is None


@program
def errors_of_hooks(T, nn, optim, np):
    said = []
    for action, word in [
        (lambda: T.ones(2).register_hook(print), "doesn't require gradient"),
        (lambda: T.ones(2).retain_grad(), "requires_grad=False"),
        (lambda: (T.ones(2, requires_grad=True) * 2).register_post_accumulate_grad_hook(print), "non-leaf"),
    ]:
        with pytest.raises(RuntimeError) as error:
            action()
        said.append(word in str(error.value).splitlines()[0])
    for answer, kind, word in [(3, TypeError, "returned 'int'"),
                               (T.ones(3), RuntimeError, "changed the size of value"),
                               (T.ones(2).double(), RuntimeError, "changed the type of value")]:
        x = T.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g, answer=answer: answer)
        with pytest.raises(kind) as error:
            y.sum().backward()
        said.append(word in str(error.value).splitlines()[0])
    return said


@program
def a_leaf_with_hooks_in_several_backwards(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: g * 2)
    after = []
    x.register_post_accumulate_grad_hook(lambda leaf: after.append(leaf.grad.clone()))
    (x * 3).sum().backward()
    T.autograd.backward([x.sum(), (x * x).sum()])
    return after, x.grad


@program
def a_hook_of_the_end_of_a_path_as_reducers_of_gradients_register_it(T, nn, optim, np):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    end = x.expand_as(x).grad_fn.next_functions[0][0]
    seen = []
    handle = end.register_hook(lambda given, arrived: seen.append((len(given), len(arrived), arrived[0].clone(),
                                                                   arrived[0].requires_grad, x.grad.clone())))
    (x * 3).sum().backward()
    x.register_hook(lambda g: g * 2)
    (x * x).sum().backward()
    T.autograd.grad(x.sum(), x)
    handle.remove()
    x.sum().backward()
    return seen, x.grad


def test_ops_have_no_hooks_and_say_whose_they_are():
    x = genesis.ones(2, requires_grad=True)
    assert not hasattr((x * 2).grad_fn, "register_hook")
    with pytest.raises(AttributeError, match="'MulBackward0' object has no attribute 'register_prehook': hooks are"):
        (x * 2).grad_fn.register_prehook(print)
    with pytest.raises(RuntimeError, match=r"variable\.register_hook"):
        x.view(2).grad_fn.next_functions[0][0].register_prehook(print)


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_program(run):
    check(run)


def test_a_hook_that_holds_its_tensor_dies_with_it(only_new_garbage):
    def made():
        y = x * 2
        y.register_hook(lambda g: g * y.detach())
        return weakref.ref(y)
    x = genesis.tensor([1.0], requires_grad=True)
    place = made()
    gc.collect()
    assert place() is None
