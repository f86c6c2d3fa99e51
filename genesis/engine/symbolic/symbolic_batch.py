"""A captured program with a symbolic batch size.

The batch size of a program is in many places: in the types of its inputs, in the shapes that reshapes and expands
name, flattened into B·T. This module guesses which of these numbers follow from which, so that compiling can go on
with a `SymInt` (see `ir/sym_int.py`). A wrong guess does no harm: a plan serves another program only if every number of
that program is what the guess's formula gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from genesis.engine.capture import Captured, build_nodes, graph_of, input_nodes
from genesis.ir.graph import Graph, substitute
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves, movement
from genesis.ir.sym_int import LEAST, SymInt, gcd, value_of
from genesis.ir.types import TensorType

Types = tuple[Any, ...]
Shape = tuple[Any, ...]


class NoBatchSize(Exception):
    """The program's sizes stay numbers: it is compiled for each anew. The text says why."""


def batch_size(types: Sequence[TensorType], fixed: set[int]) -> int:
    """The batch size: dimension 0 of the first integer input (token ids), else of the input of highest rank.

    Args:
        types: of the program's inputs.
        fixed: positions of parameters, and of memory that the program overwrites.

    Raises:
        NoBatchSize: there is no data, or its size is 0 or 1, which mean something else.
    """
    data = [t for i, t in enumerate(types) if i not in fixed and t.ndim]
    best = next((t for t in data if t.dtype.kind == "int"), None) or max(data, key=lambda t: t.ndim, default=None)
    if best is None:
        raise NoBatchSize("nothing that it reads is data, but parameters and what it overwrites")
    if best.shape[0] < LEAST:
        raise NoBatchSize(f"its data has {best.shape[0]} rows: sizes below {LEAST} are compiled by themselves")
    return best.shape[0]


class SymbolicProgram:
    """A captured program over sizes that a trace has symbols for.

    Args:
        size: the symbol that replaces its value wherever that is dimension 0.
        fixed: positions of the inputs whose sizes are no data's.

    Attributes:
        graph: the program.
        key: as `Captured.key`, with symbolic sizes.

    Raises:
        RuntimeError, TypeError, ...: whatever ops say of shapes that a wrong guess gave them.
    """

    def __init__(self, captured: Captured, size: SymInt, fixed: set[int]):
        self._symbol_of: dict[Any, Any] = {size.value: size}
        self._bodies: dict[tuple[Graph, Types], Graph] = {}
        types = [type if i in fixed else self._symbolic(type) for i, type in enumerate(captured.memory_types)]
        inputs = input_nodes(types)
        built = build_nodes(captured, inputs, self._symbolic_attrs)
        self.graph = graph_of(captured, inputs, built)
        self.key = self._key(captured, types, built)

    @staticmethod
    def _key(captured: Captured, types: Sequence[TensorType], built: dict[Node, Node]) -> tuple:
        key = [*types, *captured.key[len(types):]]
        for node, at in captured.op_at.items():
            if node.attrs and key[at + 1] is node.attrs:
                made = built[node] if built[node].op is node.op else built[node].inputs[0]  # known(made, memory)
                key[at + 1] = made.attrs
                if not node.inputs:
                    key[at + 2] = made.type
        return tuple(key)

    def _symbolic_attrs(self, node: Node, operands: tuple[Node, ...]) -> tuple:
        """The attributes of a node for these operands."""
        types = tuple([x.type for x in operands])
        for type in types:
            self._note(type)
        rules = [_RULES.get(name) for name in node.op.attrs]
        if not any(rules):
            return node.attrs
        return tuple(value if rule is None else rule(self, node, value, types)
                     for rule, value in zip(rules, node.attrs, strict=True))

    def _note(self, type: Any) -> None:
        """Remember a symbolic dimension 0, so that other shapes that name its value are understood."""
        for part in type if type.__class__ is tuple else (type,):
            if part.ndim and part.shape[0].__class__ is SymInt:
                self._symbol_of.setdefault(part.shape[0].value, part.shape[0])

    # Attributes that have sizes in them

    def _symbolic(self, type: TensorType) -> TensorType:
        """A type whose dimension 0 is symbolic, if its value is one of a symbolic size."""
        return type.with_shape(self._symbolic_shape(type.shape))

    def _symbolic_shape(self, shape: Shape) -> Shape:
        return (self._symbol_of.get(shape[0], shape[0]), *shape[1:]) if shape else shape

    def _type(self, node: Node, type: TensorType, operands: Types) -> TensorType:
        return type if type.weak else self._symbolic(type)

    def _shape(self, node: Node, shape: Shape, operands: Types) -> Shape:
        if not operands:
            return self._symbolic_shape(shape)
        return (_spread if node.op is movement.expand else _regrouped)(self._symbolic_shape(shape), operands[0].shape)

    def _stops(self, node: Node, stops: Shape, operands: Types) -> Shape:
        """Where a slice ends: at the end, if it did."""
        return tuple(size if stop == value_of(size) else stop
                     for stop, size in zip(stops, operands[0].shape, strict=True))

    def _graph(self, node: Node, body: Graph, operands: Types) -> Graph:
        """The graph of a call for these operands."""
        found = self._bodies.get((body, operands))
        if found is None:
            found = self._bodies[body, operands] = self._body(body, operands)
        return found

    def _body(self, body: Graph, operands: Types) -> Graph:
        inputs = input_nodes(operands[:len(body.inputs)])
        made: dict[Node, Node] = {}
        for node in body.nodes:
            given = tuple([made[x] for x in node.inputs])
            made[node] = inputs[node["index"]] if node.op is leaves.input else (
                make(node.op, given, self._symbolic_attrs(node, given), node.source))
        return Graph(tuple(inputs), tuple(made[node] for node in body.outputs), (), body.numbers)


