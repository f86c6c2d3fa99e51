"""Low-precision copies of weights: written by the kernel that writes the weight, kept from step to step.

A step in mixed precision reads each weight as bfloat16 and overwrites it in float32. Made anew, every copy is a launch
that reads the whole weight before the first product can start. The optimizer's kernel has the new weight in registers
anyway, so it writes the next step's copy as well.

    before: %9: bf16[4,8] = cast(%1, dtype=bf16)     after: %10 = matmul(%0, %2)        %2: an input of its own
            %10 = matmul(%0, %9)                             update %1 = %20
            update %1 = %20                                  update %2 = cast(%20, dtype=bf16)

Who runs the plan passes a copy that fits the weight as it is (`runtime/cuda/shadow_executor.py`).
"""

from __future__ import annotations

from collections import Counter

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves
from genesis.ir.ops.pointwise import cast
from genesis.passes.fusion.materialize import memory_operands
from genesis.passes.fusion.views import stored_as


def shadow_weights(graph: Graph) -> Graph:
    """The graph with an input for each narrower copy of an updated input that a kernel reads from memory."""
    written = Counter(value for _, value in graph.updates)
    new = {state: value for state, value in graph.updates
           if value is not state and value.op is not leaves.input and written[value] == 1}  # it tells whose a copy is
    if not new:
        return graph
    wanted = dict.fromkeys(stored_as(x) for node in graph.nodes for x in memory_operands(node))
    copies = [x for x in wanted if x.op is cast and x.inputs[0] in new and not x.type.weak
              and x.dtype.itemsize < x.inputs[0].dtype.itemsize and x not in graph.outputs]
    if not copies:
        return graph
    kept = {copy: leaves.input(index=len(graph.inputs) + at, type=copy.type) for at, copy in enumerate(copies)}
    changed = rewrite(graph, kept.get)
    value_of = dict(changed.updates)
    updates = [(kept[copy], make(cast, (value_of[copy.inputs[0]],), (copy.dtype,), copy.source)) for copy in copies]
    return Graph((*graph.inputs, *kept.values()), changed.outputs, (*changed.updates, *updates), graph.numbers)


def copied_from(graph: Graph, given: int) -> list[tuple[Node, Node]]:
    """(copy, weight) for each input behind the first `given`, which are the program's own."""
    weight_of = {value: state for state, value in graph.updates}
    value_of = dict(graph.updates)
    return [(copy, weight_of[value_of[copy].inputs[0]]) for copy in graph.inputs[given:]]


def refreshing(graph: Graph, given: int) -> Graph | None:
    """The program that makes the copies from the weights as they are: its inputs are the weights, then the copies."""
    pairs = copied_from(graph, given)
    if not pairs:
        return None
    weights = [leaves.input(index=at, type=weight.type) for at, (_, weight) in enumerate(pairs)]
    copies = [leaves.input(index=len(pairs) + at, type=copy.type) for at, (copy, _) in enumerate(pairs)]
    updates = tuple((copy, cast(weight, dtype=copy.dtype)) for copy, weight in zip(copies, weights, strict=True))
    return Graph((*weights, *copies), (), updates)
