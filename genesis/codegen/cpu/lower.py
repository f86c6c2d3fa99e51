"""Groups → calls of torch lowerings over planned memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from genesis.codegen.cpu.lowerings import LOWERINGS, Lowering, fold_numbers, lowering_for, torch_dtype
from genesis.codegen.cpu.lowerings.dtypes import is_in_range
from genesis.ir.graph import topological
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.ops.recompute import inputs_read
from genesis.ir.place import Place
from genesis.ir.source import Source, TextSource
from genesis.ir.types import DType, float32, float64, int64, tensor_type
from genesis.passes.graph.memory_order import in_order
from genesis.passes.groups import Group, Late, Schedule
from genesis.passes.memory.plan_memory import MemoryPlan
from genesis.runtime.plan import Call, Direct, NumberTensor, Register


def supports(node: Node) -> bool:
    """True for ops that run as a torch call."""
    if type(node.type) is not tuple and node.type.weak:
        return True
    if node.op.kind == "control":
        return node.op.name == "item"
    return _lowering_for(node) is not None


def is_view(node: Node) -> bool:
    """True for movement ops that torch runs without moving anything."""
    return LOWERINGS[node.op.name].kind == "view"


_uses: WeakKeyDictionary[Node, Counter[Node]] = WeakKeyDictionary()
"""How often each operand is one of an op with several results, which is asked for each result: an optimizer's update
has thousands."""

_lowerings: WeakKeyDictionary[Node, Lowering] = WeakKeyDictionary()
"""The rows of such ops."""


def _lowering(node: Node) -> Lowering:
    if type(node.type) is tuple:
        found = _lowerings.get(node)
        if found is None:
            found = _lowerings[node] = _row(node)
        return found
    return _row(node)


def _uses_of(node: Node, operand: Node) -> int:
    counted = _uses.get(node)
    if counted is None:
        counted = _uses[node] = Counter(node.inputs)
    return counted[operand]


def _lowering_for(node: Node) -> Lowering | None:
    """`lowering_for` a node; most rows ask for no types."""
    found = LOWERINGS.get(node.op.name)
    if found is None or found.supports is None:
        return found
    return lowering_for(node.op.name, tuple([x.type for x in node.inputs]), node.attributes)


def _row(node: Node) -> Lowering:
    found = _lowering_for(node)
    assert found is not None, f"no CPU lowering for {node.op.name}"
    return found


def may_overwrite(group: Group, output: Node, operand: Node) -> bool:
    """True if the lowering can write this output over this operand's memory."""
    if output.type is not operand.type or group.kind == "view":
        return False
    node = group.nodes[0]
    if LOWERINGS[node.op.name].kind == "fresh":
        return False
    row = _lowering(node)
    if row.writes_over is not None:
        return node.inputs[row.writes_over(node, output["index"])] is operand and _uses_of(node, operand) == 1
    places = [i for i, x in enumerate(node.inputs) if x is operand]
    return bool(row.in_place) and set(places).issubset(row.in_place)


def overwrites_late(group: Group) -> Late:
    """Whether the lowering has a form for a program's last calls (`Lowering.late`)."""
    node = group.nodes[0]
    if group.kind == "view":  # a view is made before; a reshape of a view may have to move the elements
        moves = node.op.name == "reshape" and node.inputs[0].op.kind == "movement"
        return Late.NEVER if moves else Late.ALWAYS
    row = _lowering(node)
    if row.kind != "out" or row.late is None:
        return Late.NEVER
    return Late.OF_EARLIER_VALUES if row.late_reads else Late.ALWAYS


def lower(schedule: Schedule, memory: MemoryPlan) -> tuple[tuple[Call, ...], tuple[Register, ...]]:
    """The calls that run a schedule, in order, and the registers they work on."""
    return _Lowerer(schedule, memory).run()


