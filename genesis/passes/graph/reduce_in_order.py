"""Reductions read what lies turned in memory in the order of memory.

A kernel counts the elements that it reduces by the axes' order in the operand: over the outermost and the innermost
axis of a permuted tensor neighbours would lie far apart, and each program would read single elements of many lines.
So everything between a permutation and what ends it is computed in memory's order: pointwise values and reductions of
them, as of a cross-entropy with its gradient of logits that lie turned. What ends it is a reduction's result, which is
smaller and is turned back, or a permutation back to memory's order. Where a value of the operand's size is wanted in
the permuted order, all stays as it is: one kernel then reads in one order and writes in the other. A further input of
that size, as the gradient that comes in, is turned itself if that saves more permutations than it makes.

A kernel that reads across has some rows a program. Where the rows are so few and long that most of a GPU would wait for
a few programs, what is reduced is computed in memory's order all the same, and what is wanted as it is written once
more in that order, as a softmax of 16 rows of 100,000 that lie turned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves, reduction
from genesis.ir.ops.indexing import gather
from genesis.ir.ops.movement import expand, permute, reshape
from genesis.ir.sym_int import hint
from genesis.passes.gpu import Gpu
from genesis.passes.graph.few_long_rows import few_long_rows

REDUCTIONS: Final = (reduction.sum, reduction.prod, reduction.max, reduction.min, reduction.any, reduction.all)

PICKS: Final = (reduction.argmax, reduction.argmin)
"""Reductions along one axis, whose result is a place along it."""

SMALLER: Final = 8
"""How many times smaller a result is at the least that is turned: that costs little then."""

Order = tuple[int, ...]
"""The axes of a value as they lie in memory, outermost first."""


def reduce_in_order(graph: Graph, gpu: Gpu | None = None) -> Graph:
    """A reduction of a permuted value that nothing else reads → the permuted reduction of the value.

    before: %1: f32[8,6,9] = permute(%0: f32[9,8,6], axes=(1,2,0))     after: %1: f32[8,6] = sum(%0, axes=(0,))
            %2: f32[8,6] = sum(%1, axes=(2,))

    Args:
        gpu: whose multiprocessors few long rows would leave idle; None where no kernel has rows of its own.
    """
    if not any(node.op is permute for node in graph.nodes):
        return graph
    repeated = _repeated(graph)
    found = _Orders(graph, repeated, gpu)
    orders = found.found()
    return substitute(graph, _Turned(orders, found.twice, repeated).replaced(graph.nodes)) if orders else graph


class _Orders:
    """Which values of a graph are computed in memory's order, and in which.

    Large values that read each other form a set, which is turned as a whole or not at all. What is reduced of them is
    small, and turned back where it is wanted as it was written.

    Attributes:
        twice: large values that are computed in memory's order for what is reduced of them, and as they are written for
            whoever else wants them.
    """

    def __init__(self, graph: Graph, repeated: set[Node], gpu: Gpu | None):
        self.graph, self.repeated, self.gpu = graph, repeated, gpu
        self.twice: set[Node] = set()
        self.orders: dict[Node, Order] = {}
        self.small: set[Node] = set()
        self.reduced: set[Node] = set()
        self.parents: dict[Node, Node] = {}

    def found(self) -> dict[Node, Order]:
        """The values and their orders: without sets of which none is reduced, then without those of which a value is
        wanted as it is written. What is left out may belong to another set, which is in another order."""
        refused: set[Node] = set()
        while True:
            self._follow(refused)
            large = {node: self._set_of(node) for node in self.orders if node not in self.small}
            idle = set(large.values()) - {self._set_of(node) for node in self.reduced}
            stay = idle or {self._set_of(node) for node in self._wanted()} | self._as_many_turned()
            if not stay:
                self.twice &= set(large)
                return self.orders
            apart = stay - idle - {self._set_of(node) for node in self.twice if node in large}
            apart &= self._of_few_long_rows()
            self.twice |= {node for node, found in large.items() if found in apart}
            refused |= {node for node, found in large.items() if found in stay - apart}

    def _follow(self, refused: set[Node]) -> None:
        """Find the order of each value that is made in memory's, but of these."""
        self.orders, self.small, self.reduced, self.parents = {}, set(), set(), {}
        for node in self.graph.nodes:
            order = None if node in refused else self._order(node)
            if order is None:
                continue
            turned = [x for x in node.inputs if x in self.orders]
            self.orders[node] = order
            if node.op in (*REDUCTIONS, *PICKS, gather):
                self.small.add(node)
                self.reduced |= {x for x in turned if x not in self.small}
            elif turned and all(x in self.small for x in turned):
                self.small.add(node)
            for x in turned:
                if not {node, x} & self.small:
                    self.parents[self._set_of(x)] = self._set_of(node)

    def _order(self, node: Node) -> Order | None:
        """The order of a node that is made in it; None for one that is made as it is written."""
        if node.op is permute:
            x, axes = node.inputs[0], node["axes"]
            while x.op is permute and x not in self.orders:  # turned back it lies as what was turned does
                x, axes = x.inputs[0], tuple(x["axes"][axis] for axis in axes)
            if x in self.repeated:
                return None
            inverse = _inverse(axes)
            order = tuple(inverse[axis] for axis in self.orders[x]) if x in self.orders else inverse
            return order if (lies := _axes_in(order, node)) != sorted(lies) else None
        turned = [x for x in node.inputs if x in self.orders]
        if not turned:
            return None
        x, order = turned[0], self.orders[turned[0]]
        if node.op in REDUCTIONS or node.op in PICKS:
            return self._reduced(node, order) if _is_smaller(node, x) else None
        if node.op is gather:
            places = [place for place in turned[1:] if place not in self.small]
            return order if x is node.inputs[0] and not places and _is_smaller(node, x) else None
        if node.op is reshape:
            return _with_units(x, order, node)
        return self._of_pointwise(node, turned) if node.op.kind == "pointwise" else None

    def _reduced(self, node: Node, order: Order) -> Order:
        axes = node["axes"] if node.op in REDUCTIONS else (node["axis"],)
        if node["keepdims"]:
            return order
        kept = [axis for axis in range(len(order)) if axis not in axes]
        return tuple(kept.index(axis) for axis in order if axis in kept)

    def _of_pointwise(self, node: Node, turned: list[Node]) -> Order | None:
        """That of its operands, if all have it that are neither inputs nor the same along some axis.

        What is computed of values that are made twice and of others is computed as it is written.
        """
        if self._plain(node) and not self.twice.isdisjoint(turned):
            return None
        orders = {tuple(_axes_in(self.orders[x], x)) for x in turned}
        plain = self._plain(node)
        large = all(x.op is leaves.input for x in plain) and not any(x in self.small for x in turned)
        same = all(x.type.ndim == node.type.ndim for x in (*turned, *plain))
        return self.orders[turned[0]] if len(orders) == 1 and (large or not plain) and same else None

    def _plain(self, node: Node) -> list[Node]:
        """Operands of a pointwise op that would have to be turned for it."""
        return [x for x in node.inputs if not (x in self.orders or x.type.weak or x in self.repeated)]

    def _as_many_turned(self) -> set[Node]:
        """Sets for which as many inputs would be turned as permutations are left out."""
        inputs: set[tuple[Node, Node]] = set()
        saved: Counter[Node] = Counter()
        for node in self.graph.nodes:
            behind = node.inputs[0] if node.op is permute else None
            if node in self.orders and node not in self.small:
                if behind is None and node.op is not reshape:
                    inputs |= {(self._set_of(node), x) for x in self._plain(node)}
                elif behind is not None and behind not in self.orders:
                    saved[self._set_of(node)] += 1
            elif behind in self.orders and behind not in self.small:
                saved[self._set_of(behind)] += 1
        return {found for found, more in Counter(found for found, _ in inputs).items() if more >= saved[found]}

    def _of_few_long_rows(self) -> set[Node]:
        """Sets whose reductions are all of rows of which a few programs would have all."""
        if self.gpu is None:
            return set()
        found = {self._set_of(node) for node in self.reduced}
        for node in self.graph.nodes:
            if node not in self.small:
                continue
            x = node.inputs[0]
            large = x in self.orders and x not in self.small
            if large and not few_long_rows(node.type.numel, x.type.numel, self.gpu):
                found.discard(self._set_of(x))
        return found

    def _wanted(self) -> set[Node]:
        """Large values that are turned and wanted as they are written, and are not made so."""
        found = set(self.graph.roots)
        for node in self.graph.nodes:
            ends = node.op is permute and node not in self.orders  # back in memory's order
            if node not in self.orders and not ends:
                found |= set(node.inputs)
            elif node in self.small and node.op is gather:
                found.add(node.inputs[1])
        return {x for x in found if x in self.orders and x not in self.small and x not in self.twice}

    def _set_of(self, node: Node) -> Node:
        while (parent := self.parents.get(node, node)) is not node:
            node = parent
        return node


