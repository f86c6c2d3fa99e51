"""Random programs (`programs/`): a compiled call is the plain call, whatever changes between calls.

    pytest tests/tracing/test_random_programs.py -m sweep    # ten thousand programs
    python -m tests.tracing.programs.sweep 0 1000            # these, with what differs made small
"""

from __future__ import annotations

import pytest

from genesis.tracing.checks import Checks
from tests.tracing.programs.draw import draw
from tests.tracing.programs.run import run
from tests.tracing.programs.sweep import FUZZER

PROGRAMS, PARTS = 10_000, 20
"""The sweep's programs, and the tests they are split into."""

REPLAYED = 0.3
"""The least share of calls that are replayed (39 % are, of many programs): recording all would prove nothing."""


def test_programs_agree_and_most_calls_are_replayed() -> None:
    FUZZER.agree(range(30), REPLAYED)


def test_a_result_is_differentiated_after_a_step_that_others_went_before() -> None:
    """Of three results of replays one is read, one goes backward; a step; then the third, whose comparison torch has
    saved."""
    found = FUZZER.sweep([2681])
    assert not found.differ, found.differ[0]


def test_a_seed_is_one_program() -> None:
    assert draw(7) == draw(7) != draw(8)
    assert run(draw(7), True).seen == run(draw(7), True).seen


def test_a_difference_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checks, "hold", lambda self: True)  # a guard that nothing fails
    found = FUZZER.sweep(range(10, 24))
    assert found.differ and all(len(each.splitlines()) < 80 for each in found.differ)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_programs(part: int) -> None:
    each = PROGRAMS // PARTS
    FUZZER.agree(range(part * each, (part + 1) * each), REPLAYED)
