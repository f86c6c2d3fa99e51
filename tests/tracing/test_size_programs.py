"""Random functions over sizes and numbers that change (`size_programs/`): a compiled call is the plain call.

    pytest tests/tracing/test_size_programs.py -m sweep     # five thousand functions
    python -m tests.tracing.size_programs.run 0 1000        # these, with what differs made small
"""

from __future__ import annotations

import pytest

from genesis.frontend.traced_number import NumberTrace
from tests.tracing.size_programs.draw import draw
from tests.tracing.size_programs.run import FUZZER

PROGRAMS, PARTS = 5_000, 10
"""The sweep's functions, and the tests they are split into."""

REPLAYED = 0.35
"""The least share of calls that are replayed (half are, of many functions): recording all would prove nothing."""


def test_functions_agree_and_most_calls_are_replayed() -> None:
    _agree(range(40))


def test_a_seed_is_one_function() -> None:
    assert draw(7) == draw(7) != draw(8)


def test_a_guard_that_is_not_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberTrace, "evaluate", lambda self, values: {})
    assert any(FUZZER.sweep([seed], small=False).differ for seed in range(31, 200))


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_five_thousand_functions(part: int) -> None:
    each = PROGRAMS // PARTS
    _agree(range(part * each, (part + 1) * each))


def _agree(seeds: range) -> None:
    found = FUZZER.sweep(seeds)
    assert not found.differ, "\n\n".join(found.differ)
    calls, replays = found.counts["calls"], found.counts["replays"]
    assert replays >= REPLAYED * calls, f"{replays} of {calls} calls are replayed"
