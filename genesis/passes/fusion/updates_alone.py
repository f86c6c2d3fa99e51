"""Which values only updates of memory depend on: an optimizer's, which become one launch for all tensors."""

from __future__ import annotations

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.passes.fusion.materialize import MemoryValues
from genesis.passes.graph.snapshots import copies_only


def for_updates_alone(graph: Graph, values: MemoryValues, reads: dict[Node, tuple[Node, ...]]) -> set[Node]:
    """Pointwise nodes that only updates of memory depend on, an optimizer's, and copies of what they overwrite.

    They stay out of the kernels that make the gradients, so that equal ones can become one launch. So do gradients that
    are scaled by their common norm: no kernel that makes one could scale it.
    """
    targets = {value for _, value in graph.updates} - set(graph.outputs)
    returned = set(graph.outputs)
    readers: dict[Node, list[Node]] = {}
    for node in values.materialized:
        for x in reads[node]:
            readers.setdefault(x, []).append(node)
    behind = _Behind(reads)
    found: set[Node] = set()
    for node in reversed(values.materialized):
        read_by = readers.get(node, ())
        name = values.name[node]
        if node.op.kind != "pointwise" or any(x not in found or x.type.numel != node.type.numel for x in read_by):
            continue  # a number that tensors are scaled by is computed once, where it is made
        if bool(read_by) and behind.scales_by_own_reduction(node) if name in returned else bool(
                read_by) or name in targets:
            found.add(node)
    overwritten = {target for target, _ in graph.updates}
    return found | {node for node in values.materialized if copies_only(node) and node.inputs[0] in overwritten}


class _Behind:
    """What numbers in memory are made of: all that is found is kept, as many gradients are scaled by one number."""

    def __init__(self, reads: dict[Node, tuple[Node, ...]]):
        self._reads = reads
        self._found: dict[Node, set[Node]] = {}

    def scales_by_own_reduction(self, node: Node) -> bool:
        """Is one of its operands a number that is made of another operand?"""
        read = self._reads[node]
        numbers = [x for x in read if x.type.numel == 1] if len(read) > 1 else []
        return any(x is not number and x in self._behind(number) for number in numbers for x in read)

    def _behind(self, node: Node) -> set[Node]:
        found = self._found.get(node)
        if found is None:
            found, pending = set(), [node]
            while pending:
                for x in self._reads[pending.pop()]:
                    if x not in found:
                        found.add(x)
                        pending.append(x)
            self._found[node] = found
        return found
