"""What is pending when a compiled step runs, and cannot be computed, is not the step's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import genesis
from genesis import engine, nn


def captured_step() -> tuple[nn.Parameter, Callable[[genesis.Tensor], genesis.Tensor], genesis.Tensor]:
    """A parameter, a compiled step that has run twice and trains it, and what the step is called with."""
    weight = nn.Parameter(genesis.ones(2))
    optimizer = genesis.optim.SGD([weight], lr=0.5)

    @genesis.compile
    def step(x: genesis.Tensor) -> genesis.Tensor:
        loss = (weight * x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    x = genesis.ones(2)
    assert [step(x).item() for _ in range(2)] == [2, 1]
    return weight, step, x


def test_a_step_runs_beside_a_value_that_cannot_be_computed() -> None:
    """The value tells what is wrong with it when it is read; others that were pending are computed before the step
    overwrites what they read."""
    weight, step, x = captured_step()
    doubled = weight.detach() * 2
    wrong = genesis.ones(3)[genesis.tensor([7])]
    before = genesis.explain(step).hits
    assert step(x).item() == 0
    assert genesis.explain(step).hits == before + 1
    assert doubled.tolist() == [0, 0]
    with pytest.raises(IndexError, match="out of bounds"):
        wrong.tolist()


def test_without_memory_for_what_is_pending_a_step_overwrites_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a value that cannot be computed, too: the step raises, and what was pending can be read."""
    weight, step, x = captured_step()
    doubled = weight.detach() * 2
    flush = engine.flush

    def refused(wanted: Sequence[Any]) -> None:
        raise IndexError("not this call's") if len(wanted) > 1 else MemoryError
    wrong = genesis.ones(3)[genesis.tensor([7])]
    monkeypatch.setattr(engine, "flush", refused)
    with pytest.raises(MemoryError):
        step(x)
    monkeypatch.setattr(engine, "flush", flush)
    assert doubled.tolist() == [0, 0] and weight.tolist() == [0, 0]
    del wrong


@pytest.mark.parametrize(("function", "bad"), [
    (lambda x, i: x[genesis.arange(i)] + 1, 9),
    (lambda x, i: (x * 1).long().fill_(i), 1e300),
], ids=["an index", "a number"])
def test_an_argument_that_was_pending_is_read_after_its_replay_failed(function: Any, bad: float) -> None:
    compiled = genesis.compile(function)
    for number in (type(bad)(2), type(bad)(3), type(bad)(4), bad, bad):
        x = genesis.arange(5.0) * 2
        result = compiled(x, number)
        if number == bad:
            with pytest.raises((RuntimeError, IndexError)):
                result.tolist()
        else:
            result.tolist()
        assert x.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


def bad_index(w: genesis.Tensor) -> None:
    w += genesis.ones(4).index_select(0, genesis.tensor([7]))[0]


def no_memory(w: genesis.Tensor) -> None:
    w += genesis.rand(1 << 41).exp().cumsum(0)[-1]  # 8 TB


@pytest.mark.parametrize("calls", range(4))
@pytest.mark.parametrize("target", ["an argument", "its gradient", "a weight"])
@pytest.mark.parametrize(("write", "error"), [(bad_index, IndexError), (no_memory, MemoryError)])
def test_a_write_that_cannot_be_made_is_told_by_the_call_behind_it(write: Callable[[genesis.Tensor], None],
                                                                   error: type[Exception], target: str,
                                                                   calls: int) -> None:
    """Whether that is captured or replayed: the write is dropped, and nobody else would be told. Nothing was raised by
    the call that was captured."""
    weight, x = genesis.full((3,), 2.0), genesis.ones(3, requires_grad=target == "its gradient")

    def scaled(x: genesis.Tensor) -> genesis.Tensor:
        if target == "its gradient":
            (x * x).sum().backward()
        return x.detach() * weight
    compiled = genesis.compile(scaled)
    for _ in range(calls):
        assert compiled(x).tolist() == [2, 2, 2]
    if target == "its gradient":
        x.grad = genesis.ones(3)
    written = {"an argument": x, "its gradient": x.grad, "a weight": weight}[target]
    assert written is not None
    before = written.tolist()
    with genesis.no_grad():
        write(written)
    with pytest.raises(error):
        compiled(x).tolist()
        written.tolist()  # of a call that is recorded who reads the gradient is told
    assert written.tolist() == before
    if target != "its gradient":  # the one that such a call has left is made of the write
        assert compiled(x).tolist() == [2, 2, 2]


@pytest.mark.parametrize("own", [True, False], ids=["of the step's weight", "of another tensor"])
def test_a_write_that_cannot_be_made_is_told_by_the_replayed_step_behind_it(own: bool) -> None:
    """The step was replayed as if nothing had been written."""
    weight, step, x = captured_step()
    written = weight if own else genesis.ones(2)
    genesis.eval(written)
    before, hits = written.tolist(), genesis.explain(step).hits
    with genesis.no_grad():
        written.index_fill_(0, genesis.tensor([4]), 7.0)
    with pytest.raises(IndexError, match="out of bounds"):
        step(x).item()
        written.tolist()
    assert written.tolist() == before and weight.tolist() == [0, 0]
    assert step(x).item() == 0 and genesis.explain(step).hits > hits
