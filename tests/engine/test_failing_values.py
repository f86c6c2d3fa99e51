"""A value that cannot be computed takes no write with it: what overwrites the memory that it has read is made."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any, Final

import pytest

import genesis
from genesis import nn, optim
from genesis.engine import in_parts
from genesis.nn import functional as F
from genesis.runtime.contexts import NotYet
from tests.engine.test_failed_steps import FAULTS, Tensor, device  # noqa: F401 (a fixture)

ERRORS: Final = (IndexError, RuntimeError, MemoryError)

VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "indexing": lambda w: w[genesis.tensor([7])],
    "gather": lambda w: w.gather(0, genesis.tensor([[7, 0]])),
    "take": lambda w: genesis.take(w, genesis.tensor([100])),
    "index_select": lambda w: w.index_select(0, genesis.tensor([7])),
    "embedding": lambda w: F.embedding(genesis.tensor([5]), w),
    "nll_loss": lambda w: F.nll_loss(w, genesis.tensor([0, 1, 9])),
    "cross_entropy": lambda w: F.cross_entropy(w, genesis.tensor([0, 1, 9])),
    "division": lambda w: genesis.arange(2) // w[0].to(genesis.int64).sub(1),
    "inverse": lambda w: genesis.linalg.inv(w[:2]),
    "no memory": lambda w: (w[0, 0] * genesis.ones(1 << 22).view(-1, 1) * genesis.ones(1 << 22)).cumsum(0),
}


def outcome(read: Callable[[], object]) -> object:
    """What a read gives, or that it raises."""
    try:
        return read()
    except ERRORS:
        return "raises"


def counted(compiled: bool) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """A memory of zeros, and what takes an element of it before it adds 1 to all."""
    memory = genesis.zeros(2)
    genesis.eval(memory)

    def taken(index: Tensor) -> Tensor:
        found = memory[index]
        memory.add_(1)
        return found
    return memory, genesis.compile(taken) if compiled else taken


@pytest.mark.parametrize("first", ["the value", "the memory", "another value"])
@pytest.mark.parametrize("name", VALUES)
def test_the_write_behind_a_value_that_fails_is_made(name: str, first: str) -> None:
    """It was dropped, and nobody was told; and who read the memory was told of the value."""
    w, other = genesis.ones(3, 2), genesis.zeros(1)
    genesis.eval(w, other)
    value = VALUES[name](w)
    w.add_(1)
    after = w.sum()
    w.mul_(3)
    other.add_(1)
    reads = {"the value": lambda: value.sum().item(), "the memory": w.tolist, "another value": after.item}
    wanted = {"the value": "raises", "the memory": [[6, 6]] * 3, "another value": 12}
    for each in (first, *reads):
        assert outcome(reads[each]) == wanted[each]
    assert other.tolist() == [1] and w.tolist() == [[6, 6]] * 3


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("first", ["the value", "the memory", "another value"])
def test_it_is_made_on_each_device(device: str, fault: str, first: str) -> None:  # noqa: F811
    wrong, error = FAULTS[fault]
    w = genesis.ones(2, device=device)
    genesis.eval(w)
    value = wrong(w)
    w += 1
    after = w.sum()
    reads: dict[str, Callable[[], Any]] = {"the value": value.tolist, "the memory": w.tolist,
                                           "another value": after.item}
    for each in (first, *reads):
        if each == "the value":
            with pytest.raises(error):
                value.tolist()
        else:
            assert reads[each]() == ([2, 2] if each == "the memory" else 4)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("order", [*permutations([2, 5, 7, "memory"])], ids=str)
def test_updates_and_values_before_and_behind_the_one_that_fails_are_right(order: tuple[Any, ...],
                                                                           compiled: bool) -> None:
    """The eight updates were dropped where the sixth value was read, which left the eighth's value beside old memory;
    the third raised the sixth's error."""
    memory, call = counted(compiled)
    found = [call(genesis.tensor([9 if i == 5 else 0])) for i in range(8)]
    for each in (*order, "memory"):
        got = outcome((memory if each == "memory" else found[each]).tolist)
        assert got == ([8, 8] if each == "memory" else "raises" if each == 5 else [each])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, lr=0.5), lambda p: optim.AdamW(p, lr=0.1)],
                         ids=["SGD", "AdamW"])
