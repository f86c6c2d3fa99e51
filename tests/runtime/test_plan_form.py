"""What a form gives for sizes: all its formulas where it holds, else None, after few where a guard failed before."""

from __future__ import annotations

import random
from typing import Any

import pytest

from genesis.runtime.plan_form import ASKED_FIRST, PlanForm

COUNT = 300


class Counted(list[Any]):
    """Entries that count how often one is looked at."""

    looks = 0

    def __getitem__(self, number: Any) -> Any:
        self.looks += 1
        return super().__getitem__(number)


def made(guards: list[list[Any]], values: list[list[Any]]) -> PlanForm:
    """A form of programs with the numbers (n, m, n // 2)."""
    more = [["+", number, [[1, 0, 1]]] for number in range(COUNT)]
    return PlanForm(Counted(values + more), guards, [7, 6, 3], [[0, 0], [1, 1], [2, 2]],
                    [["n", 0], ["m", 1]], [], [], [], (), ())  # type: ignore[list-item]


VALUES: list[list[Any]] = [["symbol", "n", None], ["symbol", "m", None], ["//", 0, [2]], ["+", -9, [[1, 0], [2, 1]]],
                           ["%", 0, [3]], ["//", 3, 1], ["+", -40, [[1, 0, 1], [-1, 5]]], ["%", [100], 4]]
GUARDS: list[list[Any]] = [[">=", 3], ["<", 6], ["!=", 4], [">", 5], ["<=", 7]]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_admitted_is_what_fits_whatever_was_asked_before(seed: int) -> None:
    chance, form = random.Random(seed), made(GUARDS, VALUES)
    answers = set()
    for _ in range(400):
        n, m = chance.randint(1, 12), chance.randint(1, 9)
        numbers = [n, m, n // 2 + (chance.random() < 0.1)] + [0] * (chance.random() < 0.1)
        sizes = form.sizes(numbers)
        values = form.evaluate(sizes)
        assert form.admitted(numbers, sizes) == (values if form.fits(numbers, values) else None)
        answers.add(form.fits(numbers, values))
    assert answers == {True, False}


def test_a_guard_that_failed_is_asked_before_all_formulas_are_computed() -> None:
    form = made(GUARDS, VALUES)
    entries = form.values
    assert isinstance(entries, Counted)
    assert form.admitted([1, 1, 0], {"n": 1, "m": 1}) is None and entries.looks > COUNT
    entries.looks = 0
    assert form.admitted([2, 2, 1], {"n": 2, "m": 2}) is None and 0 < entries.looks < 10
    entries.looks = 0
    assert form.admitted([7, 2, 3], {"n": 7, "m": 2}) is not None and entries.looks > COUNT


def test_few_guards_are_asked_first() -> None:
    form = made([["!=", 3 + number] for number in range(COUNT)],
                [*VALUES[:3], *[["+", -number, [[1, 0]]] for number in range(COUNT)]])
    for n in range(COUNT):
        assert form.admitted([n, 1, n // 2], {"n": n, "m": 1}) is None
    entries = form.values
    assert isinstance(entries, Counted)
    entries.looks = 0
    assert form.admitted([COUNT, 1, COUNT // 2], {"n": COUNT, "m": 1}) is not None
    assert entries.looks <= len(entries) + 2 * ASKED_FIRST + 2
