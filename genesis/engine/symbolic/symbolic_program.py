"""A captured program over symbolic sizes.

A size of the data is in many places: in the types of the inputs, in the shapes that reshapes and expands name,
flattened into B·T, one less where a slice leaves the last element out. A captured program has plain numbers there. This
module puts `SymInt`s (see `ir/sym_int.py`) in the place of those that follow from the data's sizes, as `symbols.py`
guesses, so that compiling can go on with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any, Final

from genesis.engine.capture import Captured, build_nodes, graph_of, input_nodes
from genesis.engine.symbolic.places import movable
from genesis.engine.symbolic.shape_erased_key import numbers_of
from genesis.engine.symbolic.symbols import COUNTED, Sizes, first_numbers
from genesis.ir.graph import Graph, substitute
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves, movement, resample
from genesis.ir.ops.row_number import row_number
from genesis.ir.ops.windows import pooled_sizes
from genesis.ir.size_class import LARGEST, LEAST
from genesis.ir.size_divisors import gcd
from genesis.ir.sym_int import Size, SymInt, most, value_of
from genesis.ir.types import TensorType
from genesis.ir.walk import computed

Types = tuple[TensorType, ...]
Shape = tuple[Size, ...]


class FixedSizes(Exception):
    """The program's sizes stay numbers: it is compiled for each anew. The text says why."""