def test_a_step_behind_a_metric_that_fails_is_made(make: Callable[[Any], Any], compiled: bool) -> None:
    """The step raised the metric's error, and was not made; compiled it was."""
    def trained(bad: bool) -> tuple[object, ...]:
        net = nn.Linear(2, 2)
        with genesis.no_grad():
            for p in net.parameters():
                p.fill_(0.5)
        optimizer, x = make(net.parameters()), genesis.ones(1, 2)

        def step(x: Tensor) -> None:
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
        call = genesis.compile(step) if compiled else step
        for turn in range(5):
            with genesis.no_grad():
                metric = F.cross_entropy(net(x), genesis.tensor([9 if bad and turn != 1 else 1]))
            call(x)
            assert (outcome(metric.item) == "raises") == (bad and turn != 1)
        return tuple(p.tolist() for p in net.parameters())
    assert trained(True) == trained(False)


def test_a_value_is_there_though_what_is_written_behind_it_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader was told that the device owes a launch, which is for who reads the memory."""
    w = genesis.ones(2)
    genesis.eval(w)
    bad = w[genesis.tensor([9])]
    w.add_(1)
    after, run = w.sum(), in_parts.run

    def owing(flush: Any, divisible: Any = None) -> Any:
        if flush.updates:
            raise NotYet("an earlier launch comes first")
        return run(flush, divisible)
    with monkeypatch.context() as patch:
        patch.setattr(in_parts, "run", owing)
        assert after.item() == 4
    assert w.tolist() == [2, 2] and outcome(bad.tolist) == "raises"


def test_a_metric_that_nobody_reads_stops_no_loop() -> None:
    """A table that is updated in each turn, and a value of it that fails and is read where errors are caught."""
    table, seen = genesis.zeros(2), []
    genesis.eval(table)
    for _ in range(6):
        seen.append(table[genesis.tensor([4])])
        table.add_(1)
        assert outcome(seen[-1].tolist) == "raises"
    assert table.tolist() == [6, 6]


def test_a_value_that_fails_of_a_write_drops_the_write_and_no_other() -> None:
    """What the value is made of can never be made; others stay."""
    first, second, third = (genesis.ones(2) for _ in range(3))
    genesis.eval(first, second, third)
    first += 1
    second += first[genesis.tensor([7])]
    third += first
    with pytest.raises(IndexError):
        (second * 2).tolist()
    assert (first.tolist(), second.tolist(), third.tolist()) == ([2, 2], [1, 1], [3, 3])


@pytest.mark.parametrize("faults", [["no memory", "a kernel"], ["a kernel", "no memory"]], ids=" then ".join)
def test_a_read_tells_its_own_error_and_not_that_of_a_write_beside_it(faults: list[str]) -> None:
    """What is read, and what is written, are made of one value that is not there yet."""
    (beside, later), (own, told) = (FAULTS[fault] for fault in faults)
    x, y, both = genesis.ones(2), genesis.ones(2), genesis.ones(2)
    genesis.eval(x, y, both)
    shared = both.exp().sum()
    x += shared * 0 + 1
    y += beside(shared)
    value = own(shared)
    with pytest.raises(told):
        value.tolist()
    assert x.tolist() == [2, 2]
    with pytest.raises(later):
        y.tolist()
    assert y.tolist() == [1, 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_that_reads_its_failing_value_goes_on_writing(compiled: bool) -> None:
    """Each read left one more write pending: 600 turns took 7.8 s."""
    memory, call = counted(compiled)
    for turn in range(12):
        assert outcome(call(genesis.tensor([9])).tolist) == "raises"
        assert memory.storage.settled, turn
    assert memory.tolist() == [12, 12]


@pytest.mark.parametrize("kept", [False, True])
def test_no_statement_of_a_loop_raises_the_error_of_a_value_that_nobody_reads(kept: bool) -> None:
    """Where the pending program was cut, 257 turns on, a write raised it and was not made."""
    memory, seen = genesis.zeros(2), []
    genesis.eval(memory)
    for _ in range(400):
        seen.append(memory[genesis.tensor([9])])
        if not kept:
            seen.clear()
        memory.add_(1)
    assert memory.tolist() == [400, 400]
    assert all(outcome(value.tolist) == "raises" for value in seen[::100])


def test_nor_where_nothing_is_written() -> None:
    total, seen = genesis.zeros(2), []
    for _ in range(400):
        total = total + 1
        seen.append(total[genesis.tensor([9])])
    assert total.tolist() == [400, 400]
    assert all(outcome(value.tolist) == "raises" for value in seen[::100])


@pytest.mark.parametrize("turns", [3, 100])
def test_a_value_of_a_long_program_is_computed_without_another_that_fails(turns: int) -> None:
    """What needs much of a program that is computed is computed with it: a read told the other's error."""
    w = genesis.ones(4)
    genesis.eval(w)
    h = w
    for _ in range(turns):
        h = (h + 1).abs().flip(0)
    bad, good = h[genesis.tensor([9])], h.sum()
    assert good.tolist() == 4 * (turns + 1) and outcome(bad.tolist) == "raises"
