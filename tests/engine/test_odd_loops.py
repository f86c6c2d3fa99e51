"""Loops whose turns are not quite alike: sizes that change, odd turns, reads in between, graphs that are kept."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.engine import limits, repeated_numbers
from genesis.engine.repeated_numbers import repeats_numbers
from genesis.engine.short_read import DEEPEST
from genesis.frontend.state import state
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.walk import walk
from tests.short_limits import short_limits
from tests.sweeping import by_default

TURNS = 600

limited = short_limits(nodes=512, often=32, nbytes=1 << 20, autouse=False)


def compiled(plans: list[Any]) -> int:
    return sum(plan.origin == "compiled" for plan in plans)


def shrinking(lib: Any, n: int) -> Any:
    x = lib.zeros(n + 2)
    for _ in range(n):
        x = x[1:] + 1
    return x


def growing(lib: Any, n: int) -> Any:
    x, rows = lib.zeros(2, 3), lib.ones(2, 3)
    for _ in range(n):
        x = lib.cat([x * 0.5, rows])
    return x


def statistics_only(lib: Any, n: int) -> Any:
    """The parameters are never read but by the op in which the loop is cut."""
    norm, x = lib.nn.BatchNorm1d(4), lib.ones(8, 4) * 2
    with lib.no_grad():
        for _ in range(n):
            norm(x)
    return norm.running_mean


@pytest.mark.parametrize("loop", [shrinking, growing, statistics_only])
@pytest.mark.usefixtures("limited")
def test_three_plans(loop: Callable[[Any, int], Any], plans: list[Any]) -> None:
    found = loop(genesis, TURNS)
    np.testing.assert_allclose(found.tolist(), loop(torch, TURNS).tolist(), rtol=1e-5)
    assert compiled(plans) <= 3 < len(plans) + (loop is statistics_only)


def normed_in_training(lib: Any, n: int, before: int) -> Any:
    """Running means go on, and what the batch norm returns is summed; `before` moves the place of a cut in a turn."""
    norm, x, total = lib.nn.BatchNorm1d(4), lib.linspace(0, 1, 32).view(8, 4), lib.zeros(())
    w = lib.linspace(-1, 1, 16).view(4, 4)
    for i in range(before):
        total = total + i
    with lib.no_grad():
        for i in range(n):
            total += norm((x * (1 + i % 4)) @ w).relu().mean()
    return lib.cat([total.view(1), norm.running_mean, norm.running_var, norm.num_batches_tracked.view(1)])


@pytest.mark.parametrize("before", [0, 2, 4])
@pytest.mark.usefixtures("limited")
def test_a_batch_norm_in_training_takes_three_plans_and_one_for_what_is_computed_behind_it(before: int,
                                                                                           plans: list[Any]) -> None:
    """The loop is cut in a sum, in a write and in the batch norm."""
    cut, found = state.pieces, normed_in_training(genesis, TURNS, before)
    np.testing.assert_allclose(found.tolist(), normed_in_training(torch, TURNS, before).tolist(), rtol=1e-5)
    assert compiled(plans) == 3 and state.pieces > cut + 10
    found.sum().item()
    assert compiled(plans) == 4


def read_now_and_then(lib: Any, n: int) -> Any:
    """Where the fifty turns between two reads begin in `i % 3` is another place each time."""
    x, total, most, read = lib.linspace(0, 1, 8), lib.zeros(()), lib.zeros(()), []
    for i in range(n):
        loss = (x * (i % 3) - 0.5).square().mean()
        total = total * 0.9 + loss
        most = lib.maximum(most, loss)
        if i % 50 == 49:
            read.append(total.item() + most.item())
    return lib.tensor(read)


@pytest.mark.parametrize("often", [128, 16])
@pytest.mark.usefixtures("limited")
def test_where_a_read_begins_is_no_program_of_its_own(plans: list[Any], often: int,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs lead to the first read and two to each other, one for each of the two values; and, where the turns
    between two reads are cut, one more, which the pieces and the rest share."""
    monkeypatch.setattr(limits, "OFTEN", often)
    found = read_now_and_then(genesis, TURNS)
    np.testing.assert_allclose(found.tolist(), read_now_and_then(torch, TURNS).tolist(), rtol=1e-5)
    assert compiled(plans) <= (4 if often > 50 else 5)


def test_formulas_of_several_numbers_repeat_and_those_of_one_do_not() -> None:
    x = genesis.ones(4)
    genesis.eval(x)

    def program(several: bool) -> list[Node]:
        total = genesis.zeros(4)
        for i in range(40):
            total = total * 0.5 + (x * (2 + several * (i % 2))).exp()
        return [node for node in walk([total.storage.node]) if node.op is not leaves.number]
    assert repeats_numbers(program(True)) and not repeats_numbers(program(False))


