"""Group the nodes of a graph into kernels.

before: %1 = max(%0, axes=(1,))     after: group softmax_rows: %1 … %4, reads %0, writes %4
        %2 = exp(%0 - spread(%1))
        %3 = sum(%2, axes=(1,))
        %4 = %2 / spread(%3)

Every materialized node (see `memory_values`) starts as a cluster of its own. Then each value's cluster is
merged with its reader's, wherever one loop can compute both. A loop runs over a space of row (x) and
reduced (r) coordinates, and each of its nodes has a level:

    pointwise   computed at every (x, r)
    row         computed once for each x: results of reductions and what is made of them
    inlined     computed wherever it is read, at any point; no other kernel may need it
    partial     a reduction of splits (`reduce_splits`): taken from every (x, r), and written at the program's end

A reduction's result is only known for the x at hand. That is the one rule that makes a fusion wrong; all
others are about cost. Fusions that the rules forbid are kept as `MissedFusion`s.

Sums over the rows of what a kernel computes row by row are partial reductions in its transposed space: each of its
programs takes a split of whole rows, and adds up the columns on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import combinations, pairwise

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import control, leaves
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.sym_int import hint
from genesis.passes.fusion.cluster import Cluster, alone, merged_size, shared_space
from genesis.passes.fusion.cluster_graph import IN_BETWEEN, ClusterGraph, Refused
from genesis.passes.fusion.epilogues import merge_epilogues
from genesis.passes.fusion.finish_groups import make_groups
from genesis.passes.fusion.foreach import join_equal_groups
from genesis.passes.fusion.materialize import MemoryValues, maker, memory_values
from genesis.passes.fusion.one_loop import TOGETHER, OneLoop
from genesis.passes.fusion.slices import computed_apart, slices_of
from genesis.passes.fusion.turned_rows import FIRST, turned_rows
from genesis.passes.fusion.updates_alone import for_updates_alone
from genesis.passes.gpu import Gpu
from genesis.passes.groups import MissedFusion, Schedule
from genesis.passes.memory.schedule import order_groups

MOST_BETWEEN = 8
"""The most clusters between a value and its reader that are merged with both, when nothing else keeps them apart."""

MOST_SPLITS = 8
"""Readers of one value, at most, of whose splits each is tried with each other."""

COMPUTED_APART = "a kernel that there is anyway computes this part, and may write it where the concatenation lies"
"""Why a part of a concatenation is not computed by the kernel that concatenates."""


def fuse(graph: Graph, merge: bool = True, gpu: Gpu | None = None) -> Schedule:
    """The kernels of a graph for CUDA, in order. Without `merge` each materialized node has one of its own."""
    fuser = _Fuser(graph, memory_values(graph, gpu), gpu)
    if merge:
        fuser.run()
    slices = slices_of(fuser) if merge else {}
    clusters = [(c.kind, c.space or ((c.size, "x"),), c.levels)
                for c in map(fuser.clusters.__getitem__, fuser.dag.order())]
    groups = make_groups(graph, fuser.values, clusters, slices)
    if merge:
        groups = join_equal_groups(groups)
    missed = tuple(MissedFusion(p, c, why) for (p, c), why in fuser.refused.items()
                   if fuser.dag.of.get(p) != fuser.dag.of[c])
    return Schedule(graph, order_groups(groups), missed)


class _Fuser:
    """The merging. `dag` knows which clusters there are, `clusters` what each is."""

    def __init__(self, graph: Graph, values: MemoryValues, gpu: Gpu | None):
        self.graph, self.values, self.gpu = graph, values, gpu
        materialized = values.materialized
        reads = {node: tuple(x for x in values.reads[node] if x.op is not leaves.input) for node in materialized}
        before = {node: (*reads[node], *values.waits.get(node, ())) for node in materialized} if values.waits else reads
        self.dag: ClusterGraph[Node] = ClusterGraph(materialized, before)
        update = for_updates_alone(graph, values, reads)
        self.clusters = {self.dag.of[node]: alone(node, node in update) for node in materialized}
        self.reads = reads
        self.refused: dict[tuple[Node, Node], str] = {}
        self.outputs = set(graph.roots)
        self.known: dict[Node, object] = dict.fromkeys(materialized) | dict.fromkeys(graph.inputs)
        self.apart: set[tuple[Node, Node]] = set()
        self.turned = turned_rows(graph, gpu)
        self.one_loop = OneLoop(values, self.dag, reads, self.known, self.outputs)
        self.join_results()

    def join_results(self) -> None:
        """The results of one op are one cluster: their kernel writes them all."""
        first: dict[Node, int] = {}
        for node in self.values.materialized:
            if node.op is not control.item:
                continue
            own = self.dag.of[node]
            kept = first.setdefault(maker(node), own)
            if kept != own:
                self.dag.merge(kept, own, (node,))
                self.clusters[kept].levels[node] = "pointwise"
                del self.clusters[own]

    def run(self) -> None:
        """Merge along every edge, twice (a reader that stood in the way may have joined), then siblings.

        At first only what one loop computes anyway, the largest values first: where one fusion rules out another,
        the one that saves the larger store and load wins. (A sum over the rows' losses does not keep the gradient
        of the logits out of the kernel that reads them.) Then values that are computed where a view reads them, and
        last what those read.
        """
        self.apart = computed_apart(self)
        edges = [(producer, consumer) for consumer in self.values.materialized
                 for producer in sorted(self.reads[consumer], key=lambda node: -hint(node.type.nbytes))]
        for producer, consumer in sorted(edges, key=lambda edge: -_magnitude(edge[0])):
            self.along(producer, consumer, inline=False)
        for producer, consumer in edges:
            self.along(producer, consumer, inline=True)
        for producer, consumer in edges:  # what a reader that is inlined by now reads at other places of a row
            if self.clusters[self.dag.of[consumer]].levels[consumer] == "inlined":
                self.along(producer, consumer, inline=True)
        self.siblings()
        merge_epilogues(self)

    def along(self, producer: Node, consumer: Node, inline: bool) -> None:
        """Merge the clusters of a value and its reader if one kernel can compute both."""
        a, b = self.dag.of[producer], self.dag.of[consumer]
        if a == b:
            return
        first, second = self.clusters[a], self.clusters[b]
        if first.kind != "loop" or second.kind != "loop":
            return
        if (producer, consumer) in self.apart:
            self.refused[(producer, consumer)] = COMPUTED_APART
            return
        if producer in self.turned:
            self.refused[(producer, consumer)] = FIRST
            return
        if producer.op is reduce_splits:
            self.refused[(producer, consumer)] = TOGETHER
            return
        try:
            self.join(a, b, first, second, inline)
        except Refused as refusal:
            if str(refusal) != IN_BETWEEN or not self.gather(a, b, inline):
                self.refused[(producer, consumer)] = str(refusal)

    def gather(self, a: int, b: int, inline: bool) -> bool:
        """Merge a producer's cluster with the few that stand between it and its reader's, then with that one."""
        between = self.dag.between(a, b, MOST_BETWEEN)
        if not 0 < len(between) <= MOST_BETWEEN or any(self.clusters[c].kind != "loop" for c in between):
            return False
        node = next(iter(self.clusters[a].levels))
        target = next(iter(self.clusters[b].levels))
        try:
            for other in between:
                a = self.dag.of[node]
                self.join(a, other, self.clusters[a], self.clusters[other], inline)
            a, b = self.dag.of[node], self.dag.of[target]
            self.join(a, b, self.clusters[a], self.clusters[b], inline)
        except Refused:
            return False
        return True

    def siblings(self) -> None:
        """Merge clusters of one space that read the same large value: it is then loaded once.

        What puts together the parts that one kernel wrote is one kernel, too, and what makes the parts that one kernel
        puts together: the losses of so many rows, and how many of them count.
        """
        readers: dict[Node, list[Node]] = {}
        for node in self.values.materialized:
            for x in self.values.reads[node]:
                readers.setdefault(x, []).append(node)
        for value, nodes in readers.items():
            splits = [node for node in nodes if self.clusters[self.dag.of[node]].splits]
            for one, other in (*combinations(splits[:MOST_SPLITS], 2), *pairwise(nodes)):
                a, b = self.dag.of[one], self.dag.of[other]
                first, second = self.clusters[a], self.clusters[b]
                large = 2 * hint(value.type.numel) >= hint(max(first.size, second.size, key=hint))
                if a != b and first.kind == second.kind == "loop" and large:
                    with suppress(Refused):
                        self.join(a, b, first, second)
        parts: dict[int, list[Node]] = {}
        for node in self.values.materialized:
            for x in self.reads[node]:
                if x.op is reduce_splits:
                    parts.setdefault(self.dag.of[x], []).append(node)
        for nodes in parts.values():
            self.join_each(nodes)
        beside: dict[int, list[Node]] = {}
        for nodes in parts.values():
            for node in nodes:
                beside.setdefault(self.dag.of[node], []).extend(x for x in self.reads[node] if x.op is reduce_splits)
        for splits in beside.values():
            self.join_each(splits)

    def join_each(self, nodes: Iterable[Node]) -> None:
        """Merge the clusters of these nodes, as far as one kernel can compute neighbours."""
        for one, other in pairwise(nodes):
            a, b = self.dag.of[one], self.dag.of[other]
            if a != b:
                with suppress(Refused):
                    self.join(a, b, self.clusters[a], self.clusters[b])

    # One merge

    def join(self, a: int, b: int, first: Cluster, second: Cluster, inline: bool = True) -> None:
        """Merge two loop clusters.

        Raises:
            Refused: no kernel can compute both, or had better not. Nothing has changed.
        """
        if first.updates != second.updates:
            raise Refused("updates of memory run together, in one launch for all tensors")
        self.one_loop.require_room(first, second)
        merged, other_rows = self.one_loop.fit(a, b, first, second, inline)
        space, size = shared_space(first, second), merged_size(first, second)
        transposes = None not in (first.space, second.space) and first.space != second.space
        small, large = (b, a) if len(first.levels) >= len(second.levels) else (a, b)
        self.dag.merge(large, small, self.clusters[small].levels)
        levels = self.clusters[large].levels
        computes_other_rows = first.computes_other_rows or second.computes_other_rows or other_rows
        if len(set(merged.values())) > 1 or merged[a] != "own":
            self.relevel(first, merged[a])
            self.relevel(second, merged[b])
        levels.update(self.clusters[small].levels)
        kept = self.clusters[large]
        kept.computes_other_rows, kept.has_inlined = computes_other_rows, first.has_inlined or second.has_inlined
        kept.space, kept.size, kept.weight = space, size, first.weight + second.weight
        kept.writes_rows = first.writes_rows or second.writes_rows
        kept.splits, kept.splits_x = first.splits or second.splits, first.splits_x or second.splits_x or transposes
        del self.clusters[small]

    def relevel(self, cluster: Cluster, level: str) -> None:
        """Give the nodes of a pointwise cluster their level in the merged space."""
        if level != "own" and level != "pointwise":
            cluster.has_inlined = cluster.has_inlined or level == "inlined"
            for node in cluster.levels:
                if cluster.levels[node] == "pointwise":
                    cluster.levels[node] = level

def _magnitude(node: Node) -> int:
    """Size class of a value: one for each power of 16."""
    return hint(node.type.nbytes).bit_length() // 4
