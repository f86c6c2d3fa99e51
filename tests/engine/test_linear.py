"""Wide programs cost as much a value as narrow ones: thousands of parameters, outputs, views or values that wait.

Work is counted (`work.py`), not timed: what grows with the square of a program's width is a hundredth of a second at
the widths that a test has, and a minute at those of a user's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import genesis
from genesis import engine
from genesis.frontend.state import state
from tests.engine.work import Work, superlinear, work_of
from tests.short_limits import short_limits

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import wide_programs
from endless_loops import LOOPS

limited = short_limits(nodes=48, often=8)

WIDTH = 24
"""The narrowest of three programs: each other is twice as wide as the one before."""

NARROWER = {"compiled_call_of_many": 16}
"""Programs of which three so wide take seconds, and narrower ones show the same: the narrowest of these."""

DEFAULT = {"many_parameters", "average_of_many_parameters", "gradients_asked_for", "compiled_step_of_many",
           "compiled_call_of_many"}
"""Programs whose work once grew faster, each by a place of its own."""


def work(name: str, width: int) -> Work:
    """The work of one program, in an engine that knows no other."""
    genesis.eval()
    engine.reset()
    state.look_at = 0
    return work_of(lambda: LOOPS[name].function(genesis, width))


@pytest.mark.parametrize("name", [
    name if name in DEFAULT else pytest.param(name, marks=pytest.mark.sweep) for name, each in LOOPS.items()
    if name in DEFAULT or each.function.__module__ == wide_programs.__name__])
def test_work_grows_no_faster_than_the_program(name: str) -> None:
    width = NARROWER.get(name, WIDTH)
    work(name, width)  # imports and first uses
    narrow, wide, wider = [work(name, times * width) for times in (1, 2, 4)]
    found = superlinear(narrow, wide, wider)
    if found:  # what begins at some width, as looks at what waits, grows so once; the square of a width always
        again = superlinear(wide, wider, work(name, 8 * width))
        found = {key: steps for key, steps in found.items() if key in again}
    assert found == {}


def test_what_grows_with_the_square_is_found() -> None:
    """The counts see a list that is searched for each of its elements, and a loop in a loop."""
    def searched(count: int) -> Work:
        storages = [genesis.ones(1).storage for _ in range(count)]
        return work_of(lambda: [x for x in reversed(storages) if x in storages])
    found = superlinear(*map(searched, (20, 40, 80)))
    assert [key[1].split(".")[-1] for key in found] == ["<listcomp>: Storage"]
