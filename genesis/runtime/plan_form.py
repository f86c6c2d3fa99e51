"""A plan as plain data: made once for a program, filled in for each batch size, kept on disk.

A form is a JSON object. Numbers of the plan that depend on the batch size are entries of a small program that
computes them from these; the *guards* say for which sizes the form holds at all. Filling in runs that program and
builds the objects of `runtime/plan.py`.

    values:   [["symbol", "B"], ["+", 0, [[1024, 0]]], ["//", 1, [512]], …]      entry 1 is 1024·B, entry 2 that // 512
    guards:   [[">", 1], …]                                                      each compared with 0
    objects:  [["Place", "arena", 0, ["$", 2], ["t", 7]], …]                     operands before users
    types:    [["f32", [["$", 1], 64], "cuda:0", false], …]

In a field a number, text, true, false or null stands for itself; ["$", i] is a value, ["t", i] a type, ["o", i] an
object, ["k", i] a kernel, ["d", name] a device, ["()", …] a tuple.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any, Final

from genesis.ir.polynomials import DIVISIONS, SYMBOLS
from genesis.ir.size_ranges import COMPARISONS
from genesis.ir.types import Device, TensorType, dtype_named, tensor_type
from genesis.runtime.plan import Check, Collective, Copy, KernelImage, Launch, MatrixMap, Place, Plan, Table
from genesis.runtime.stored_form import Entry, Field, Malformed, Stored, check_form

FORMAT: Final = 5
"""Version of the forms; it grows when one of an earlier version would be read wrongly."""

CLASSES: Final[dict[str, type]] = {cls.__name__: cls for cls in (
    Plan, Launch, Copy, Collective, Table, MatrixMap, Check, Place)}
"""The classes of a form's objects, by name; an object's fields stand after its class's name in the class's order."""


ASKED_FIRST: Final = 8
"""Guards of a form that failed, and are asked before all others: each takes a few of some hundred formulas."""

_FIELDS: Final = {name: tuple([field.name for field in fields(cls)]) for name, cls in CLASSES.items()}
"""Names of the fields of an object of each class."""


@dataclass(frozen=True)
class PlannedMemory:
    """Memory planning's result for some sizes: (where, index, offset) of each moving place; fields of the plan."""

    starts: Sequence[tuple[str, int, int]]
    arena_bytes: int
    max_live_bytes: int
    larger: Plan | None = None