class SymbolicProgram:
    """A captured program over symbolic sizes.

    Args:
        sizes: its symbols.

    Attributes:
        graph: the program.
        key: as `Captured.key`, with symbolic sizes.

    Raises:
        RuntimeError, TypeError, ...: whatever ops say of shapes that a wrong guess gave them.
    """

    def __init__(self, captured: Captured, sizes: Sizes):
        self._sizes = sizes
        self._bodies: dict[tuple[Graph, Types, int], Graph] = {}
        self._first = first_numbers(captured)
        self._movable = {} if sizes.trace.exact else movable(captured.order, lambda node: (
            node.op is leaves.data or (computed(node) and node not in captured.known)))
        types = [_with_sizes(type, [sizes.of_axis.get((i, axis)) for axis in range(type.ndim)])
                 for i, type in enumerate(captured.memory_types)]
        inputs = input_nodes(types)
        given: dict[Node, tuple] = {}

        def attributes(node: Node, operands: tuple[Node, ...]) -> tuple:
            found = given[node] = self._attrs(node, operands, self._first.get(node))
            return found
        built = build_nodes(captured, inputs, attributes)
        self.graph = graph_of(captured, inputs, built)
        self.key = self._key(captured, types, built, given)

    @staticmethod
    def _key(captured: Captured, types: Sequence[TensorType], built: dict[Node, Node],
             attributes: dict[Node, tuple]) -> tuple:
        """The key with the attributes that were given, which are not those of what is built for an index that is
        checked (`with_check`)."""
        key = [*types, *captured.key[len(types):]]
        for node, at in captured.op_at.items():
            if node.attrs and key[at + 1] is node.attrs:
                key[at + 1] = attributes[node]
                if not node.inputs:
                    made = built[node] if built[node].op is node.op else built[node].inputs[0]  # known(made, memory)
                    key[at + 2] = made.type
        return tuple(key)

    def _attrs(self, node: Node, operands: tuple[Node, ...], at: int | None) -> tuple:
        """The attributes of a node for these operands; `at` is where their numbers begin."""
        types = tuple([x.type for x in operands])
        for type in types:
            for part in type if type.__class__ is tuple else (type,):
                for size in part.shape:
                    self._sizes.note(size)
        if at is None:
            return node.attrs
        found = []
        for name, value in zip(node.op.attrs, node.attrs, strict=True):
            number = node.op in COUNTED or (node.op is row_number and name == "size")
            rule = SymbolicProgram._number if number else _RULES.get(name, SymbolicProgram._moving)
            found.append(rule(self, node, value, types, at))
            at += len(numbers_of(value))
        return tuple(found)

    # Attributes that have sizes in them

    def _like(self, at: int) -> Any:  # the IR says int of a size
        return self._sizes.like(self._sizes.vector(at))

    def _number(self, node: Node, number: Size, operands: Types, at: int) -> Size:
        """How many were counted, or may be indexed: a size by itself."""
        return self._like(at)

    def _moving(self, node: Node, value: Any, operands: Types, at: int) -> Any:
        """Of an attribute that is no shape only the numbers that were seen to change are sizes."""
        if value.__class__ is int:
            vector = self._sizes.vector(at)
            return value if all(n == value for n in vector) else self._sizes.like(vector)
        if value.__class__ is tuple:
            parts = []
            for part in value:
                parts.append(self._moving(node, part, operands, at))
                at += len(numbers_of(part))
            return tuple(parts)
        return value

    def _type(self, node: Node, type: TensorType, operands: Types, at: int) -> TensorType:
        return type if type.weak else type.with_shape(tuple([self._like(at + i) for i in range(type.ndim)]))

    def _shape(self, node: Node, shape: Shape, operands: Types, at: int) -> Shape:
        given = tuple([self._like(at + i) for i in range(len(shape))])
        if node.op is movement.expand:
            return _spread(given, operands[0].shape)
        return _regrouped(given, operands[0].shape) if node.op is movement.reshape else given

    def _pooled(self, node: Node, sizes: Shape, operands: Types, at: int) -> Shape:
        """How many windows a pool has: what follows from the size of its operand, rounded down or up."""
        given = self._moving(node, sizes, operands, at)
        if node.op is resample.resample:
            return self._resized(node, given, operands)
        if not {"window", "stride", "padding"}.issubset(node.op.attrs) or not operands:
            return given
        window = node["window"]
        dilation = node["dilation"] if "dilation" in node.op.attrs else (1,) * len(window)
        whole = operands[0].shape[-len(sizes):]
        found = list(given)
        for ceil in (True, False):
            how = window, node["stride"], node["padding"], dilation
            counts = pooled_sizes(tuple(map(value_of, whole)), *how, ceil)
            for i, count in enumerate(counts):
                if count == sizes[i] and whole[i].__class__ is SymInt:
                    found[i] = pooled_sizes(whole, *how, ceil)[i]
        return tuple(found)

    @staticmethod
    def _resized(node: Node, sizes: Shape, operands: Types) -> Shape:
        """The sizes that an image is resampled to, by the scales that were given: 2, 1.5 or a third of what it has."""
        found = list(sizes)
        for i, (size, scale) in enumerate(zip(operands[0].shape[2:], node["scales"], strict=True)):
            ratio = Fraction(scale).limit_denominator(_PARTS)
            if size.__class__ is SymInt and scale > 0 and float(ratio) == scale:
                follows = size * ratio.numerator
                follows = follows if ratio.denominator == 1 else follows // ratio.denominator
                if value_of(follows) == node["sizes"][i]:
                    found[i] = follows
        return tuple(found)

    def _starts(self, node: Node, starts: Shape, operands: Types, at: int) -> Shape:
        """Where a slice begins: at a place that may move, or as `_bounds` says."""
        places = self._places(node, operands, at)
        return tuple([given if place is None else place
                      for given, place in zip(self._bounds(node, starts, operands, at), places, strict=True)])

    def _stops(self, node: Node, stops: Shape, operands: Types, at: int) -> Shape:
        """Where it ends: as far behind its place as it is long, or as `_bounds` says."""
        first = at - len(stops)
        places = self._places(node, operands, first)
        return tuple([given if place is None else place + self._extent(node, operands, axis, first)
                      for axis, (given, place) in enumerate(zip(self._bounds(node, stops, operands, at), places,
                                                                strict=True))])

    def _places(self, node: Node, operands: Types, at: int) -> list[SymInt | None]:
        """The symbol of a slice's place along each axis on which it may move, else None: it neither begins nor ends
        where its operand does, and is half of it at most. A write with a step has none: which elements it is for is
        asked of each.

        Args:
            at: where the numbers of its starts are.
        """
        if self._sizes.trace.exact:
            return self._seen_to_move(node, operands, at)
        found: list[SymInt | None] = [None] * len(node["starts"])
        single = self._movable.get(node)
        if single is not None:
            for axis, (start, stop, step, whole) in enumerate(zip(*node.attrs, operands[0].shape, strict=True)):
                if start and stop < value_of(whole) and (step == 1 or node.op is not movement.assign):
                    extent = self._extent(node, operands, axis, at)
                    if bool(2 * extent <= whole) and (not single or value_of(extent) == 1):
                        place = self._sizes.place(at + axis, most(whole) - 1)
                        if bool(place + extent < whole):  # it is: said for the sake of the guard
                            found[axis] = place
        return found

    def _seen_to_move(self, node: Node, operands: Types, at: int) -> list[SymInt | None]:
        """Where nothing is chosen by classes, a slice's place along an axis is a symbol once it was seen to move as no
        size does: boxes are taken out of ever fewer by where the best of them is. Not of one that reads the first part
        of data, whose end is a size of its own."""
        count = len(node["starts"])
        found: list[SymInt | None] = [None] * count
        for axis, whole in enumerate(operands[0].shape[:count]):
            starts, steps = self._sizes.vector(at + axis), self._sizes.vector(at + 2 * count + axis)
            moves = len(set(starts)) > 1 and self._sizes.prefix(at + count + axis) is None
            if moves and set(steps) == {1} and self._bound(at + axis, whole).__class__ is not SymInt:
                extent = self._extent(node, operands, axis, at)
                place = self._sizes.place(at + axis, LARGEST, least=0)
                if bool(place + extent <= whole):  # it is: said for the sake of the guard
                    found[axis] = place
        return found

    def _extent(self, node: Node, operands: Types, axis: int, at: int) -> Size:
        """The distance from where a slice begins to where it ends, along an axis."""
        if node.op is movement.assign:  # with a step of 1
            return operands[1].shape[axis]
        starts, stops = self._sizes.vector(at + axis), self._sizes.vector(at + len(node["starts"]) + axis)
        return self._sizes.like(tuple([stop - start for start, stop in zip(starts, stops, strict=True)]))

    def _bounds(self, node: Node, bounds: Shape, operands: Types, at: int) -> Shape:
        """Where a slice begins or ends: as far from the end as it was, or from the beginning."""
        return tuple([self._bound(at + i, size)
                      for i, size in enumerate(operands[0].shape[:len(bounds)])])

    def _bound(self, at: int, size: Size) -> Size:
        vector, whole = self._sizes.vector(at), self._sizes.vector_of(size)
        bound = vector[0]
        from_end = {n - m for n, m in zip(whole, vector, strict=True)}
        if vector == whole:
            return size
        prefix = self._sizes.prefix(at)
        if prefix is not None and bool(prefix < size):  # else all of it is read, which is another program
            return prefix
        if size.__class__ is not SymInt or len(from_end) > 1:
            return self._sizes.like(vector) if bound >= LEAST else bound
        if len(set(vector)) > 1 or 2 * bound > whole[0]:  # of one sample: the nearer end
            return size - from_end.pop()
        return bound

    def _graph(self, node: Node, body: Graph, operands: Types, at: int) -> Graph:
        """The graph of a call for these operands."""
        found = self._bodies.get((body, operands, at))
        if found is None:
            found = self._bodies[body, operands, at] = self._body(body, operands, at)
        return found

    def _body(self, body: Graph, operands: Types, at: int) -> Graph:
        inputs = input_nodes(operands[:len(body.inputs)])
        if not self._sizes.trace.exact:
            self._movable.update(movable(body.nodes, lambda node: node.op is leaves.input))
        made: dict[Node, Node] = {}
        for node in body.nodes:
            given = tuple([made[x] for x in node.inputs])
            made[node] = inputs[node["index"]] if node.op is leaves.input else (
                make(node.op, given, self._attrs(node, given, at), node.source))
            at += len(numbers_of(node.attrs))
        return Graph(tuple(inputs), tuple(made[node] for node in body.outputs), (), body.numbers)


