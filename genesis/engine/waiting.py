"""Values that wait while other programs run.

A loop that reads a number at each turn computes that, and what is written; what else it records waits: a best loss, a
list of losses. So its graph grows with the turns. Each flush asks whether it has to do with it, and the program that is
read at last has all turns. What has waited through many programs is computed with the next one, as a loop that reads
nothing is cut (`limits.py`): each time as many turns, so that this is one program more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from genesis.engine.state import engine_state
from genesis.ir.node import next_node_number
from genesis.ir.walk import computed, walk, walk_since

if TYPE_CHECKING:
    from genesis.frontend.storage import Storage
    from genesis.ir.node import Node

PROGRAMS: Final = 120
"""Programs from one look to the next. A value has waited when some of it was recorded before the look before. A
multiple of what loops count by, as the turns of a piece are (`cuts.ALIKE`)."""

FEW: Final = 64
"""Ops up to which what has waited goes on waiting: a few values that are held for later are no loop's."""


def waited(live: Sequence[Storage]) -> list[Storage]:
    """Those of the live storages that are to be computed now, since they have waited."""
    cuts = engine_state.cuts
    before, cuts.waits_since = cuts.waits_since, next_node_number()
    cuts.waits_until = engine_state.ran + PROGRAMS
    waiting = [s for s in live if s.cell is None and not s.writes and not s.persistent]
    begun: dict[Node, int] = {}
    for node in walk_since([s.node for s in waiting], 0):
        if node.inputs and not computed(node):
            begun[node] = min([node.number, *[begun[x] for x in node.inputs if x in begun]])
    found = [s for s in waiting if begun.get(s.node, before) < before]
    ops = sum(node in begun for node in walk([s.node for s in found]))
    return found if ops > FEW else []
