"""What a kernel of rows computes at a second place of its row for who reads it there: a norm, where it is rotated.

A reduction's result is one for the whole row, so all that is pointwise behind it can be computed at any element of the
row. `fuse` asks here where a value is read, and what computing it there costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from genesis.ir.node import Node
from genesis.passes.fusion.cluster import Cluster, level_of
from genesis.passes.fusion.cluster_graph import Refused
from genesis.passes.fusion.index_map import Bound, Expr, flatten, narrowed, unflatten
from genesis.passes.fusion.loop_reads import Coordinates, reads_within
from genesis.passes.fusion.materialize import weight
from genesis.passes.groups import Space

Points = tuple[tuple[Expr, tuple[Bound, ...]], ...]
"""Positions, each with the bounds under which it is read."""

MOST_POINTS: Final = 8
"""Maximum places at which a node is computed that are followed to what it reads."""

ELSEWHERE: Final = "the value is read at points that differ from those it is computed at"


class Places:
    """Where the nodes of a cluster are computed, and read what is not of it.

    Args:
        cluster: the cluster that reads.
        chosen: the level that its pointwise nodes take.
        at: the positions of the space that it gets.
        known: values in memory, and nodes that kernels compute.
        kept: its nodes that others read, or that the program returns: they are computed at their own place anyway.
    """

    def __init__(self, cluster: Cluster, chosen: str, at: Coordinates, known: dict[Node, object],
                 kept: Callable[[Node], bool]):
        self.cluster, self.chosen, self.at, self.known, self.kept = cluster, chosen, at, known, kept
        self._computed: dict[Node, Points] = {}

    def read(self, producer: Node, consumer: Node) -> Points:
        """Where a node of the cluster reads a value.

        Raises:
            Refused: the places are not known, or too many.
        """
        found: dict[tuple[Expr, tuple[Bound, ...]], None] = {}
        for position, bounds in self.computed(consumer):
            read = reads_within(consumer, position, bounds, self.known)
            if read is None:
                raise Refused("an index says where the value is read")
            found |= dict.fromkeys((e, held) for value, e, held in read if value is producer)
        return tuple(found)

    def computed(self, node: Node) -> Points:
        """Where a node is computed: at its own place, or where others of the cluster read it, or both."""
        points = self._computed.get(node)
        if points is None:
            points = self._computed[node] = self._found(node)
        return points

    def _found(self, node: Node) -> Points:
        level = level_of(self.cluster, node, self.chosen)
        elementwise = level == "pointwise" or node.op.kind == "reduction"
        own = (self.at.element if elementwise else self.at.row, ())
        if level != "inlined" and not (level == "pointwise" and self.cluster.computes_other_rows):
            return (own,)
        found: dict[tuple[Expr, tuple[Bound, ...]], None] = {}
        if level != "inlined" and self.kept(node):
            found[own] = None
        for other in self.cluster.levels:
            if node in other.inputs or _leads_to(other, node, self.known):
                found |= dict.fromkeys(self.read(node, other))
        if not found or len(found) > MOST_POINTS:
            raise Refused(ELSEWHERE)
        return tuple(found)


def _leads_to(reader: Node, node: Node, known: dict[Node, object]) -> bool:
    """Does a node read another one, through what is inlined?"""
    pending, seen = list(reader.inputs), set(reader.inputs)
    while pending:
        x = pending.pop()
        if x is node:
            return True
        if x not in known:
            pending += [y for y in x.inputs if y not in seen]
            seen.update(x.inputs)
    return False


def in_row(points: Iterable[tuple[Expr, tuple[Bound, ...]]], space: Space, row: Expr) -> bool:
    """Do all positions of the whole space lie in the row x?"""
    return all(same_row(e, space, row) or same_row(narrowed(e, bounds), space, narrowed(row, bounds))
               for e, bounds in points)


def of_row(points: Iterable[tuple[Expr, tuple[Bound, ...]]], row: Expr) -> bool:
    """Are all positions, of what has a number for each row, that of x?"""
    return all(narrowed(e, bounds) == narrowed(row, bounds) for e, bounds in points)


def same_row(e: Expr, space: Space, kept: Expr) -> bool:
    """Does position e of the whole space lie in the row x?"""
    point = unflatten(e, [size for size, _ in space])
    rows = [(c, size) for c, (size, kind) in zip(point, space, strict=True) if kind == "x"]
    return flatten([c for c, _ in rows], [size for _, size in rows]) == kept


def weight_again(node: Node, cluster: Cluster, reads: dict[Node, tuple[Node, ...]]) -> int:
    """Weighted ops that compute a cluster's node at one more element of a row, whose reductions are known."""
    pending, seen, total = [node], {node}, 0
    while pending:
        x = pending.pop()
        total += weight(x)
        more = [y for y in reads[x] if cluster.levels.get(y) == "pointwise" and y not in seen]
        seen.update(more)
        pending += more
    return total