class _Turned:
    """Makes the nodes of a graph anew, some of them in memory's order, and some in both."""

    def __init__(self, orders: dict[Node, Order], twice: set[Node], repeated: set[Node]):
        self.orders, self.twice, self.repeated = orders, twice, repeated
        self.made: dict[Node, Node] = {}
        self.plain: dict[Node, Node] = {}

    def replaced(self, nodes: Iterable[Node]) -> dict[Node, Node]:
        """Each node → what has its value, as the node was written."""
        for node in nodes:
            if node in self.orders:
                self.made[node] = self._made(node, self.orders[node])
                self.plain[node] = (
                    with_inputs(node, tuple(self.plain[x] for x in node.inputs)) if node in self.twice
                    else _permuted(self.made[node], _inverse(self.orders[node]), node.shape))
            elif node.op is permute:
                self.plain[node] = self.in_order(node.inputs[0], node["axes"])
            else:
                self.plain[node] = with_inputs(node, tuple(self.plain[x] for x in node.inputs))
        return self.plain

    def in_order(self, node: Node, order: Order) -> Node:
        """A value with its axes in this order."""
        shape = tuple(node.shape[axis] for axis in order)
        if node in self.orders:
            mine = self.orders[node]
            return _permuted(self.made[node], tuple(mine.index(axis) for axis in order), shape)
        if node.op is permute and node in self.repeated:
            axes = node["axes"]
            return self.in_order(node.inputs[0], tuple(axes[axis] for axis in order))
        if node.op is leaves.iota:
            return leaves.iota(shape=shape, axis=order.index(node["axis"]), dtype=node.dtype, device=node.type.device)
        if node.op is leaves.const:
            return leaves.const(value=node["value"], type=node.type.with_shape(shape))
        if node.op is expand:
            return expand(self._source(node, order), shape=shape)
        if node in self.repeated:
            return self._of_elements(node, order)
        return _permuted(self.plain[node], order, shape)

    def _source(self, node: Node, order: Order) -> Node:
        """What an expand repeats, with as many axes as it has, in this order."""
        x = node.inputs[0]
        before = node.type.ndim - x.type.ndim
        own = tuple(axis - before for axis in order if axis >= before)
        shape = tuple(1 if axis < before else x.shape[axis - before] for axis in order)
        return _reshaped(self.in_order(x, own), shape)

    def _made(self, node: Node, order: Order) -> Node:
        """A node in this order."""
        if node.op is permute:
            return self.in_order(node.inputs[0], tuple(node["axes"][axis] for axis in order))
        if node.op is reshape:
            x = node.inputs[0]
            return _reshaped(self.made[x], tuple(node.shape[axis] for axis in order))
        if node.op is gather:
            x, index = node.inputs
            return gather(self.made[x], self.in_order(index, order), axis=order.index(node["axis"]))
        if node.op in REDUCTIONS:
            of = self.orders[node.inputs[0]]
            axes = tuple(sorted(of.index(axis) for axis in node["axes"]))
            return node.op(self.made[node.inputs[0]], axes=axes, keepdims=node["keepdims"])
        if node.op in PICKS:
            of = self.orders[node.inputs[0]]
            return node.op(self.made[node.inputs[0]], axis=of.index(node["axis"]), keepdims=node["keepdims"])
        return self._of_elements(node, order)

    def _of_elements(self, node: Node, order: Order) -> Node:
        inputs = tuple(self.plain[x] if x.type.weak else self.in_order(x, order) for x in node.inputs)
        return make(node.op, inputs, node.attrs, node.source)


