"""A captured program over symbolic sizes.

A size of the data is in many places: in the types of the inputs, in the shapes that reshapes and expands name,
flattened into B·T, one less where a slice leaves the last element out. A captured program has plain numbers there. This
module guesses which of them follow from which, so that compiling can go on with `SymInt`s (see `ir/sym_int.py`).

Numbers that are equal are taken for one size. Where they are equal by chance (8 sequences of 8 tokens) that is another
guess than elsewhere, and guards say so. How attributes that are no shapes follow from sizes is learned from *samples*,
the numbers of programs of the same structure that came before: a number that moves with a size is that size and a
constant. A wrong guess does no harm: a plan serves another program only if every number of that program is what the
guess's formula gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from genesis.engine.capture import Captured, build_nodes, graph_of, input_nodes
from genesis.engine.symbolic.shape_erased_key import numbers_of
from genesis.ir.graph import Graph, substitute
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves, movement
from genesis.ir.ops.windows import pooled_sizes
from genesis.ir.polynomials import SYMBOLS
from genesis.ir.size_class import LEAST, class_of, exact_class_of
from genesis.ir.size_divisors import gcd
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import Size, SymInt, symbols_of, value_at, value_of
from genesis.ir.types import TensorType

Types = tuple[TensorType, ...]
Shape = tuple[Size, ...]
Vector = tuple[int, ...]
"""A number in the program at hand, then in each sample."""
Terms = tuple[tuple[int, tuple[int, ...]], ...]
"""A sum of products of sizes: (number, the sizes at hand) for each."""


class FixedSizes(Exception):
    """The program's sizes stay numbers: it is compiled for each anew. The text says why."""


@dataclass(frozen=True)
class Axis:
    """An axis of an input that holds data, or of what the program makes from nothing (random numbers, a range).

    Attributes:
        input, axis: which one; the input is None for what the program makes.
        position: of its size among the program's numbers.
    """

    input: int | None
    axis: int
    position: int


def made_axes(captured: Captured) -> list[Axis]:
    """The axes of what the program makes from nothing."""
    first = _first_numbers(captured)
    found: list[Axis] = []
    for node, at in first.items():
        operands = [x.type for x in node.inputs]
        what = next((name for name in ("shape", "type") if name in node.op.attrs), None)
        if what is None or node.op is movement.reshape or any(
                type.__class__ is tuple or (type.ndim and node.op is not movement.expand) for type in operands):
            continue
        names = node.op.attrs[:node.op.attrs.index(what)]
        at += sum(len(numbers_of(node[name])) for name in names)
        given = len(numbers_of(node[what])) - (operands[0].ndim if node.op is movement.expand else 0)
        found += [Axis(None, axis, at + axis) for axis in range(given)]
    return found


def data_axes(types: Sequence[TensorType], fixed: set[int]) -> list[Axis]:
    """The axes of the inputs that are not `fixed`. A key begins with the inputs' types, and so do its numbers."""
    found: list[Axis] = []
    position = 0
    for i, type in enumerate(types):
        if i not in fixed:
            found += [Axis(i, axis, position + axis) for axis in range(type.ndim)]
        position += type.ndim
    return found


def leading_axis(types: Sequence[TensorType], axes: Sequence[Axis]) -> Axis | None:
    """The batch: dimension 0 of the first integer input (token ids), else of the input of highest rank."""
    first = [(types[axis.input], axis) for axis in axes if axis.axis == 0 and axis.input is not None]
    found = next((axis for type, axis in first if type.dtype.kind == "int"), None)
    return found or max(first, key=lambda row: row[0].ndim, default=(None, None))[1]


