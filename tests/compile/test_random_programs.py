"""Random programs (`programs/`): a compiled call is the plain call, whatever changes between calls.

    pytest tests/compile/test_random_programs.py -m sweep    # ten thousand programs
    python -m tests.compile.programs.sweep 0 1000            # these, with what differs made small
"""

from __future__ import annotations

import pytest

from tests.compile.programs.sweep import sweep

PROGRAMS, PARTS = 10_000, 20
"""The sweep's programs, and the tests they are split into."""

REPLAYED = 0.4
"""The least share of calls that are replayed: more than this was measured, and recording all would prove nothing."""


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_programs(part: int) -> None:
    each = PROGRAMS // PARTS
    _agree(range(part * each, (part + 1) * each))


def _agree(seeds: range) -> None:
    found = sweep(seeds)
    assert not found.differ, "\n\n".join(found.differ)
    assert found.hits >= REPLAYED * found.calls, f"{found.hits} of {found.calls} calls are replayed"