_PARTS: Final = 16
"""Largest denominator of a scale that is taken for a fraction."""


def _with_sizes(type: TensorType, sizes: Sequence[SymInt | None]) -> TensorType:
    shape: tuple[Any, ...] = tuple([n if size is None else size for n, size in zip(type.shape, sizes, strict=True)])
    return type.with_shape(shape)


_RULES: Final[dict[str, Callable[[SymbolicProgram, Node, Any, Types, int], Any]]] = {
    "type": SymbolicProgram._type, "shape": SymbolicProgram._shape, "starts": SymbolicProgram._starts,
    "stops": SymbolicProgram._stops, "sizes": SymbolicProgram._pooled, "graph": SymbolicProgram._graph}
"""Attributes that name sizes, by the names that ops give them."""


def _spread(shape: Shape, operand: Shape) -> Shape:
    """An expand's shape: what is not repeated is as large as it was."""
    lead = len(shape) - len(operand)
    return (*shape[:lead], *(size if value_of(size) == value_of(new) else new
                             for size, new in zip(operand, shape[lead:], strict=True)))


def _regrouped(shape: Shape, operand: Shape) -> Shape:
    """A reshape's shape: neighbouring sizes of equal product correspond.

    Args:
        shape: what its sizes are like; by their values they are the reshape's.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(B=8) as trace:
    ...     _regrouped((8, 4, 6), (trace.symbol("B") * 4, 6))
    (<B = 8>, 4, 6)
    """
    found: list[Size] = []
    i = j = 0
    while j < len(shape):
        first = j
        before = operand[i] if i < len(operand) else 1
        after = value_of(shape[j])
        i, j = i + 1, j + 1
        while value_of(before) != after:
            if value_of(before) < after and i < len(operand):
                before, i = before * operand[i], i + 1
            elif j < len(shape):
                after, j = after * value_of(shape[j]), j + 1
            else:
                return shape
        found += _factors(before, shape[first:j])
    return tuple(found)