def test_a_program_whose_ops_take_one_number_each_is_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new length of a text is asked about: describing its 1,400 nodes took 4 ms."""
    x = genesis.ones(4)
    genesis.eval(x)
    total = genesis.zeros(4)
    for _ in range(40):
        total = (total + (x * 2).exp()) / 3
    order = [node for node in walk([total.storage.node]) if node.op is not leaves.number]
    monkeypatch.setattr(repeated_numbers, "_Numbered", None)
    assert not repeats_numbers(order)


def cleared(lib: Any, n: int) -> Any:
    """What is odd about an odd turn is not what it records, but what it lets go of."""
    last, x = deque([lib.zeros(4)], maxlen=6), lib.ones(4)
    for i in range(n):
        x = lib.cos(x * 0.5 + last[0])
        last.append(x - last[-1] * 0.25)
        if i % 125 == 124:
            last.clear()
            last.append(x)
    return x


def target(lib: Any, n: int) -> Any:
    """An odd turn records one op more."""
    h, w, other = lib.ones(4), lib.full((4,), 0.5), lib.full((4,), 0.25)
    for i in range(n):
        h = lib.tanh(h * w + other)
        w = w * 0.999
        if i % 125 == 124:
            other = w * 0.5
    return h


@by_default("target-8")
@pytest.mark.parametrize(("loop", "most"), [(cleared, 12), (target, 8)])
@pytest.mark.usefixtures("limited")
def test_odd_turns_take_as_many_plans_for_twice_the_turns(loop: Callable[[Any, int], Any], most: int,
                                                          plans: list[Any]) -> None:
    found = []
    for n in (8 * TURNS, 16 * TURNS):
        engine.reset()
        plans.clear()
        np.testing.assert_allclose(loop(genesis, n).tolist(), loop(torch, n).tolist(), rtol=1e-4)  # cos of cos of …
        found.append(compiled(plans))
    assert found[1] <= found[0] and found[1] <= most


def test_the_graph_of_a_loss_that_was_read_ends_at_the_parameters() -> None:
    """What they were computed of belongs to the turn before, whose loss would hold the one before that."""
    def nodes() -> int:
        gc.collect()
        return sum(type(x) is Node for x in gc.get_objects())
    w, found = genesis.full((4,), 0.5, requires_grad=True), []
    for i in range(61):
        loss = ((w - i % 3) ** 2).sum()
        loss.item()
        loss.backward()
        with genesis.no_grad():
            w -= 0.01 * w.grad
        w.grad = None
        if i % 20 == 0:
            found.append(nodes())
    assert found[3] <= found[1] + 4


def test_gradients_that_the_loss_does_not_read_are_no_leaves(plans: list[Any]) -> None:
    """Nothing holds them behind their step: to make a leaf of each took a tenth of what a step tells its storages."""
    w = genesis.full((4,), 0.5, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.1)
    for _ in range(2):
        loss = ((w - 1) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert plans and all(not plan.read_on for plan in plans)
    assert w.grad is not None and loss.requires_grad


def test_a_parameter_whose_way_has_ended_is_a_value_like_others() -> None:
    """It is overwritten, read again, and computed of the same operands again."""
    w, x = genesis.full((4,), 0.5, requires_grad=True), genesis.ones(4)
    genesis.eval(w, x)
    with genesis.no_grad():
        w.copy_(x * 0.25 + 1)
        before = w * 1
    loss = (w * w).sum()
    assert loss.item() == 6.25
    (gradient,) = genesis.autograd.grad(loss, w)
    with genesis.no_grad():
        w += 1
        genesis.eval(w)
        again = x * 0.25 + 1
    assert before.tolist() == again.tolist() == [1.25] * 4
    assert gradient.tolist() == [2.5] * 4 and w.tolist() == [2.25] * 4


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("nested", [False, True])
def test_a_call_of_vmap_is_not_cut(nested: bool, plans: list[Any]) -> None:
    """Its function runs on stand-ins, which have no values: neither while it runs, nor before or after."""
    def turned(lib: Any, n: int) -> Any:
        step = lib.func.vmap(lib.func.grad(lambda w, x: ((w * x).sum() - 1) ** 2))
        if nested:
            step = lib.func.vmap(step)
        shape = (2, 4, 3) if nested else (4, 3)
        x, w = lib.linspace(-1, 1, 3).expand(shape), lib.full(shape, 0.5)
        for _ in range(n):
            w = w - 0.01 * step(w, x)
        return w
    found = turned(genesis, TURNS)
    np.testing.assert_allclose(found.tolist(), turned(torch, TURNS).tolist(), rtol=1e-5)
    assert 2 <= compiled(plans) <= 3


@pytest.mark.usefixtures("limited")
def test_a_value_that_cannot_be_computed_ends_no_loop(plans: list[Any]) -> None:
    """A stand-in that a function of `vmap` let out raises when it is read, not where a loop is cut."""
    kept: list[Any] = []
    genesis.func.vmap(lambda x: kept.append(x * 2) or x + 1)(genesis.ones(3))
    x = genesis.zeros(2)
    for _ in range(8 * TURNS):
        x = x + 1
    assert len(plans) >= 2 and x.tolist() == [8 * TURNS] * 2
    with pytest.raises(RuntimeError):
        kept[0].tolist()


def errors_and_ends(lib: Any, n: int) -> Any:
    """Five values in turn and an error each seventh turn: the positions come again after 35 turns."""
    x, source = lib.ones(4), iter(())
    for i in range(n):
        value = next(source, None)
        if value is None:
            source = iter([lib.full((4,), 0.1 * k) for k in range(5)])
            value = next(source)
        x = lib.tanh(x + value)
        if i % 7 == 6:
            x = x * 0.5
    return x


def kept_for_five_turns(lib: Any, n: int) -> Any:
    """What lets go of values is no op: one after one turn, one after five, as the tenth turn tells."""
    x, held = lib.linspace(0, 1, 4), {}
    for i in range(n):
        a = x * 0.5
        b = a.cos()
        if i % 2:
            del a
        held[i % 5] = b - x
        x = b + held.get((i + 1) % 5, x) * 0.1
        del b
        if i % 5 == 4:
            held.pop(2, None)
    return x


def grown_and_shrunk(lib: Any, n: int) -> Any:
    """A list grows to twenty values, and shrinks to five."""
    kept, x, grows = [lib.ones(4)], lib.linspace(0, 1, 4), True
    for _ in range(n):
        if grows:
            kept.append(lib.sin(kept[-1] + x))
        else:
            x = x * 0.9 + kept.pop() * 0.1
        grows = len(kept) < 20 if grows else len(kept) <= 5
    return x


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("loop", [errors_and_ends, kept_for_five_turns, grown_and_shrunk])
def test_turns_that_come_again_after_many_take_three_plans(loop: Callable[[Any, int], Any], plans: list[Any],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genesis.config, "pending_nodes", 2048)
    monkeypatch.setattr(limits, "OFTEN", 128)
    found = loop(genesis, 4 * TURNS)
    np.testing.assert_allclose(found.tolist(), loop(torch, 4 * TURNS).tolist(), rtol=1e-4)
    assert compiled(plans) <= 3


@by_default("2", "5")
@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("bodies", [2, 3, 5])
def test_bodies_chosen_by_chance_take_a_plan_each(bodies: int, plans: list[Any]) -> None:
    """And four: up to the first cut, a piece that was found to be like no other, the turn that had begun, the rest.
    Where one body may follow the other further down, these two are no body of their own."""
    def chosen(lib: Any, n: int) -> Any:
        draw, x = random.Random(0), lib.linspace(0, 1, 4)
        for _ in range(n):
            body = draw.randrange(bodies)
            if body == 0:
                x = lib.tanh(x) + 0.1
            elif body == 1:
                x = lib.exp(-x)
            elif body == 2:
                x = lib.cos(x)
            elif body == 3:
                x = (x - x.mean()) * 0.5
            else:
                x = lib.sigmoid(x)
        return x
    for n in (4 * TURNS, 8 * TURNS):
        engine.reset()
        plans.clear()
        np.testing.assert_allclose(chosen(genesis, n).tolist(), chosen(torch, n).tolist(), rtol=1e-4)
        assert bodies + 1 <= compiled(plans) <= bodies + 4


@pytest.mark.parametrize("deep", [False, True], ids=["short read", "long read"])
@pytest.mark.parametrize("fixed", [False, True], ids=["of any place", "of the first place"])
def test_a_value_that_is_read_holds_nothing_of_the_turns_before(plans: list[Any], fixed: bool, deep: bool) -> None:
    """What stays pending at a read is computed of what was read, with the next one."""
    def turned(lib: Any, n: int) -> Any:
        x, largest = lib.linspace(0, 1, 4), []
        for _ in range(n):
            scores, other = lib.softmax(x * 2, 0), lib.cos(x)
            for _ in range(DEEPEST if deep else 0):
                scores = lib.sin(scores)
            largest.append(scores.argmax().item())
            x = scores[0 if fixed else largest[-1]] + other
        return x, largest

    def nodes() -> int:
        gc.collect()
        return sum(type(found) is Node for found in gc.get_objects())
    counted = []
    for n in (20, 200):
        before = nodes()
        found = turned(genesis, n)
        counted.append(nodes() - before)
        assert found[1] == turned(torch, n)[1]
    assert counted[1] <= counted[0] + 8


@pytest.mark.usefixtures("limited")
def test_a_loop_takes_as_many_plans_after_another_one(plans: list[Any]) -> None:
    """What was learned of odd turns, or of turns that are never alike, is of that loop."""
    for before in (target, cleared):
        before(genesis, 4 * TURNS).tolist()
        plans.clear()
        found = grown_and_shrunk(genesis, 2 * TURNS)
        np.testing.assert_allclose(found.tolist(), grown_and_shrunk(torch, 2 * TURNS).tolist(), rtol=1e-4)
        assert compiled(plans) <= 3
        engine.reset()
