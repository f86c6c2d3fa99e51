"""The text of a captured program over symbolic sizes: another process reads it, and has the program of any size.

It is a JSON object. What the program is stands in it once; what its sizes are stands in formulas, as in the form of a
plan (`runtime/plan_form.py`). Reading it for some values of the symbols gives what capturing a program of these sizes
gives (`Captured`), which is compiled as that is: with symbols of its own, and with guards of its own.

    values:   [["symbol", "n0", null], ["+", 0, [[4, 0]]], …]        entry 1 is 4·n0
    types:    [["f32", [["$", 0], 8], "cuda:0", false], …]           of memories, numbers, and what is made from nothing
    nodes:    [["data", 0], ["mul", [0, ["n", 3]], …, ["()"], …]]     operands before users

A node in memory is [op, memory]; any other is [op, operands, memory or null, attributes, source], and an operand that
is a number of the user's is ["n", type].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from genesis.engine.capture import Captured
from genesis.engine.symbolic.plan_writer import FormWriter
from genesis.engine.symbolic.shape_erased_key import NotWritable
from genesis.frontend.storage import Cell, overwriting
from genesis.ir.graph import Graph
from genesis.ir.node import Node, Op, make, op_named, told_apart, unique
from genesis.ir.ops import leaves
from genesis.ir.ops.checked import line_of
from genesis.ir.result_types import result_type
from genesis.ir.source import SentSource, Source, TextSource
from genesis.ir.types import Device, DType, TensorType, dtype_named, tensor_type
from genesis.ir.walk import computed
from genesis.runtime.plan_form import evaluated
from genesis.runtime.stored_form import Entry, Field, Stored

FORMAT: Final = 1
"""Version of the texts: who writes one and who reads it are of one version."""

PARTS: Final = ("values", "types", "graphs", "memories", "nodes", "outputs", "overwritten", "written", "snapshots",
                "key")
"""What a text has, by name."""


def write_program(captured: Captured, key: Sequence[object]) -> Stored:
    """The text of a captured program.

    Args:
        key: as `captured.key`, with symbolic sizes where there are any (`SymbolicProgram.key`): of this program, or of
            another one of its shape-erased key.

    Raises:
        NotWritable: some attribute has no text, or the program is a piece of a loop whose values are in several nodes.
    """
    if captured.twins or captured.moving:
        raise NotWritable("nodes that share a memory")
    writer = _ProgramWriter()
    memory_of: dict[Cell, int] = {cell: i for i, cell in enumerate(captured.cells)}
    first = len(captured.memory_types)
    items: list[Field] = []
    placed = {at: node for node, at in captured.op_at.items()}
    numbered = {node: i for i, node in enumerate(captured.order)}
    attributes: dict[Node, Field] = {}
    skip = -1
    for at in range(first, len(key)):
        item, node = key[at], placed.get(at)
        if node is not None:
            items.append(["op", numbered[node]])
            if captured.key[at + 1] is node.attrs:
                attributes[node] = writer.field(key[at + 1])
                items.append(["a", numbered[node]])
                skip = at + 1
        elif at != skip:
            items.append(writer.field(item))
    rows: list[Field] = []
    for node in captured.order:
        memory = memory_of[node.buffer] if computed(node) else None
        if memory is not None and node not in captured.known:
            rows.append([node.op.name, memory])
            continue
        operands = [["n", writer.field(x.type)] if x.op is leaves.number else numbered[x] for x in node.inputs]
        given = attributes[node] if node in attributes else writer.field(node.attrs)
        rows.append([node.op.name, operands, memory, given, writer.source(node.source)])
    return {"format": FORMAT, "memories": [writer.field(type) for type in key[:first]], "nodes": rows,
            "outputs": [numbered[node] for node in captured.outputs],
            "overwritten": [memory_of[cell] for cell in captured.overwritten],
            "written": [numbered[node] for node in captured.written],
            "snapshots": [memory_of[cell] for cell, _ in captured.snapshots], "key": items,
            "values": writer.values, "types": writer.types, "graphs": writer.graphs}


class _ProgramWriter(FormWriter):
    """Writes attributes of a program: what a plan has, and dtypes and graphs besides."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[Entry] = []
        self._lines: dict[tuple[int, int], Field] = {}

    def field(self, x: Field) -> Field:
        if isinstance(x, tuple):
            return ["()", *map(self.field, x)]
        if x.__class__ is DType:
            return ["y", x.short]
        if x.__class__ is Graph:
            return ["g", self._numbered(x, self.graphs, lambda: self._graph(x))]
        try:
            return super().field(x)
        except TypeError as error:
            raise NotWritable(str(error)) from error

    def source(self, source: Source | TextSource | None) -> Field:
        """A line of the user's, written once for all ops that it records."""
        if source is None:
            return None
        if not isinstance(source, Source):
            return [line_of(source), source.called]
        place = id(source._code), source._offset
        found = self._lines.get(place)
        if found is None:
            found = self._lines[place] = [line_of(source), ""]
        return [found[0], source.called] if source.called else found

    def _graph(self, graph: Graph) -> Entry:
        """The graph of a call: all of its nodes are [op, operands, null, attributes, source]."""
        at = {node: i for i, node in enumerate(graph.nodes)}
        rows = [[node.op.name, [at[x] for x in node.inputs], None, self.field(node.attrs), self.source(node.source)]
                for node in graph.nodes]
        return [rows, [at[x] for x in graph.inputs], [at[x] for x in graph.outputs],
                [[at[x], at[y]] for x, y in graph.updates], graph.numbers]


