"""Results lie in memory as torch's do: what is a view, what a copy, and which views are refused follows from it."""

from __future__ import annotations

import copy
import threading

import pytest
from torch_programs import check

import genesis
from genesis.frontend.layouts import noted

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


def lies(x):
    return tuple(x.stride()), x.is_contiguous()


def turned(T):
    return T.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)


@program
def a_clone_of_what_is_turned_is_turned_and_its_reshape_a_copy(T, nn, optim, np):
    y = turned(T).clone()
    y.reshape(-1).add_(100)
    try:
        y.view(-1)
        viewed = True
    except RuntimeError:
        viewed = False
    return y, lies(y), viewed, y.numpy().strides


@program
def pointwise_results_follow_their_operands(T, nn, optim, np):
    x = turned(T)
    y, row = x.clone(), T.ones(2, 3)
    made = [x + 1, x * y, x + row, row + x, x.expand(5, 4, 2, 3) * 2, T.where(x > 3, x, -x), x.exp().sigmoid(),
            x.double(), T.lerp(x, y, 0.5), x.clamp(1, 5), nn.functional.gelu(x),
            nn.functional.dropout(x, 0.5, training=False)]
    return [(x.detach(), lies(x)) for x in made]


@program
def what_is_made_like_it_lies_so(T, nn, optim, np):
    x = turned(T)
    gaps, wide = x[:, :, ::2], T.ones(3, 1).expand(3, 4).t()
    made = [make(y) for y in (x, gaps, wide) for make in (T.zeros_like, T.ones_like, T.rand_like, T.empty_like)]
    return [lies(y) for y in made], lies(T.zeros_like(x, memory_format=T.contiguous_format)), T.full_like(x, 3)


@program
def other_results_are_row_major(T, nn, optim, np):
    x = turned(T)
    made = [x.contiguous(), x.softmax(0), x.cumsum(0), x.sum(0, keepdim=True), x @ T.ones(3, 2),
            x.masked_fill(x > 3, 0)]
    return [(y, lies(y)) for y in made]


@program
def writes_in_place_and_views_of_it(T, nn, optim, np):
    y = turned(T) * 2
    first, flat = y[0], y.permute(1, 2, 0).reshape(-1)
    y.add_(1)
    y[1] = 5
    flat[3] = -1
    y.transpose(0, 2).mul_(2)
    return y, first, flat, lies(first), lies(y.unsqueeze(1)), lies(y[1:].transpose(0, 1))


@program
def out_that_is_empty_takes_the_layout(T, nn, optim, np):
    found = T.empty(0)
    T.add(turned(T), 1, out=found)
    return found, lies(found)


@program
def gradients_lie_as_their_leaf(T, nn, optim, np):
    seen = []
    w = turned(T).clone().requires_grad_()
    w.register_hook(lambda g: seen.append(g.clone()))
    a = w * 2 + 1
    a.retain_grad()
    a.register_hook(lambda g: seen.append(g.clone()))
    (a * w).sum().backward(retain_graph=True)
    by_a, by_w = T.autograd.grad((a * a).sum(), [a, w], retain_graph=True)
    before = w.grad.clone()
    (a * 3).sum().backward()
    return seen, before, w.grad, lies(w.grad), by_a, by_w, a.grad, lies(by_w), a.grad_fn.name()


@program
def a_turned_parameter_trains(T, nn, optim, np):
    found = []
    for make in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop):
        w = nn.Parameter(turned(T).clone())
        trainer = make([w], lr=0.1)
        for _ in range(3):
            trainer.zero_grad()
            (w * w).mean().backward()
            trainer.step()
        found.append((w.detach().clone(), lies(w), lies(w.grad)))
        found.append([lies(x) for x in trainer.state[w].values() if hasattr(x, "stride") and x.ndim])
    return found


@program
def copies_of_copies(T, nn, optim, np):
    w = turned(T).clone().requires_grad_()
    again = copy.deepcopy(w)
    return lies(again), again.requires_grad, again.detach(), lies(w.detach()), lies(turned(T).clone().detach_())


@program
def formats_are_kept(T, nn, optim, np):
    image = T.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=T.channels_last)
    layer = nn.Conv2d(2, 3, 1).to(memory_format=T.channels_last)
    with T.no_grad():
        layer.weight.fill_(0.5), layer.bias.fill_(1)
    y = layer(T.arange(24.0).reshape(1, 2, 3, 4))
    y.sum().backward()
    made = [image * 2, image.contiguous(), image.to(memory_format=T.contiguous_format), image.clone(),
            image.half().float(), nn.functional.avg_pool2d(image, 2), nn.BatchNorm2d(2)(image).detach(), y.detach()]
    flat = image.clone().reshape(-1)
    flat.zero_()
    return [(x, lies(x)) for x in made], lies(layer.weight), layer.weight.grad, image


@program
def the_positions_of_nonzero_lie_column_by_column(T, nn, optim, np):
    found = (turned(T) > 4).nonzero()
    return found, tuple(found.stride())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program):
    check(program)


def test_a_replay_returns_what_the_call_returned():
    function = genesis.compile(lambda x: (x.t() * 2, x.t().clone()))
    for _ in range(3):
        scaled, copied = function(genesis.arange(6).float().reshape(2, 3))
        assert scaled.stride() == copied.stride() == (1, 3)
        copied.reshape(-1).zero_()
        assert copied.tolist() == [[0, 3], [1, 4], [2, 5]] and scaled.tolist() == [[0, 6], [2, 8], [4, 10]]


def test_only_the_tensors_of_a_call_decide():
    x = genesis.ones(2, 3).t()
    copied = x.contiguous()
    genesis.zeros(3, 2).copy_(x)  # reads it, and makes no result
    assert (copied + 1).is_contiguous() and (x + 1).stride() == (1, 3)
    assert threading.get_ident() not in noted


def test_other_threads_reads_decide_nothing():
    x, y = genesis.ones(2, 3).t(), genesis.ones(3, 2)
    found = []

    def work() -> None:
        for _ in range(200):
            found.append(((x * 2).stride(), (y * 2).stride()))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {((1, 3), (2, 1))}


def test_an_argument_that_lies_turned_is_replayed():
    function = genesis.compile(lambda x: x * 2 + x.sum())
    for n in range(4):
        x = (genesis.arange(6).float().reshape(2, 3).t() + n).clone()
        found = function(x)
        assert found.stride() == (1, 3) and found[2, 1].item() == 2 * (5 + n) + 15 + 6 * n
    assert function(x.contiguous()).stride() == (2, 1)
    assert function.hits >= 2
