"""When Python's collector looks at the young objects: behind a flush, when most of them are gone.

Recording makes a dozen objects an op. They die with the flush that computes what was recorded, without the collector.
But it counts objects as they are made: left to itself it looks at the second generation in the middle of a recording,
finds all of it alive, and takes it for old. Once what it took for old is a quarter of everything there is, it goes
through everything: 150 ms, every twenty tokens of a loop that writes a text with 28 layers, a quarter of its time.

What there is it knows from when it went through everything last. In a new process that was before most of what
`import torch` makes: so it goes through everything once more, for nothing, among a program's first steps (100 ms,
`benchmarks/ordinary_steps.py --first`). And what it took for old it counts once, and never takes off again: the nodes
of a program that was computed since are a part of the quarter. Programs of thousands of parameters were gone through
three or four times, a fifth of their time (`benchmarks/wide_programs.py`). That is put off until there really is a
quarter more than there was; asked where a flush ends, a plan was made or a long recording is looked at.

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
        put_off_collection()


def put_off_collection() -> None:
    """Have the collector count its looks at the second generation anew, if it would soon go through everything and
    there is hardly more than when it did so last."""
    if not gc.isenabled():
        return
    looks = gc.get_count()[2]
    if SOON * looks >= gc.get_threshold()[2] > 0 and looks != last_collection.asked:
        last_collection.asked = looks  # where it is not put off, each value that is recorded would ask again
        if last_collection.is_recent():
            make_old()


SOON: Final = 2
"""A collection of everything comes soon after a half of the looks at the second generation that it waits for: from one
time that this is asked to the next there may be a few (a piece of a program is a few thousand objects)."""

QUARTER_MORE: Final = 1.25
"""Growth from which Python's collector goes through everything (the rule is its own: `long_lived_pending`)."""


@dataclass
class LastCollection:
    """How much there was when the collector had gone through everything last, or when this was asked first.

    Attributes:
        collections: how often it had done so.
        blocks: pieces of memory that Python's objects had when this was asked first since: objects are not counted,
            which takes 20 ms.
        asked: looks at the second generation when this was asked last.
    """

    collections: int = -1
    blocks: int = 0
    asked: int = -1

    def is_recent(self) -> bool:
        """Whether there is not a quarter more than at the last collection (60 µs)."""
        collections, blocks = _collections(), sys.getallocatedblocks()
        if collections != self.collections:
            self.collections, self.blocks = collections, blocks
        return blocks < QUARTER_MORE * self.blocks


def _collections() -> int:
    """How often the collector has gone through everything."""
    return gc.get_stats()[2]["collections"]


last_collection: Final = LastCollection()
