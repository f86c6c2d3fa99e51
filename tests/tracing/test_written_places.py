"""Guards that were written out, as they are once a capture was replayed some times: they fail where loops did."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

import pytest
from calls import ramp

import genesis
from genesis.tracing import checks, written_places
from genesis.tracing.written_places import (
    ABSENT,
    ATTRIBUTE,
    CELL,
    CLASS,
    DICTIONARY,
    ENTRY,
    HELD_BEFORE,
    LOOKS,
    Place,
    write_out,
)

SCALE = 2.0


class Layer:
    """What a function reads: an attribute of its class, one of its own, and a method that may be replaced."""

    power = 1.0

    def __init__(self) -> None:
        self.bias = 1.0

    def forward(self, x: Any) -> Any:
        return x ** self.power + self.bias


class Other(Layer):
    def forward(self, x: Any) -> Any:
        return x - self.bias


def helper(x: Any) -> Any:
    return x + 1


def other_helper(x: Any) -> Any:
    return x + 10


def doubled(x: Any) -> Any:
    return x * 2


CHANGES: dict[str, Callable[[dict[str, Any], pytest.MonkeyPatch], None]] = {
    "a global": lambda held, patch: patch.setitem(globals(), "SCALE", 3.0),
    "a class's attribute": lambda held, patch: patch.setattr(Layer, "power", 2.0),
    "an object's attribute": lambda held, patch: setattr(held["layer"], "bias", 5.0),
    "an object's class": lambda held, patch: setattr(held["layer"], "__class__", Other),
    "an object's dictionary": lambda held, patch: setattr(held["layer"], "__dict__", {"bias": 7.0}),
    "a name on the object": lambda held, patch: held["layer"].__dict__.update(forward=doubled),
    "a name of builtins": lambda held, patch: patch.setitem(globals(), "abs", doubled),
    "a method": lambda held, patch: patch.setattr(Layer, "forward", Other.forward),
    "a function's code": lambda held, patch: patch.setattr(helper, "__code__", other_helper.__code__),
    "a closure variable": lambda held, patch: held["turn"](4.0),
    "a list's item": lambda held, patch: held["table"].__setitem__(0, 9.0),
    "a list's length": lambda held, patch: held["table"].append(1.0),
}


def program(held: dict[str, Any]) -> Callable[[Any], Any]:
    """A function that reads all of `CHANGES`."""
    layer, table, turned = held["layer"], held["table"], 1.0

    def turn(value: float) -> None:
        nonlocal turned
        turned = value
    held["turn"] = turn

    def function(x: Any) -> Any:
        return abs(helper(layer.forward(x)) * SCALE * turned) + sum(table)
    return function


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_behind_many_replays_is_noticed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[str, Any] = {"layer": Layer(), "table": [1.0, 2.0]}
    function = program(held)
    compiled = genesis.compile(function)
    x = ramp(3)
    for _ in range(HELD_BEFORE + 3):
        assert compiled(x).tolist() == function(x).tolist()
    before, hits = function(x).tolist(), compiled.hits
    assert hits > HELD_BEFORE
    CHANGES[change](held, monkeypatch)
    assert function(x).tolist() != before
    assert compiled(x).tolist() == function(x).tolist()
    assert compiled.hits == hits
    for _ in range(3):
        assert compiled(x).tolist() == function(x).tolist()
    assert compiled.hits > hits


def test_equal_values_that_are_other_objects_still_hold() -> None:
    settings = {"scale": 1000.5}

    def function(x: Any) -> Any:
        return x * settings["scale"]
    compiled = genesis.compile(function)
    for _ in range(HELD_BEFORE + 3):
        compiled(ramp(2))
    settings["scale"] = float("1000.5")
    hits = compiled.hits
    assert compiled(ramp(2)).tolist() == [1000.5 * v for v in ramp(2).tolist()]
    assert compiled.hits == hits + 1


def test_guards_are_written_out_once_they_held(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    def counted(*args: Any) -> Any:
        written.append(write_out(*args))
        return written[-1]
    monkeypatch.setattr(checks, "write_out", counted)
    compiled = genesis.compile(lambda x: helper(x) * SCALE)
    for calls in range(HELD_BEFORE + 12):
        assert compiled(ramp(2)).tolist() == [(v + 1) * SCALE for v in ramp(2).tolist()]
        assert len(written) <= (calls >= HELD_BEFORE - 1)
    assert len(written) == 1 and written[0] is not None


def test_names_that_are_no_identifiers_and_keys_of_other_classes() -> None:
    class Word(str):
        __slots__ = ()

    class Bag:
        pass
    bag, space = Bag(), {Word("w"): 1, "it's": 2}
    setattr(bag, "not an identifier", 3)
    places = [Place(CLASS, bag, None, Bag, bag, ""), Place(ENTRY, space, Word("w"), 1, space, "w"),
              Place(ENTRY, space, "it's", 2, space, "it's"),
              Place(ATTRIBUTE, bag, "not an identifier", 3, bag, "not an identifier"),
              Place(DICTIONARY, bag, None, vars(bag), bag, ""),
              *(Place(ABSENT, space.keys().isdisjoint, frozenset(names), True, space, "") for names in ("z", "yx"))]
    same = write_out(places)
    assert same is not None and same()
    for name in "zy":
        space[name] = 0
        assert not same()
        del space[name]
    assert same()
    del space["it's"]
    with pytest.raises(KeyError):
        same()
    space["it's"] = 2
    setattr(bag, "not an identifier", 4)
    assert not same()
    bag.__dict__ = {"not an identifier": 3}
    assert not same()


def test_nothing_to_compare_holds_and_many_places_are_left_to_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    none = write_out([])
    assert none is not None and none()
    monkeypatch.setattr(written_places, "MOST_PLACES", 2)
    space = {"a": 1}
    assert write_out([Place(ENTRY, space, "a", 1, space, "a")] * 3) is None


def test_each_kind_of_place_is_compared_alike_by_loops_and_as_written() -> None:
    """A row of `LOOKS` that one of both reads wrongly would be a guard that changes after some calls."""
    class Bag:
        power = 1

    def change(bag: Any, space: dict[str, Any], cell: Any, look: Any) -> None:
        if look is CLASS:
            bag.__class__ = type("Other", (Bag,), {})
        elif look is ENTRY:
            space["a"] = 2
        elif look is ATTRIBUTE:
            bag.power = 2
        elif look is CELL:
            cell.cell_contents = 2
        elif look is DICTIONARY:
            bag.__dict__ = {}
        else:
            space["b"] = 1
    for look in LOOKS:
        bag, space, cell = Bag(), {"a": 1}, CellType(1)
        rows = {CLASS: (bag, None, Bag), ENTRY: (space, "a", 1), ATTRIBUTE: (bag, "power", 1), CELL: (cell, None, 1),
                DICTIONARY: (bag, None, vars(bag)), ABSENT: (space.keys().isdisjoint, frozenset("b"), True)}
        owner, key, value = rows[look]
        same = write_out([Place(look, owner, key, value, space, "")])
        assert same is not None and same() and next(look.now([owner], [key])) is value
        change(bag, space, cell, look)
        assert not same() and next(look.now([owner], [key])) is not value


def test_a_count_that_a_user_changes_behind_many_replays() -> None:
    found = []
    for compiles in (False, True):
        weights = [genesis.ones(2, requires_grad=True), genesis.ones(3, requires_grad=True)]
        optimizer = genesis.optim.Adam(weights, lr=0.1)

        def step(weights: list[Any] = weights, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = sum((w * w).sum() for w in weights)
            loss.backward()
            optimizer.step()
            return loss
        run = genesis.compile(step) if compiles else step
        for _ in range(HELD_BEFORE + 4):
            run()
        optimizer.state[weights[1]]["step"] = 1
        for _ in range(3):
            run()
        found.append([w.tolist() for w in weights])
    assert found[0] == found[1]
