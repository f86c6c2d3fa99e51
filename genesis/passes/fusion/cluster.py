"""Nodes that one kernel will compute, and the space that two such clusters can share. `fuse` merges them."""

from __future__ import annotations

from dataclasses import dataclass, field

from genesis.ir.node import Node
from genesis.ir.ops.row_writes import row_put
from genesis.ir.ops.splits import SPREADS, reduce_splits
from genesis.passes.fusion.cluster_graph import Refused
from genesis.passes.fusion.loop_reads import reduction_space
from genesis.passes.fusion.materialize import maker, weight
from genesis.passes.groups import Space


@dataclass
class Cluster:
    """Nodes that one kernel will compute.

    Attributes:
        kind: of the group it becomes.
        size: elements of the whole space.
        space: fixed by a reduction; None while the cluster is pointwise and any space of its size will do.
        levels: node → "pointwise", "row", "inlined" or "partial".
        computes_other_rows: some pointwise node is also computed at other elements. Whether these lie in other rows is
            asked when there are rows.
        updates: nothing but updates of memory is made of its nodes.
        splits: (number, multiple) of the splits that it reduces; None without partial reductions.
        splits_x: the splits are of x, not of r.
        has_inlined: some node is inlined: computed at other points than the space's own.
        writes_rows: some node is a row that is written into memory (`row_put`).
    """

    kind: str
    size: int
    space: Space | None
    levels: dict[Node, str] = field(default_factory=dict)
    weight: int = 0
    computes_other_rows: bool = False
    updates: bool = False
    splits: tuple[int, int] | None = None
    splits_x: bool = False
    has_inlined: bool = False
    writes_rows: bool = False

    @property
    def takes_any_split(self) -> bool:
        """Can its partial reductions be taken of rows as they come, one element of each a time?"""
        return "row" not in self.levels.values() and not any(
            node.op is reduce_splits and node["how"] in SPREADS for node in self.levels)

    @property
    def full_reductions(self) -> bool:
        """Does it reduce all of r at once?"""
        return any(node.op.kind == "reduction" and level != "partial" for node, level in self.levels.items())


def alone(node: Node, updates: bool) -> Cluster:
    """A cluster of one node."""
    opaque = maker(node).op.opaque
    kind = "loop" if opaque is None else opaque.kernel
    if node.op is reduce_splits:
        return Cluster(kind, node.inputs[0].type.numel, reduction_space(node), {node: "partial"}, 1,
                       splits=(node["splits"], node["multiple"]))
    if node.op.kind == "reduction":
        return Cluster(kind, node.inputs[0].type.numel, reduction_space(node), {node: "row"}, 1)
    if node.op is row_put:
        return Cluster(kind, node.inputs[1].type.numel, None, {node: "pointwise"}, writes_rows=True)
    return Cluster(kind, node.type.numel, None, {node: "pointwise"}, weight(node), updates=updates)


def level_of(cluster: Cluster, node: Node, chosen: str) -> str:
    """The level of a node after its cluster's pointwise nodes took the chosen level."""
    own = cluster.levels[node]
    return own if own != "pointwise" or chosen == "own" else chosen


def shared_space(first: Cluster, second: Cluster) -> Space | None:
    """The space that two clusters can share; None is any of their size. Raises Refused if there is none."""
    if first.space is None or second.space is None:
        return first.space or second.space
    if first.splits and second.splits and first.splits != second.splits:
        raise Refused("they cut what they reduce into different splits")
    if first.space == second.space:
        for one, other in ((first, second), (second, first)):
            if one.splits and not one.splits_x and (other.full_reductions or other.splits_x):
                raise Refused("one needs all of a row at once, the other only splits")
        return first.space
    for one, other in ((first, second), (second, first)):
        transposes = one.splits and not one.splits_x and one.takes_any_split
        if transposes and (other.splits_x or not other.splits) and other.space == _transposed(one.space):
            return other.space
    raise Refused("they reduce over different spaces")


def _transposed(space: Space | None) -> Space | None:
    """The space of rows whose columns a reduction's space keeps."""
    if space is None or [kind for _, kind in space] != ["r", "x"]:
        return None
    return (space[0][0], "x"), (space[1][0], "r")


def merged_size(first: Cluster, second: Cluster) -> int:
    """Elements of the shared space: that of the reduction, else the reader's."""
    return first.size if first.space is not None else second.size
