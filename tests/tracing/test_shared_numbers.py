"""A captured call that takes a few literals of the user's code many times takes each once."""

from __future__ import annotations

import math
from typing import Any

import genesis
from genesis.engine.plan_lookup import observe


def programs_of(function: Any, *calls: tuple[Any, ...]) -> tuple[list[Any], list[int]]:
    """What the compiled function gives at its last call, and how many numbers each new program takes."""
    compiled, plans, found = genesis.compile(function), list[Any](), None
    with observe(plans.append):
        for args in calls:
            made = compiled(*args)
            genesis.eval(made)
            found = [x.tolist() for x in made]
    return found, [plan.graph.numbers for plan in plans]  # type: ignore[return-value]


def tensors(count: int = 50) -> list[Any]:
    found = [genesis.full((2,), i % 5.0) for i in range(count)]
    genesis.eval(found)
    return found


def test_each_number_is_taken_once() -> None:
    def halves(xs: list[Any]) -> list[Any]:
        return [x * 0.5 + 1 for x in xs]
    xs = tensors()
    found, numbers = programs_of(halves, (xs,), (xs,), (xs,))
    assert found == [[i % 5 * 0.5 + 1] * 2 for i in range(50)]
    assert numbers[-1] == 2, numbers


def test_zeros_of_both_signs_and_numbers_of_other_classes_are_apart() -> None:
    def signs(xs: list[Any]) -> list[Any]:
        return [*[1 / (x * 0.0) for x in xs[:20]], *[1 / (x * -0.0) for x in xs[20:40]],
                *[x.long() + 1 for x in xs[:20]], *[x.long() + 1.0 for x in xs[20:40]]]
    xs = [x + 1 for x in tensors(40)]
    genesis.eval(xs)
    compiled = genesis.compile(signs)
    for _ in range(3):
        found = compiled(xs)
    assert [x.tolist() for x in found[:40]] == [[math.inf] * 2] * 20 + [[-math.inf] * 2] * 20
    assert [x.dtype for x in found[40:]] == [genesis.int64] * 20 + [genesis.float32] * 20
    assert [x.tolist() for x in found[40:]] == [[i % 5 + 2] * 2 for i in range(40)]


def test_numbers_that_are_asked_for_anew_are_apart() -> None:
    """A draw's seed and its number are others at each call, also where the captured call takes equal ones itself."""
    def draws(xs: list[Any]) -> list[Any]:
        drawn = [genesis.rand(2) for _ in range(3)]
        return [*[y for x in xs for y in (x * 0, x * 1, x * 2, x * 3, x * 4, x * 5)], *drawn]
    xs = tensors()
    compiled = genesis.compile(draws)

    def calls(function: Any) -> list[Any]:
        found = []
        for seed in (1, 2, 3, 3):
            genesis.manual_seed(seed)
            found += [[x.tolist() for x in function(xs)] for _ in range(2)]
        return found
    assert calls(compiled) == calls(draws)


def test_numbers_that_change_from_call_to_call_are_apart() -> None:
    """Two that are equal in one call may differ in the next: all are replays of one program, which one template has."""
    def scaled(xs: list[Any], a: float, b: float) -> list[Any]:
        return [(x - a) / b * 0.5 for x in xs]
    xs, compiled, plans = tensors(), genesis.compile(scaled), list[Any]()
    with observe(plans.append):
        for a, b in [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 7.0), (8.0, 8.0), (9.0, 1.0), (0.5, 0.5)]:
            found = compiled(xs, a, b)
            genesis.eval(found)
            assert [x.tolist() for x in found] == [x.tolist() for x in scaled(xs, a, b)], (a, b)
    assert [plan.graph.numbers for plan in plans] == [150, 3, 101], "recorded, of the plain function, of all replays"
    assert str(genesis.explain(compiled)).startswith("scaled: 2 captures, 5 replays")


def test_equal_results_stay_two_tensors() -> None:
    def zeros(x: Any) -> list[Any]:
        return [x * 0.0 for _ in range(80)]
    x, = tensors(1)
    compiled = genesis.compile(zeros)
    for _ in range(3):
        found = compiled(x)
        genesis.eval(found)
        found[0] += 1
        assert found[0].tolist() == [1.0] * 2 and found[1].tolist() == [0.0] * 2


def test_gradients_flow_through_a_call_that_shares_numbers() -> None:
    def losses(ws: list[Any]) -> list[Any]:
        return [((w * 3) ** 2).sum() * 0.5 for w in ws]
    ws = [genesis.full((2,), 1.0 + i, requires_grad=True) for i in range(70)]
    compiled = genesis.compile(losses)
    for _ in range(3):
        for w in ws:
            w.grad = None
        sum(compiled(ws)).backward()
        assert [w.grad.tolist() for w in ws] == [[9.0 * (1 + i)] * 2 for i in range(70)]
