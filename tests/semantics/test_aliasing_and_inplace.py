"""In-place writes, aliases, and tensors read after their source was overwritten: torch's numbers."""

from __future__ import annotations

import pytest
from torch_programs import check

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


@program
def two_equal_values_are_two_memories(T, nn, optim, np):
    x = T.tensor([1.0, 2.0, 3.0])
    y = x * 2
    z = x * 2
    y.add_(1)
    return y, z, x


@program
def equal_values_read_before_one_is_written(T, nn, optim, np):
    x = T.tensor([1.0, 2.0, 3.0])
    y, z = x * 2, x * 2
    first = y.tolist()
    y.add_(1)
    return first, z, y


@program
def equal_values_both_read_then_one_is_written(T, nn, optim, np):
    x = T.tensor([1.0, 2.0, 3.0])
    y, z = x * 2, x * 2
    both = y.tolist(), z.tolist()
    z.mul_(10)
    return both, y, z, y + z


@program
def equal_constants_are_two_memories(T, nn, optim, np):
    a, b = T.zeros(3), T.zeros(3)
    a[1] = 5
    return a, b, T.zeros(3)


@program
def a_result_keeps_the_source_of_its_time(T, nn, optim, np):
    x = T.tensor([1.0, 2.0])
    y = x * 10
    x.add_(1)
    z = x * 10
    x.zero_()
    return y, z, x


@program
def the_source_is_overwritten_and_read_before_the_result(T, nn, optim, np):
    x = T.tensor([1.0, 2.0])
    y = x * 10
    x.add_(1)
    seen = x.tolist()
    x.add_(1)
    seen += x.tolist()
    return seen, y


@program
def a_chain_of_results_over_overwritten_sources(T, nn, optim, np):
    x = T.arange(6).float().view(2, 3).clone()
    kept = []
    for i in range(5):
        kept.append(x.sum(0))
        x.mul_(2).sub_(i)
        if i == 2:
            kept.append(x.max().item())
    return kept, x


@program
def one_write_reads_another_written_tensor(T, nn, optim, np):
    a, b = T.tensor([1.0, 2.0]), T.tensor([10.0, 20.0])
    a.tolist(), b.tolist()
    a.add_(b)
    b.sub_(a)
    a.mul_(b)
    return a, b


@program
def a_swap(T, nn, optim, np):
    a, b = T.tensor([1.0, 2.0]), T.tensor([10.0, 20.0])
    keep = a.clone()
    a.copy_(b)
    b.copy_(keep)
    return a, b, keep


@program
def an_overlapping_shift(T, nn, optim, np):
    x = T.arange(8).float()
    x.tolist()
    x[1:] = x[:-1].clone()
    y = T.arange(8).float()
    y[:-1] = y[1:] * 2
    return x, y


@program
def transposing_a_square_into_itself(T, nn, optim, np):
    x = T.arange(9).float().view(3, 3)
    x.tolist()
    x.copy_(x.t().clone())
    return x


@program
def every_in_place_operator(T, nn, optim, np):
    x = T.tensor([4.0, 9.0, 16.0])
    alias = x
    x += 1
    x -= T.tensor([1.0, 2.0, 3.0])
    x *= 3
    x /= 2
    x //= 1
    x %= 7
    x **= 2
    n = T.tensor([6, 5, 4])
    n &= 6
    n |= 1
    n ^= 3
    return x, alias is x, n


@program
def every_in_place_method(T, nn, optim, np):
    results = []
    for name in ["exp_", "log_", "sin_", "cos_", "tanh_", "sqrt_", "rsqrt_", "reciprocal_", "sigmoid_", "neg_", "abs_",
                 "sign_", "floor_", "ceil_", "round_", "trunc_", "relu_", "zero_"]:
        x = T.tensor([0.3, 1.6, 2.5])
        same = getattr(x, name)()
        results += [x, same is x]
    return results


@program
def in_place_methods_with_operands(T, nn, optim, np):
    x = T.tensor([1.0, -2.0, 3.0])
    t = T.tensor([2.0, 2.0, 4.0])
    x.add_(t, alpha=2).sub_(1).mul_(t).div_(3).pow_(2)
    x.clamp_(0.5, 40).lerp_(t, 0.25).addcmul_(t, t, value=0.1).addcdiv_(t, t, value=2)
    x.fmod_(5).remainder_(3).fill_(x.sum().item())
    m = T.tensor([True, False, True])
    x.masked_fill_(m, -1)
    x.copy_(t * x)
    return x


