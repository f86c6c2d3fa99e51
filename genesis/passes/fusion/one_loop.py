"""Whether one loop can compute two clusters, at which level each goes on there, and whether that is worth it.

A reduction's result is only known for the x at hand: a read of another row's is refused. All other rules here are
about cost: how long a kernel becomes, and how often a value is computed again at other points. `fuse.py` says what
levels are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from math import prod

from genesis.ir.node import Node
from genesis.ir.ops.row_writes import row_put
from genesis.ir.sym_int import hint
from genesis.passes.fusion.cluster import Cluster, level_of, merged_size, shared_space
from genesis.passes.fusion.cluster_graph import ClusterGraph, Refused
from genesis.passes.fusion.index_map import Expr, share_within
from genesis.passes.fusion.loop_reads import Coordinates, coordinates, reads_at
from genesis.passes.fusion.materialize import MemoryValues
from genesis.passes.fusion.other_points import ELSEWHERE, Places, in_row, of_row, same_row, weight_again
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Space

MOST_WEIGHT = 128
"""The most weighted ops in a kernel with reductions or inlined clusters; pointwise kernels are cut later."""

RECOMPUTED_WEIGHT = 16
"""The most weighted ops per element for which a value is computed again at a second set of points."""

REPEATED_WEIGHT = 4
"""The most weighted ops of a value that is computed again for every element it is broadcast to. A value that depends on
the row alone may cost `ROW_BLOCK` times as much: it is computed once for each block of a row."""

ROW_BLOCK = 256
"""Elements of a row that share one computation of a value that depends on the row alone."""

FAR_BYTES = 8 << 20
"""Bytes of a value above which loading its operands a second time, at other points, costs more than a kernel of its own
(an H200's L2 keeps smaller ones)."""

TOGETHER = "another kernel puts together what the splits gave, when all of them are done"
"""Why a partial reduction's result is not read in the kernel that makes it."""


class OneLoop:
    """The rules by which clusters share a loop.

    Args:
        values: the values that are in memory, and what each is made of.
        dag: the clusters there are.
        reads: node → the materialized nodes that it reads.
        known: the nodes at which a read ends.
        outputs: the program's results.
    """

    def __init__(self, values: MemoryValues, dag: ClusterGraph[Node], reads: dict[Node, tuple[Node, ...]],
                 known: dict[Node, object], outputs: Collection[Node]):
        self.values, self.dag, self.reads, self.known, self.outputs = values, dag, reads, known, outputs
        self._reads_at: dict[tuple[Node, Expr], tuple[tuple[Node, Expr], ...]] = {}

    def fit(self, a: int, b: int, first: Cluster, second: Cluster, inline: bool) -> tuple[dict[int, str], bool]:
        """The level at which each cluster's pointwise nodes go on, and whether they are computed in other rows too.

        Args:
            a, b: the clusters' numbers in the graph of clusters.
            inline: whether the first may be computed only where the second reads it.

        Raises:
            Refused: the two do not fit.
        """
        shared_space(first, second)
        loose = first.space is None and second.space is None
        heavy = first.weight + second.weight > MOST_WEIGHT
        if heavy and not (loose and first.size == second.size and not first.has_inlined and not second.has_inlined):
            raise Refused(f"the kernel would be too long ({first.weight + second.weight} weighted ops)")
        refusals: list[str] = []
        for levels in self.candidates(first, second):
            if levels[0] == "inlined" and not inline:
                continue
            try:
                other_rows = self.check(a, b, first, second, levels)
            except Refused as refusal:
                refusals.append(str(refusal))
            else:
                return {a: levels[0], b: levels[1]}, other_rows
        raise Refused(next(iter(refusals), "their shapes do not fit one loop"))

    def candidates(self, first: Cluster, second: Cluster) -> Iterable[tuple[str, str]]:
        """Levels to try for the two clusters' pointwise nodes, the cheapest kernel first."""
        space = shared_space(first, second)
        if space is None:
            if first.size == second.size:
                yield "pointwise", "pointwise"
            yield "inlined", "pointwise"
            return
        elements, rows = prod(size for size, _ in space), prod(size for size, kind in space if kind == "x")
        splits_r = any(cluster.splits and not cluster.splits_x for cluster in (first, second))  # no program has a row
        options = []
        for cluster in (first, second):
            if cluster.space is not None:
                options.append(["own"])
                continue
            fits = [level for level, size in (("pointwise", elements), ("row", rows)) if cluster.size == size
                    and not (splits_r and level == "row")]
            options.append([*fits, "inlined"] if cluster is first else fits)
        for one in options[0]:
            for two in options[1]:
                yield one, two

    def check(self, a: int, b: int, first: Cluster, second: Cluster, chosen: tuple[str, str]) -> bool:
        """Whether a node of the merged cluster would be computed in other rows too, for who reads it there. Raises
        Refused if a read between the clusters is none that the kernel can serve, at a cost worth it."""
        space = shared_space(first, second) or ((merged_size(first, second), "x"),)
        at = coordinates(space)
        if chosen[0] == "inlined":
            self.require_inlinable(a, b, first)
        edges = [(p, c, first, chosen, second) for p, c in self.dag.readers[a].get(b, ())]
        edges += [(p, c, second, chosen[::-1], first) for p, c in self.dag.readers[b].get(a, ())]
        other_rows = False
        places = [Places(cluster, level, at, self.known, partial(self.is_kept, cluster))
                  for cluster, level in ((first, chosen[0]), (second, chosen[1]))]
        repeats, shared, elsewhere, again = 0.0, ROW_BLOCK, 0, 0.0
        counted: set[tuple[Node, Expr]] = set()
        for producer, consumer, source, levels, reader in edges:
            if producer not in self.reads[consumer]:  # it only waits for it
                continue
            level = level_of(source, producer, levels[0])
            where = level_of(reader, consumer, levels[1])
            reading = places[reader is second]
            if level == "partial":
                raise Refused(TOGETHER)
            if where == "inlined" or (reader.computes_other_rows and source.space is not None):
                if level != "inlined":
                    again += self.other_points(producer, consumer, source, levels[0], reading, space)
                continue
            position = at.element if where == "pointwise" or consumer.op.kind == "reduction" else at.row
            for value, e in self.reads_at(consumer, position):
                if value is not producer or _served(level, e, at.element, at.row):
                    continue
                if source.space == space and self.computes_at(source, producer, e, at):
                    continue
                if (producer, e) in counted:
                    continue
                counted.add((producer, e))
                if level == "row":
                    raise Refused("it reads the reduction's result of another row")
                if source.space is not None and not same_row(e, space, at.row):
                    again += self.other_points(producer, consumer, source, levels[0], reading, space)
                    continue
                if level == "pointwise" and not same_row(e, space, at.row):
                    other_rows = True
                    elsewhere += hint(producer.type.nbytes)
                points = prod(n for n, kind in space if kind == "x") if where == "row" else prod(n for n, _ in space)
                repeats += points / max(producer.type.numel, 1)
                shared = min(shared, _neighbours_with(e))
        if is_inlined(chosen[0]) and repeats > 1 and first.weight > REPEATED_WEIGHT * shared:
            raise Refused("broadcasting it costs more to recompute than to store")
        if again > RECOMPUTED_WEIGHT or (not is_inlined(chosen[0]) and repeats * first.weight > RECOMPUTED_WEIGHT):
            raise Refused("its elements are needed at several places, and computing them again costs more than storing")
        if not is_inlined(chosen[0]) and FAR_BYTES < elsewhere <= self.bytes_read(first):
            raise Refused("it is stored anyway, and reading that takes less than reading what it is made of at other "
                          "places")
        return other_rows

    def other_points(self, producer: Node, consumer: Node, source: Cluster, chosen: str, reading: Places,
                     space: Space) -> float:
        """Weighted ops for each element of a row whose node is read at other elements of that row. Raises Refused if it
        is read elsewhere, or is none that one kernel computes with its row's reductions."""
        level = level_of(source, producer, chosen)
        if source.space is None or source.space != space or level not in ("pointwise", "row"):
            raise Refused(ELSEWHERE)
        points, at = reading.read(producer, consumer), reading.at
        if not points or not (in_row(points, space, at.row) if level == "pointwise" else of_row(points, at.row)):
            raise Refused("it reads the reduction's result of another row")
        elsewhere = sum(share_within(bounds) for e, bounds in points if e != at.element)
        return elsewhere * weight_again(producer, source, self.reads) if level == "pointwise" else 0.0

    def is_kept(self, cluster: Cluster, node: Node) -> bool:
        """Does the program return a cluster's node, or another cluster read it?"""
        readers = self.dag.readers[self.dag.of[node]]
        return self.values.name[node] in self.outputs or any(
            producer is node and consumer not in cluster.levels for edges in readers.values()
            for producer, consumer in edges)

    def computes_at(self, cluster: Cluster, producer: Node, e: Expr, at: Coordinates) -> bool:
        """Does the cluster's kernel compute its node at position e anyway, for a node of its own that reads it there?
        (The largest and its place, of windows: where one reads, the other does.)"""
        def position(reader: Node) -> Expr:
            pointwise = cluster.levels[reader] == "pointwise" or reader.op.kind == "reduction"
            return at.element if pointwise else at.row
        return any((producer, e) in self.reads_at(reader, position(reader))
                   for reader, level in cluster.levels.items() if level != "inlined" and producer in self.reads[reader])

    def bytes_read(self, cluster: Cluster) -> int:
        """How much a cluster reads of what others make."""
        read = {x for node in cluster.levels for x in self.values.reads[node] if x not in cluster.levels}
        return sum(hint(x.type.nbytes) for x in read)

    def require_room(self, first: Cluster, second: Cluster) -> None:
        """Raise Refused if one kernel would write a row of memory that it reads: its programs run in any order."""
        if not (first.writes_rows or second.writes_rows):
            return
        levels = {**first.levels, **second.levels}
        written = {stored_as(node.inputs[0]) for node in levels if node.op is row_put}
        for node in levels:
            for x in self.values.reads[node]:
                if x.op is row_put and x in levels:
                    raise Refused("a row that is written is read when all of its memory is there")
                if stored_as(x) in written and (node.op is not row_put or x in levels):
                    raise Refused("the memory that a row is written to is read")

    def require_inlinable(self, a: int, b: int, first: Cluster) -> None:
        """Raise Refused if a cluster may not lose its own loop and be computed where the other reads it."""
        if first.space is not None:
            raise Refused("it reads the reduction's result of another row")
        if set(self.dag.readers[a]) != {b}:
            raise Refused("other kernels need the value too")
        if any(self.values.name[node] in self.outputs for node in first.levels):
            raise Refused("the program returns the value")

    def reads_at(self, consumer: Node, position: Expr) -> tuple[tuple[Node, Expr], ...]:
        key = (consumer, position)
        found = self._reads_at.get(key)
        if found is None:
            found = self._reads_at[key] = reads_at(consumer, position, self.known)
        return found


def is_inlined(level: str) -> bool:
    """Is the producer's cluster computed only where it is read?"""
    return level == "inlined"


def _served(level: str, e: Expr, element: Expr, row: Expr) -> bool:
    """Is position `e` where the value is computed anyway?"""
    return (level == "pointwise" and e == element) or (level == "row" and e == row)


def _neighbours_with(e: Expr) -> int:
    """Minimum number of points in a row that lie at the same position e: of x // 768 it is 768."""
    return min((atom.number if atom.kind == "div" else 1 for atom, _ in e.terms), default=ROW_BLOCK)
