"""What the engine remembers is bounded, and a process can begin anew without losing what its tensors hold."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import genesis
from genesis import engine
from genesis.engine.state import STEP_BYTES, Cache, Plans, engine_state, plan_bytes
from genesis.ir import result_types
from genesis.ir.memos import memo_figures
from genesis.runtime.contexts import uncollected


@pytest.fixture
def few_plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plans]:
    """An engine that remembers four programs."""
    plans = Plans()
    plans.programs, plans.reads = Cache(4), Cache(4)
    monkeypatch.setattr(engine_state, "plans", plans)
    monkeypatch.setattr(engine_state, "usages", Cache(4))
    yield plans


def made(*sizes: int) -> list[int]:
    """The sizes, of these in order, for which a plan was made."""
    found: list[int] = []
    gc.collect()  # what another test left pending in a cycle would be part of the program
    for size in sizes:
        with uncollected, engine.observe(lambda plan, size=size: found.append(size)):  # type: ignore[misc]
            assert (genesis.arange(size) + 1).sum().item() == size * (size + 1) // 2
    return found


def test_programs_whose_sizes_never_come_again_fill_no_memory(few_plans: Plans) -> None:
    assert made(*range(1, 20)) == [*range(1, 20)]
    assert len(few_plans.programs) <= 4 and len(few_plans.reads) <= 4
    assert made(19, 18, 1) == [1]  # the latest are there, the first is made again


def test_values_saved_for_a_backward_are_right_when_their_programs_were_forgotten(few_plans: Plans) -> None:
    x = genesis.ones(3, requires_grad=True)
    losses = [(x * i).exp().sum() for i in range(8)]
    for loss in losses:
        loss.item()
    for size in range(1, 9):
        y = genesis.ones(size, requires_grad=True)
        y.exp().sum().item()
    assert len(engine_state.usages) <= 4
    losses[2].backward()
    assert x.grad.tolist() == pytest.approx([2 * 7.38905609893065] * 3, rel=1e-6)  # float32


def test_a_reset_engine_makes_every_plan_anew() -> None:
    made(5)
    assert made(5) == []
    with uncollected:  # a finalizer of another test's may compute
        engine.reset()
        assert engine.last_plan() is None
    assert made(5) == [5]


def test_a_reset_changes_no_tensor_and_drops_no_write() -> None:
    x, y = genesis.zeros(2), genesis.ones(2)
    genesis.eval(x)
    x.add_(y)
    later = x * 3
    engine.reset()
    assert x.tolist() == [1, 1] and later.tolist() == [3, 3]


def test_the_oldest_go_first_and_several_at_once() -> None:
    """Going one at a time, each addition would search past the holes that the ones before left."""
    cache: Cache[int, int] = Cache(8)
    for i in range(9):
        cache.add(i, i)
    assert list(cache) == [2, 3, 4, 5, 6, 7, 8]


def test_plans_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs of 40 ops and more, far fewer are kept than of small ones."""
    plans = Plans()
    plans.programs = Cache(4096, 40 * 10 * STEP_BYTES, plan_bytes)
    monkeypatch.setattr(engine_state, "plans", plans)
    for size in range(2, 42):
        x = genesis.arange(size).float()
        for _ in range(40):
            x = (x + 1).sin()
        x.tolist()
        assert plans.programs.nbytes <= plans.programs.most_bytes
    assert 2 <= len(plans.programs) <= 10
    assert plans.programs.nbytes == sum(map(plan_bytes, plans.programs.values()))


def test_a_value_larger_than_the_bound_is_kept_alone() -> None:
    cache: Cache[str, int] = Cache(8, 100, lambda size: size)
    for name, size in (("a", 40), ("b", 50), ("c", 300)):
        cache.add(name, size)
    assert list(cache) == ["c"] and cache.nbytes == 300


def test_the_summary_of_memory_tells_what_is_remembered() -> None:
    (genesis.ones(2) + 1).tolist()
    text = genesis.cuda.memory_summary()
    for name in ("plans", "short reads", "views", "types of results"):
        assert f"remembered in host memory, {name}: " in text
    for figures in memo_figures().values():
        assert 0 <= figures.nbytes <= figures.most_bytes


def test_types_of_results_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_types, "MOST_RESULT_TYPES", 1000)
    x = genesis.zeros(3000)
    for i in range(1, 2000):
        (x[:i] + 1).exp()
    assert memo_figures()["types of results"].entries <= 1001


def test_types_of_places_that_come_a_few_times_are_not_kept() -> None:
    """A loop along a tensor would fill the table with what never comes again."""
    def of_places() -> int:
        return sum(key[0].placed for key in result_types._result_types)
    x = genesis.zeros(3000)
    before = of_places()
    for _ in range(16):
        x[5:7] = x[3:5] + 1
    again = of_places()
    for i in range(7, 600):
        x[i] = x[i - 1] + x[i - 2]
    assert before < again and of_places() < again + 50
    assert x[5:9].tolist() == [1.0, 1.0, 2.0, 3.0]
