"""What fails is what was asked for: other pending work stays, and tells its own errors when it is read itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

import genesis
from genesis import nn, optim
from genesis.codegen.cpu.lowerings import LOWERINGS


@pytest.fixture
def table() -> genesis.Tensor:
    table = genesis.ones(3, 2)
    genesis.eval(table)
    return table


def test_a_wrong_index_in_one_value_fails_no_read_of_another(table: genesis.Tensor) -> None:
    wrong = table[genesis.tensor([7])] * 2
    wrong.add_(1)
    other = genesis.ones(2)
    other.add_(1)
    assert other.tolist() == [2, 2]
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        wrong.tolist()


def test_a_wrong_write_fails_when_what_it_writes_to_is_read(table: genesis.Tensor) -> None:
    table[genesis.tensor([9])] = 5.0
    net = nn.Linear(2, 2)
    optimizer = optim.AdamW(net.parameters())
    before = net.weight.tolist()
    net(genesis.ones(2)).sum().backward()
    optimizer.step()
    assert net.weight.tolist() != before and optimizer.state[net.weight]["step"] == 1
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        table.tolist()
    assert table.tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("computed", [True, False])
def test_a_write_that_has_no_memory_fails_no_read_and_no_step_of_others(computed: bool) -> None:
    total = genesis.zeros(())
    if computed:
        genesis.eval(total)
    total.add_(genesis.ones(1 << 50).cumsum(0)[-1])
    other = genesis.ones(2)
    other.add_(1)
    assert (other * 2).tolist() == [4, 4]
    net = nn.Linear(2, 2)
    optimizer = optim.AdamW(net.parameters())
    before = net.weight.tolist()
    for steps in (1, 2):
        net(genesis.ones(2)).sum().backward()
        optimizer.step()
        assert net.weight.tolist() != before and optimizer.state[net.weight]["step"] == steps
    with pytest.raises(MemoryError):
        total.tolist()
    assert (other * 3).tolist() == [6, 6]


def test_what_is_in_memory_is_not_asked_for_with_what_fails_elsewhere(table: genesis.Tensor) -> None:
    wrong = table[genesis.tensor([7])] * 2
    wrong.add_(1)
    genesis.eval(table)
    optim.SGD([nn.Parameter(genesis.ones(2))], lr=0.1)
    assert not wrong.storage.settled
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        wrong.tolist()


def test_what_is_computed_of_one_overwritten_memory_fails_together(table: genesis.Tensor) -> None:
    seen = table * 1.0
    table.mul_(2)
    table[genesis.tensor([9])] = 5.0
    with pytest.raises(IndexError):
        table.tolist()
    assert table.tolist() == [[1, 1]] * 3 and seen.tolist() == [[1, 1]] * 3


def test_a_step_that_fails_is_told_by_the_step(table: genesis.Tensor) -> None:
    weight = nn.Parameter(genesis.ones(3, 2))
    optimizer = optim.SGD([weight], lr=0.1)
    weight[genesis.tensor([4])].sum().backward()
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        optimizer.step()
    assert weight.tolist() == [[1, 1]] * 3


def test_what_a_failed_value_is_made_of_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the error does not tell which op it is of."""
    def refuses(*args: object, **attributes: object) -> None:
        raise TypeError("not today")
    row = replace(LOWERINGS["tanh"], function=refuses, direct=None)
    monkeypatch.setitem(LOWERINGS, "tanh", row)
    x = genesis.arange(6) * 1.5
    y = x + 1
    failed = y.tanh()
    behind = failed * 2
    for value in (behind, failed):
        with pytest.raises(TypeError, match="not today"):
            value.tolist()
    monkeypatch.undo()
    assert x.tolist() == [0.0, 1.5, 3.0, 4.5, 6.0, 7.5]
    assert (y * 2).tolist() == [2.0, 5.0, 8.0, 11.0, 14.0, 17.0]
    with pytest.raises(TypeError, match="not today"):
        failed.tolist()
