"""When Python's collector goes through everything: once there is twice as much as when it did so last.

Its own rule is a quarter more, and it counts what it took for old once, and never takes it off again: the nodes of a
program that was computed since are a part of that quarter. In a new process it counts from before most of what
`import torch` makes. So it went through everything, a tenth of a second where torch is imported, for nothing among a
program's first steps (`benchmarks/ordinary_steps.py --first`) or turns, and three or four times in programs of
thousands of parameters, a fifth of their time (`benchmarks/wide_programs.py`). That is put off: asked where a flush
ends, a plan was made, a long recording is looked at, or a view that was not seen before is worked out.

Nothing is kept from being collected, and a collector that the user has turned off stays off.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import Final

from genesis.runtime.contexts import make_old

SOON: Final = 2
"""A collection of everything comes soon after a half of the looks at the second generation that it waits for: from one
time that this is asked to the next there may be a few (a piece of a program is a few thousand objects)."""

GROWN: Final = 2
"""Times the memory that there was from which on everything is gone through: 200,000 objects more, beside torch, which
take longer to make than to go through. At a quarter more a program of a second waited a tenth of one or did not,
depending on what its size came to."""


def put_off_collection() -> None:
    """Have the collector count its looks at the second generation anew, if it would soon go through everything and
    there is less than twice as much as when it did so last.

    Young objects are looked at before: those that are garbage would be taken for old.
    """
    if not gc.isenabled():
        return
    looks = gc.get_count()[2]
    if SOON * looks >= gc.get_threshold()[2] > 0 and looks != last_collection.asked:
        if last_collection.is_recent() and not last_collection.in_vain:
            gc.collect(1)
            make_old()
            looks = gc.get_count()[2]
            last_collection.in_vain = looks > 0
        last_collection.asked = looks  # where it is not put off, each value that is recorded would ask again


@dataclass
class LastCollection:
    """How much there was when the collector had gone through everything last, or when this was asked first.

    Attributes:
        collections: how often it had done so.
        blocks: pieces of memory that Python's objects had when this was asked first since: objects are not counted,
            which takes 20 ms.
        asked: looks at the second generation when this was asked last.
        in_vain: nothing was put off, as the program has frozen objects (counting these takes 8 ns each): what is not
            frozen is gone through soon.
    """

    collections: int = -1
    blocks: int = 0
    asked: int = -1
    in_vain: bool = False

    def is_recent(self) -> bool:
        """Whether there is not twice as much as at the last collection (60 µs)."""
        collections, blocks = _collections(), sys.getallocatedblocks()
        if collections != self.collections:
            self.collections, self.blocks, self.in_vain = collections, blocks, False
        return blocks < GROWN * self.blocks


def _collections() -> int:
    """How often the collector has gone through everything."""
    return gc.get_stats()[2]["collections"]


last_collection: Final = LastCollection()
