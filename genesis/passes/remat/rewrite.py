"""The graph in which far kernels read second computations of values instead of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genesis.ir.graph import Graph
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves
from genesis.ir.ops.recompute import recompute
from genesis.passes.fusion.views import stored_as


class WaitsForItselfError(ValueError):
    """A second computation would wait for a value that needs it.

    Attributes:
        value: what cannot be made again.
    """

    def __init__(self, value: Node):
        super().__init__(f"{value!r} would be made again behind a value that needs it")
        self.value = value


Key = tuple[str, Any, Any]
"""What is asked of a node, or of a part: the first says what the others are."""


def recomputed(graph: Graph, part: Mapping[Node, int], after: Mapping[Node, Node]) -> Graph:
    """Values of `after` are made again for readers in a later part of the program.

        before: %1 = exp(%0)         # part 0        after: %1 = exp(%0)
                %2 = f(%1)           # part 0               %2 = f(%1)
                %3 = g(%2)           # part 1               %3 = g(%2)
                %4 = mul(%3, %1)     # part 1               %5 = recompute(%0, %3)   %6 = exp(%5)
                                                            %4 = mul(%3, %6)

    Args:
        part: for every value in memory the part of the program that makes it.
        after: value to make again → a value of the later part that must be known first.

    Raises:
        WaitsForItselfError: what must be known first needs a value that is to be made again.
    """
    rewriter = _Rewriter(part, after)
    return Graph(graph.inputs, tuple(map(rewriter.root, graph.outputs)),
                 tuple((state, rewriter.root(value)) for state, value in graph.updates), graph.numbers)


class _Rewriter:
    """Nodes of the new graph by what they stand for:

        ("first", x, None)    a value in memory, made where it always was
        ("again", x, None)    its second computation
        ("seen", x, p)        a value as part p reads it: the first computation, or the second
        ("below", x, after)   a value as a second computation reads it: from memory, once `after` is known
    """

    def __init__(self, part: Mapping[Node, int], after: Mapping[Node, Node]):
        self.part, self.after = part, after
        self.done: dict[Key, Node] = {}

    def root(self, node: Node) -> Node:
        """An output as it is now."""
        if node in self.part:
            return self.build(("first", node, None))
        return self.build(("seen", node, self.part.get(stored_as(node), 0)))

    def build(self, wanted: Key) -> Node:
        """The node for a key; iterative, since programs may be deep."""
        stack = [wanted]
        begun: set[Key] = set()  # all that is begun and not done needs, one by the other, the key at hand
        while stack:
            key = stack[-1]
            if key not in self.done:
                needed = self.needs(key)
                missing = [k for k in needed if k not in self.done]
                if missing:
                    if key in begun:
                        raise WaitsForItselfError(_waiting_in([k for k in stack[stack.index(key):] if k in begun]))
                    begun.add(key)
                    stack += reversed(missing)
                    continue
                self.done[key] = self.make(key, [self.done[k] for k in needed])
            stack.pop()
        return self.done[wanted]

    def needs(self, key: Key) -> list[Key]:
        """The nodes that one is made of."""
        kind, node, where = key
        if not node.inputs:
            return [("first", where, None)] if kind == "below" and node.op is leaves.input else []
        if kind == "first":
            return [("seen", x, self.part[node]) for x in node.inputs]
        if kind == "again":
            return [("below", x, self.after[node]) for x in node.inputs]
        if kind == "seen":
            if node not in self.part:
                return [("seen", x, where) for x in node.inputs]
            later = self.part[node] < where and node in self.after
            return [("again" if later else "first", node, None)]
        if node not in self.part:
            return [("below", x, where) for x in node.inputs]
        if node in self.after:
            return [("again", node, None)]
        return [("first", node, None), ("first", where, None)]

    def make(self, key: Key, made: list[Node]) -> Node:
        kind, node, _ = key
        if not node.inputs:
            return recompute(node, *made) if made else node
        if kind in ("seen", "below") and node in self.part:
            return made[0] if len(made) == 1 else recompute(*made)
        return make(node.op, tuple(made), node.attrs, node.source)


def _waiting_in(circle: Sequence[Key]) -> Node:
    """The second computation of a circle, each key of which needs the next one, that waits for another of its values.
    There is one: without, the nodes would be none of a program."""
    value = next(node for kind, node, _ in reversed(circle) if kind == "again")
    for key, needed in zip(circle, (*circle[1:], circle[0]), strict=True):
        if key[0] == "again":
            value = key[1]
        elif key[0] == "below" and needed == ("first", key[2], None) and key[1] is not key[2]:
            return value
    raise AssertionError("the program itself has a circle")
