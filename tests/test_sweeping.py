"""`tests/sweeping.py`: which cases of a test are left to the sweep."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sweeping import leave_to_the_sweep, show_each_value


class Case:
    """What of a collected case is asked for."""

    originalname = "test_it"

    def __init__(self, *marks: str, **params: Any):
        self.callspec = SimpleNamespace(id="-".join(map(str, params.values())), params=params)
        self.marks = set(marks)

    def get_closest_marker(self, name: str) -> bool:
        return name in self.marks

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.add(mark.name)


def left(cases: list[Any], *patterns: str) -> list[str]:
    """The cases that are left to the sweep."""
    leave_to_the_sweep(cases, patterns)
    return [case.callspec.id for case in cases if "sweep" in case.marks]


def test_what_no_pattern_fits_is_left() -> None:
    cases = [Case(rows=rows, dtype=dtype) for rows in (1, 2, 3) for dtype in ("float32", "int64")]
    assert left(cases, "1-*", "3-int64") == ["2-float32", "2-int64", "3-float32"]


def test_a_pattern_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no case is called '4-\*': 1, 2"):
        left([Case(rows=1), Case(rows=2)], "1", "4-*")


def test_a_case_that_is_in_the_sweep_already_is_none_that_runs_by_default() -> None:
    with pytest.raises(ValueError, match="no case is called '2'"):
        left([Case(rows=1), Case("sweep", rows=2)], "2")


def test_patterns_that_leave_nothing_out_are_an_error() -> None:
    with pytest.raises(ValueError, match="all cases of test_it run by default"):
        left([Case(rows=1), Case(rows=2)], "*")


def test_each_value_of_each_parameter_is_in_some_case() -> None:
    rows, dtypes, flags = (1, 2, 3, 4), ("float32", "bfloat16", "int64"), (True, False)
    cases: list[Any] = [Case(rows=x, dtype=y, flag=z) for x, y, z in product(rows, dtypes, flags)]
    assert len(left(cases)) == len(cases) - 4
    kept = [case.callspec.params for case in cases if not case.marks]
    assert [{case[name] for case in kept} for name in ("rows", "dtype", "flag")] == [set(rows), set(dtypes), set(flags)]


def test_a_value_that_only_the_sweep_has_need_not_be_shown() -> None:
    cases: list[Any] = [Case(x=1, y=1), Case(x=1, y=2), Case("slow", x=2, y=2), Case(x=1, y=3), Case(x=3, y=3)]
    assert left(cases) == ["2-2", "1-3"]


def test_values_are_told_apart_by_what_they_are_not_by_which_object() -> None:
    """Processes that share tests out have to choose the same ones."""
    assert list(show_each_value({"a": {"x": [1]}, "b": {"x": [1]}, "c": {"x": [2]}})) == ["a", "c"]
    assert list(show_each_value({"a": {"x": lambda: 0}, "b": {"x": lambda: 0}})) == ["a", "b"]
