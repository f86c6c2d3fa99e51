"""`autograd.Function`: what a user's own forward and backward may do, and what torch refuses."""

from __future__ import annotations

import gc

import pytest
from torch_programs import check

import genesis

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


def exponential(T):
    """exp by its saved output."""
    class Exp(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y
    return Exp.apply


@program
def derivatives_through_a_saved_output(T, nn, optim, np):
    x = T.tensor([0.5, 1.0], requires_grad=True)
    y = exponential(T)(x * 2)
    (first,) = T.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = T.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = T.autograd.grad(second.sum(), x)
    return first, second, third


@program
def derivatives_through_a_saved_output_that_nobody_holds(T, nn, optim, np):
    class Two(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x.exp(), x.sin()
            ctx.save_for_backward(a, None, b, x)
            return a, b

        @staticmethod
        def backward(ctx, ga, gb):
            a, nothing, b, x = ctx.saved_tensors
            assert nothing is None
            return ga * a + gb * x.cos() + 2 * b
    x = T.tensor([0.5, 1.0], requires_grad=True)
    a, b = Two.apply(x)
    loss = (b * 3).sum()
    del a, b
    (first,) = T.autograd.grad(loss, x, create_graph=True)
    return first, T.autograd.grad(first.sum(), x)


@program
def an_output_with_hooks_and_its_gradient(T, nn, optim, np):
    x = T.tensor([1.0], requires_grad=True)
    y = exponential(T)(x)
    seen = []
    y.register_hook(lambda g: (seen.append(g.clone()), g * 3)[1])
    y.retain_grad()
    (y * 2).sum().backward()
    z = exponential(T)(x)
    return seen, y.grad, x.grad, T.autograd.grad((z * z).sum(), z)


@program
def gradients_without_a_graph(T, nn, optim, np):
    class Cube(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        @T.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g
    x = T.tensor([2.0], requires_grad=True)
    y = Cube.apply(x)
    (g,) = T.autograd.grad((y * y).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()
    return T.autograd.grad(Cube.apply(x).sum(), x)


@program
def gradients_that_are_not_made_into_zeros(T, nn, optim, np):
    seen = []

    class Three(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2, 7

        @staticmethod
        def backward(ctx, a, b, c):
            seen.append((a is None, b is None, c is None))
            return a
    x = T.tensor([1.0], requires_grad=True)
    Three.apply(x)[0].sum().backward()
    return seen, x.grad


@program
def a_backward_without_a_gradient(T, nn, optim, np):
    class Nothing(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None
    x, y = T.tensor([1.0], requires_grad=True), T.tensor([1.0], requires_grad=True)
    (Nothing.apply(x * 2).sum() + x.sum()).backward()
    Nothing.apply(y).sum().backward()
    return x.grad, y.grad is None


@program
def gradients_are_fitted_to_the_input(T, nn, optim, np):
    class Wide(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return T.ones(3, 2, dtype=T.float64), None, None
    x = T.tensor([1.0, 2.0], requires_grad=True)
    Wide.apply(x).sum().backward()
    return x.grad


@program
def an_input_as_output(T, nn, optim, np):
    class Same(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            return x, n

        @staticmethod
        def backward(ctx, g, _):
            return g * 5, None
    x, n = T.tensor([1.0], requires_grad=True), T.tensor([3])
    y, m = Same.apply(x, n)
    (y + x).sum().backward()
    return x.grad, y is x, m, m.requires_grad


@program
def a_saved_output_that_has_no_gradient(T, nn, optim, np):
    class Both(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            ctx.mark_non_differentiable(y)
            return x * 1, y

        @staticmethod
        def backward(ctx, g, _):
            return g * ctx.saved_tensors[0]
    x = T.tensor([1.0], requires_grad=True)
    a, b = Both.apply(x)
    a.sum().backward()
    return x.grad, b, b.requires_grad


@program
def what_the_ctx_knows(T, nn, optim, np):
    seen = []

    class Scale(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, name=None, mask=None):
            ctx.factor, ctx.name = factor, name
            seen.append(ctx.needs_input_grad)
            return x * factor

        @staticmethod
        def backward(ctx, g):
            seen.append((ctx.factor, ctx.name, ctx.needs_input_grad))
            return g * ctx.factor, None, None, None
    x = T.tensor([1.0], requires_grad=True)
    Scale.apply(x, 3.0, "name", T.ones(1)).sum().backward()
    with T.no_grad():
        y = Scale.apply(x, 2.0)
    return seen, x.grad, y.requires_grad


@program
def what_is_refused(T, nn, optim, np):
    def leaf(*values):
        return T.tensor(list(values), requires_grad=True)

    def function(forward, backward=lambda ctx, g: g):
        return type("Own", (T.autograd.Function,),
                    {"forward": staticmethod(forward), "backward": staticmethod(backward)}).apply

    def dirty(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    def dirty_and_gone(ctx, x):
        ctx.mark_dirty(x)
        return x * 1

    def save_a_number(ctx, x):
        ctx.save_for_backward(3)
        return x * 1

    def write_to_an_output():
        y = exponential(T)(leaf(1.0))
        y.mul_(2)
        y.sum().backward()
    said = []
    for action, kind, word in [
        (lambda: function(dirty)(leaf(1.0)), RuntimeError, "a leaf Variable that requires grad"),
        (lambda: function(dirty_and_gone)(leaf(1.0) * 1), RuntimeError, "marked as dirty"),
        (lambda: function(save_a_number)(leaf(1.0)), TypeError, "save_for_backward can only save"),
        (lambda: function(lambda ctx, x, n: x * n, lambda ctx, g: (g, g))(leaf(1.0), 2).sum().backward(),
         RuntimeError, "returned a gradient different than None at position 2"),
        (lambda: function(lambda ctx, x: x * 1, lambda ctx, g: (g, g))(leaf(1.0)).sum().backward(),
         RuntimeError, "returned an incorrect number of gradients (expected 1, got 2)"),
        (lambda: function(lambda ctx, x: x * 1, lambda ctx, g: T.ones(3))(leaf(1.0, 2.0)).sum().backward(),
         RuntimeError, "returned an invalid gradient at index 0 - got [3] but expected shape compatible with [2]"),
        (write_to_an_output, RuntimeError, "modified by an inplace operation"),
    ]:
        with pytest.raises(kind) as error:
            action()
        said.append((word, word in str(error.value).splitlines()[0]))  # the next lines show this test
    return said


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_program(run):
    check(run)


def test_nothing_is_left_of_a_call_whose_tensors_are_gone():
    from genesis.frontend.state import state
    gc.collect()  # what other tests left
    before = len(state.crossings)
    x = genesis.tensor([0.5], requires_grad=True)
    y = exponential(genesis)(x)
    (g,) = genesis.autograd.grad(y.sum(), x, create_graph=True)
    assert len(state.crossings) > before
    del y, g
    assert len(state.crossings) == before


def test_two_vmap_rules_are_refused():
    class Both(genesis.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 1

        @staticmethod
        def vmap(info, in_dims, x):
            return x * 1, in_dims[0]
    with pytest.raises(RuntimeError, match="both generate_vmap_rule=True and a vmap"):
        Both.apply(genesis.ones(2))