class _Form:
    """What calls of one op have in common whose operands have these types: a long program has few of them.

    Attributes:
        row: the op's lowering.
        attributes: the node's, by name.
        adopted: whether its results are in memory that the call allocates.
        computed_in: the dtype of numbers that the call takes as tensors.
        as_tensors: positions of such numbers, where they are literals or the plan's.
    """

    __slots__ = ("_direct", "_result", "_types", "adopted", "as_tensors", "attributes", "computed_in", "row")

    def __init__(self, node: Node, operands: Sequence[Node], row: Lowering):
        self.row, self.attributes = row, node.attributes
        self.adopted = row.kind == "fresh" and node.op.kind != "leaf"
        self._types = tuple([x.type for x in operands])
        self._result = node.type
        self._direct: dict[tuple[int, ...], Direct | None] = {}
        self.computed_in: DType | None = None
        self.as_tensors: tuple[int, ...] = ()
        places = [i for i in row.integers_as_tensors or row.as_tensors if self._types[i].weak]
        if places:
            self.computed_in = node.type.dtype if node.type.dtype.kind == "float" else next(
                (x.dtype for x in self._types if not x.weak), None)
            if self.computed_in is int64:  # a comparison's number may be a fraction
                places = [i for i in places if i in row.integers_as_tensors and self._types[i].dtype is int64]
            else:
                allowed = row.as_tensors if self.computed_in in (float32, float64) else ()
                places = [i for i in places if i in allowed]
            self.as_tensors = tuple(places)

    def direct(self, as_tensors: tuple[int, ...]) -> Direct | None:
        """The row's `direct`, if the call is that alone where these numbers come as tensors."""
        row = self.row
        if row.direct is None or row.direct_for is None:
            return row.direct
        if as_tensors not in self._direct:
            types = tuple([x if i not in as_tensors else tensor_type((), self._result.dtype)
                           for i, x in enumerate(self._types)])
            self._direct[as_tensors] = row.direct if row.direct_for(types, self.attributes) else None
        return self._direct[as_tensors]


