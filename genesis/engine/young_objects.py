"""When Python's collector looks at the young objects: behind a flush, when most of them are gone.

Recording makes a dozen objects an op. They die with the flush that computes what was recorded, without the collector.
But it counts objects as they are made: left to itself it looks at the second generation in the middle of a recording,
finds all of it alive, and takes it for old. Once what it took for old is a quarter of everything there is, it goes
through everything: 150 ms, every twenty tokens of a loop that writes a text with 28 layers, a quarter of its time.

What there is it knows from when it went through everything last. In a new process that was before most of what
`import torch` makes: so it goes through everything once more, for nothing, among a program's first steps (100 ms,
`benchmarks/ordinary_steps.py --first`). That is put off until there really is a quarter more than there was.

Nothing is kept from being collected, and a collector that the user has turned off stays off.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import Final

from genesis.frontend.pending import any_differentiable, live_pending
from genesis.runtime.contexts import make_old


def collect_young(recorded: int = 0) -> None:
    """Have the young objects looked at, unless a recorded program is alive, which would be taken for old: one that
    waits to be computed, or that a backward may go through.

    Args:
        recorded: so many values may wait, since they were recorded just now.
    """
    if gc.isenabled() and len(live_pending()) <= recorded and not any_differentiable():
        gc.collect(1)
        if 0 < gc.get_threshold()[2] <= gc.get_count()[2] and began.holds():
            make_old()  # hardly anything is young now; the collector counts its looks anew


QUARTER_MORE: Final = 1.25
"""Growth from which Python's collector goes through everything (the rule is its own: `long_lived_pending`)."""


@dataclass
class Began:
    """How things were when young objects were looked at first.

    Attributes:
        collections: how often the collector had gone through everything.
        blocks: pieces of memory that Python's objects had: objects are not counted, which takes 20 ms.
    """

    collections: int
    blocks: int

    @classmethod
    def now(cls) -> Began:
        """How things are."""
        return cls(gc.get_stats()[2]["collections"], sys.getallocatedblocks())

    def holds(self) -> bool:
        """Whether the collector has not gone through everything since, and there is not a quarter more (60 µs)."""
        return gc.get_stats()[2]["collections"] == self.collections and (
            sys.getallocatedblocks() < QUARTER_MORE * self.blocks)


began: Final = Began.now()
