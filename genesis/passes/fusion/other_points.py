"""What a kernel of rows computes at a second place of its row for who reads it there: a norm, where it is rotated.

A reduction's result is one for the whole row, so all that is pointwise behind it can be computed at any element of the
row. `fuse` asks here where a value is read, and what computing it there costs.
"""

from __future__ import annotations

from collections.abc import Iterable

from genesis.ir.node import Node
from genesis.passes.fusion.cluster import Cluster, level_of
from genesis.passes.fusion.cluster_graph import Refused
from genesis.passes.fusion.index_map import Bound, Expr, flatten, narrowed, unflatten
from genesis.passes.fusion.loop_reads import Coordinates, reads_within
from genesis.passes.fusion.materialize import weight
from genesis.passes.groups import Space

Points = tuple[tuple[Expr, tuple[Bound, ...]], ...]
"""Positions, each with the bounds under which it is read."""

MOST_POINTS = 8
"""Maximum places at which an inlined node is computed that are followed to what it reads."""


def points_read(producer: Node, consumer: Node, reader: Cluster, chosen: str, at: Coordinates,
                known: dict[Node, object]) -> Points:
    """Where a node of the reading cluster, inlined or not, reads a value.

    Args:
        chosen: the level that the cluster's pointwise nodes take.
        known: values in memory, and nodes that kernels compute.

    Raises:
        Refused: the places are not known, or too many.
    """
    found: dict[tuple[Expr, tuple[Bound, ...]], None] = {}
    for position, bounds in _computed_at(consumer, reader, chosen, at, known):
        read = reads_within(consumer, position, bounds, known)
        if read is None:
            raise Refused("an index says where the value is read")
        found |= dict.fromkeys((e, held) for value, e, held in read if value is producer)
    return tuple(found)


def _computed_at(node: Node, cluster: Cluster, chosen: str, at: Coordinates, known: dict[Node, object]) -> Points:
    level = level_of(cluster, node, chosen)
    if level != "inlined":
        return ((at.element if level == "pointwise" or node.op.kind == "reduction" else at.row, ()),)
    found: dict[tuple[Expr, tuple[Bound, ...]], None] = {}
    for other in cluster.levels:
        if node in other.inputs or _leads_to(other, node, known):
            found |= dict.fromkeys(points_read(node, other, cluster, chosen, at, known))
    if not found or len(found) > MOST_POINTS:
        raise Refused("the value is read at points that differ from those it is computed at")
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
