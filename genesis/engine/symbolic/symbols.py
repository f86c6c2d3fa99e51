"""The symbols of a captured program: which axes are symbolic, and which of its numbers are which size.

Numbers that are equal are taken for one size. Where they are equal by chance (8 sequences of 8 tokens) that is another
guess than elsewhere, and guards say so; where nothing is chosen by classes, numbers that were not equal in a sample are
two sizes. How attributes that are no shapes follow from sizes is learned from *samples*,
the numbers of programs of the same structure that came before: a number that moves with a size is that size and a
constant. A wrong guess does no harm: a plan serves another program only if every number of that program is what the
guess's formula gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from genesis.engine.capture import Captured
from genesis.engine.symbolic.shape_erased_key import numbers_of
from genesis.ir.node import Node
from genesis.ir.ops import movement, searching
from genesis.ir.polynomials import SYMBOLS
from genesis.ir.size_class import LEAST, class_of, exact_class_of
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import Size, SymInt, symbols_of, value_at, value_of
from genesis.ir.types import TensorType

Vector = tuple[int, ...]
"""A number in the program at hand, then in each sample."""
Terms = tuple[tuple[int, tuple[Vector, ...]], ...]
"""A sum of products of sizes: (number, the sizes as `Sizes.told` tells them) for each."""
COUNTED: Final = frozenset({searching.nonzero, searching.compress})
"""Ops whose result is as long as their `count`, which was read: it follows from values."""


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
    """The axes of what the program makes from nothing, and of what is as long as was counted."""
    first = first_numbers(captured)
    found: list[Axis] = []
    for node, at in first.items():
        if node.op in COUNTED:
            found.append(Axis(None, 0, at))
            continue
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


def counted_axes(captured: Captured, axes: Iterable[Axis]) -> set[int]:
    """Positions of the sizes that change from run to run if some size of this program was counted: those, and how many
    rows each of its inputs has, as these may have been counted in a program before. None if it counts nothing."""
    first = first_numbers(captured)
    found = {at for node, at in first.items() if node.op in COUNTED}
    return found | {axis.position for axis in axes if axis.input is not None and not axis.axis} if found else found


class Sizes:
    """The symbols of a program: one for all axes of one size.

    Args:
        numbers: of the program at hand.
        samples: those of earlier programs of its structure.
        axes: what is symbolic, where other sizes are compiled as the one at hand.
        derived: size, as `told`, → how it follows from others: it has no symbol of its own.
        exact: nothing is chosen by classes (`Trace.exact`).

    Attributes:
        trace: the symbols' trace.
        names: size, as `told`, → symbol.
        of_axis: (input, axis) → symbol.
    """

    def __init__(self, numbers: Sequence[int], samples: Sequence[Sequence[int]], axes: Iterable[Axis],
                 derived: Mapping[Vector, Terms], exact: bool = False):
        self._all, self._exact = (numbers, *samples), exact
        of = exact_class_of if exact else class_of
        chosen = [axis for axis in axes if of(numbers[axis.position]).shared]
        self.names: dict[Vector, str] = {}
        for axis in chosen:
            size = self.told(axis.position)
            if size not in derived:
                self.names.setdefault(size, f"n{len(self.names)}")
        self.trace = Trace(exact, **{name: size[0] for size, name in self.names.items()})
        self._formulas: dict[Vector, SymInt] = {size: self.trace.symbol(name) for size, name in self.names.items()}
        for size, terms in derived.items():
            if all(x in self._formulas for _, factors in terms for x in factors):
                total: Size = sum([k * prod([self._formulas[x] for x in factors]) for k, factors in terms])
                self._formulas[size] = total  # type: ignore[assignment]  # a polynomial with symbols in it
        self.of_axis = {(axis.input, axis.axis): self._formulas[self.told(axis.position)]
                        for axis in chosen if axis.input is not None and self.told(axis.position) in self._formulas}
        self._noted = set(self._formulas.values())
        self._asked: dict[int, SymInt | None] = {}
        at = {name: next(axis.position for axis in chosen if self.told(axis.position) == size)
              for size, name in self.names.items()}
        self._values = [{name: sample[position] for name, position in at.items()} for sample in samples]
        self._made = {axis.position for axis in chosen if axis.input is None}
        self._places: dict[int, SymInt] = {}

    def prefix(self, position: int) -> SymInt | None:
        """The size of an axis that the program makes, whose number is at this position; None if it is none."""
        return self._formulas.get(self.told(position)) if position in self._made else None

    def place(self, position: int, most: int, least: int = 1) -> SymInt:
        """The symbol of the place that is the number at this position, from `least` to `most`."""
        found = self._places.get(position)
        if found is None:
            name = f"at{len(self._places)}"
            found = self._places[position] = self.trace.add_place(name, self._all[0][position], most, least)
            for values, sample in zip(self._values, self._all[1:], strict=True):
                values[name] = sample[position]
        return found

    def where(self) -> dict[str, list[str]]:
        """The axes that each symbol is the size of, as text."""
        found: dict[str, list[str]] = {name: [] for name in self.names.values()}
        for (input, axis), size in self.of_axis.items():
            for name in symbols_of(size):
                found[name].append(f"axis {axis} of input {input}")
        places = {name: ["where a slice begins"] for place in self._places.values() for name in symbols_of(place)}
        return {**{name: axes or ["of what it makes"] for name, axes in found.items()}, **places}

    def told(self, position: int) -> Vector:
        """What tells the size at this position from others: its number, and where nothing is chosen by classes those
        of the samples."""
        return self.vector(position) if self._exact else (self._all[0][position],)

    def vector(self, position: int) -> Vector:
        """The number at this position, in all programs."""
        return tuple([numbers[position] for numbers in self._all])

    def note(self, size: Size) -> None:
        """Remember a size, so that other numbers that are like it are understood."""
        if size.__class__ is SymInt and size not in self._noted:
            self._noted.add(size)
            if size.value >= LEAST:
                self._formulas.setdefault(self.vector_of(size) if self._exact else (size.value,), size)

    def vector_of(self, size: Size) -> Vector:
        """A size in all programs."""
        return (value_of(size), *[value_at(size, values) for values in self._values])

    def like(self, vector: Vector) -> Size:
        """What a number is: the size that it is equal to; else one that it was seen to move with; else itself."""
        found = self._asked[vector[0]] = self._formulas.get(vector if self._exact else vector[:1])
        if found is not None:
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

    def solved(self) -> dict[Vector, Terms]:
        """Sizes, as `told`, that some guard lets follow from others, or from none: the last summand of each guard."""
        size_of = {name: size for size, name in self.names.items()}
        found: dict[Vector, Terms] = {}
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

    def _terms(self, size: SymInt, size_of: Mapping[str, Vector]) -> Terms | None:
        """A formula by the sizes at hand; None if it is none of sums and products, or has places in it."""
        found = []
        for atoms, k in size.terms:
            factors = []
            for atom in atoms:
                kind, name, _ = self.trace.atoms[atom]
                if kind not in SYMBOLS or name not in size_of:
                    return None
                if k % SYMBOLS[kind]:
                    return None
                k //= SYMBOLS[kind]
                factors.append(size_of[name])
            found.append((k, tuple(factors)))
        return tuple(found)


def first_numbers(captured: Captured) -> dict[Node, int]:
    """Captured node → where the numbers of its attributes begin among the program's."""
    starts: list[int] = []
    total = 0
    for item in captured.key:
        starts.append(total)
        if isinstance(item, (tuple, TensorType)):
            total += len(numbers_of(item))
    return {node: starts[at + 1] for node, at in captured.op_at.items() if captured.key[at + 1] is node.attrs}
