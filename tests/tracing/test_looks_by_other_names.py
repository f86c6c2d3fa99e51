"""Attributes that code looks at and names nowhere: by a pattern's position, and in a method of a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from calls import Pair, counts, ramp, values

import genesis


class Point:
    __match_args__: tuple[str, ...] = ("first", "second")

    def __init__(self, first: float, second: float):
        self.first, self.second = first, second


@dataclasses.dataclass
class Pixel:
    first: float
    second: float


def by_position(x: Any, point: Any) -> Any:
    match point:
        case Point(1, second) | Pixel(1, second):
            return x * second
        case Point(first, second) | Pixel(first, second):
            return x * first + second
    return x


@pytest.mark.parametrize("kind", [Point, Pixel])
@pytest.mark.parametrize("known", [True, False])
def test_a_pattern_with_positions(kind: Any, known: bool) -> None:
    point, shown = kind(1, 2), kind

    def by_a_variable(x: Any) -> Any:
        match point:
            case shown(1, second):
                return x * second
            case shown(first, second):
                return x * first + second
    pair = Pair((lambda x: by_position(x, point)) if known else by_a_variable)
    for _ in range(3):
        pair.settle(ramp(3))
        point.second += 1
        pair.same(ramp(3))
        point.first += 2
        pair.same(ramp(3))


def test_the_names_of_a_pattern_s_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    point = Point(3, 2)
    pair = Pair(lambda x: by_position(x, point))
    pair.settle(ramp(3))
    monkeypatch.setattr(Point, "__match_args__", ("second", "first"))
    pair.same(ramp(3))
    assert values(pair.compiled(ramp(3))) == values(ramp(3) * 2 + 3)


def test_a_pattern_looks_at_no_other_attribute() -> None:
    point: Any = Point(3, 2)
    pair = Pair(lambda x: by_position(x, point))
    pair.settle(ramp(3))
    for point.other in range(4):
        assert pair.replays(ramp(3))


class Meter:
    """Shows its total to whoever makes a text of it."""

    def __init__(self) -> None:
        self.total: Any = 0.0
        self.text, self.texts, self.shown = "{}", [""], ""

    def __format__(self, specification: str) -> str:
        return f"<{self.total}>"

    def __index__(self) -> int:
        return int(self.total == self.total)


def formatted(meter: Meter, x: Any) -> Any:
    meter.total = float(x.sum())
    return meter.text.format(meter)


def centered(meter: Meter, x: Any) -> Any:
    meter.total = x.sum().tolist()
    return meter.text.center(meter)


def of_a_tensor(meter: Meter, x: Any) -> Any:
    meter.total = float(x.sum())
    return x.size(meter)


@pytest.mark.parametrize("function", [formatted, centered, of_a_tensor])
def test_a_method_that_asks_what_it_is_given(function: Callable[..., Any]) -> None:
    plain, ours = Meter(), Meter()
    compiled = genesis.compile(function)
    for length in range(2, 8):
        x = ramp(length, 3)
        assert compiled(ours, x) == function(plain, x)
        assert vars(ours) == vars(plain)


def test_a_method_that_is_given_numbers() -> None:
    def given(meter: Meter, x: Any, call: int) -> Any:
        meter.total = float(x.sum())
        return meter.text.format(call), meter.text.center(8), x.size(0)
    meter = Meter()
    compiled = genesis.compile(given)
    for _ in range(8):
        meter.total = 0.0
        assert compiled(meter, ramp(3), 3) == ("3", "   {}   ", 3) and meter.total == 6
    assert counts(compiled)[1] >= 5, genesis.explain(compiled)
