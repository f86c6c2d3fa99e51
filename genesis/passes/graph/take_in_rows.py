"""Elements of long rows that one index takes, and that the program returns, are read from rows in shared memory.

Only what is returned: other results of `take` are often computed where they are read.
"""

from __future__ import annotations

from math import prod

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops.indexing import take
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.row_takes import fits_shared, taken_in_rows


def take_in_rows(graph: Graph) -> Graph:
    """take along the last axis → taken_in_rows, where rows fit (`row_takes.fits_shared`).

    before: %2: bf16[13,120,2048] = take(%0: bf16[13,120,8192], %1, axis=2)
    after:  %2: bf16[1560,8192] = reshape(%0), %3 = taken_in_rows(%1, %2), %4 = reshape(%3)
    """
    returned = {*graph.outputs, *(value for _, value in graph.updates)}

    def rule(node: Node) -> Node | None:
        if node.op is not take or node not in returned or node["axis"] != node.type.ndim - 1:
            return None
        x, index = node.inputs
        if not fits_shared(x.type, index.type):
            return None
        rows, length = prod(x.type.shape[:-1]), x.type.shape[-1]
        found = taken_in_rows(index, reshape(x, shape=(rows, length)))
        return reshape(found, shape=node.type.shape)
    return rewrite(graph, rule)
