"""Rows that are added to a table of zeros, which is added to another value, are added to that value.

The table of a language model whose head is tied has two gradients: a product, and the rows of what was looked up. The
second is a table of zeros with few rows; filling it, and adding it all, moves its bytes four times.

    before: %2 = index_add(0, %ids, %rows)        after: %2 = index_add(%1, %ids, %rows)
            %3 = add(%1, %2)

So have the experts of a loop, each of which takes some rows, one after the other: what comes back to these rows is
added to what came back before, in place. Without a GPU that is so for tables of all sizes; in a kernel a small one is
added up where the sum is read.

The sums are the same but for their order: a row's additions begin with the other value, instead of ending with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located, make
from genesis.ir.ops import leaves, pointwise
from genesis.ir.ops.indexing import index_add
from genesis.ir.sym_int import hint

FEWEST: Final = 1 << 20
"""Elements of a table from which on it is worth it on a GPU: a smaller one is added up in the kernel that reads it."""


def add_into(graph: Graph, on_gpu: bool = True) -> Graph:
    """The graph with rows added to the value that their table is added to; the graph itself if there are no such."""
    is_table = _is_large_table if on_gpu else _is_table
    if not any(map(is_table, graph.nodes)):
        return graph
    uses = Counter((*(x for node in graph.nodes for x in node.inputs), *graph.roots))
    tables: dict[Node, tuple[Node, Node]] = {}
    for node in graph.nodes:
        if node.op is pointwise.add:
            found = _table_of(node, uses, is_table, on_gpu)
            if found is not None:
                tables[node] = found
    if not tables:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        with located(node.source):
            if node in tables:
                table, other = tables[node]
                _, *rows = replaced[table].inputs
                replaced[node] = make(index_add, (replaced[other], *rows), table.attrs, table.source)
            else:
                inputs = tuple([replaced[x] for x in node.inputs])
                replaced[node] = with_inputs(node, inputs)
    return substitute(graph, replaced)


def _table_of(node: Node, uses: Counter[Node], is_table: Callable[[Node], bool],
              on_gpu: bool) -> tuple[Node, Node] | None:
    """(the table of rows, the other value) of such a sum; nobody else reads either. Of two tables the second's rows are
    added to the first; on a GPU both are summed by blocks, so they stay."""
    for other, table in (node.inputs, node.inputs[::-1]):
        if (is_table(table) and uses[table] == uses[other] == 1 and other.type is table.type
                and other.op.kind != "leaf" and not (on_gpu and is_table(other))):
            return table, other
    return None


def _is_table(node: Node) -> bool:
    """Rows added to zeros?"""
    base = node.inputs[0] if node.op is index_add else None
    return base is not None and base.op is leaves.const and base["value"] == 0 and node.dtype.kind == "float"


def _is_large_table(node: Node) -> bool:
    return _is_table(node) and node["axis"] == 0 and hint(node.type.numel) >= FEWEST
