"""Graphs of values that were computed long ago and are still held, as a list of losses holds those of all its steps.

At every step each is asked whether a backward of it needs what the step overwrites. The nodes below a value never
change: they are listed when they are asked for again, and the list is asked for the memories that its nodes have now.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from operator import attrgetter
from typing import Final

from genesis.ir.memos import counted
from genesis.ir.node import Node

MOST_NODES: Final = 1024
"""Nodes of a graph that is listed, at the most."""

MOST_GRAPHS: Final = 256
"""Graphs that are remembered; when there are more, all are dropped."""

_known: weakref.WeakKeyDictionary[Node, tuple[Node, ...] | None] = weakref.WeakKeyDictionary()
"""A value → the nodes below it; None for one that was met once, as most are, or whose graph is large."""

_buffer: Final = attrgetter("buffer")

counted("graphs of old values", lambda: len(_known), 8 * MOST_NODES, MOST_GRAPHS + 1)


def may_show(root: Node, cells: Mapping[int, object]) -> bool:
    """Whether a value, or anything that it was computed from, may lie in one of these cells, which are given by `id`.

    True for a value that is asked about for the first time.
    """
    if root not in _known:
        if len(_known) > MOST_GRAPHS:
            _known.clear()
        _known[root] = None
        return True
    below = _known[root]
    if below is None:
        below = _known[root] = _below(root)
        if not below:
            return True
    return not cells.keys().isdisjoint(map(id, map(_buffer, (root, *below))))


def _below(root: Node) -> tuple[Node, ...] | None:
    """All nodes that a value was computed from, those in memory and what is below them, too; None if there are many."""
    found: set[Node] = set()
    stack = list(root.inputs)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.inputs)
            if len(found) > MOST_NODES:
                return None
    return tuple(found)
