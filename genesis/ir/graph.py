"""A program: inputs, outputs and state updates over an immutable DAG of nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from genesis.ir.node import Node, located, make


@dataclass(frozen=True)
class Graph:
    """A program: the outputs and updates that a plan computes from inputs and numbers.

    Attributes:
        inputs: `input` nodes, in the order in which the plan receives their memory.
        outputs: the values that the plan returns.
        updates: (input, value): after the run the input's memory holds the value.
        numbers: how many numbers the plan receives (`scalar` nodes index them).
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    updates: tuple[tuple[Node, Node], ...] = ()
    numbers: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Asked for with each call of a compiled function: it is in the attributes of the `call` node."""
        return hash((self.inputs, self.outputs, self.updates, self.numbers))

    @property
    def roots(self) -> tuple[Node, ...]:
        """All that must be computed: outputs, then the values of the updates."""
        return self.outputs + tuple(value for _, value in self.updates)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that a root needs, operands before users; inputs first, used or not."""
        return topological(self.roots, self.inputs)

    @cached_property
    def differentiable_inputs(self) -> tuple[tuple[int, ...], ...]:
        """Each output → the indices of the inputs that gradients of it go on to."""
        from genesis.ir.ops import control, leaves
        reached: dict[Node, int] = {}  # sets of inputs, as bits
        for node in self.nodes:
            op, found = node.op, 0
            ends = op is control.watch or (op is control.grad and not node["create_graph"])
            if op is leaves.input:
                found = 1 << node["index"]
            elif op.differentiable and not ends and (type(node.type) is tuple or node.type.dtype.kind == "float"):
                for x in node.inputs:
                    found |= reached[x]
            reached[node] = found
        return tuple(tuple(i for i in range(len(self.inputs)) if reached[node] >> i & 1) for node in self.outputs)

    def __str__(self) -> str:
        from genesis.ir.printer import print_graph
        return print_graph(self)


def topological(roots: Iterable[Node], first: Iterable[Node] = ()) -> tuple[Node, ...]:
    """The nodes that the roots need, operands before users. Iterative: graphs may be deep."""
    order: dict[Node, None] = dict.fromkeys(first)
    for root in roots:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in order:
                stack.pop()
                continue
            ready = True
            for x in reversed(node.inputs):
                if x not in order:
                    stack.append(x)
                    ready = False
            if ready:
                order[node] = None
                stack.pop()
    return tuple(order)


def made_since(roots: Iterable[Node], number: int) -> tuple[Node, ...]:
    """The nodes that the roots need and that were made since the node of this number, itself among them, operands
    before users. What is behind older ones is older, and is not gone through."""
    order: dict[Node, None] = {}
    for root in roots:
        stack = [root] if root.number >= number else []
        while stack:
            node = stack[-1]
            waiting = [x for x in reversed(node.inputs) if x.number >= number and x not in order] if (
                node not in order) else []
            if waiting:
                stack.extend(waiting)
            else:
                order[stack.pop()] = None
    return tuple(order)


Rule = Callable[[Node], "Node | None"]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """The graph with `rule` applied once to every node, operands first.

    The rule sees a node whose operands are already rewritten and returns its replacement, or
    None to keep it. Only what the outputs and updates need survives.
    """
    replaced = rewrite_nodes(graph.nodes, rule)
    return substitute(graph, replaced)


def rewrite_nodes(nodes: Iterable[Node], rule: Rule, kept: Collection[Node] = ()) -> dict[Node, Node]:
    """old → new for nodes in topological order, as `rewrite` does it. `kept` stay as they are, such as operands that
    are none of the nodes."""
    replaced = dict(zip(kept, kept, strict=True))
    with located(None) as here:
        for node in nodes:
            here.move(node.source)
            inputs, new = node.inputs, node
            if inputs and (others := tuple([replaced[x] for x in inputs])) != inputs:
                new = make(node.op, others, node.attrs, node.source)
            replacement = rule(new)
            replaced[node] = new if replacement is None else replacement
    return replaced


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node over other operands; the node itself where they are its own."""
    return node if inputs == node.inputs else make(node.op, inputs, node.attrs, node.source)


def substitute(graph: Graph, replaced: Mapping[Node, Node]) -> Graph:
    """The graph with its roots looked up in `replaced`; itself where they stay what they are."""
    outputs = tuple([replaced[n] for n in graph.outputs])
    updates = tuple([(state, replaced[n]) for state, n in graph.updates])
    if outputs == graph.outputs and updates == graph.updates:
        return graph
    return Graph(graph.inputs, outputs, updates, graph.numbers)


def apply(graph: Graph, operands: Sequence[Node]) -> tuple[Node, ...]:
    """The graph's outputs with its inputs, then its numbers, replaced by the operands."""
    from genesis.ir.ops import leaves

    def rule(node: Node) -> Node | None:
        if node.op is leaves.input:
            return operands[node["index"]]
        if node.op is leaves.scalar:
            return operands[len(graph.inputs) + node["index"]]
        return None

    replaced = rewrite_nodes(graph.nodes, rule)
    return tuple(replaced[node] for node in graph.outputs)
