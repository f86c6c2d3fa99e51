"""Arguments that are views: replayed on copies where the function only reads them, called plainly where not."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import nn, optim


def ramp(*shape: int) -> Any:
    return genesis.arange(int(np.prod(shape)), dtype=genesis.float32).reshape(shape).clone()


def test_a_batch_that_is_cut_out_of_the_data() -> None:
    """Weights after ten steps are those of plain steps, and eight of the ten are replays of one capture."""
    data, targets = ramp(40, 3) / 100, ramp(40, 1)

    def trained(compiled: bool) -> tuple[list[Any], Any]:
        genesis.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = optim.SGD(model.parameters(), lr=0.01)

        def step(x: Any, y: Any) -> Any:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        call = genesis.compile(step) if compiled else step
        losses = [call(data[4 * i:4 * i + 4], targets[4 * i:4 * i + 4]).item() for i in range(10)]
        return [losses, *(p.tolist() for p in model.parameters())], call
    (plain, _), (replayed, call) = trained(False), trained(True)
    assert replayed == plain
    assert call.hits >= 6, genesis.explain(call)


@pytest.mark.parametrize("cut", [
    lambda data, i: data[i], lambda data, i: data[:, i], lambda data, i: data[i:i + 1].t(),
    lambda data, i: data[i:i + 2, 1:3], lambda data, i: data.view(3, 8)[:, i], lambda data, i: data[i].expand(2, 4),
    lambda data, i: data.flatten()[i:], lambda data, i: data[::2]], ids=range(8))
def test_any_view(cut: Callable[[Any, int], Any]) -> None:
    """A length of its own has a capture of its own."""
    data = ramp(6, 4)
    compiled = genesis.compile(lambda x: (x * 2 + 1, x.shape))
    for _ in range(5):
        for i in range(3):
            x = cut(data, i)
            found, shape = compiled(x)
            assert found.tolist() == (x * 2 + 1).tolist() and shape == x.shape
            data[0] += 1
    assert compiled.hits >= 4


def test_two_views_of_one_memory_that_are_read() -> None:
    ids = genesis.arange(10)
    compiled = genesis.compile(lambda x, y, z: (x - y).abs().sum() + z)
    for i in range(6):
        assert compiled(ids[:-1], ids[1:], ids[i:i + 1]).tolist() == [9 + i]
    assert compiled.hits == 3 and not genesis.explain(compiled).recorded


def test_a_token_that_the_step_before_gave() -> None:
    """As who writes a loop of a language model has it: what is chosen goes in again as a view."""
    table = ramp(5, 5).flip(1)
    step = genesis.compile(lambda token: table[token].argmax(-1))
    found, token = [], genesis.tensor([[3]])
    for i in range(8):
        token = step(token[:, -1:]) + i % 3
        found.append(token.item())
    assert found == [i % 3 for i in range(8)] and step.hits >= 4


def appends(kept: list[Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        kept.append(x)
        return x + 1
    return call


@pytest.mark.parametrize("name", ["writes", "writes later", "returns", "returns a part", "returns in a list", "keeps",
                                  "writes the whole", "is whole, too"])
def test_a_function_that_does_more_than_read(name: str) -> None:
    whole, kept, calls = ramp(6), [], [0]

    def later(x: Any) -> Any:
        calls[0] += 1
        return x.mul_(2) if calls[0] > 3 else x + 1

    def writes_whole(x: Any) -> Any:
        whole.add_(1)
        return x * 2
    function: Callable[..., Any] = {
        "writes": lambda x: x.add_(1).sum(), "writes later": later, "returns": lambda x: x,
        "returns a part": lambda x: x[:1], "returns in a list": lambda x: [x + 1, {"x": x.view(1, 2)}],
        "keeps": appends(kept), "writes the whole": writes_whole, "is whole, too": lambda x: x * whole.mul_(2).sum(),
    }[name]
    expected = [np.array(whole.tolist())]
    compiled = genesis.compile(function)
    seen = []
    for i in range(8):
        view = whole[i % 3:i % 3 + 2]
        found = compiled(view)
        if name.startswith("returns"):
            part = found[1]["x"] if isinstance(found, list) else found
            part.mul_(3)
        seen.append([*whole.tolist()])
    calls[0], kept[:] = 0, []
    whole.copy_(genesis.tensor(expected[0], dtype=genesis.float32))
    for i in range(8):
        found = function(whole[i % 3:i % 3 + 2])
        if name.startswith("returns"):
            part = found[1]["x"] if isinstance(found, list) else found
            part.mul_(3)
        assert seen[i] == whole.tolist(), i
    assert all(x.storage is whole.storage for x in kept)


KEEPING: dict[str, Callable[[Any, Any], Any]] = {
    "in a list": lambda kept, x: kept.append(x),
    "in a dictionary": lambda kept, x: kept.append({"x": [x]}["x"][0]),
    "in a function": lambda kept, x: kept.append(functools.partial(lambda x: x, x)),
    "a part": lambda kept, x: kept.append(x[:1]),
    "a turned part": lambda kept, x: kept.append(x.t()[:, 1:]),
    "a row": lambda kept, x: kept.append(x[-1]),
    "itself and a part": lambda kept, x: kept.extend([x, x[1:]]),
}


@pytest.mark.parametrize("begins", [2, 3, 4])
@pytest.mark.parametrize("cut", [lambda x, i: x[i:i + 2], lambda x, i: x[:, i:i + 2], lambda x, i: x.t()[i:i + 2, ::2]],
                         ids=["rows", "columns", "of the transposed"])
@pytest.mark.parametrize("keep", KEEPING.values(), ids=KEEPING)
def test_what_a_function_begins_to_keep_shows_the_memory(keep: Callable[[Any, Any], Any], cut: Any,
                                                         begins: int) -> None:
    """Also where it begins in the very call that is captured on copies."""
    found = []
    for compiled in (True, False):
        whole, kept, begun = ramp(6, 6), [], []

        def function(x: Any, kept: list[Any] = kept, begun: list[int] = begun) -> Any:
            if begun:
                keep(kept, x)
            return x * 2
        call: Any = genesis.compile(function) if compiled else function
        seen: list[Any] = []
        for i in range(6):
            if i == begins:
                begun.append(1)
            seen.append(call(cut(whole, i % 3)).tolist())
        whole.mul_(10)
        shown = [x() if isinstance(x, functools.partial) else x for x in kept]
        seen += [x.tolist() for x in shown]
        for number, x in enumerate(shown):
            x.add_(number)
        found.append([*seen, whole.tolist(), len(shown)])
    assert found[0] == found[1]


def test_a_capture_holds_no_memory_of_its_arguments() -> None:
    function = genesis.compile(lambda x: x * 2)
    memories = []
    for _ in range(4):
        x = ramp(2, 2)
        function(x).tolist()
        memories.append(weakref.ref(x.storage))
        del x
    assert function.hits and [each() for each in memories] == [None] * 4


def test_a_view_of_what_the_function_writes_is_not_copied() -> None:
    """A capture with views of other memory says nothing of views of this one."""
    state, data = ramp(4), ramp(4)

    def step(x: Any) -> Any:
        state.add_(1)
        return x * 2
    compiled = genesis.compile(step)
    for _ in range(5):
        compiled(data[:2])
    assert compiled.hits > 0
    before = state.tolist()
    assert compiled(state[:2]).tolist() == [2 * (x + 1) for x in before[:2]]


def test_a_function_that_asks_how_a_view_lies() -> None:
    data = ramp(6, 4)
    compiled = genesis.compile(lambda x: x * x.stride(0))
    for _ in range(5):
        assert compiled(data[:, 1]).tolist() == [4 * x for x in data[:, 1].tolist()]
    assert compiled.hits == 0


def test_what_cannot_be_a_view_raises_for_each_layout() -> None:
    """A copy of columns could be flattened; the columns cannot, after a row was."""
    data = ramp(4, 4)
    compiled = genesis.compile(lambda x: x.view(-1) + 1)
    for _ in range(5):
        compiled(data[:2])
        with pytest.raises(RuntimeError):
            compiled(data.t()[:2])


def test_a_view_that_requires_grad_is_recorded() -> None:
    x = ramp(4).requires_grad_()
    compiled = genesis.compile(lambda x: (x * x).sum())
    for _ in range(4):
        compiled(x[1:3]).backward()
    assert x.grad.tolist() == [0, 8, 16, 0] and compiled.hits == 0


@pytest.mark.parametrize("begins", range(6))
@pytest.mark.parametrize("name", ["whole, then the view", "view, then the whole", "another view"])
def test_a_function_that_begins_to_write(name: str, begins: int) -> None:
    """Whichever call it is, also the one that is captured on copies, reads what was written."""
    def run(compiled: bool) -> tuple[list[Any], list[float]]:
        whole, calls = ramp(6), [0]

        def step(x: Any, y: Any) -> Any:
            calls[0] += 1
            if calls[0] > begins:
                (whole if name == "whole, then the view" else x if name == "view, then the whole" else y).add_(10)
            return x.sum() + 100 * y.sum() + 10_000 * whole.sum() * 0 + whole[0]
        call = genesis.compile(step) if compiled else step
        return [call(whole[:2], whole[1:4]).item() for _ in range(7)], whole.tolist()
    assert run(True) == run(False)


def test_a_setting_that_lets_a_function_write() -> None:
    whole, writes = ramp(4), [False]

    def step(x: Any) -> Any:
        if writes[0]:
            whole.add_(1)
        return x.sum()
    compiled = genesis.compile(step)
    for _ in range(4):
        assert compiled(whole[:2]).item() == 1
    writes[0] = True
    assert [compiled(whole[:2]).item() for _ in range(4)] == [3, 5, 7, 9]


def test_a_collection_in_the_middle_is_no_part_of_the_function() -> None:
    """What the user wants to be told of collections runs then, and calls what no replay could call."""
    def told(phase: str, info: dict[str, int]) -> None:
        np.arange(3).tolist()
    data = ramp(8)
    compiled = genesis.compile(lambda x: (x * 2).sum())
    before = gc.get_threshold()
    gc.callbacks.append(told)
    gc.set_threshold(20)
    try:
        for i in range(6):
            compiled(data[i:i + 2]).item()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(told)
    assert compiled.hits >= 2, genesis.explain(compiled)
