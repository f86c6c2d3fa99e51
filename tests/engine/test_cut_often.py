"""The loops of `benchmarks/bounded.py`, with limits so low that they are cut at each few turns: eager torch's values.

Ages of nodes are verified meanwhile (`old_graphs.verify_ages`): that is what walks which end at old nodes rest on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import genesis
from genesis.autograd import pieces
from genesis.engine import waiting
from genesis.frontend import pending
from tests.short_limits import short_limits

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import adversary_loops  # noqa: F401  (these put their loops into the table)
import further_loops  # noqa: F401
import later_loops
import mixed_loops  # noqa: F401
import newest_loops  # noqa: F401
import strangers_loops  # noqa: F401
import unnamed_loops  # noqa: F401
import walked_loops  # noqa: F401
import wide_programs  # noqa: F401
from endless_loops import LOOPS

TURNS = 40

limited = short_limits(nodes=96, often=8)

SAMPLE = [name for name, each in LOOPS.items() if each.function.__module__ == later_loops.__name__]


@pytest.mark.parametrize("name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.sweep)
                                  for name in LOOPS])
def test_a_loop_that_is_cut_often(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, what, value in ((waiting, "PROGRAMS", 8), (waiting, "FEW", 3), (pieces, "MOST_RUNS", 6),
                               (pieces, "TURNS", 3), (pending, "LOOKED", 2)):
        monkeypatch.setattr(where, what, value)
    monkeypatch.setenv("GENESIS_VERIFY", "1")
    function = LOOPS[name].function
    turns = min(LOOPS[name].rounds, TURNS)
    assert function(genesis, turns) == pytest.approx(function(torch, turns), rel=1e-3, abs=1e-3)
