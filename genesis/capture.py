"""From live nodes to a program: which nodes a flush needs, its structural key, and its graph.

The key is made at every flush and decides whether a plan exists, so it is the hot path of a step
that was seen before; the graph is made only when there is none. Addresses and number values are
not in the key: memories and numbers are the program's inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from genesis.ir.graph import Graph
from genesis.ir.node import Node, located, make
from genesis.ir.ops import control, leaves
from genesis.ir.types import TensorType
from genesis.storage import Cell


@dataclass
class Captured:
    """What a flush computes.

    Attributes:
        order: the nodes it needs, operands before users; computed ones stand for their memory.
        known: computed nodes of `order` whose structure is needed too, to differentiate through.
        cells: the contents that it reads or overwrites, each once.
        memory_types: the type of the whole value in each memory.
        numbers: values of the user's numbers, one for each use.
        number_nodes: the `number` node of each.
        key: the structure, equal for equal programs.
    """

    order: list[Node]
    known: set[Node]
    cells: list[Cell]
    memory_types: list[TensorType]
    numbers: list[Any]
    number_nodes: list[Node]
    key: tuple
    outputs: Sequence[Node]
    updates: Sequence[tuple[Cell, Node]]
    snapshots: Sequence[tuple[Cell, TensorType]]

    @property
    def memories(self) -> list[Any]:
        """The memories of the cells, as the plan takes them."""
        return [cell.memory for cell in self.cells]


def computed(node: Node) -> bool:
    """True if the node's value is in memory."""
    cell = node.buffer
    return cell is not None and cell.memory is not None


def walk(roots: Iterable[Node], through: set[Node] | None = None) -> dict[Node, None]:
    """The nodes that the roots need, operands before users, stopping at computed ones.

    Computed nodes in `through` are not stopped at.
    """
    order: dict[Node, None] = {}
    for root in roots:
        if root in order:
            continue
        stack = [root]
        while stack:
            node = stack[-1]
            if node in order:
                stack.pop()
                continue
            inputs = node.inputs
            if inputs:
                cell = node.buffer
                if cell is None or cell.memory is None or (through is not None and node in through):
                    waiting = [x for x in inputs if x not in order]
                    if waiting:
                        waiting.reverse()
                        stack.extend(waiting)
                        continue
            order[node] = None
            stack.pop()
    return order


def differentiated(order: Iterable[Node]) -> set[Node]:
    """Computed nodes that a recorded `grad` differentiates through."""
    starts = [y for node in order if node.op is control.grad for y in node.inputs[:node.attrs[0]]]
    seen: set[Node] = set()
    found: set[Node] = set()
    while starts:
        node = starts.pop()
        if node in seen or not node.needs_grad:
            continue
        seen.add(node)
        if node.inputs:
            if node.buffer is not None and node.buffer.memory is not None:
                found.add(node)
            starts.extend(node.inputs)
    return found


def program(roots: Sequence[Node]) -> tuple[dict[Node, None], set[Node]]:
    """The nodes that the roots need, in order, and the computed ones among them to differentiate through."""
    order = walk(roots)
    if any(node.op is control.grad for node in order):
        through = differentiated(order)
        if through:
            order = walk(roots, through)
            return order, {node for node in order if node in through}
    return order, set()


def capture(outputs: Sequence[Node], updates: Sequence[tuple[Cell, Node]],
            snapshots: Sequence[tuple[Cell, TensorType]]) -> Captured:
    """The program that computes the outputs, writes the updates' values to their memories, and
    returns copies of the snapshots' memories as they were before.

    A leaf whose memory was overwritten becomes a `lost` node: compiling raises if anything needs it.
    """
    visited, known = program([*outputs, *(node for _, node in updates)])
    position: dict[Node, int] = {}
    cells: list[Cell] = []
    memory_types: list[TensorType] = []
    cell_index: dict[Cell, int] = {}
    numbers: list[Any] = []
    number_nodes: list[Node] = []
    key: list[Any] = []
    watches: dict[Any, int] = {}
    append = key.append

    def input_of(cell: Cell, type: TensorType) -> int:
        index = cell_index.get(cell)
        if index is None:
            index = cell_index[cell] = len(cells)
            cells.append(cell)
            memory_types.append(type)
            append(type)
        return index

    order = list(visited)
    number_op, watch_op = leaves.number, control.watch
    for node in order:
        op = node.op
        if op is number_op:  # no position: whether two numbers are equal, and so one node, is not structure
            continue
        position[node] = len(position)
        cell = node.buffer
        if cell is not None and cell.memory is not None:
            append(input_of(cell, node.type))
            if node not in known:
                continue
        append(op)
        if op is watch_op:
            append(watches.setdefault(node.attrs[0], len(watches)))
        else:
            append(node.attrs)
        for x in node.inputs:
            if x.op is number_op:
                append(x.type)
                numbers.append(x.attrs[0])
                number_nodes.append(x)
            else:
                append(position[x])
        if not node.inputs:
            append(node.type)
    key.append(tuple([position[node] for node in outputs]))
    for cell, node in updates:
        append(input_of(cell, node.type))
        append(position[node])
    append("|")
    for cell, type in snapshots:
        append(input_of(cell, type))
    return Captured(order, known, cells, memory_types, numbers, number_nodes, tuple(key), outputs, updates, snapshots)


def build_graph(captured: Captured) -> Graph:
    """The captured program over `input` and `scalar` nodes."""
    inputs = _inputs(captured)
    index_of = {cell: i for i, cell in enumerate(captured.cells)}
    built = build_nodes(captured)
    outputs = tuple(built[node] for node in captured.outputs)
    kept = tuple(inputs[index_of[cell]] for cell, _ in captured.snapshots)
    updates = tuple((inputs[index_of[cell]], built[node]) for cell, node in captured.updates)
    return Graph(tuple(inputs), outputs + kept, updates, len(captured.numbers))


def _inputs(captured: Captured) -> list[Node]:
    return [make(leaves.input, (), (i, type)) for i, type in enumerate(captured.memory_types)]


def build_nodes(captured: Captured) -> dict[Node, Node]:
    """For each captured node its node over `input` and `scalar` nodes."""
    inputs = _inputs(captured)
    index_of = {cell: i for i, cell in enumerate(captured.cells)}
    built: dict[Node, Node] = {}
    watches: dict[Any, int] = {}
    count = 0
    for node in captured.order:
        if node.op is leaves.number:
            continue
        has_value = computed(node)
        if node.op is leaves.data and not has_value:
            built[node] = make(control.lost, (), (node.type,))
            continue
        if has_value and node not in captured.known:
            built[node] = inputs[index_of[node.buffer]]
            continue
        operands = []
        for x in node.inputs:
            if x.op is leaves.number:
                operands.append(make(leaves.scalar, (), (count, x.type)))
                count += 1
            else:
                operands.append(built[x])
        attrs = (watches.setdefault(node.attrs[0], len(watches)),) if node.op is control.watch else node.attrs
        made = make(node.op, tuple(operands), attrs, node.source)
        if has_value:
            with located(node.source):
                made = make(control.known, (made, inputs[index_of[node.buffer]]))
        built[node] = made
    return built
