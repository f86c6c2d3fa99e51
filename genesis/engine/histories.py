"""Values that are in memory, and how they were computed, where something that is not computed holds them.

A loss that is read before its backward keeps its graph. That reads the parameters of this turn, which are a program of
the turn before, with its gradients, its loss, and so on to the first turn. No gradient goes there: so a result without
gradients that other nodes of its program read becomes the leaf of its memory once it is computed, as it is for all that
is recorded later.

    loss = f(p); loss.item(); loss.backward(); p -= 0.1 * p.grad      # `p` that `f` reads: sub(…) becomes data

Likewise a value that was read while others of its turn stayed pending: these are computed of it with the next program,
and others of the next turn stay pending, so that each turn would hold the one before. What a program reads from memory
becomes a leaf, too.

    y = f(x); y.sum().item(); x = y + 1      # `y` that the next program reads: f(…) becomes data
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from genesis.frontend.at_once import at_once, attributes, changes
from genesis.ir.node import Node, forget_equal
from genesis.ir.ops import leaves
from genesis.ir.walk import computed

if TYPE_CHECKING:
    from genesis.engine.capture import Captured


def read_on(captured: Captured, constant: Container[Node]) -> list[int]:
    """Positions, among the captured nodes, of the results without gradients that the graph of a result with gradients
    reads: storages keep that one alone. A model's gradients, which its update reads, die with it."""
    graph = {node for node in captured.outputs if node.needs_grad}
    if not graph:
        return []
    results, read = {*captured.outputs, *captured.written}, set[Node]()
    for node in reversed(captured.order):
        if node in graph and not computed(node):
            graph.update(node.inputs)
            read.update(node.inputs)
    return [position for position, node in enumerate(captured.order)
            if node in results and node in read and node.inputs and not node.needs_grad and node not in constant]


def end_histories(found: Sequence[Node]) -> None:
    """Make leaves of those of these nodes without gradients that are in memory; may be interrupted, and done again.

    A plan has the positions of the first program of its key. Where gradients flow is no part of the key: what has none
    there, as in a loop's first turn, may have one in another program, and keeps its history then.
    """
    nodes = [node for node in found if computed(node) and node.inputs and not node.needs_grad]
    forget_equal(nodes)  # the same op, recorded again, is no leaf
    at_once(changes((), [attributes(nodes, "inputs", repeat(())), attributes(nodes, "op", repeat(leaves.data)),
                         attributes(nodes, "attrs", [(node.type,) for node in nodes])]))
