"""Random functions and training steps over sizes and numbers that change (`size_programs/`): a compiled call is the
plain call.

    pytest tests/tracing/test_size_programs.py -m sweep     # five thousand functions, a thousand steps
    python -m tests.tracing.size_programs.run 0 1000        # these, with what differs made small
    python -m tests.tracing.size_programs.steps 0 1000      # steps
"""

from __future__ import annotations

import pytest

from genesis.frontend.traced_number import NumberTrace
from genesis.tracing.symbolic_call import SymbolicCall
from tests.tracing.size_programs import steps
from tests.tracing.size_programs.draw import draw
from tests.tracing.size_programs.run import FUZZER

PROGRAMS, PARTS = 5_000, 10
"""The sweep's functions, and the tests they are split into."""

REPLAYED = 0.35
"""The least share of calls that are replayed (half are, of many functions): recording all would prove nothing."""

STEPS, REPLAYED_STEPS = 1_000, 0.15
"""The sweep's steps, and their share: many change what they read, or leave gradients that differ."""


def test_functions_agree_and_most_calls_are_replayed() -> None:
    FUZZER.agree(range(20), REPLAYED)


def test_steps_agree_and_many_calls_are_replayed() -> None:
    steps.FUZZER.agree(range(6), REPLAYED_STEPS)


def test_a_seed_is_one_function() -> None:
    assert draw(7) == draw(7) != draw(8)
    assert steps.draw_step(7) == steps.draw_step(7) != steps.draw_step(8)


def test_a_guard_of_a_step_that_is_not_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberTrace, "evaluate", lambda self, values: {})
    monkeypatch.setattr(SymbolicCall, "_admits_sizes", lambda self, call, values: True)
    assert any(steps.FUZZER.sweep([seed], small=False).differ for seed in range(40))


def test_a_guard_that_is_not_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberTrace, "evaluate", lambda self, values: {})
    assert any(FUZZER.sweep([seed], small=False).differ for seed in range(31, 200))


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_five_thousand_functions(part: int) -> None:
    each = PROGRAMS // PARTS
    FUZZER.agree(range(part * each, (part + 1) * each), REPLAYED)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_a_thousand_steps(part: int) -> None:
    each = STEPS // PARTS
    steps.FUZZER.agree(range(part * each, (part + 1) * each), REPLAYED_STEPS)