@dataclass(frozen=True)
class PlanForm:
    """A plan with a symbolic batch size.

    Attributes:
        values: the program that computes the numbers that depend on the sizes.
        guards: comparisons that hold for the sizes that the form was made for.
        fixed: the numbers of the program's structure (`shape_erased_key.py`), as they were when the form was made.
        open: (position among these numbers, value) for those that depend on the leading sizes.
        symbols: (symbol, position): where among the numbers a symbol stands for itself.
        types, objects: the types and objects that the plan is made of; the last object is the plan.
        moving: numbers of the places that memory planning decides for each size.
        kernels: the kernels of its launches.
        entries: for each kernel the name of its entry in a `KernelCache`, '' if none has it.
    """

    values: list[Entry]
    guards: list[Entry]
    fixed: list[int]
    open: list[list[int]]
    symbols: list[Entry]
    types: list[Entry]
    objects: list[Entry]
    moving: list[int]
    kernels: tuple[KernelImage, ...]
    entries: tuple[str, ...]

    def sizes(self, numbers: Sequence[int]) -> dict[str, int]:
        """The symbols' values in a program with these numbers."""
        return {name: numbers[position] for name, position in self.symbols}

    def evaluate(self, sizes: dict[str, int]) -> list[int]:
        """Every entry of the program."""
        return evaluated(self.values, sizes)

    def admitted(self, numbers: Sequence[int], sizes: dict[str, int]) -> list[int] | None:
        """Every entry of the program, for the sizes of a program with these numbers; None if the form was not made for
        such, or a guard does not hold.

        Images have twenty forms of one class, each with hundreds of formulas: the guards that failed last are asked
        first, with the formulas that they need.
        """
        if not all(self._holds(number, sizes) for number in tuple(self._refused)):
            return None
        values = self.evaluate(sizes)
        failed = next((number for number, (kind, value) in enumerate(self.guards)
                       if not COMPARISONS[kind](values[value], 0)), None)
        if failed is not None:
            self._refused[:] = [failed, *self._refused[:ASKED_FIRST - 1]]
            return None
        return values if self._made_for(numbers, values) else None

    def fits(self, numbers: Sequence[int], values: Sequence[int]) -> bool:
        """Whether the form was made for programs with these numbers, and its guards allow these sizes."""
        return self._made_for(numbers, values) and self.guarded(values)

    def guarded(self, values: Sequence[int]) -> bool:
        """Whether the guards hold for these values."""
        return all(COMPARISONS[kind](values[value], 0) for kind, value in self.guards)

    def _made_for(self, numbers: Sequence[int], values: Sequence[int]) -> bool:
        """Whether programs with these numbers are those that the form was made for, but for their sizes."""
        if len(numbers) != len(self.fixed):
            return False
        expected = self.fixed.copy()
        for position, value in self.open:
            expected[position] = values[value]
        return expected == numbers

    @cached_property
    def _refused(self) -> list[int]:
        """The numbers of the guards that failed last, the latest first."""
        return []

    def _holds(self, number: int, sizes: dict[str, int]) -> bool:
        """Whether a guard holds for these sizes, by the formulas that it needs."""
        kind, value = self.guards[number]
        behind = self._behind.get(value)
        if behind is None:
            behind = self._behind[value] = self._needed(value)
        return COMPARISONS[kind](evaluated(self.values, sizes, behind)[value], 0)

    @cached_property
    def _behind(self) -> dict[int, list[int]]:
        """An entry that guards were asked about → the entries that it is computed from, and itself, in order."""
        return {}

    def _needed(self, value: int) -> list[int]:
        """The numbers of the entries that this one is computed from, and its own, in order."""
        found, waiting = set[int](), [value]
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            kind, a, b = self.values[number]
            waiting += [factor for _, *factors in b for factor in factors] if kind == "+" else [] if (
                kind in SYMBOLS) else [x for x in (a, b) if x.__class__ is int]
        return sorted(found)

    def elements(self, values: Sequence[int]) -> list[int]:
        """The number of elements of a value of each type."""
        return [prod([values[size[1]] if size.__class__ is list else size for size in shape])
                for _, shape, _, _ in self.types]

    def fill(self, values: Sequence[int], memory: PlannedMemory | None = None) -> Plan:
        """The plan for the sizes that these values were computed from.

        Args:
            memory: memory planning's result for these sizes; None for the sizes that the form was made with.
        """
        fixed = self._fixed
        types = fixed.types.copy()
        made = _Maker(values, types, fixed.objects, self.kernels)
        for number in fixed.open_types:
            types[number] = made.type(self.types[number])
        table = [*fixed.objects, *types, *values, *self.kernels, *fixed.constants]
        starts = fixed.starts if memory is None else memory.starts
        for (number, type), (where, index, offset) in zip(fixed.moving, starts, strict=True):
            place = object.__new__(Place)
            vars(place).update(where=where, index=index, offset=offset, type=table[type])
            table[number] = place
        for number, make in fixed.open_objects:
            table[number] = make(table)
        plan = table[len(self.objects) - 1]
        assert isinstance(plan, Plan)
        return plan if memory is None else replace(plan, arena_bytes=memory.arena_bytes,
                                                   max_live_bytes=memory.max_live_bytes, larger=memory.larger)

    @cached_property
    def _fixed(self) -> _Fixed:
        """The types and objects that depend on no size: the same ones in every filling."""
        types: list[TensorType | None] = []
        objects: list[object] = []
        open_types: dict[int, None] = {}
        open_objects = dict.fromkeys(self.moving)
        made = _Maker((), types, objects, self.kernels)

        closed = not self.values and not self.moving  # a form on disk is closed: nothing in it has to be looked for

        def any_open(fields: Entry) -> bool:
            return not closed and any(is_open(x) for x in fields if x.__class__ is list)  # most are a table's numbers

        def is_open(x: Entry) -> bool:
            kind = x[0]
            return (kind == "$" or (kind == "t" and x[1] in open_types) or (kind == "o" and x[1] in open_objects)
                    or (kind == "()" and any_open(x)))

        for number, entry in enumerate(self.types):
            if any_open(entry[1]):
                open_types[number] = None
            types.append(None if number in open_types else made.type(entry))
        for number, entry in enumerate(self.objects):
            if number in open_objects or any_open(entry):
                open_objects[number] = None
            objects.append(None if number in open_objects else made.object(entry))
        recipes = _Recipes(objects, types, len(self.values), self.kernels)
        places = [self.objects[number] for number in self.moving]
        moving = [(number, recipes.position(type)) for number, (*_, type) in zip(self.moving, places, strict=True)]
        starts = [(where, index, offset) for _, where, index, offset, _ in places]
        others = [(number, recipes.recipe(self.objects[number])) for number in sorted(
            open_objects.keys() - set(self.moving))]
        return _Fixed(types, objects, tuple(open_types), moving, starts, others, recipes.constants)

    def as_json(self) -> Stored:
        """The form without its kernels, for a file."""
        return {"format": FORMAT, "entries": list(self.entries), **{name: getattr(self, name) for name in _STORED}}


