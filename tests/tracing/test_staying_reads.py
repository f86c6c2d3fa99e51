"""A value that a compiled function reads in its middle of memory that stays is guarded by the writes to that memory;
one that follows from constants is the same at each call."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import torch

import genesis
from genesis import nn
from genesis.frontend.session import Session


class Made(NamedTuple):
    """A function, what it reads, and what is done between its calls."""

    function: Callable[[Any], Any]
    read: Any
    hits: int
    change: Callable[[int], Any] = lambda i: None


def lengths() -> Made:
    sizes = genesis.tensor([1, 3, 2])
    return Made(lambda x: [part.sum() for part in x.split(sizes.tolist())], sizes, 7)


def segments() -> Made:
    of = genesis.tensor([0, 1, 1, 0, 2, 1])
    return Made(lambda x: genesis.zeros(3, 4).index_add_(0, of, x * 2) / genesis.bincount(of)[:, None], of, 7)


def a_flag_that_is_written_between_calls() -> Made:
    flag = genesis.zeros(1)
    return Made(lambda x: x * 2 if flag == 0 else x * 3, flag, 5, lambda i: flag.fill_(1) if i == 4 else None)


def a_flag_that_a_write_leaves_pending() -> Made:
    flag = genesis.zeros(1)
    return Made(lambda x: x * 2 if flag == 0 else x * 3, flag, 0, lambda i: flag.add_(i % 2))


def a_flag_that_shows_other_memory() -> Made:
    flag = genesis.zeros(1)

    def change(i: int) -> None:
        if i == 4:
            flag.data = genesis.ones(1)
    return Made(lambda x: x * 2 if flag == 0 else x * 3, flag, 5, change)


def a_flag_that_another_compiled_function_writes() -> Made:
    flag = genesis.zeros(1)

    @genesis.compile
    def other(x: Any) -> Any:
        flag.add_(x)
        return x * 1
    return Made(lambda x: x * flag.item() if flag < 3 else -x, flag, 0, lambda i: other(genesis.ones(1)))


def a_flag_that_numpy_writes() -> Made:
    flag = genesis.zeros(1)
    shared = flag.numpy()

    def change(i: int) -> None:
        shared[0] = i % 2
    return Made(lambda x: x * 2 if flag == 0 else x * 3, flag, 0, change)


def a_flag_that_numpy_writes_and_lets_go_of() -> Made:
    flag = genesis.zeros(1)

    def change(i: int) -> None:
        if i % 3 == 2:
            flag.numpy()[0] += 1
    return Made(lambda x: x * flag.item() if flag > 0 else -x, flag, 2, change)


def a_flag_that_a_view_of_other_numbers_writes() -> Made:
    flag = genesis.zeros(1)

    def change(i: int) -> None:
        if i % 3 == 2:
            flag.view(genesis.int32).add_(1 << 23)
    return Made(lambda x: x * flag.item() if flag > 0 else -x, flag, 2, change)


def a_flag_that_another_library_writes_and_lets_go_of() -> Made:
    flag = genesis.zeros(1)

    def change(i: int) -> None:
        if i % 3 == 2:
            torch.from_dlpack(flag).add_(1)
    return Made(lambda x: x * flag.item() if flag > 0 else -x, flag, 2, change)


def a_flag_that_it_writes_itself() -> Made:
    flag = genesis.zeros(1)

    def function(x: Any) -> Any:
        found = x * 2 if flag == 0 else x * 3
        flag.fill_(1)
        return found
    return Made(function, flag, 0)


def a_flag_that_it_has_written() -> Made:
    flag = genesis.zeros(1)

    def function(x: Any) -> Any:
        flag.add_(1)
        return x * 2 if flag < 4 else x * 3
    return Made(function, flag, 0)


def an_argument() -> Made:
    return Made(lambda x: x * 2 if x.sum() > 0 else x * 3, genesis.zeros(1), 0)


def a_draw() -> Made:
    kept = genesis.ones(2)
    return Made(lambda x: x * 2 if (genesis.rand(2) * kept).sum() > 1 else x * 3, kept, 0)


def a_weight_that_the_step_writes() -> Made:
    net = nn.Linear(4, 1)
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.5)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean() * (2 if net.weight.detach().sum() > 0.1 else 3)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return Made(function, net.weight, 0)


def a_step_by_the_lengths_of_its_data() -> Made:
    net, sizes = nn.Linear(4, 1), genesis.tensor([2, 4])
    optimizer = genesis.optim.Adam(net.parameters(), lr=0.1)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = sum(part.square().mean() for part in net(x).split(sizes.tolist()))
        loss.backward()
        optimizer.step()
        return loss.detach()
    return Made(function, net.weight, 5, lambda i: sizes.copy_(genesis.tensor([3, 3])) if i == 5 else None)


def a_mask_of_constants() -> Made:
    def function(x: Any) -> Any:
        hidden = genesis.triu(x.new_ones(6, 4), 2).bool()
        return x.masked_fill(hidden, 0.0) if hidden.any().item() else x
    return Made(function, genesis.zeros(1), 8)


def times_of_a_schedule() -> Made:
    def function(x: Any) -> Any:
        times = genesis.linspace(0, 1, 4)
        for t, after in pairwise(times):
            x = x + (after - t).item() * x * t
        return x
    return Made(function, genesis.zeros(1), 8)


def a_flag_for_each_column() -> Made:
    def function(x: Any) -> Any:
        plain = genesis.ones(4, dtype=genesis.bool)
        plain[[1, 2]] = False
        return [x[:, i] * 2 if plain[i] else x[:, i] * 3 for i in range(4)]
    return Made(function, genesis.zeros(1), 8)


def ends_of_numbers_of_pythons() -> Made:
    def function(x: Any) -> Any:
        ends = genesis.tensor([2, 3, 1]).cumsum(0)
        return [x[:end].sum() for end in ends] + [x[:int(genesis.tensor(3))] * 2]
    return Made(function, genesis.zeros(1), 8)


def a_number_that_is_read_twice() -> Made:
    flag = genesis.zeros(1)

    def function(x: Any) -> Any:
        k = flag * 2
        return x * k + k.item() if k.item() == 0 and (k + 1).item() > 0 else -x * k.item()
    return Made(function, flag, 6, lambda i: flag.fill_(i) if i == 5 else None)


def constants_of_an_attribute_that_changes() -> Made:
    made = Made(lambda x: x, genesis.zeros(1), 0)
    holder = nn.Module()
    holder.k = 0

    def function(x: Any) -> Any:
        found = x * 2 if genesis.full((2,), holder.k).sum().item() > 5 else x * 3
        return found + 1 if genesis.tensor([holder.k, 1]).sum() > 5 else found
    return made._replace(function=function, change=lambda i: setattr(holder, "k", i // 2))


def constants_that_numpy_writes() -> Made:
    counts = iter(range(100))

    def function(x: Any) -> Any:
        kept = genesis.zeros(3)
        kept.numpy()[:] = next(counts)
        return x * 2 if kept.sum().item() > 8 else x * 3
    return Made(function, genesis.zeros(1), 0)


def constants_that_an_argument_writes_to() -> Made:
    def function(x: Any) -> Any:
        kept = genesis.tensor([0.0, 0.0])
        kept[0] = x.sum()
        return x * 2 if kept.sum() > 0 else x * 3
    return Made(function, genesis.zeros(1), 0)


def constants_that_an_argument_is_added_to() -> Made:
    def function(x: Any) -> Any:
        kept = genesis.tensor([0.0, 0.0])
        before = kept.sum().item()
        kept.add_(x[0, :2])
        return x * 2 if kept.sum() > before else x * 3
    return Made(function, genesis.zeros(1), 0)


def draws_alone() -> Made:
    own = genesis.Generator().manual_seed(3)

    def function(x: Any) -> Any:
        found = x * 2 if genesis.rand(2).sum() > 1 else x * 3
        found = found + genesis.randint(5, (1,)).item() + genesis.zeros(1).normal_().item()
        found = found * genesis.randperm(4).tolist()[0] + genesis.multinomial(genesis.ones(4), 2).tolist()[1]
        found = found + genesis.bernoulli(genesis.full((2,), 0.5)).sum().item() + genesis.rand(1, generator=own).item()
        return found + nn.functional.dropout(genesis.ones(4), 0.5).sum().item()
    return Made(function, genesis.zeros(1), 0)


def draws_by_turns() -> Made:
    draws = [lambda: genesis.rand(1), lambda: genesis.randint(5, (1,)), lambda: genesis.zeros(1).normal_(),
             lambda: genesis.randperm(4), lambda: genesis.multinomial(genesis.ones(4), 2),
             lambda: genesis.bernoulli(genesis.full((2,), 0.5)), lambda: nn.functional.dropout(genesis.ones(4), 0.5),
             lambda: genesis.empty(2).uniform_(), lambda: genesis.distributions.Gamma(2.0, 1.0).sample((2,))]
    functions = [genesis.compile(lambda draw=draw: draw().tolist()[0] * 1.0 + 1) for draw in draws]
    return Made(lambda x: x, genesis.zeros(1), 0)._replace(
        function=lambda x: [genesis.tensor([function() for function in functions])])


def a_step_by_constants() -> Made:
    net = nn.Linear(4, 1)
    optimizer = genesis.optim.Adam(net.parameters(), lr=0.1)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        weights = genesis.tensor([0.5, 1.5])
        loss = sum(weights[i].item() * net(x)[i::2].square().mean() for i in reversed(genesis.arange(2)))
        loss.backward()
        optimizer.step()
        return loss.detach()
    return Made(function, net.weight, 7)


@pytest.mark.parametrize("make", [
    a_mask_of_constants, times_of_a_schedule, a_flag_for_each_column, ends_of_numbers_of_pythons,
    a_number_that_is_read_twice, constants_of_an_attribute_that_changes, constants_that_numpy_writes,
    constants_that_an_argument_writes_to, constants_that_an_argument_is_added_to, draws_alone, draws_by_turns,
    a_step_by_constants, lengths, segments, a_flag_that_is_written_between_calls, a_flag_that_a_write_leaves_pending,
    a_flag_that_shows_other_memory, a_flag_that_another_compiled_function_writes, a_flag_that_numpy_writes,
    a_flag_that_numpy_writes_and_lets_go_of, a_flag_that_a_view_of_other_numbers_writes,
    a_flag_that_another_library_writes_and_lets_go_of,
    a_flag_that_it_writes_itself, a_flag_that_it_has_written, an_argument, a_draw, a_weight_that_the_step_writes,
    a_step_by_the_lengths_of_its_data], ids=lambda make: make.__name__)
def test_a_read(make: Callable[[], Made]) -> None:
    def run(compiled: bool) -> tuple[list[Any], int]:
        genesis.manual_seed(0)
        made = make()
        function = genesis.compile(made.function) if compiled else made.function
        found = []
        for i in range(9):
            made.change(i)
            result = function(genesis.full((6, 4), i - 4.0) + genesis.arange(4))
            found.append([[x.tolist() for x in (result if isinstance(result, list) else [result])], made.read.tolist()])
        if compiled:
            assert function.hits >= made.hits, genesis.explain(function)
        return found, made.hits
    assert run(True) == run(False)


def test_a_capture_is_gone_when_its_call_ends() -> None:
    """What the call held is freed then, not when Python's collector goes through everything."""
    w = genesis.ones(3, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.1)

    @genesis.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()
    gc.collect()
    gc.disable()
    try:
        step(genesis.ones(3))
        assert not [x for x in gc.get_objects() if type(x) is Session]
    finally:
        gc.enable()


def test_captures_that_no_call_is_like_again_are_let_go_of() -> None:
    flag = genesis.zeros(1)
    function = genesis.compile(lambda x: x * 2 if flag < 100 else x)
    captures = []
    for i in range(60):
        if i % 3 == 0:
            flag.fill_(i)
        function(genesis.ones(4))
        captures.append(genesis.explain(function).captures)
    assert function.hits >= 30
    assert max(captures) <= 2, captures
    assert "memory that it reads a value of" in str(genesis.explain(function))
