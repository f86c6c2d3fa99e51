"""A plan template of calls: a plan for the CPU that is filled in for other sizes.

The passes run over symbolic sizes whose trace is exact (`ir/size_trace.py`): nothing is chosen by a class, so what they
decide is what they would decide for plain numbers, as long as the guards hold. A template is made when a program comes
with a second size; filling it in evaluates the formulas in its types, attributes and literals, and plans the arena.

    plan for 33 rows      linear(%0, %1, %2)     register 3: arena 512, f32[33, 8]
    filled in for 40      linear(%0, %1, %2)     register 3: arena 512, f32[40, 8]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from genesis.engine.backends import backend_of
from genesis.engine.compilation import plan_of
from genesis.engine.symbolic.plan_writer import write_form
from genesis.engine.symbolic.symbolic_program import FixedSizes
from genesis.engine.symbolic.template import Template
from genesis.ir.graph import Graph
from genesis.ir.result_types import forget_sizes_of
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import SymInt
from genesis.ir.types import Device, TensorType, dtype_named, tensor_type
from genesis.passes.memory.arena import arranged
from genesis.passes.memory.plan_memory import MemoryPlan
from genesis.runtime.plan import Call, Place, Plan, Register
from genesis.runtime.stored_form import Entry, Field

Values = Sequence[int]
"""What a form's formulas give for some sizes."""


class CallTemplate(Template):
    """A program compiled with symbolic sizes into calls: it gives the plan for all sizes that its guards admit.

    Args:
        graph: the program over sizes of the trace.
        numbers: what its shape-erased key leaves out (`shape_erased_key.py`), symbolic sizes among them.
        trace: exact, and not active; what the passes ask of sizes becomes its guards.
        where: for each symbol the axes of inputs that it is the size of, for people.
        device: of a backend with `any_size`.

    Raises:
        FixedSizes: the plan holds something that no formula gives exactly.
        TypeError, ...: what a pass says of a symbol where it needs a number.
    """

    def __init__(self, graph: Graph, numbers: Sequence[int], trace: Trace, where: dict[str, list[str]],
                 device: Device):
        from genesis.passes.pipeline import run_passes
        super().__init__(graph, trace, where)
        try:
            with trace:
                passed = run_passes(graph, backend_of(device), last="lower")
                self._write(plan_of(graph, device, passed), passed.memory, numbers)
        finally:
            forget_sizes_of(trace)
        self.made_for = trace.values

    def _write(self, plan: Plan, memory: MemoryPlan, numbers: Sequence[int]) -> None:
        registers = [(i, x) for i, x in enumerate(plan.registers) if _is_open(x)]
        calls = [(i, call, {name: x for name, x in call.attributes.items() if _is_open(x)})
                 for i, call in enumerate(plan.steps) if isinstance(call, Call)]
        calls = [row for row in calls if row[2]]
        asked: list[object] = [plan.inputs, plan.outputs]
        asked += [nbytes for _, nbytes in memory.requests if nbytes is not None]
        asked += [x.type if isinstance(x, Place) else x for _, x in registers]
        asked += [x for _, _, attributes in calls for x in attributes.values()]
        self.form, _, fields = write_form(replace(plan, inputs=(), outputs=(), steps=(), registers=()), numbers,
                                          self.trace, self.trace.guards, sizes=asked)
        _refuse_rounding(self.form.values)
        rest = iter(fields)
        self._plan, self._inputs, self._outputs = plan, next(rest), next(rest)
        self._requests = [(value, None if nbytes is None else next(rest)) for value, nbytes in memory.requests]
        self._registers = [(i, x, memory.value_at[id(x)] if isinstance(x, Place) and x.where == "arena" else None,
                            next(rest)) for i, x in registers]
        self._calls = [(i, call, {name: next(rest) for name in attributes}) for i, call, attributes in calls]

    def plan(self, numbers: Sequence[int]) -> Plan | None:
        """The plan of a program of the same shape-erased key with these numbers; None if the guards do not hold."""
        found = self.admitted(numbers)
        return None if found is None else self._filled(found[1])

    def _filled(self, values: Values) -> Plan:
        """The plan for the sizes that these values were computed from."""
        fields = _Fields(values, self.form.types)
        of = fields.of
        arena = arranged([(value, None if nbytes is None else of(nbytes)) for value, nbytes in self._requests])
        registers: list[Register] = list(self._plan.registers)
        for i, x, value, field in self._registers:
            registers[i] = of(field) if not isinstance(x, Place) else Place(
                x.where, x.index, x.offset if value is None else arena.offsets[value], of(field))
        steps = list(self._plan.steps)
        for i, call, attributes in self._calls:
            steps[i] = call._replace(attributes={
                **call.attributes, **{name: of(field) for name, field in attributes.items()}})
        return replace(self._plan, inputs=of(self._inputs), outputs=of(self._outputs), steps=tuple(steps),
                       arena_bytes=arena.size, max_live_bytes=arena.peak, registers=tuple(registers))


class _Fields:
    """What a form's fields are for these values; a type is made once."""

    def __init__(self, values: Values, types: Sequence[Entry]):
        self._values, self._types = values, types
        self._made: dict[int, TensorType] = {}

    def of(self, field: Field) -> Any:
        if field.__class__ is not list:
            return field
        kind = field[0]
        if kind == "$":
            return self._values[field[1]]
        if kind == "t":
            return self._made.get(field[1]) or self._type(field[1])
        if kind == "d":
            return Device(field[1])
        return tuple(map(self.of, field[1:]))

    def _type(self, number: int) -> TensorType:
        short, shape, device, weak = self._types[number]
        found = self._made[number] = tensor_type(tuple(map(self.of, shape)), dtype_named(short), Device(device), weak)
        return found


def _is_open(x: object) -> bool:
    """Whether a part of a plan may be another for other sizes."""
    if isinstance(x, tuple):
        return any(map(_is_open, x))
    if isinstance(x, Place):
        return x.where == "arena" or _is_open(x.type)
    if isinstance(x, TensorType):
        return any(size.__class__ is SymInt for size in x.shape)
    if isinstance(x, Graph):
        raise FixedSizes("a call has a program of its own")
    return isinstance(x, SymInt)


def _refuse_rounding(values: Sequence[Entry]) -> None:
    """Fractions are computed as in the formula's text, a quotient of two sizes or a product with one number: a sum or a
    longer product of them, whose order is another here, may be rounded otherwise.

    Raises:
        FixedSizes: there is one.
    """
    fractions: set[int] = set()
    for number, (kind, a, b) in enumerate(values):
        if kind == "/":
            fractions.add(number)
        elif kind == "+":
            factors = [factor for _, *several in b for factor in several]
            rounded = any(k.__class__ is float for k, *_ in b) or a.__class__ is float
            if (rounded and (a or len(factors) > 1)) or not fractions.isdisjoint(factors):
                raise FixedSizes("a fraction of its sizes is computed with")
            if rounded:
                fractions.add(number)
