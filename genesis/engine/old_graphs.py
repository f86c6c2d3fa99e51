"""Graphs of values that were computed long ago and are still held, as a list of losses holds those of all its steps.

At every step each is asked whether a backward of it needs what the step overwrites. The nodes below a value never
change: they are listed when they are asked for again, and the list is asked for the memories that its nodes have now.

Most are not asked at all. What a loop overwrites at each turn is the value of a node of the turn before (`Cell.since`),
and nothing that is computed of older nodes alone reads it: however many turns are held, one is walked. The same holds
of what waits to be computed, as a running mean does that nobody reads: its graph grows at each turn.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from genesis.frontend.detached import live_histories
from genesis.ir.memos import counted
from genesis.ir.node import Node
from genesis.ir.walk import computed, walk_since

if TYPE_CHECKING:
    from genesis.frontend.storage import Storage

MOST_NODES: Final = 1024
"""Nodes of a graph that is listed, at the most."""

TOGETHER: Final = 4
"""So many graphs that were not listed are gone through together: one walk takes what two lists take."""

MOST_GRAPHS: Final = 256
"""Graphs that are remembered; when there are more, all are dropped."""

_known: weakref.WeakKeyDictionary[Node, tuple[Node, ...] | None] = weakref.WeakKeyDictionary()
"""A value → the nodes below it, none of one whose graph is large; None for one that was met once, as most are."""

_buffer: Final = attrgetter("buffer")

counted("graphs of old values", lambda: len(_known), 8 * MOST_NODES, MOST_GRAPHS + 1)


def oldest_in(storages: Iterable[Storage]) -> int:
    """The number of the oldest node whose value may be what lies in the storages' memories: no older one, and nothing
    below it, lies there."""
    return min([storage.cell.since for storage in storages if storage.cell is not None], default=0)


def verify_ages(contents: Iterable[Node], storages: Iterable[Storage]) -> None:
    """What the walks that end at old nodes rest on, looked at under GENESIS_VERIFY=1: a node is younger than those it
    is made of, and no older one than is said lies in the memories of these storages.

    Args:
        contents: of all live storages.

    Raises:
        VerifyError: it is not so.
    """
    from genesis.ir.verify import VerifyError, verifying
    if not verifying():
        return
    since = {id(s.cell): s.cell.since for s in storages if s.cell is not None}
    for node in walk_since([*contents, *live_histories()], 0, through=True):
        for x in node.inputs:
            if x.number >= node.number:
                raise VerifyError(f"{node} at {node.source} is no younger than {x}, which it is made of")
        if node.number < since.get(id(node.buffer), 0):
            raise VerifyError(f"{node} at {node.source} lies in a memory that is said to hold younger values only")


def may_show(root: Node, cells: Mapping[int, object], listed: bool = False) -> bool:
    """Whether a value, or anything that it was computed from, may lie in one of these cells, which are given by `id`.

    True for a value that is asked about for the first time, unless its graph is to be `listed` at once.
    """
    if root not in _known:
        if len(_known) > MOST_GRAPHS:
            _known.clear()
        _known[root] = None
        if not listed:
            return True
    below = _known[root]
    if below is None:
        below = _known[root] = _below(root)
    return not below or not cells.keys().isdisjoint(map(id, map(_buffer, (root, *below))))


def that_may_show(roots: Sequence[Node], cells: Mapping[int, object], number: int, listed: bool = False) -> list[Node]:
    """Those of these values that may lie in one of the cells, or were computed from what may: `may_show` of each.

    Where many are new, as the parts of a roll-out that is held whole, their graphs are gone through once, together.

    Args:
        number: nothing older lies in the cells.
    """
    new = [root for root in roots if _known.get(root) is None]
    touching = that_touch(new, cells, (), number) if len(new) >= TOGETHER else None
    if touching is None:
        return [root for root in roots if may_show(root, cells, listed)]
    return [root for root in roots if (root in touching if _known.get(root) is None else may_show(root, cells))]


def that_touch(roots: Iterable[Node], cells: Container[int], program: Container[Node], number: int) -> set[Node] | None:
    """Those of these values, and of all that they were computed from, that have to do with a program that overwrites
    these cells, which are given by `id`: something that they were computed from lies there, or is computed by the
    program. None if there are many to look at.

    Args:
        number: nothing older lies in the cells, or is computed by the program.
    """
    order = walk_since(roots, number, through=True, most=MOST_NODES)
    if len(order) > MOST_NODES:
        return None
    found: set[Node] = set()
    disjoint = found.isdisjoint
    for node in order:
        if not disjoint(node.inputs) or id(node.buffer) in cells or (
                node.inputs and node in program and not computed(node)):
            found.add(node)
    return found


def _below(root: Node) -> tuple[Node, ...]:
    """All nodes that a value was computed from, those in memory and what is below them, too; none if there are many."""
    found: set[Node] = set()
    stack = list(root.inputs)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.inputs)
            if len(found) > MOST_NODES:
                return ()
    return tuple(found)