_RULES: Final[dict[str, Callable[[SymbolicProgram, Node, Any, Types], Any]]] = {
    "type": SymbolicProgram._type, "shape": SymbolicProgram._shape, "stops": SymbolicProgram._stops,
    "graph": SymbolicProgram._graph}
"""Attributes that name sizes, by the names that ops give them."""


def _spread(shape: Shape, operand: Shape) -> Shape:
    """An expand's shape: what is not repeated is as large as it was."""
    lead = len(shape) - len(operand)
    return (*shape[:lead], *(size if value_of(size) == value_of(new) else new
                             for size, new in zip(operand, shape[lead:], strict=True)))


def _regrouped(shape: Shape, operand: Shape) -> Shape:
    """A reshape's shape: neighbouring sizes of equal product correspond, and one of them is symbolic.

    >>> from genesis.ir.sym_int import Trace
    >>> with Trace(B=8) as trace:
    ...     _regrouped((8, 4, 6), (trace.symbol("B") * 4, 6))
    (<B = 8>, 4, 6)
    """
    found: list[Any] = []
    i = j = 0
    while j < len(shape):
        first = j
        before = operand[i] if i < len(operand) else 1
        after = shape[j]
        i, j = i + 1, j + 1
        while value_of(before) != value_of(after):
            if value_of(before) < value_of(after) and i < len(operand):
                before, i = before * operand[i], i + 1
            elif j < len(shape):
                after, j = after * shape[j], j + 1
            else:
                return shape
        sizes = list(map(value_of, shape[first:j]))
        if isinstance(before, SymInt):
            at, size = _share(before, sizes)
            sizes[at] = size
        found += sizes
    return tuple(found)


def _share(whole: SymInt, sizes: list[int]) -> tuple[int, Any]:
    """Which of the sizes depends on the whole, their product, and how: the first that does without a remainder."""
    for at in range(len(sizes)):
        others = prod(sizes[:at]) * prod(sizes[at + 1:])
        if gcd(whole, others) == others:
            return at, whole // others
    return 0, whole // prod(sizes[1:])


def concrete(graph: Graph) -> Graph:
    """The graph with every symbolic size replaced by its value in the run at hand."""
    def value(x: Any) -> Any:
        if x.__class__ is tuple:
            return tuple(map(value, x))
        if isinstance(x, TensorType):
            return x.with_shape(value(x.shape)) if not x.weak else x
        return concrete(x) if isinstance(x, Graph) else value_of(x)

    made: dict[Node, Node] = {}
    for node in graph.nodes:
        made[node] = make(node.op, tuple([made[x] for x in node.inputs]), value(node.attrs), node.source)
    return substitute(replace(graph, inputs=tuple(made[x] for x in graph.inputs)), made)