@program
def in_place_keeps_the_dtype(T, nn, optim, np):
    h = T.ones(3).half()
    h += T.ones(3) * 0.5
    i = T.tensor([1, 2, 3], dtype=T.int32)
    i += T.tensor([1, 2, 3])
    i *= 2
    return h, i


@program
def in_place_with_broadcasting(T, nn, optim, np):
    x = T.ones(2, 3)
    x += T.tensor([1.0, 2.0, 3.0])
    x *= T.tensor([[1.0], [10.0]])
    x[0] += 100
    return x


@program
def an_alias_by_name_and_by_detach(T, nn, optim, np):
    x = T.tensor([1.0, 2.0])
    a, b = x, x.detach()
    b.add_(5)
    a.mul_(2)
    return x, a, b


@program
def detach_of_a_parameter_writes_through(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    w.detach().mul_(3)
    w.data.add_(1)
    w.data[0] = -7.0
    (w * w).sum().backward()
    return w, w.grad


@program
def clone_is_no_alias(T, nn, optim, np):
    x = T.tensor([1.0, 2.0])
    y = x.clone()
    z = x.detach().clone()
    x.add_(1)
    y.mul_(10)
    return x, y, z


@program
def contiguous_of_contiguous_is_an_alias(T, nn, optim, np):
    x = T.arange(4).float()
    x.contiguous().add_(1)
    y = T.arange(4).float().view(2, 2)
    y.t().contiguous().add_(100)
    x.to(T.float32).mul_(2)
    x.to(T.float64).zero_()
    return x, y


@program
def a_list_of_snapshots_of_a_running_sum(T, nn, optim, np):
    total = T.zeros(2)
    history = []
    for i in range(4):
        total += T.tensor([1.0, float(i)])
        history.append(total.clone())
    return history, total


@program
def a_write_depends_on_a_read(T, nn, optim, np):
    x = T.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        if x.sum() > 10:
            x.div_(2)
        else:
            x.mul_(3)
    return x


@program
def in_place_on_a_value_that_requires_grad(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = w * 2
    y.add_(1).mul_(w)
    y[0] = 0.0
    y.sum().backward()
    return y, w.grad


@program
def in_place_without_grad_keeps_the_history(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = w * 3
    with T.no_grad():
        y.add_(100)
        y[0] = 5.0
    flag = y.requires_grad
    (y * 2).sum().backward()
    return y, flag, w.grad


@program
def in_place_without_grad_many_times(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = w * 3
    with T.no_grad():
        for i in range(4):
            y.add_(i)
            if i % 2:
                y.tolist()
    y.sum().backward()
    return y, w.grad


@program
def a_constant_is_written_with_a_value_that_requires_grad(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    buffer = T.zeros(2, 2)
    buffer[0] = w * 2
    view = buffer[1]
    view.add_(w)
    (buffer * T.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    return buffer, view, w.grad


@program
def zeroing_stops_the_gradient(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = w * 2
    y.zero_()
    y.add_(w)
    y.sum().backward()
    return y, w.grad


@program
def a_parameter_changed_under_a_live_expression(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = (w * 3).detach()
    z = w + 0
    with T.no_grad():
        w.sub_(10)
    return y, z, w, w * 3


@program
def a_leaf_read_between_writes_gets_one_gradient(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    first = (w * 2).sum()
    with T.no_grad():
        w.add_(1)
    second = (w * 3).sum()
    (first + second).backward()
    return w.grad, first, second


@program
def gradient_of_a_leaf_written_after_use(T, nn, optim, np):
    w = T.tensor([1.0, 2.0], requires_grad=True)
    y = (w * 2).sum()
    with T.no_grad():
        w.add_(1)
    return T.autograd.grad(y, w), y, w


@program
def data_assignment_moves_a_parameter(T, nn, optim, np):
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = T.tensor([[1.0, 2.0], [3.0, 4.0]])
    x = T.tensor([[1.0, 1.0]])
    layer(x).sum().backward()
    return layer.weight, layer.weight.grad, layer(x)


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_program(run):
    check(run)
