"""Recomputation of values that are not kept: the barrier, and the boundaries of a checkpointed region.

A region's values come in through `enter` and go out through `leave`. Differentiating `leave` builds the region
again over `recompute`d entries (`passes/graph/autodiff.py`); `passes/remat/remat.py` uses the same barrier on its own
account.
"""

from __future__ import annotations

from genesis.ir.node import Node, Op
from genesis.ir.ops.control import watch
from genesis.ir.ops.samples import ANY, case, cases, reals
from genesis.ir.types import TensorType


def _recompute_type(x: TensorType, after: TensorType) -> TensorType:
    return x


recompute: Op = Op("recompute", "movement", _recompute_type, differentiable=True,
                   doc="x, but not before `after` is known, of which no element is read. What is made of it is another "
                       "node than what is made of x, so nothing merges the two computations.",
                   vjp=lambda g, x, after, y: (g, None),
                   samples=cases(case(reals().of(2, 3), reals().of(4)), case(reals().of(), reals().of()), kinds=ANY),
                   reference=lambda x, after: x)


enter: Op = Op("enter", "control", lambda x, region: x, attrs=("region",), vjp=lambda g, x, y, region: g,
               doc="x, as a value that a checkpointed region reads. It is what the region keeps.")


def _leave_type(*values: TensorType, region: object) -> tuple[TensorType, ...]:
    return values


leave: Op = Op("leave", "control", _leave_type, attrs=("region",), differentiable=True,
               doc="The results of a checkpointed region, made of its `enter` nodes and of nothing else outside. Its "
                   "backward computes them again.")


def inside(end: Node) -> tuple[dict[Node, Node], list[Node]]:
    """(entry → the value that it reads, all nodes) of the region that a `leave` node ends; operands before users.

    A leaf tensor that is read without an `enter` is an entry, too.
    """
    region: object = end["region"]
    entries: dict[Node, Node] = {}
    order: dict[Node, None] = {}
    stack = list(reversed(end.inputs))
    while stack:
        node = stack[-1]
        if node in order:
            stack.pop()
            continue
        boundary = (node.op is enter and node["region"] == region) or node.op is watch
        waiting = [] if boundary else [x for x in reversed(node.inputs) if x not in order]
        if waiting:
            stack.extend(waiting)
            continue
        if boundary:
            entries[node] = node.inputs[0] if node.op is enter else node
        order[node] = None
        stack.pop()
    return entries, list(order)


def inputs_read(node: Node) -> tuple[Node, ...]:
    """The operands of which a node reads elements: all, but for what a `recompute` only waits for."""
    return node.inputs[:1] if node.op is recompute else node.inputs
