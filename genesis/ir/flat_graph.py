"""A graph as a few tuples: what is kept of a program that was compiled, for those who ask for it later.

A node takes five objects that Python's collector goes through (itself, its operands, its attributes, and its place in
the table of nodes). Plans stay, and once what they hold is a quarter of everything there is, the collector goes through
everything: 100 ms after torch's import. Here a node is an entry in each of four tuples.

    %0: f32[2] = input    %1: f32[2] = exp(%0)    %2: f32[2] = add(%1, %0)
    ops (input, exp, add)    attributes (…, (), ())    operands (0, 1, 0), of which (0, 1, 2) each
"""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.graph import Graph
from genesis.ir.node import Node, Op, make
from genesis.ir.source import Source, TextSource


@dataclass(frozen=True)
class FlatGraph:
    """A graph without nodes.

    Attributes:
        ops, attributes, sources: of each node, operands before users.
        operands: the places of all nodes' operands, one node after the other.
        counts: how many of these are each node's.
        inputs, outputs, updates: places of the graph's inputs, of its outputs, and of both nodes of its updates.
        numbers: how many numbers the plan receives.
    """

    ops: tuple[Op, ...]
    attributes: tuple[tuple, ...]
    sources: tuple[Source | TextSource | None, ...]
    operands: tuple[int, ...]
    counts: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    updates: tuple[tuple[int, int], ...]
    numbers: int

    @classmethod
    def of(cls, graph: Graph) -> FlatGraph:
        """What makes the graph again.

        >>> from genesis.ir.parser import parse
        >>> graph = parse("graph(%x: f32[2]) { %y: f32[2] = exp(%x) return %y }")
        >>> FlatGraph.of(graph).graph() == graph
        True
        """
        nodes = graph.nodes
        place = dict(zip(nodes, range(len(nodes)), strict=True))
        return cls(tuple([node.op for node in nodes]), tuple([node.attrs for node in nodes]),
                   tuple([node.source for node in nodes]), tuple([place[x] for node in nodes for x in node.inputs]),
                   tuple([len(node.inputs) for node in nodes]), tuple([place[x] for x in graph.inputs]),
                   tuple([place[x] for x in graph.outputs]),
                   tuple([(place[state], place[value]) for state, value in graph.updates]), graph.numbers)

    def graph(self) -> Graph:
        """The graph, of nodes that are equal to those that it was made of."""
        nodes: list[Node] = []
        rest = iter(self.operands)
        for op, attributes, source, count in zip(self.ops, self.attributes, self.sources, self.counts, strict=True):
            operands = tuple([nodes[next(rest)] for _ in range(count)])
            nodes.append(make(op, operands, attributes, source))
        return Graph(tuple([nodes[i] for i in self.inputs]), tuple([nodes[i] for i in self.outputs]),
                     tuple([(nodes[i], nodes[j]) for i, j in self.updates]), self.numbers)