def _factors(whole: Size, sizes: Shape) -> list[Size]:
    """These sizes by formulas whose product is the whole. One that nothing is like follows from the others."""
    rest, unknown = whole, -1
    found = list(sizes)
    for at, size in enumerate(sizes):
        for choice in (size, value_of(size)):
            if (quotient := _quotient(rest, choice)) is not None:
                found[at], rest = choice, quotient
                break
        else:
            if unknown >= 0:
                return _share(whole, list(map(value_of, sizes)))
            unknown = at
    if unknown >= 0:
        found[unknown], rest = rest, 1
    return found if rest.__class__ is int and rest == 1 else _share(whole, list(map(value_of, sizes)))


def _quotient(whole: Size, size: Size) -> Size | None:
    """The whole divided by the size, None where a remainder is left for some values."""
    if not value_of(size) or not isinstance(whole, SymInt):
        return whole // size if size.__class__ is int and size and whole % size == 0 else None
    quotient, rest = whole.trace.divide(whole, size)
    return quotient if rest.__class__ is int and rest == 0 else None


def _share(whole: Size, sizes: list[int]) -> list[Size]:
    """Sizes of which one depends on the whole, their product: the first that does without a remainder."""
    if isinstance(whole, SymInt):
        found: list[Size] = list(sizes)
        for at in range(len(sizes)):
            others = prod(sizes[:at]) * prod(sizes[at + 1:])
            if gcd(whole, others) == others:
                found[at] = whole // others
                return found
        found[0] = whole // prod(sizes[1:])
        return found
    return list(sizes)


def concrete(graph: Graph, number: Callable[..., float] = value_of) -> Graph:
    """The graph with every symbolic size replaced by its `number`: its value in the run at hand."""
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        made[node] = make(node.op, tuple([made[x] for x in node.inputs]), with_numbers(node.attrs, number), node.source)
    return substitute(replace(graph, inputs=tuple(made[x] for x in graph.inputs)), made)


def with_numbers(x: Any, number: Callable[..., float]) -> Any:
    """An attribute or a type with every symbolic size in it replaced by its `number`."""
    if isinstance(x, tuple):
        return tuple([with_numbers(y, number) for y in x])
    if isinstance(x, TensorType):
        return x.with_shape(with_numbers(x.shape, number)) if not x.weak else x
    return concrete(x, number) if isinstance(x, Graph) else number(x)