def evaluated(entries: Sequence[Entry], sizes: dict[str, int], numbers: Iterable[int] | None = None) -> list[int]:
    """Every entry of a program of numbers (`PlanForm.values`), for these sizes; or those alone with these numbers, each
    behind what it is computed from, and 0 in the places of the others.

    >>> evaluated([["symbol", "B", None], ["+", 5, [[1024, 0]]], ["//", 1, [512]]], {"B": 3})
    [3, 3077, 6]
    """
    found = [0] * len(entries)
    for number in range(len(entries)) if numbers is None else numbers:
        kind, a, b = entries[number]
        if kind == "+":
            total = a
            for k, *factors in b:
                for factor in factors:
                    k = k * found[factor]
                total = total + k
            found[number] = total
        elif kind in SYMBOLS:
            found[number] = sizes[a] // SYMBOLS[kind]
        else:
            left = found[a] if a.__class__ is int else a[0]
            right = found[b] if b.__class__ is int else b[0]
            found[number] = DIVISIONS[kind](left, right) if right else 0
    return found


_STORED: Final = ("values", "guards", "fixed", "open", "symbols", "types", "objects", "moving")


def from_json(stored: Stored, kernels: Callable[[str], KernelImage | None],
              sizes: dict[str, int] | None = None) -> PlanForm | None:
    """The form that `as_json` described; None when it is of another version, or a kernel is missing.

    Args:
        kernels: name of an entry → kernel.
        sizes: those of a form with open sizes that it was made for: the plan for these is what is checked.

    Raises:
        Malformed: it is no description of a form.
    """
    if stored.get("format") != FORMAT:
        return None
    entries = check_form(stored if sizes is None else _closed(stored, sizes))
    images = [kernels(entry) for entry in entries]
    if None in images:
        return None
    parts = {name: stored[name] for name in _STORED}
    return PlanForm(**parts, kernels=tuple(images), entries=tuple(entries))  # type: ignore[arg-type]


def _closed(stored: Stored, sizes: dict[str, int]) -> Stored:
    """The form of the plan for the sizes that a form was made for.

    Raises:
        Malformed: a value is computed from what is not there, or a guard fails.
        TypeError, ...: a part is nothing of its kind.
    """
    form = PlanForm(**{name: stored[name] for name in _STORED}, kernels=(), entries=())
    for number, (kind, a, b) in enumerate(form.values):
        used = [x for _, *factors in b for x in factors] if kind == "+" else [] if kind in SYMBOLS else [
            x for x in (a, b) if x.__class__ is not list]
        _refers(used, number)
    _refers([value for _, value in form.open] + [value for _, value in form.guards], len(form.values))
    _refers([at for at, _ in form.open] + [at for _, at in form.symbols], len(form.fixed))
    _refers(form.moving, len(form.objects) - 1)
    values = form.evaluate(sizes)
    if not all(type(x) is int for x in values) or not form.guarded(values) or form.sizes(form.fixed) != sizes:
        raise Malformed("it does not hold for the sizes that it was made for")

    def closed(x: Field) -> Field:
        if x.__class__ is not list:
            return x
        if len(x) == 2 and x[0] == "$":
            _refers(x[1:], len(values))
            return values[x[1]]
        return [closed(y) for y in x]
    return {**stored, **{name: [] for name in ("values", "guards", "open", "symbols", "moving")},
            "types": closed(form.types), "objects": closed(form.objects)}


def _refers(numbers: Sequence[Field], count: int) -> None:
    if not all(type(x) is int and 0 <= x < count for x in numbers):
        raise Malformed("a part refers to what is not there")


@dataclass(frozen=True)
class _Fixed:
    """Types and objects that are the same for all sizes (None for others), and how the others are made.

    Attributes:
        open_types: numbers of the types that depend on sizes.
        moving: (number, where in the table its type is) of the places that memory planning moves.
        starts: (where, index, offset) of each of these for the sizes that the form was made for.
        open_objects: (number, recipe) of other open objects.
        constants: values that recipes look up besides.
    """

    types: list[TensorType | None]
    objects: list[object]
    open_types: tuple[int, ...]
    moving: list[tuple[int, int]]
    starts: list[tuple[str, int, int]]
    open_objects: list[tuple[int, Recipe]]
    constants: list[object]


