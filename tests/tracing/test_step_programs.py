"""Random training steps (`step_programs/`): a compiled step is the plain step, whatever is changed between calls.

    pytest tests/tracing/test_step_programs.py -m sweep             # two thousand steps
    python -m tests.tracing.step_programs.sweep 0 100               # these, with what differs made small
    python -m tests.tracing.step_programs.sweep 0 100 gradients     # steps that work on the gradients that they find
"""

from __future__ import annotations

import pytest

from genesis.tracing.checks import Checks
from tests.tracing.step_programs.draw import draw
from tests.tracing.step_programs.sweep import FUZZER, GRADIENTS_FUZZER, WRITTEN_FUZZER

PROGRAMS, PARTS = 2_000, 20
"""The sweep's steps, and the tests they are split into."""

REPLAYED = 0.15
"""The least share of calls that are replayed (21 % of many are: most steps have a line that no replay does)."""


def test_steps_agree() -> None:
    FUZZER.agree(range(49, 55), REPLAYED)


@pytest.mark.parametrize("seed", [46])
def test_a_gradient_that_is_kept_in_an_item_or_a_list_is_the_parameters_own(seed: int) -> None:
    found = FUZZER.sweep([seed])
    assert not found.differ, found.differ[0]


def test_a_seed_is_one_step() -> None:
    assert draw(7) == draw(7) != draw(8)


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checks, "hold", lambda self: True)  # a guard that nothing fails
    assert FUZZER.sweep(range(4), small=False).differ


@pytest.mark.parametrize("seeds", [range(45, 50), pytest.param(range(250), marks=pytest.mark.sweep)])
def test_steps_with_an_optimizer_that_is_written_in_them(seeds: range) -> None:
    WRITTEN_FUZZER.agree(seeds, 0.1)


def test_steps_that_work_on_the_gradients_that_they_find() -> None:
    GRADIENTS_FUZZER.agree(range(80, 85), 0.3)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS // 2))
def test_a_thousand_steps_that_work_on_the_gradients_that_they_find(part: int) -> None:
    each = PROGRAMS // PARTS
    GRADIENTS_FUZZER.agree(range(part * each, (part + 1) * each), 0.3)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_two_thousand_steps(part: int) -> None:
    each = PROGRAMS // PARTS
    FUZZER.agree(range(part * each, (part + 1) * each), REPLAYED)
