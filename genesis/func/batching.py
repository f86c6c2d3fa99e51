"""The rewriting of a program for one example into the program for a batch of them.

The program is recorded on stand-ins for one example. Every op that depends on a stand-in is made anew with a leading
batch dimension (`genesis.func.batch_rules`); what does not depend on one is shared. An op without a rule is decomposed
into ops that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.boundaries import Boundary, Gradients, read_through
from genesis.frontend.recording import read, wrap
from genesis.frontend.state import state
from genesis.func.batch_rules import BY_KIND, RULES
from genesis.ir.errors import failure
from genesis.ir.graph import Graph, made_since, topological
from genesis.ir.node import Node, next_node_number, unique
from genesis.ir.ops import control, leaves, movement, random
from genesis.ir.types import tensor_type

_DRAWING = (random.uniform, random.normal, random.integers, random.dropout)


class NotBatchable(Exception):
    """An op has no rule and no decomposition."""


class Batch:
    """The rewriting of one program.

    Attributes:
        size: how many examples there are.
    """

    def __init__(self, size: int, randomness: str):
        self.size, self._randomness = size, randomness
        self._begins = next_node_number()
        self._batched: dict[Node, Node] = {}
        self._shared: set[Node] = set()
        self._several: dict[Node, tuple[Node, ...]] = {}  # results of what was decomposed
        self._boundaries: dict[Boundary, Boundary] = {}

    def stand_in(self, whole: Node) -> Node:
        """A leaf for one example of a batch."""
        kind = tensor_type(whole.type.shape[1:], whole.type.dtype, whole.type.device)
        hole = unique(leaves.data, (), (kind,), kind)
        hole.needs_grad = whole.needs_grad
        self._batched[hole] = whole
        return hole

    def all_of(self, nodes: list[Node]) -> list[Node]:
        """The nodes for all examples; one that does not depend on them is repeated."""
        nodes = _without_gradients(nodes, self._begins)
        for node in made_since(nodes, self._begins):  # what is older depends on no stand-in
            self._visit(node)
        return [self.batched(node) for node in nodes]

    def depends(self, node: Node) -> bool:
        """Whether a recorded node comes from an example."""
        return any(x in self._batched for x in made_since([node], self._begins))

    def is_batched(self, node: Node) -> bool:
        """Whether the node differs between examples."""
        return node in self._batched

    def batched(self, node: Node) -> Node:
        """The node with a leading batch dimension."""
        found = self._batched.get(node)
        if found is not None:
            return found
        one = movement.reshape(node, shape=(1, *node.type.shape))
        return movement.expand(one, shape=(self.size, *node.type.shape))

    def several(self, node: Node) -> Node:
        """An op with several results, for all examples."""
        return self._batched[node]

    def _visit(self, node: Node) -> None:
        if node in self._batched or node in self._shared:
            return
        if node.number < self._begins:  # from outside: numbers that wait to be drawn there are all examples'
            self._shared.add(node)
        elif node.op.kind == "random" and self._randomness != "same":
            self._draw(node)
        elif node.op is control.item and node.inputs[0] in self._several:
            part = self._several[node.inputs[0]][node["index"]]
            self._visit(part)
            self._batched[node] = self.batched(part)
        elif not any(x in self._batched for x in node.inputs):
            if node.op in _DRAWING and self._randomness != "same":
                self._decompose(node)
            else:
                self._shared.add(node)
        elif node.op is control.watch and node.attrs[0] in state.crossings:
            self._cross(node)
        else:
            rule = RULES.get(node.op) or BY_KIND.get(node.op.kind)
            found = None if rule is None else rule(self, node, list(node.inputs))
            if found is None:
                self._decompose(node)
            elif isinstance(found, tuple):
                self._several[node] = found
                self._shared.add(node)
            else:
                self._batched[node] = found

    def _draw(self, node: Node) -> None:
        if self._randomness == "error":
            raise failure("vmap", "called random operation while in randomness error mode",
                          hint="use randomness='different' or 'same', or draw the numbers outside")
        self._batched[node] = node.op(*node.inputs, **{**node.attributes, "shape": (self.size, *node["shape"])})

    def _decompose(self, node: Node) -> None:
        if node.op.decompose is None:
            raise NotBatchable(node.op.name)
        parts = node.op.decompose(*node.inputs, **node.attributes)
        for part in topological(parts if isinstance(parts, tuple) else (parts,)):
            self._visit(part)
        if isinstance(parts, tuple):
            self._several[node] = parts
            self._shared.add(node)
        else:
            self._batched[node] = self.batched(parts)

    def _cross(self, node: Node) -> None:
        """A value behind a boundary: behind the boundary of all examples."""
        crossing = state.crossing(node.attrs[0])
        assert crossing is not None  # the node is at hand, so the one that is read in its place lives
        boundary, output = crossing
        if boundary not in self._boundaries:
            self._boundaries[boundary] = _OfAll(self, boundary)
        value = self.batched(node.inputs[0])
        self._batched[node] = read_through(self._boundaries[boundary], output, value)


class _OfAll(Boundary):
    """A boundary of one example, for all: its backward is recorded for one and rewritten, as the forward was."""

    def __init__(self, batch: Batch, boundary: Boundary):
        self._batch, self._boundary = batch, boundary
        self.outputs = boundary.outputs
        of_one = [None if x is None else read(x) for x in boundary.origins]
        batch.all_of([x for x in of_one if x is not None])
        self._of_one = of_one
        self.origins = [None if x is None else wrap(batch.batched(x) if batch.is_batched(x) else x) for x in of_one]

    @property
    def holds_values(self) -> bool:
        """Whether the boundary of one example keeps values."""
        return self._boundary.holds_values

    def pull(self, gradients: Sequence[Any]) -> Gradients:
        """The gradients for all examples; for what they share the sum of them."""
        batch = self._batch
        pairs = self._boundary.pull([None if g is None else wrap(batch.stand_in(read(g))) for g in gradients])
        places = [next(i for i, x in enumerate(self._boundary.origins) if x is origin) for origin, _ in pairs]
        found = [wrap(g) for g in batch.all_of([read(g) for _, g in pairs])]
        return [(self.origins[i], g if batch.is_batched(self._of_one[i]) else g.sum(0))  # type: ignore[arg-type]
                for i, g in zip(places, found, strict=True)]


def _without_gradients(nodes: list[Node], begins: int) -> list[Node]:
    """The nodes with the gradients among them written out: those that were recorded since the node of this number."""
    requests = [node for node in made_since(nodes, begins) if node.op is control.grad]
    if not requests:
        return nodes
    from genesis.passes.graph.autodiff import autodiff
    inside = all(x.number >= begins for request in requests for x in control.asked_of(request))
    return list(autodiff(Graph((), tuple(nodes)), since=begins if inside else 0).roots)
