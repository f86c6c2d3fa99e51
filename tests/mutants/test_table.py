"""Each row of the table of planted faults fits the code: its text is there once, and its tests are."""

from __future__ import annotations

from collections import Counter

from tests.mutants.table import problems, read


def test_every_row_applies_and_names_tests_that_are_there() -> None:
    faults = read()
    assert len(faults) >= 150
    assert [problem for fault in faults for problem in problems(fault)] == []


def test_no_two_rows_have_one_name() -> None:
    assert [name for name, count in Counter(fault.name for fault in read()).items() if count > 1] == []