class _Lowerer:
    def __init__(self, schedule: Schedule, memory: MemoryPlan):
        self.schedule, self.memory = schedule, memory
        self.registers: list[Register] = []
        self.of: dict[object, int] = {}
        self.calls: list[Call] = []
        self._forms: dict[tuple, _Form] = {}
        self._labels: dict[tuple[str, int], str] = {}
        self._lines: dict[Source | TextSource, str] = {}

    def run(self) -> tuple[tuple[Call, ...], tuple[Register, ...]]:
        memory = self.memory
        after_group: dict[int, list[tuple[Node, Place]]] = {}
        for at, value, place in memory.copies:
            after_group.setdefault(at, []).append((value, place))
        for source, target in memory.before:
            self._copy(self._place(source), target)
        for at, group in enumerate(self.schedule.groups):
            self._group(group)
            for value, place in after_group.get(at, ()):
                self._copy(self._value(value), place)
        # What is in a place at the end; few programs copy then, and a place's hash is that of all its fields.
        held = {place: node for node, place in memory.places.items()} if memory.after else {}
        for source, target in memory.after:
            self._copy(self._value(held[source]) if source in held else self._place(source), target)
        return tuple(self.calls), tuple(self.registers)

    def _register(self, key: object, start: Register) -> int:
        found = self.of.get(key)
        if found is None:
            found = self.of[key] = len(self.registers)
            self.registers.append(start)
        return found

    def _place(self, place: Place) -> int:
        return self._register(place, place)

    def _value(self, node: Node) -> int:
        """The register of a value: its place, or what a view or an adopting call puts there."""
        found = self.of.get(node)
        if found is not None:  # as its writer found it: whether that is adopted is asked once
            return found
        place = self.memory.places.get(node)
        return self._result(node, place is not None and place.where == "arena" and self._adopted(node))

    def _result(self, node: Node, adopted: bool) -> int:
        """The register of a value that a call allocates if it is `adopted`."""
        found = self.of.get(node)
        if found is None:
            place = self.memory.places.get(node)
            if place is None or place.where == "arena":
                return self._register(node, None if adopted else place)
            found = self.of[node] = self._place(place)
        return found

    def _adopted(self, node: Node) -> bool:
        maker = node.inputs[0] if node.op.name == "item" else node
        return maker.op.kind != "leaf" and _lowering(maker).kind == "fresh"

    def _operand(self, node: Node) -> int:
        if not node.type.weak:
            return self._value(node)
        if node not in self.of:
            for number in topological([node]) if node.inputs else (node,):  # operands first: a formula may be long
                if number not in self.of:
                    self._number(number)
        return self.of[node]

    def _number(self, node: Node) -> None:
        """The register of a number whose operands have theirs."""
        if node.op is leaves.const:
            self._register(node, node["value"])
        elif node.op is leaves.scalar:
            self._register(node, Place("numbers", node["index"], 8 * node["index"], node.type))
        else:
            args = tuple(self.of[x] for x in node.inputs)
            self.calls.append(Call(partial(fold_numbers, node.op), args, (self._register(node, None),), "number",
                                   node.attributes, node.op.name))

    def _group(self, group: Group) -> None:
        node, of = group.nodes[0], self.of
        operands = inputs_read(node)
        form = self._form(node, operands)
        row = form.row
        as_tensors = self._numbers_as_tensors(operands, form) if form.as_tensors else {}
        if as_tensors:
            args = tuple([as_tensors[i] if i in as_tensors else self._operand(x) for i, x in enumerate(operands)])
        else:
            args = tuple([of[x] if x in of else self._operand(x) for x in operands])
        outs = tuple([self._result(output, form.adopted) for output in group.outputs])
        label, source = self._label(node), node.source
        if row.kind != "fresh":
            kind = "made" if row.allocates and self._only_returned(group) and all(
                x.type.weak or in_order(x) for x in operands) else row.kind
            self.calls.append(Call(row.function, args, outs, kind, form.attributes, label, row.late,
                                   form.direct(tuple(as_tensors)), source))
            return
        # what the call allocates becomes an output's memory or stands for a value; what it updates is copied to
        made = tuple(self._register(("fresh", output), None) if self._updates(output) else register
                     for output, register in zip(group.outputs, outs, strict=True))
        function = row.function if node.op.kind != "collective" else partial(row.function, line=str(node.source or ""))
        self.calls.append(Call(function, args, made, "fresh", form.attributes, label, source=source))
        for register, fresh in zip(outs, made, strict=True):
            if fresh != register:
                self.calls.append(Call(_copy, (fresh,), (register,), "out", label="copy", late=_copy_late))

    def _form(self, node: Node, operands: Sequence[Node]) -> _Form:
        """What the node's call has in common with others. Attributes that are equal are not always the same, as 1 and
        1.0 are not: they are told apart by their classes."""
        if type(node.type) is tuple:  # an optimizer's update of thousands: there are few of them
            return _Form(node, operands, _lowering(node))
        attrs = node.attrs
        key = (node.op, node.type, attrs, *map(type, attrs), *[x.type for x in operands])
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = _Form(node, operands, _row(node))
        return found

    def _label(self, node: Node) -> str:
        """The op and the user's line, which is looked for once: going through a function's lines takes microseconds."""
        source, name = node.source, node.op.name
        if source is None:
            return name
        key = name, id(source)  # nodes hold their sources
        label = self._labels.get(key)
        if label is None:
            line = self._lines.get(source)
            if line is None:
                line = self._lines[source] = str(source)
            label = self._labels[key] = f"{name}  # {line}"
        return label

    def _numbers_as_tensors(self, operands: Sequence[Node], form: _Form) -> dict[int, int]:
        """Position → register of the numbers among the operands that the call takes as tensors."""
        found, computed_in = {}, form.computed_in
        assert computed_in is not None
        for i in form.as_tensors:
            number = operands[i]
            if number.op is leaves.const:
                value = number["value"]
                if value.__class__ not in (bool, int, float):  # a symbolic size's is filled in later
                    continue
                if form.row.refuses_far and not is_in_range(value, torch_dtype(computed_in)):
                    continue
            elif number.op is not leaves.scalar or form.row.refuses_far:
                continue
            else:
                value = self.registers[self._operand(number)]
            key = number, computed_in
            register = self.of.get(key)
            found[i] = self._register(key, NumberTensor(value, computed_in)) if register is None else register
        return found

    def _only_returned(self, group: Group) -> bool:
        """May the call allocate its results? They are all outputs, and the program changes no memory that it is given:
        one that does has all the memory that it needs before its first call."""
        where = self.memory.places.get
        places = []
        if self.schedule.graph.updates:
            return False
        for output in group.outputs:
            place = where(output)
            if place is None or place.where != "output":
                return False
            places.append(place)
        return all(where(x) not in places for x in group.inputs)

    def _updates(self, node: Node) -> bool:
        place = self.memory.places.get(node)
        return place is not None and place.where == "input"

    def _copy(self, source: int, target: Place) -> None:
        self.calls.append(Call(_copy, (source,), (self._place(target),), "out", label="copy", late=_copy_late))


def _copy(outs: tuple, source: object) -> None:
    outs[0].copy_(source)


def _copy_late(outs: tuple, source: Any) -> list[Callable[[], Any]]:
    return [partial(outs[0].copy_, source)]
