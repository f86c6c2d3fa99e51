"""Where backward runs Python: hooks, functions of the user's own, moves. Each program runs in torch too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

LIBRARIES = (genesis, torch)


def both(program: Any) -> None:
    """The program's tensors are the same in both libraries."""
    mine, theirs = (program(library) for library in LIBRARIES)
    for got, want in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-6)


def leaf(library: Any, *values: float) -> Any:
    return library.tensor(list(values), requires_grad=True)


def scaled_sum(library: Any) -> Any:
    """A function of two inputs and two results."""
    class ScaledSum(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, factor: float) -> Any:
            ctx.save_for_backward(a, b)
            ctx.factor = factor
            return a * b * factor, a + b

        @staticmethod
        def backward(ctx: Any, product: Any, total: Any) -> Any:
            a, b = ctx.saved_tensors
            return product * b * ctx.factor + total, product * a * ctx.factor + total, None
    return ScaledSum


def test_a_function_with_two_results_in_the_middle_of_a_program() -> None:
    def program(library: Any) -> Any:
        a, b = leaf(library, 1.0, 2.0), leaf(library, 3.0, -1.0)
        product, total = scaled_sum(library).apply(a * 2, b.sin(), 3.0)
        (product.exp() + total * a).sum().backward()
        return product, a.grad, b.grad
    both(program)


def test_results_that_nothing_arrives_at_give_zeros() -> None:
    def program(library: Any) -> Any:
        a, b = leaf(library, 1.0), leaf(library, 3.0)
        scaled_sum(library).apply(a, b, 2.0)[0].sum().backward()
        return a.grad, b.grad
    both(program)


def test_a_function_of_a_function_and_the_gradient_of_its_gradient() -> None:
    def program(library: Any) -> Any:
        a, b = leaf(library, 1.0, 0.5), leaf(library, 3.0, 2.0)
        apply = scaled_sum(library).apply
        y = apply(*apply(a, b, 2.0), 1.5)[0]
        first = library.autograd.grad(y.sum(), (a, b), create_graph=True)
        second = library.autograd.grad((first[0] * first[1]).sum(), (a, b))
        return *first, *second
    both(program)


def test_needs_input_grad_and_results_without_a_gradient() -> None:
    seen = []

    def program(library: Any) -> Any:
        class Halves(library.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                seen.append(ctx.needs_input_grad)
                positive = x > 0
                ctx.mark_non_differentiable(positive)
                return x * 0.5, positive

            @staticmethod
            def backward(ctx: Any, g: Any, _: Any) -> Any:
                return g * 0.5, None
        x = leaf(library, 1.0, -2.0)
        half, positive = Halves.apply(x, library.tensor([1.0]))
        assert not positive.requires_grad
        half.sum().backward()
        return (x.grad,)
    both(program)
    assert seen == [(True, False), (True, False)]


def test_a_function_that_writes_to_its_input() -> None:
    def program(library: Any) -> Any:
        class AddOne(library.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                x.add_(1)
                ctx.mark_dirty(x)
                return x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 7
        a = leaf(library, 1.0, 2.0)
        x = a * 3
        y = AddOne.apply(x)
        (x * y).sum().backward()
        return y, x, a.grad
    both(program)


def test_setup_context_beside_forward() -> None:
    def program(library: Any) -> Any:
        class Square(library.autograd.Function):
            @staticmethod
            def forward(x: Any) -> Any:
                return x * x

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return g * 2 * x
        a = leaf(library, 3.0)
        Square.apply(a).sum().backward()
        return (a.grad,)
    both(program)


def test_hooks_on_leaves_and_in_between_change_gradients() -> None:
    def program(library: Any) -> Any:
        a = leaf(library, 1.0, 2.0)
        seen = []
        a.register_hook(lambda g: g + 1)
        x = a * 3
        x.retain_grad()
        x.register_hook(lambda g: seen.append(g.clone()))
        handle = x.register_hook(lambda g: g * 100)
        x.register_hook(lambda g: g * 2)
        handle.remove()
        (x * x + a).sum().backward()
        return a.grad, x.grad, *seen
    both(program)


def test_a_hook_sees_the_sum_of_all_that_arrives() -> None:
    def program(library: Any) -> Any:
        a = leaf(library, 0.5, 2.0)
        x = a.exp()
        x.register_hook(lambda g: g.clamp(max=1.0))
        y = x * 2
        y.register_hook(lambda g: g * 0.25)
        (y.sin() + x * x + y * x).sum().backward()
        return (a.grad,)
    both(program)


def test_post_accumulate_hooks_run_after_each_backward() -> None:
    def program(library: Any) -> Any:
        a, seen = leaf(library, 1.0), []
        a.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.clone()))
        (a * 2).sum().backward()
        (a * 3).sum().backward()
        return seen
    both(program)


def test_batched_weights_give_a_row_for_each() -> None:
    def program(library: Any) -> Any:
        a = leaf(library, 1.0, 2.0, 3.0)
        return library.autograd.grad(a * a, a, library.eye(3), is_grads_batched=True)
    both(program)


def test_a_saved_tensor_that_was_written_to_is_refused() -> None:
    for library in LIBRARIES:
        a, b = leaf(library, 1.0), leaf(library, 2.0)
        x = a * 1
        y = scaled_sum(library).apply(x, b, 1.0)[0]
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_wrong_number_of_gradients_is_named() -> None:
    class Wrong(genesis.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g
    y = Wrong.apply(leaf(genesis, 1.0), leaf(genesis, 1.0))
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        y.sum().backward()


def test_gradcheck_finds_a_wrong_gradient() -> None:
    class Wrong(genesis.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3
    x = genesis.tensor([1.0, 2.0], dtype=genesis.float64, requires_grad=True)
    assert not genesis.autograd.gradcheck(Wrong.apply, x, raise_exception=False)
    with pytest.raises(genesis.autograd.GradcheckError, match="Jacobian mismatch for output 0"):
        genesis.autograd.gradcheck(Wrong.apply, x)
    assert genesis.autograd.gradcheck(lambda x: (x.sin(), x * x), x)
    assert genesis.autograd.gradgradcheck(lambda x: x.exp() * x, x)


def test_anomaly_mode_names_the_op_and_the_line_of_the_first_nan() -> None:
    x = leaf(genesis, 0.0, 1.0)
    with genesis.autograd.detect_anomaly(), pytest.raises(RuntimeError, match=r"(?s)div.*nan.*test_boundaries.py"):
        ((x / x) * 2 + x).sum().backward()
    (x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