Recipe = Callable[[list[object]], object]
"""A function that makes an object, or a field, from a table: the form's objects, types, values, kernels, constants."""


class _Recipes:
    """Recipes of a form's objects, made once for all fillings: a field is one look-up, a tuple several in one call.
    What is the same in every filling is looked up here.

    Args:
        objects, types: those that are the same in every filling, None for the others.
        values: how many there are.
    """

    def __init__(self, objects: Sequence[object], types: Sequence[TensorType | None], values: int,
                 kernels: Sequence[KernelImage]):
        self._tables: dict[str, Sequence[object]] = {"o": objects, "t": types, "k": kernels}
        self._start = {"o": 0, "t": len(objects), "$": len(objects) + len(types),
                       "k": len(objects) + len(types) + values}
        self._end = self._start["k"] + len(kernels)
        self.constants: list[object] = []

    def recipe(self, entry: Entry) -> Recipe:
        """The recipe of an object."""
        cls, values = CLASSES[entry[0]], entry[1:]
        names = _FIELDS[entry[0]]
        if len(names) != len(values):  # of a plan, whose last field is its own business
            made = [self._field(x) for x in values]
            return lambda table: cls(*[field(table) for field in made])
        same: dict[str, object] = {}
        others: list[tuple[str, Recipe]] = []
        for name, x in zip(names, values, strict=True):
            if self._is_same(x):
                same[name] = self._same(x)
            else:
                others.append((name, self._field(x)))
        return lambda table: _with_fields(cls, same, others, table)

    def _is_same(self, x: Field) -> bool:
        """Whether a field is the same in every filling."""
        if x.__class__ is not list or x[0] == "d":
            return True
        if x[0] == "()":
            return all(map(self._is_same, x[1:]))
        return x[0] != "$" and self._tables[x[0]][x[1]] is not None

    def _same(self, x: Field) -> object:
        """The value of such a field."""
        if x.__class__ is not list:
            return x
        if x[0] == "()":
            return tuple(map(self._same, x[1:]))
        return Device(x[1]) if x[0] == "d" else self._tables[x[0]][x[1]]

    def _field(self, x: Field) -> Recipe:
        if x.__class__ is not list or x[0] != "()":
            return operator.itemgetter(self.position(x))
        if any(y.__class__ is list and y[0] == "()" for y in x[1:]):
            parts = [self._field(y) for y in x[1:]]
            return lambda table: tuple([part(table) for part in parts])
        positions = [self.position(y) for y in x[1:]]
        if len(positions) > 1:
            return operator.itemgetter(*positions)
        return lambda table: tuple([table[position] for position in positions])

    def position(self, x: Field) -> int:
        """Where in the table a field's value is."""
        if x.__class__ is list and x[0] in self._start:
            return self._start[x[0]] + x[1]
        self.constants.append(Device(x[1]) if x.__class__ is list else x)
        return self._end + len(self.constants) - 1


def _with_fields(cls: type, same: Mapping[str, object], others: Sequence[tuple[str, Recipe]],
                 table: list[object]) -> object:
    """An object of a frozen dataclass with these fields. Its own `__init__` sets each one by a call, which takes most
    of filling in (`benchmarks/second_size_host.py`)."""
    made: object = object.__new__(cls)
    kept = vars(made)
    kept.update(same)
    for name, field in others:
        kept[name] = field(table)
    return made


class _Maker:
    """Makes types and objects from their entries, from values, and from the types and objects made before."""

    def __init__(self, values: Sequence[int], types: list[TensorType | None], objects: list[object],
                 kernels: Sequence[KernelImage]):
        self._tables: dict[str, Sequence[object]] = {"$": values, "t": types, "o": objects, "k": kernels}

    def type(self, entry: Entry) -> TensorType:
        short, shape, device, weak = entry
        return tensor_type(tuple(map(self.field, shape)), dtype_named(short), Device(device), weak)

    def object(self, entry: Entry) -> object:
        field = self.field
        return CLASSES[entry[0]](*[field(x) if x.__class__ is list else x for x in entry[1:]])

    def field(self, x: Field) -> Any:
        if x.__class__ is not list:
            return x
        kind = x[0]
        if kind == "()":
            field = self.field
            return tuple([field(y) if y.__class__ is list else y for y in x[1:]])
        if kind == "d":
            return Device(x[1])
        return self._tables[kind][x[1]]