def _repeated(graph: Graph) -> set[Node]:
    """Values that are the same along some axis, or made of coordinates or of such values: they are computed where they
    are read, in any order."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op in (expand, leaves.iota, leaves.const):
            found.add(node)
        elif node.op is permute or node.op.kind == "pointwise":
            strong = [x for x in node.inputs if not x.type.weak]
            if strong and all(x in found and x.type.ndim == node.type.ndim for x in strong):
                found.add(node)
    return found


def _is_smaller(node: Node, operand: Node) -> bool:
    return hint(operand.type.numel) >= SMALLER * hint(node.type.numel)


def _axes_in(order: Order, node: Node) -> list[int]:
    """The axes that are longer than 1, as they lie."""
    return [axis for axis in order if not _is_unit(node.shape[axis])]


def _is_unit(size: object) -> bool:
    return type(size) is int and size == 1


def _with_units(x: Node, order: Order, node: Node) -> Order | None:
    """The order of a reshape that only adds or drops axes of 1; None for another one. New axes of 1 lie innermost."""
    mine, its = ([axis for axis, size in enumerate(y.shape) if not _is_unit(size)] for y in (x, node))
    if [x.shape[axis] for axis in mine] != [node.shape[axis] for axis in its]:
        return None
    units = [axis for axis in range(node.type.ndim) if axis not in its]
    return (*(its[mine.index(axis)] for axis in order if axis in mine), *units)


def _inverse(order: Order) -> Order:
    return tuple(order.index(axis) for axis in range(len(order)))


def _permuted(x: Node, axes: Order, shape: tuple[int, ...]) -> Node:
    """A permutation; of axes of 1 alone it is a reshape."""
    moved = [axis for axis in axes if not _is_unit(x.shape[axis])]
    return permute(x, axes=axes) if moved != sorted(moved) else _reshaped(x, shape)


def _reshaped(x: Node, shape: tuple[int, ...]) -> Node:
    """A value with axes of 1 added or dropped."""
    while x.op is reshape and list(x.inputs[0].shape) == list(shape):
        x = x.inputs[0]
    return x if list(x.shape) == list(shape) else reshape(x, shape=shape)
