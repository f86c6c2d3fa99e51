"""Which of a test's cases run by default, and which in the sweep only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pytest

each_value = pytest.mark.by_default
"""Marks a test of a grid of cases: by default as few of them run as show each value of each parameter."""


def by_default(*patterns: str) -> pytest.MarkDecorator:
    """Marks a test: by default the cases run whose id one of the patterns fits, all others in the sweep.

    `*` stands for any text. A pattern that fits no case is an error of collection, and so is one that leaves none out.
    """
    assert patterns
    return pytest.mark.by_default(*patterns)


def sweep_but(often: Callable[..., bool], *axes: Iterable[Any]) -> list[Any]:
    """All combinations of the axes as parameters; those that `often` is not true of are left to the sweep.

    >>> [case.values for case in sweep_but(lambda x, y: x == y, "ab", "ab") if not case.marks]
    [('a', 'a'), ('b', 'b')]
    """
    return [pytest.param(*case, marks=() if often(*case) else pytest.mark.sweep) for case in itertools.product(*axes)]


def leave_to_the_sweep(items: Sequence[pytest.Function], patterns: Sequence[str]) -> None:
    """Mark the cases of one test that do not run by default: what pytest calls for a test with one of the marks above.

    Raises:
        ValueError: a pattern fits no case, or all cases run by default.
    """
    cases = {item.callspec.id: item.callspec.params for item in items
             if not any(item.get_closest_marker(name) for name in ("sweep", "slow"))}
    often = set(_fitting(list(cases), patterns) if patterns else show_each_value(cases))
    if often == cases.keys():
        raise ValueError(f"all cases of {items[0].originalname} run by default: without the mark, too")
    for item in items:
        if item.callspec.id not in often:
            item.add_marker(pytest.mark.sweep)


def _fitting(names: Sequence[str], patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise ValueError(f"no case is called {pattern!r}: {', '.join(names)}")
        yield from found


def show_each_value(cases: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Few cases in which each value of each parameter is: always the one that shows most values that none before did.

    Values are told apart by their `repr`. Whether two equal ones are one object depends on who compiled the file, and
    processes that share tests out have to find the same ones.

    >>> grid = {x + y: {"first": x, "second": y} for x in "abc" for y in "de"}
    >>> list(show_each_value(grid))
    ['ad', 'be', 'cd']
    """
    rest = {name: {(key, repr(value)) for key, value in values.items()} for name, values in cases.items()}
    shown: set[tuple[str, str]] = set()
    while rest:
        best = max(rest, key=lambda name: len(rest[name] - shown))
        new = rest.pop(best) - shown
        if not new:
            return
        shown |= new
        yield best