class Sizes:
    """The symbols of a program: one for all axes of one size.

    Args:
        numbers: of the program at hand.
        samples: those of earlier programs of its structure.
        axes: what is symbolic, where other sizes are compiled as the one at hand.
        derived: size → how it follows from others: it has no symbol of its own.
        exact: nothing is chosen by classes (`Trace.exact`).

    Attributes:
        trace: the symbols' trace.
        names: size → symbol.
        of_axis: (input, axis) → symbol.
    """

    def __init__(self, numbers: Sequence[int], samples: Sequence[Sequence[int]], axes: Iterable[Axis],
                 derived: Mapping[int, Terms], exact: bool = False):
        self._all = (numbers, *samples)
        of = exact_class_of if exact else class_of
        chosen = [axis for axis in axes if of(numbers[axis.position]).shared]
        self.names: dict[int, str] = {}
        for axis in chosen:
            if numbers[axis.position] not in derived:
                self.names.setdefault(numbers[axis.position], f"n{len(self.names)}")
        self.trace = Trace(exact, **{name: size for size, name in self.names.items()})
        self._formulas: dict[int, SymInt] = {size: self.trace.symbol(name) for size, name in self.names.items()}
        for size, terms in derived.items():
            if all(x in self._formulas for _, factors in terms for x in factors):
                total: Size = sum([k * prod([self._formulas[x] for x in factors]) for k, factors in terms])
                self._formulas[size] = total  # type: ignore[assignment]  # a polynomial with symbols in it
        self.of_axis = {(axis.input, axis.axis): self._formulas[numbers[axis.position]]
                        for axis in chosen if axis.input is not None and numbers[axis.position] in self._formulas}
        self._noted = set(self._formulas.values())
        self._asked: dict[int, SymInt | None] = {}
        at = {name: next(axis.position for axis in chosen if numbers[axis.position] == size)
              for size, name in self.names.items()}
        self._values = [{name: sample[position] for name, position in at.items()} for sample in samples]

    def where(self) -> dict[str, list[str]]:
        """The axes that each symbol is the size of, as text."""
        found: dict[str, list[str]] = {name: [] for name in self.names.values()}
        for (input, axis), size in self.of_axis.items():
            for name in symbols_of(size):
                found[name].append(f"axis {axis} of input {input}")
        return {name: axes or ["of what it makes"] for name, axes in found.items()}

    def vector(self, position: int) -> Vector:
        """The number at this position, in all programs."""
        return tuple([numbers[position] for numbers in self._all])

    def note(self, size: Size) -> None:
        """Remember a size, so that other numbers that are like it are understood."""
        if size.__class__ is SymInt and size not in self._noted:
            self._noted.add(size)
            if size.value >= LEAST:
                self._formulas.setdefault(size.value, size)

    def vector_of(self, size: Size) -> Vector:
        """A size in all programs."""
        return (value_of(size), *[value_at(size, values) for values in self._values])

    def like(self, vector: Vector) -> Size:
        """What a number is: the size that it is equal to; else one that it was seen to move with; else itself."""
        found = self._asked[vector[0]] = self._formulas.get(vector[0])
        if found is not None and (not self.trace.exact or self.vector_of(found) == vector):
            return found
        if any(n != vector[0] for n in vector):
            for size in self._formulas.values():
                if len({n - m for n, m in zip(vector, self.vector_of(size), strict=True)}) == 1:
                    return size + (vector[0] - size.value)
        return vector[0]

    def guard(self) -> None:
        """Demand of other values of the symbols that numbers are taken for the same sizes there.

        Where a size is as large as another, or as a number of the program, by chance, guesses would be others: such a
        program is compiled by itself, whether it comes first or last.
        """
        for number, size in self._asked.items():
            for other in self._formulas.values():
                if other is not size and other.value != number:  # else it was asked before the other was known
                    self.trace.compare("!=", other, number if size is None else size)

    def solved(self) -> dict[int, Terms]:
        """Sizes that some guard lets follow from others, or from none: the last that each guard has as a summand."""
        size_of = {name: size for size, name in self.names.items()}
        found: dict[int, Terms] = {}
        for kind, difference in self.trace.guards:
            terms = self._terms(difference, size_of) if kind == "==" else None
            if terms is None:
                continue
            alone = [(k, factors[0]) for k, factors in terms if abs(k) == 1 and len(factors) == 1 and sum(
                factors[0] in others for _, others in terms) == 1]
            if len(terms) <= 2 and sum(len(factors) for _, factors in terms) == 1:  # a number
                alone = [(k, factors[0]) for k, factors in terms if factors]
                found.setdefault(alone[0][1], ())
            elif alone and not any(x in found for _, factors in terms for x in factors):
                k, size = alone[-1]
                found[size] = tuple([(-k * m, factors) for m, factors in terms if factors != (size,)])
        return found

    def _terms(self, size: SymInt, size_of: Mapping[str, int]) -> Terms | None:
        """A formula by the sizes at hand; None if it is none of sums and products."""
        found = []
        for atoms, k in size.terms:
            factors = []
            for atom in atoms:
                kind, name, _ = self.trace.atoms[atom]
                if kind not in SYMBOLS:
                    return None
                if k % SYMBOLS[kind]:
                    return None
                k //= SYMBOLS[kind]
                factors.append(size_of[name])
            found.append((k, tuple(factors)))
        return tuple(found)


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
        self._first = _first_numbers(captured)
        types = [_with_sizes(type, [sizes.of_axis.get((i, axis)) for axis in range(type.ndim)])
                 for i, type in enumerate(captured.memory_types)]
        inputs = input_nodes(types)
        built = build_nodes(captured, inputs, lambda node, operands: self._attrs(node, operands, self._first.get(node)))
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
            found.append(_RULES.get(name, SymbolicProgram._moving)(self, node, value, types, at))
            at += len(numbers_of(value))
        return tuple(found)

    # Attributes that have sizes in them

    def _like(self, at: int) -> Any:  # the IR says int of a size
        return self._sizes.like(self._sizes.vector(at))

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

    def _bounds(self, node: Node, bounds: Shape, operands: Types, at: int) -> Shape:
        """Where a slice begins or ends: as far from the end as it was, or from the beginning."""
        return tuple([self._bound(self._sizes.vector(at + i), size)
                      for i, size in enumerate(operands[0].shape[:len(bounds)])])

    def _bound(self, vector: Vector, size: Size) -> Size:
        bound, whole = vector[0], self._sizes.vector_of(size)
        from_end = {n - m for n, m in zip(whole, vector, strict=True)}
        if vector == whole:
            return size
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
        made: dict[Node, Node] = {}
        for node in body.nodes:
            given = tuple([made[x] for x in node.inputs])
            made[node] = inputs[node["index"]] if node.op is leaves.input else (
                make(node.op, given, self._attrs(node, given, at), node.source))
            at += len(numbers_of(node.attrs))
        return Graph(tuple(inputs), tuple(made[node] for node in body.outputs), (), body.numbers)


def _with_sizes(type: TensorType, sizes: Sequence[SymInt | None]) -> TensorType:
    shape: tuple[Any, ...] = tuple([n if size is None else size for n, size in zip(type.shape, sizes, strict=True)])
    return type.with_shape(shape)


def _first_numbers(captured: Captured) -> dict[Node, int]:
    """Captured node → where the numbers of its attributes begin among the program's."""
    starts: list[int] = []
    total = 0
    for item in captured.key:
        starts.append(total)
        if item.__class__ is tuple or item.__class__ is TensorType:
            total += len(numbers_of(item))
    return {node: starts[at + 1] for node, at in captured.op_at.items() if captured.key[at + 1] is node.attrs}


_RULES: Final[dict[str, Callable[[SymbolicProgram, Node, Any, Types, int], Any]]] = {
    "type": SymbolicProgram._type, "shape": SymbolicProgram._shape, "starts": SymbolicProgram._bounds,
    "stops": SymbolicProgram._bounds, "sizes": SymbolicProgram._pooled, "graph": SymbolicProgram._graph}
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
