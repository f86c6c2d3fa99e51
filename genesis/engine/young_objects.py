"""When Python's collector looks at the young objects: behind a flush, when most of them are gone.

Recording makes a dozen objects an op. They die with the flush that computes what was recorded, without the collector.
But it counts objects as they are made: left to itself it looks at the second generation in the middle of a recording,
finds all of it alive, and takes it for old. What it took for old brings it to go through everything
(`runtime/collector.py`): 150 ms, every twenty tokens of a loop that writes a text with 28 layers, a quarter of its
time.
"""

from __future__ import annotations

import gc

from genesis.frontend.pending import any_differentiable, live_pending
from genesis.runtime.collector import put_off_collection


def collect_young(recorded: int = 0) -> None:
    """Have the young objects looked at, unless a recorded program is alive, which would be taken for old: one that
    waits to be computed, or that a backward may go through.

    Args:
        recorded: so many values may wait, since they were recorded just now.
    """
    if gc.isenabled() and len(live_pending()) <= recorded and not any_differentiable():
        gc.collect(1)
        put_off_collection()