@dataclass(frozen=True)
class ProgramText:
    """A program that was read.

    Attributes:
        stored: what `write_program` gave.
    """

    stored: Stored

    def at(self, sizes: dict[str, int]) -> Captured:
        """The captured program for these values of the symbols.

        Raises:
            RuntimeError, TypeError, ValueError, IndexError, ...: what ops say of shapes, where no program of this
                structure has such sizes.
        """
        return _Reader(self.stored, sizes).captured()


def read_program(stored: Stored) -> ProgramText:
    """The program that `write_program` wrote.

    Raises:
        ValueError: it is of another version, or no text of a program.
    """
    if stored.get("format") != FORMAT or any(not isinstance(stored.get(part), list) for part in PARTS):
        raise ValueError("no text of a program, or of another version")
    return ProgramText(stored)


class _Reader:
    """Makes the nodes of a text for some sizes."""

    def __init__(self, stored: Stored, sizes: dict[str, int]):
        self._stored = stored
        self._values = evaluated(stored["values"], sizes)
        self._types = [tensor_type(tuple(map(self._field, shape)), dtype_named(dtype), Device(device), weak=weak)
                       for dtype, shape, device, weak in stored["types"]]
        self._graphs: dict[int, Graph] = {}

    def captured(self) -> Captured:
        """The program."""
        stored = self._stored
        memories = [cast(TensorType, self._field(x)) for x in stored["memories"]]
        cells = [overwriting(object(), None, 0, 0) for _ in memories]
        order: list[Node] = []
        known: set[Node] = set()
        number_nodes: list[Node] = []
        for row in stored["nodes"]:
            order.append(self._node(row, order, cells, memories, known, number_nodes))
        return Captured(
            order, known, cells, memories, [0] * len(number_nodes), number_nodes,
            (*memories, *self._key(order)), [order[i] for i in stored["outputs"]],
            [cells[i] for i in stored["overwritten"]], [order[i] for i in stored["written"]],
            [(cells[i], memories[i]) for i in stored["snapshots"]])

    def _node(self, row: Entry, order: list[Node], cells: list[Cell], memories: list[TensorType], known: set[Node],
              number_nodes: list[Node]) -> Node:
        if len(row) == 2:
            name, memory = row
            made = unique(op_named(name), (), (), memories[memory])
            made.buffer = cells[memory]
            return made
        name, given, memory, attributes, source = row
        operands = []
        for x in given:
            if x.__class__ is int:
                operands.append(order[x])
            else:
                number_nodes.append(unique(leaves.number, (), (0,), cast(TensorType, self._field(x[1]))))
                operands.append(number_nodes[-1])
        op, inputs = op_named(name), tuple(operands)
        attrs = self._attributes(op, attributes)
        made = unique(op, inputs, attrs, result_type(op, inputs, attrs), _source(source))
        if memory is not None:
            made.buffer = cells[memory]
            known.add(made)
        return made

    def _key(self, order: Sequence[Node]) -> list[object]:
        found: list[object] = []
        for item in self._stored["key"]:
            if item.__class__ is list and item[0] == "op":
                found.append(order[item[1]].op)
            elif item.__class__ is list and item[0] == "a":
                found.append(order[item[1]].attrs)
            else:
                found.append(self._field(item))
        return found

    def _attributes(self, op: Op, written: Entry) -> tuple:
        found = cast(tuple, self._field(written))
        return told_apart(found) if op.has_floats else found

    def _field(self, x: Field) -> Field:
        if x.__class__ is not list:
            return x
        kind = x[0]
        if kind == "$":
            return self._values[x[1]]
        if kind == "()":
            return tuple(map(self._field, x[1:]))
        if kind == "t":
            return self._types[x[1]]
        if kind == "y":
            return dtype_named(x[1])
        if kind == "d":
            return Device(x[1])
        if kind == "g":
            found = self._graphs.get(x[1])
            if found is None:
                found = self._graphs[x[1]] = self._graph(self._stored["graphs"][x[1]])
            return found
        raise ValueError(f"a program has no {kind!r}")

    def _graph(self, written: Entry) -> Graph:
        rows, inputs, outputs, updates, numbers = written
        made: list[Node] = []
        for name, operands, _, attributes, source in rows:
            op = op_named(name)
            made.append(make(op, tuple([made[i] for i in operands]), self._attributes(op, attributes),
                             _source(source)))
        return Graph(tuple([made[i] for i in inputs]), tuple([made[i] for i in outputs]),
                     tuple([(made[i], made[j]) for i, j in updates]), numbers)


def _source(written: Field) -> SentSource | None:
    return None if written is None else SentSource(*written)


