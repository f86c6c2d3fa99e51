"""A plan over symbolic sizes → its form (`runtime/plan_form.py`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields
from typing import TypeVar

from genesis.ir.polynomials import SYMBOLS
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import SymInt, value_of
from genesis.ir.types import Device, TensorType
from genesis.runtime.plan import KernelImage, Place, Plan, Table
from genesis.runtime.plan_form import CLASSES, PlanForm
from genesis.runtime.stored_form import Entry, Field

T = TypeVar("T")


def write_form(plan: Plan, numbers: Sequence[Field], trace: Trace | None, guards: Iterable[tuple[str, SymInt]],
               moving: Sequence[Place] = (), sizes: Iterable[object] = ()) -> tuple[PlanForm, list[int], list[Field]]:
    """The form of a plan; which of the `moving` places it has, in the order of its `moving`; and of each of the `sizes`
    the field that stands for it.

    Args:
        numbers: what the program's shape-erased key leaves out, symbolic sizes among them.
        trace: that the sizes belong to; None when no size is symbolic.
        guards: for which sizes the plan holds.
        moving: the places whose offset depends on the sizes in a way that no formula says.
        sizes: others that are asked for with each filling.
    """
    writer = FormWriter()
    writer.field(plan)
    there = [(i, writer.number(place)) for i, place in enumerate(moving)]
    symbols = []
    for name in trace.values if trace is not None else ():
        symbol = trace.symbol(name)  # type: ignore[union-attr]
        position = next((i for i, x in enumerate(numbers) if x is symbol), None)
        if position is None:  # what follows from it is compiled for each size
            raise ValueError(f"no number of the program is its size {name} alone")
        symbols.append([name, position])
    form = PlanForm(
        open=[[i, writer.value(x)] for i, x in enumerate(numbers) if x.__class__ is SymInt],
        guards=[[kind, writer.value(size)] for kind, size in guards],
        fixed=[value_of(x) for x in numbers], symbols=symbols, values=writer.values, types=writer.types,
        objects=writer.objects, moving=[number for _, number in there if number is not None],
        kernels=tuple(writer.kernels), entries=tuple(kernel.entry for kernel in writer.kernels))
    return form, [i for i, number in there if number is not None], list(map(writer.field, sizes))


class FormWriter:
    """Numbers what the plan is made of, each once."""

    def __init__(self) -> None:
        self.values: list[Entry] = []
        self.types: list[Entry] = []
        self.objects: list[Entry] = []
        self.kernels: list[KernelImage] = []
        self._known: dict[Hashable, int] = {}

    def value(self, size: SymInt) -> int:
        """The entry that computes a size."""
        found = self._known.get(size)
        if found is None:
            total, parts = 0, []
            for atoms, k in size.terms:
                if atoms:
                    parts.append([k, *[self._atom(size.trace, atom) for atom in atoms]])
                else:
                    total = k
            alone = total == 0 and len(parts) == 1 and len(parts[0]) == 2 and parts[0][0] == 1
            found = self._known[size] = parts[0][1] if alone else self._entry(["+", total, parts])
        return found

    def _atom(self, trace: Trace, atom: int) -> int:
        found = self._known.get(("atom", atom))
        if found is None:
            kind, a, b = trace.atoms[atom]
            if kind == "is":
                found = self._known["atom", atom] = self.value(a)
                return found
            entry = [kind, a, None] if kind in SYMBOLS else [
                kind, *(self.value(x) if isinstance(x, SymInt) else [x] for x in (a, b))]
            found = self._known["atom", atom] = self._entry(entry)
        return found

    def _entry(self, entry: Entry) -> int:
        self.values.append(entry)
        return len(self.values) - 1

    def field(self, x: Field) -> Field:
        """What stands for a value in an object's field."""
        kind = x.__class__
        if kind is int or kind is str or kind is bool or x is None or kind is float:
            return x
        if kind is SymInt:
            return ["$", self.value(x)]
        if kind is tuple:
            return ["()", *map(self.field, x)]
        if kind is Device:
            return ["d", str(x)]
        if kind is TensorType:
            return ["t", self._numbered(x, self.types, lambda: [
                x.dtype.short, list(map(self.field, x.shape)), str(x.device), x.weak])]
        if kind is KernelImage:
            return ["k", self._numbered(x, self.kernels, lambda: x)]
        if kind.__name__ not in CLASSES:
            raise TypeError(f"a plan has no {kind.__name__}")
        return ["o", self._numbered(x, self.objects, lambda: [
            kind.__name__, *(self.field(getattr(x, part.name)) for part in fields(x) if part.compare)])]

    def number(self, place: Place) -> int | None:
        """The number of a place among the objects, None if the plan does not have it."""
        return self._known.get(id(place))

    def _numbered(self, x: Hashable, table: list[T], entry: Callable[[], T]) -> int:
        key = id(x) if x.__class__ in (TensorType, KernelImage, Place, Table) else x
        found = self._known.get(key)
        if found is None:
            made = entry()
            table.append(made)
            found = self._known[key] = len(table) - 1
        return found
